"""The block ``dashboard`` of a pipeline file: address, users, query panels, and prices of requests."""

from __future__ import annotations

import re
from collections.abc import Iterator
from ipaddress import ip_address
from typing import Annotated, Literal, TypeAlias
from urllib.parse import urlsplit

from pydantic import Field, SecretStr

from lakefeed.config.base import ConfigProblem, Model, checked, raise_problems, spelled
from lakefeed.config.blocks import Block
from lakefeed.config.sql import PIECE, Sql
from lakefeed.config.values import Identifier, Period, TableName, seconds_of

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
    """Return whether only this machine can reach the address."""
    if host.lower().rstrip(".") == "localhost":
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def _require_host(host: str) -> None:
    try:
        is_host = ip_address(host.removeprefix("[").removesuffix("]")).version == 6
    except ValueError:
        is_host = False
    if not is_host and not _HOST.fullmatch(host):
        raise ValueError("write the host as a name or an address, without a port")


def _require_hash(text: SecretStr) -> None:
    found = _HASH.fullmatch(text.get_secret_value())
    if found is None:
        raise ValueError("this is not an argon2id hash: lakefeed dashboard hash-password prints one")
    if not _LEAST_MEMORY_KIB <= int(found["memory"]) <= _MOST_MEMORY_KIB or int(found["passes"]) > 100:
        raise ValueError("the argon2id hash must take 7 MB to 1 GB of memory, and at most 100 passes")


def _require_url(url: str) -> None:
    try:
        parts = urlsplit(url)
        is_url = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_url = False
    if not is_url or parts.path not in ("", "/") or parts.query or parts.fragment or "@" in parts.netloc:
        raise ValueError("write the public URL as https://host or https://host:port, without a path")


def _require_token(token: SecretStr) -> None:
    text = token.get_secret_value()
    if len(text) < SHORTEST_TOKEN or not re.fullmatch(r"[\x21-\x7e]+", text):
        least = f"at least {SHORTEST_TOKEN} letters, without spaces"
        raise ValueError(f"the token needs {least}: openssl rand -base64 32 prints one")


Host = Annotated[str, checked(_require_host)]
UserName = Annotated[str, Field(min_length=1, max_length=48, pattern=f"^{_NAME}$")]


class DashboardTls(Model):
    """The server's certificate."""

    certificate: str = Field(min_length=1, description="PEM file of the certificate and its intermediate certificates.")
    key: str = Field(min_length=1, description="PEM file of the private key, without a passphrase.")


class DashboardToken(Model):
    """A token for programs, which send it in the header 'Authorization: Bearer'."""

    name: UserName
    """The name in the log of actions."""
    token: Annotated[SecretStr, checked(_require_token)]
    """At least 20 random letters; write it as ${NAME}."""
    role: Role = Field("viewer", description="A viewer sees everything; an operator may also pause and stop the feed.")


class DashboardUser(Model):
    """A user who logs in with a password."""

    name: UserName
    """The name for the login, and in the log of actions."""
    password_hash: Annotated[SecretStr, checked(_require_hash)]
    """The argon2id hash that lakefeed dashboard hash-password prints."""
    role: Role = Field("viewer", description="A viewer sees everything; an operator may also pause and stop the feed.")


Chart: TypeAlias = Literal["bar", "line", "table", "map"]
MOST_PANELS = 20
LEAST_SECONDS = {"view": 1, "sql": 5, "table": 10}
"""Least seconds between queries: a view takes milliseconds of the driver, a table costs S3 requests."""
_READS = re.compile(r"[\s(]*(SELECT|WITH|FROM|VALUES|TABLE)\b", re.IGNORECASE)
_WRITES = re.compile(r"\b(INSERT\s+(?:INTO|OVERWRITE)|SELECT\s+TRANSFORM|EXECUTE\s+IMMEDIATE)\b", re.IGNORECASE)


def without_texts(sql: str) -> str:
    """Replace the comments, quoted texts and quoted names of a statement by blanks."""
    parts: list[str] = []
    comments, position = 0, 0
    while (found := PIECE.search(sql, position)) is not None:
        if not comments:
            parts.append(sql[position : found.start()])
        comments += (found[0] == "/*") - (found[0] == "*/" and comments > 0)
        # A quote within a comment begins no text.
        position = found.start() + 1 if comments and found[0] != "/*" else found.end()
        parts.append(found[0] if len(found[0]) == 1 and not comments else " ")
    return "".join([*parts, "" if comments else sql[position:]])


