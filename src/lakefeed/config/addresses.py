"""The places that a pipeline's rows go to, and the logins that cross a network to get there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import urlsplit

from lakefeed.config.connections import is_loopback

Use = Literal["rows", "dead letters", "source"]


@dataclass(frozen=True)
class Place:
    """A place that a pipeline names.

    Attributes:
        key: the setting that names it, as ``sink.iceberg.table``; of a sink's own places the option, as ``table``.
        kind: a table, a topic and so on.
        name: one spelling for all names of the place.
        feed: the name of the feed, where each topic is one.
        servers: addresses of which one is enough to reach it; none where the name says it all.
    """

    key: str
    kind: str
    name: str
    use: Use = "rows"
    feed: str = ""
    servers: frozenset[str] = field(default=frozenset(), kw_only=True)

    def mixes_with(self, other: Place) -> bool:
        """Return whether rows would mix: only feeds of different names may keep their dead letters together."""
        if (self.kind, self.name) != (other.kind, other.name):
            return False
        is_one_server = self.servers == other.servers or bool(self.servers & other.servers)
        return is_one_server and not (self.use == other.use == "dead letters" and self.feed != other.feed)


@dataclass(frozen=True)
class PlainTextLogin:
    """A login that crosses a network, or may, without TLS.

    Attributes:
        key: the setting with the address; of a sink the option, as ``url``.
        address: where the login goes.
        why: a clause that follows "the login".
        hint: what to do next.
    """

    key: str
    address: str
    why: str
    hint: str


def over_http(key: str, urls: Iterable[str]) -> Iterator[PlainTextLogin]:
    """Yield the login to each address of another machine that begins with http://."""
    for url in urls:
        parts = urlsplit(url)
        if parts.scheme == "http" and not is_loopback(parts.hostname):
            why = "goes over the network as plain text, since the address begins with http://"
            yield PlainTextLogin(key, url, why, "use https://")


def without_required_tls(key: str, url: str, host: str | None, *, parameter: str) -> Iterator[PlainTextLogin]:
    """Yield the login to a database on another machine, whose URL lacks this parameter."""
    if not is_loopback(host):
        why = "may go over the network as plain text, since the URL does not require TLS"
        yield PlainTextLogin(key, url, why, f"add the parameter {parameter}=verify-full to the URL")


def servers_of(brokers: str) -> frozenset[str]:
    """Return the addresses of brokers in one spelling."""
    return frozenset(server.strip().casefold() for server in brokers.split(",") if server.strip())


def spell_path(path: str) -> str:
    """Return one spelling of a path: S3A and file systems take several slashes for one."""
    scheme, _, rest = path.partition("://") if "://" in path else ("file", "", path.removeprefix("file:"))
    return f"{'s3a' if scheme == 's3' else scheme}://{'/'.join(part for part in rest.split('/') if part)}"
