"""The tables, topics and paths that a pipeline names, and the logins that are sent over a network."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple
from urllib.parse import urlsplit

Use = Literal["rows", "dead letters", "source"]


@dataclass(frozen=True)
class Place:
    """A table, topic or path that a pipeline names.

    Attributes:
        key: the setting that names the place, such as ``sink.iceberg.table``; in a sink's ``places``, only ``table``.
        kind: table, topic, path and so on.
        name: the place's name in a normalized spelling.
        feed: the feed's name if the pipeline has a feed for each topic; else empty.
        servers: the addresses of the servers that have the place; empty if the name alone identifies it.
    """

    key: str
    kind: str
    name: str
    use: Use = "rows"
    feed: str = ""
    servers: frozenset[str] = field(default=frozenset(), kw_only=True)

    def mixes_with(self, other: Place) -> bool:
        """Return whether rows of two places would mix. Dead letters of feeds with different names may share a place."""
        if (self.kind, self.name) != (other.kind, other.name):
            return False
        is_one_server = self.servers == other.servers or bool(self.servers & other.servers)
        return is_one_server and not (self.use == other.use == "dead letters" and self.feed != other.feed)


@dataclass(frozen=True)
class PlainTextLogin:
    """A login that is or may be sent over a network without TLS.

    Attributes:
        key: the setting with the address, such as ``sink.jdbc.url``; only ``url`` in a sink's ``plain_text_logins``.
        address: the address of the server that receives the login.
        why: the end of the message's sentence, which begins "the login".
        hint: what to do next.
    """

    key: str
    address: str
    why: str
    hint: str


def is_loopback(host: str | None) -> bool:
    """Return whether requests to the host do not leave this machine."""
    if host is None or host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def over_http(key: str, urls: Iterable[str]) -> Iterator[PlainTextLogin]:
    """Yield a ``PlainTextLogin`` for each address that begins with http:// and names another machine."""
    for url in urls:
        parts = urlsplit(url)
        if parts.scheme == "http" and not is_loopback(parts.hostname):
            why = "goes over the network as plain text, since the address begins with http://"
            yield PlainTextLogin(key, url, why, "use https://")


def without_required_tls(key: str, url: str, host: str | None, *, parameter: str) -> Iterator[PlainTextLogin]:
    """Yield a ``PlainTextLogin`` if the URL names a database on another machine and lacks ``parameter``."""
    if not is_loopback(host):
        why = "may go over the network as plain text, since the URL does not require TLS"
        yield PlainTextLogin(key, url, why, f"add the parameter {parameter}=verify-full to the URL")


def servers_of(brokers: str) -> frozenset[str]:
    """Return the brokers' addresses in a normalized spelling."""
    return frozenset(server.strip().casefold() for server in brokers.split(",") if server.strip())


def spell_path(path: str) -> str:
    """Return a path in a normalized spelling, without repeated slashes: S3A and file systems read them as one."""
    scheme, _, rest = path.partition("://") if "://" in path else ("file", "", path.removeprefix("file:"))
    return f"{'s3a' if scheme == 's3' else scheme}://{'/'.join(part for part in rest.split('/') if part)}"


FORMS = "s3a://bucket/path; or on this machine /path, file:///path"
_STORE = re.compile(r"s3a?://([a-z0-9][a-z0-9.-]{1,61}[a-z0-9])/(.+)")
# Characters that a path must not have: Hadoop reads some of them as wildcards, the rest have a meaning in URLs.
_SIGNS = re.compile(r"[?#*{}\[\]\\%\x00-\x1f\x7f]")


def is_local(path: str | None) -> bool:
    return path is not None and path.startswith(("/", "~/", "file:"))


def local_path(path: str) -> str:
    """Return a folder of this machine as ``file:///path``, without a slash at its end; ``~`` is the user's home."""
    rest = path.removeprefix("file:")
    if path.startswith("file:") and rest.startswith("//"):
        # A URL file://host/path names this machine only if the host is empty.
        rest = rest.removeprefix("//")
    if rest.startswith("~/"):
        try:
            rest = str(Path(rest).expanduser())
        except RuntimeError:
            raise ValueError("this user has no home folder, which '~' stands for") from None
    parts = [part for part in rest.split("/") if part not in ("", ".")]
    if not rest.startswith("/") or not parts:
        raise ValueError("a folder of this machine is written as /path or file:///path")
    if ".." in parts:
        raise ValueError("write the folder without '..'")
    if (sign := _SIGNS.search(rest)) is not None:
        raise ValueError(f"rename the folder: Spark and Iceberg misread the character {sign[0]!r} in its name")
    return f"file:///{'/'.join(parts)}"


def storage_path(path: str) -> str:
    """Return a path as ``s3a://bucket/key`` or ``file:///path``, without a slash at its end."""
    if is_local(path):
        return local_path(path)
    match = _STORE.fullmatch(path)
    if not match or ".." in match[2].split("/"):
        raise ValueError(f"write it as {FORMS}")
    return f"s3a://{match[1]}/{match[2].rstrip('/')}"


def local_folder(path: str) -> Path:
    """Return the folder of this machine that a local path names; ``is_local(path)`` must be true."""
    return Path(local_path(path).removeprefix("file://"))


class DatasetName(NamedTuple):
    """A dataset's name for lineage: the system that has the dataset, and the name in this system."""

    namespace: str
    name: str


def topic_name(servers: str, topic: str) -> DatasetName:
    """Return a topic's dataset name; the first broker names the cluster, as in OpenLineage's integrations."""
    first = servers.split(",")[0].strip().rpartition("://")[2]
    return DatasetName(f"kafka://{first}", topic)


def path_name(path: str) -> DatasetName:
    """Return the dataset name of a path in a store or a file system."""
    parts = urlsplit(path)
    scheme = "s3" if parts.scheme == "s3a" else parts.scheme
    if not parts.netloc:
        return DatasetName(scheme or "file", parts.path or "/")
    return DatasetName(f"{scheme}://{parts.netloc}", parts.path.strip("/"))