def _require_query(sql: str) -> None:
    bare = without_texts(sql)
    written = _WRITES.search(bare)
    if written is not None or _READS.match(bare) is None:
        first = written[1] if written else (bare.split() or ["nothing"])[0][:40]
        raise ValueError(f"a panel may only read: write a SELECT, not {first.upper()}")
    if "${" in sql:
        raise ValueError("remove ${…}: Spark would replace it by a setting, which may be a secret")


class QueryPanel(Model):
    """A chart or a table of rows, which the driver queries from a view, an Iceberg table or SQL while a user looks."""

    name: Annotated[str, spelled(r"[A-Za-z0-9_-]{1,60}", "a panel's name has letters, digits, '_' and '-'")]
    """The panel's id on the page and in the API."""
    title: str | None = Field(None, max_length=200, description="Title above the panel. Default: its name.")
    chart: Chart = "table"
    """The kind of chart. bar and line require x and y, map requires lat and lon."""
    view: Annotated[str, spelled(Identifier, "a view's name has letters, digits and underscores")] | None = None
    """A view of the feed's Spark session, such as the view of sink.memory."""
    table: TableName | None = Field(None, description="An Iceberg table: catalog.namespace.table.")
    sql: Annotated[Sql, checked(_require_query)] | None = None
    """One SELECT over tables and views. Exactly one of view, table and sql is required."""
    columns: list[str] = Field(default_factory=list)
    """Columns to read from the view or table. Default: the chart's columns; all columns for chart: table."""
    x: str | None = Field(None, description="The column along a chart's axis: a category, a number or a time.")
    y: str | list[str] = Field(default_factory=list, description="Column of numbers, or several; each is a series.")
    label: str | None = Field(None, description="The column that names a point of a map.")
    lat: str | None = Field(None, description="The column with the latitude of a point, in degrees.")
    lon: str | None = Field(None, description="The column with the longitude of a point, in degrees.")
    every: Period = "10 seconds"
    """Time between two queries while a user looks: at least 1 second for a view, 5 for SQL, 10 for a table."""
    limit: int = Field(500, ge=1, le=10_000, description="The most rows that the panel shows.")
    time_limit: Period = "30 seconds"
    """The driver cancels a query that takes longer; at most 10 minutes."""

    def _contradictions(self) -> Iterator[str | ConfigProblem]:
        given = [name for name in LEAST_SECONDS if getattr(self, name) is not None]
        if len(given) != 1:
            yield f"exactly one of view, table and sql is required; this panel has {' and '.join(given) or 'none'}"
            return
        required = {"bar": ("x", "y"), "line": ("x", "y"), "map": ("lat", "lon")}.get(self.chart, ())
        if missing := [name for name in required if not getattr(self, name)]:
            what = f"chart: {self.chart} needs {' and '.join(required)}"
            yield ConfigProblem(what, key=missing[0], hint=f"set {missing[0]} to a column of the rows")
        if self.columns and self.sql is not None:
            hint = "name the columns in the SELECT instead"
            yield ConfigProblem("columns is for a view or a table, not for sql", key="columns", hint=hint)
        if seconds_of(self.every) < (least := LEAST_SECONDS[given[0]]):
            what = f"a query of a {given[0]} every {self.every} would cost too much"
            yield ConfigProblem(what, key="every", hint=f"write every: {least} seconds, or more")
        if seconds_of(self.time_limit) > 600:
            what = f"a query may take 10 minutes at most, not {self.time_limit}"
            yield ConfigProblem(what, key="time_limit", hint="write time_limit: 10 minutes")

    @property
    def series(self) -> list[str]:
        """The columns of ``y``, whose numbers the chart shows."""
        return [self.y] if isinstance(self.y, str) else list(self.y)

    @property
    def shown(self) -> list[str]:
        """The columns to read from a view or table; empty means all columns."""
        if self.columns:
            return list(self.columns)
        if self.chart == "table":
            return []
        named = [self.x, *self.series, self.label, self.lat, self.lon]
        return list(dict.fromkeys(name for name in named if name is not None))


def _require_names_once(panels: list[QueryPanel]) -> None:
    names = [panel.name for panel in panels]
    twice = [at for at, name in enumerate(names) if name in names[:at]]
    hint = "give every panel a different name"
    raise_problems(ConfigProblem(f"there is another panel '{names[at]}'", key=at, hint=hint) for at in twice)


