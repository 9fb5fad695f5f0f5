"""The block of a pipeline file that says who may see and steer the feed in a browser, and where."""

from __future__ import annotations

import re
from collections.abc import Iterator
from ipaddress import ip_address
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import Field, SecretStr

from lakefeed.config.base import ConfigProblem, Model, checked
from lakefeed.config.blocks import Block
from lakefeed_dashboard.panel_settings import Preset, QueryPanels, Tariff

Role = Literal["viewer", "operator"]
DEFAULT_PORT = 8380
SHORTEST_TOKEN = 20

_HASH = re.compile(
    r"\$argon2id\$v=19\$m=(?P<memory>\d{1,8}),t=(?P<passes>\d{1,4}),p=(?P<lanes>\d{1,3})"
    r"\$[A-Za-z0-9+/]{11,}\$[A-Za-z0-9+/]{22,}"
)
_LEAST_MEMORY_KIB, _MOST_MEMORY_KIB = 7_168, 1_048_576
_HOST = re.compile(r"[A-Za-z0-9._-]{1,253}")
_NAME = r"[^\x00-\x20\x7f-\x9f]([^\x00-\x1f\x7f-\x9f]{0,46}[^\x00-\x20\x7f-\x9f])?"


def is_loopback(host: str) -> bool:
    """Return whether an address is reached from this machine alone."""
    if host.lower().rstrip(".") == "localhost":
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def _is_ipv6(host: str) -> bool:
    try:
        return ip_address(host.removeprefix("[").removesuffix("]")).version == 6
    except ValueError:
        return False


def _require_host(host: str) -> None:
    if not _HOST.fullmatch(host) and not _is_ipv6(host):
        raise ValueError("a host is a name or an address, without a port")


def _require_hash(text: SecretStr) -> None:
    found = _HASH.fullmatch(text.get_secret_value())
    if found is None:
        raise ValueError("this is no argon2id hash: make one with lakefeed dashboard hash-password")
    if not _LEAST_MEMORY_KIB <= int(found["memory"]) <= _MOST_MEMORY_KIB or int(found["passes"]) > 100:
        raise ValueError("an argon2id hash takes 7 MB to 1 GB of memory, and at most 100 passes")


def _require_url(url: str) -> None:
    try:
        parts = urlsplit(url)
        is_url = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_url = False
    if not is_url or parts.path not in ("", "/") or parts.query or parts.fragment or "@" in parts.netloc:
        raise ValueError("a public URL is https://host or https://host:port, without a path")


def _require_token(token: SecretStr) -> None:
    text = token.get_secret_value()
    if len(text) < SHORTEST_TOKEN or not re.fullmatch(r"[\x21-\x7e]+", text):
        raise ValueError(f"a token has {SHORTEST_TOKEN} letters at least, without spaces: openssl rand -base64 32")


Host = Annotated[str, checked(_require_host)]
UserName = Annotated[str, Field(min_length=1, max_length=48, pattern=f"^{_NAME}$")]


class DashboardTls(Model):
    """The server's certificate."""

    certificate: str = Field(min_length=1, description="File in PEM: the certificate, and those between it and the CA.")
    key: str = Field(min_length=1, description="File in PEM with its private key, without a passphrase.")


class DashboardToken(Model):
    """A token for programs, sent as 'Authorization: Bearer'."""

    name: UserName
    """Stands in the log of actions."""
    token: Annotated[SecretStr, checked(_require_token)]
    """20 letters at least, random; give it as ${NAME}."""
    role: Role = Field("viewer", description="A viewer sees all; an operator may also act.")


class DashboardUser(Model):
    """A user who logs in with a password."""

    name: UserName
    """The name to log in with; it stands in the log of actions."""
    password_hash: Annotated[SecretStr, checked(_require_hash)]
    """Hash by argon2id: lakefeed dashboard hash-password prints it."""
    role: Role = Field("viewer", description="A viewer sees all; an operator may also act.")


class Dashboard(Block):
    """The web dashboard, served by the feed's driver while it runs."""

    host: Host = Field("127.0.0.1", description="Address to listen on. On another than loopback a login is required.")
    port: int = Field(DEFAULT_PORT, ge=0, le=65535, description="0 takes a free port.")
    tls: DashboardTls | None = None
    """Serve HTTPS. Required on another address than loopback, unless a proxy does it (behind_proxy)."""
    behind_proxy: bool = False
    """A reverse proxy ends TLS, and is the only one that reaches the port. The address of a client is then the last one
    of X-Forwarded-For."""
    public_url: Annotated[str, checked(_require_url)] | None = None
    """Where browsers reach the dashboard, such as https://feeds.example.org. Required with behind_proxy."""
    allowed_hosts: list[Host] = Field(default_factory=list)
    """Further names by which browsers reach it: requests for other names are refused."""
    users: list[DashboardUser] = Field(default_factory=list)
    """People, who log in with a password. With users or tokens a login is required on loopback too."""
    tokens: list[DashboardToken] = Field(default_factory=list)
    """Programs; people may log in with a token, too."""
    panels: QueryPanels = Field(default_factory=list)
    """Charts and tables over views, Iceberg tables and SQL, queried while a user looks at them."""
    tariff: Tariff | Preset | None = None
    """Prices of requests to S3, or the name of a preset. Default: requests without a price."""
    session_hours: float = Field(12, gt=0, le=24 * 30, description="After so many hours a user logs in again.")

    @property
    def has_login(self) -> bool:
        """Check that there is a user or a token."""
        return bool(self.users or self.tokens)

    @property
    def shares_the_session(self) -> bool:
        return bool(self.panels)

    @property
    def page_url(self) -> str | None:
        return self.public_url

    @property
    def open_port(self) -> int | None:
        return None if is_loopback(self.host) else self.port

    def _contradictions(self) -> Iterator[str | ConfigProblem]:
        if not is_loopback(self.host):
            if not self.has_login:
                hint = "add users or tokens, or listen on 127.0.0.1"
                yield ConfigProblem(f"on {self.host} the dashboard requires a login", key="host", hint=hint)
            if self.tls is None and not self.behind_proxy:
                hint = "tls: {certificate: ..., key: ...}; or behind_proxy: true where a proxy does it"
                what = f"on {self.host} passwords and tokens would cross the network as plain text"
                yield ConfigProblem(what, key="host", hint=hint)
        if self.behind_proxy and not self.has_login:
            yield ConfigProblem("a proxy makes the dashboard public: it requires users or tokens", key="behind_proxy")
        if self.behind_proxy and self.public_url is None:
            hint = "public_url: https://the-name-of-the-proxy"
            yield ConfigProblem("browsers' requests name the proxy, which is unknown", key="behind_proxy", hint=hint)
        for key, named in (("users", self.users), ("tokens", self.tokens)):
            names = [each.name for each in named]
            if double := sorted({name for name in names if names.count(name) > 1}):
                yield ConfigProblem(f"'{double[0]}' is there twice", key=key)