QueryPanels = Annotated[list[QueryPanel], Field(max_length=MOST_PANELS), checked(_require_names_once)]
"""The panels of one feed, in the page's order."""

Preset: TypeAlias = Literal["aws-us-east-1", "aws-eu-central-1", "cloudflare-r2"]
_PRESETS: dict[Preset, tuple[str, float, float]] = {
    # Prices of S3 Standard from https://aws.amazon.com/s3/pricing/, as other publications quoted them in 2026.
    "aws-us-east-1": ("USD", 0.005, 0.0004),
    # Prices of EUC1-Requests-Tier1 and -Tier2 in AWS' price list of 2026-08-31, as other publications quote them.
    "aws-eu-central-1": ("USD", 0.0054, 0.00043),
    # Prices of class A and class B operations from https://developers.cloudflare.com/r2/pricing/, read in 2026.
    "cloudflare-r2": ("USD", 0.0045, 0.00036),
}


class Tariff(Model):
    """The price of S3 requests. Deletions are free, as in all stores of the presets."""

    currency: Annotated[str, spelled("[A-Z]{3}", "a currency has three letters, such as USD")] = "USD"
    """The currency of the prices."""
    per_1000_writes: float = Field(ge=0, le=1e6, description="Price of 1,000 PUT, COPY, POST and LIST requests.")
    per_1000_reads: float = Field(ge=0, le=1e6, description="Price of 1,000 GET, HEAD and other requests.")

    @classmethod
    def of(cls, given: Tariff | Preset | None) -> Tariff | None:
        """Return the prices of a preset, or the prices of the block."""
        if not isinstance(given, str):
            return given
        currency, writes, reads = _PRESETS[given]
        return cls(currency=currency, per_1000_writes=writes, per_1000_reads=reads)

    def price(self, *, writes: float, reads: float) -> float:
        return (writes * self.per_1000_writes + reads * self.per_1000_reads) / 1000


class Dashboard(Block):
    """The web dashboard, which the feed's driver serves while it runs."""

    host: Host = Field("127.0.0.1", description="Address to listen on. An address other than loopback needs a login.")
    port: int = Field(DEFAULT_PORT, ge=0, le=65535, description="Port to listen on; 0 for a free one.")
    tls: DashboardTls | None = None
    """Serve HTTPS. Required for an address other than loopback, unless a proxy serves HTTPS (behind_proxy)."""
    behind_proxy: bool = False
    """A reverse proxy terminates TLS, and only it can reach the port. The client's address is then the last one in
    X-Forwarded-For."""
    public_url: Annotated[str, checked(_require_url)] | None = None
    """The dashboard's address for browsers, such as https://feeds.example.org. Required with behind_proxy."""
    allowed_hosts: list[Host] = Field(default_factory=list)
    """Further host names of the dashboard; requests for other names are refused."""
    users: list[DashboardUser] = Field(default_factory=list)
    """Users who log in with a password. With users or tokens, loopback requires a login too."""
    tokens: list[DashboardToken] = Field(default_factory=list)
    """Tokens for programs; users may log in with a token, too."""
    panels: QueryPanels = Field(default_factory=list)
    """Charts and tables of views, Iceberg tables and SQL. The driver queries them while a user looks."""
    tariff: Tariff | Preset | None = None
    """Prices of S3 requests, or the name of a preset. Default: the dashboard shows requests without a price."""
    session_hours: float = Field(12, gt=0, le=24 * 30, description="Hours after which a user must log in again.")

    @property
    def has_login(self) -> bool:
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
                hint = "write tls: {certificate: ..., key: ...}; or behind_proxy: true if a proxy serves HTTPS"
                what = f"on {self.host} passwords and tokens would cross the network as plain text"
                yield ConfigProblem(what, key="host", hint=hint)
        if self.behind_proxy and not self.has_login:
            what = "a dashboard behind a proxy is public, so it requires a login"
            yield ConfigProblem(what, key="behind_proxy", hint="add users or tokens")
        if self.behind_proxy and self.public_url is None:
            hint = "write public_url: https://the-name-of-the-proxy"
            yield ConfigProblem("behind_proxy requires public_url", key="behind_proxy", hint=hint)
        for key, named in (("users", self.users), ("tokens", self.tokens)):
            names = [each.name for each in named]
            if double := sorted({name for name in names if names.count(name) > 1}):
                yield ConfigProblem(f"two {key} have the name '{double[0]}'", key=key, hint="rename one of the two")
