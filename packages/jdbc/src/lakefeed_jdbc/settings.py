"""The block ``sink.jdbc``."""

from __future__ import annotations

import ssl
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal
from urllib.parse import parse_qsl, unquote, urlsplit

from pydantic import Field, SecretStr, StringConstraints

from lakefeed.config import trust
from lakefeed.config.addresses import DatasetName, Place, PlainTextLogin, without_required_tls
from lakefeed.config.base import ConfigProblem, checked
from lakefeed.config.connections import refuse_credentials
from lakefeed.config.keyed import Deletes, keyed_problems
from lakefeed.config.sinks import Capabilities, Refusal, SinkConfig, SinkFiles
from lakefeed.config.trust import JavaOnly
from lakefeed.errors import ConfigError

_PORTS = {"postgresql": 5432, "mariadb": 3306, "mysql": 3306}
_LONGEST_NAME = 63
"""PostgreSQL truncates longer names, and MariaDB refuses names of more than 64 letters."""


def _require_known_url(url: str) -> None:
    refuse_credentials(url, instead="user and password")
    try:
        address = Address.of(url)
        check(address.kind, address.options)
    except ConfigError as error:
        raise ValueError(f"{error.what}: {error.hint}") from None


def _require_known_to_both(table: str) -> None:
    if any(len(part) > _LONGEST_NAME for part in table.split(".")):
        raise ValueError(f"a table's name may have {_LONGEST_NAME} letters at most")
    if table.rpartition(".")[2].lower().startswith("lakefeed_"):
        raise ValueError("choose another name: names that start with lakefeed_ belong to the ledger")


_DEFAULT_SCHEMAS = {"postgresql": "public"}
_SYSTEMS = {"postgresql": "postgres"}
"""The systems whose OpenLineage names differ from their names in JDBC URLs."""


class JdbcSinkConfig(SinkConfig):
    """A table of PostgreSQL, MariaDB or MySQL, created from the rows' schema if it is missing."""

    guarantee: ClassVar[str] = "exactly-once"
    other_modes: ClassVar[str] = "update requires mode: upsert and keys, complete requires mode: overwrite"
    definition: ClassVar[str] = "lakefeed_jdbc.definition:JdbcDefinition"
    capabilities: ClassVar[Capabilities] = Capabilities(
        rewind=Refusal(
            "a JDBC feed cannot be rewound: older changes would overwrite newer rows, or be added to them",
            "after a restore of the database, remove the checkpoint: the feed resumes at the database's position; to "
            "read the source again, name another table and another checkpoint location",
        ),
        verify=None,
        lag=None,
        no_checkpoint=None,
    )
    stored_files: ClassVar[SinkFiles] = SinkFiles(elsewhere="a database")

    url: Annotated[str, checked(_require_known_url)] = Field(examples=["jdbc:postgresql://host/database"])
    """Address: jdbc:postgresql://host:port/database, jdbc:mariadb://… or jdbc:mysql://…; without credentials."""
    user: str = Field(min_length=1, description="The user who logs in.", examples=["feeder"])
    password: SecretStr = Field(
        description="The user's password; give it as ${NAME}.", examples=["${DATABASE_PASSWORD}"]
    )
    table: Annotated[str, StringConstraints(pattern=r"^[^.\s{}]+(\.[^.\s{}]+)?$"), checked(_require_known_to_both)] = (
        Field(examples=["orders"])
    )
    """table or schema.table. The ledger's tables, lakefeed_feeds and lakefeed_commits, are in the same schema."""
    mode: Literal["append", "upsert", "overwrite"] = "append"
    """append: one row per record. upsert: the newest row per key. overwrite: only the rows of the newest batch; for
    transform.output_mode: complete."""
    keys: list[str] = Field(default_factory=list)
    """With upsert: the columns that identify a row; the table needs a unique index on them."""
    order_by: list[str] = Field(default_factory=list)
    """With upsert: the columns that decide which change of a key is newer, as in sink.iceberg."""
    delete: Deletes = Field(default_factory=Deletes, description="With upsert: which records delete their key's row.")
    on_delete: Literal["remove", "mark"] = "remove"
    """With upsert: remove the row, or keep it with lakefeed_deleted = true."""

    def _contradictions(self) -> Iterator[ConfigProblem]:
        return keyed_problems(self)

    @property
    def keyed(self) -> JdbcSinkConfig | None:
        return self if self.mode == "upsert" else None

    def places(self, *, brokers: str) -> Iterator[Place]:
        at = Address.of(self.url)
        schema, _, table = self.table.rpartition(".")
        is_default = schema == ("public" if at.kind == "postgresql" else at.database)
        name = ".".join(part for part in (at.database, "" if is_default else schema, table) if part)
        yield Place("table", "table", name, servers=frozenset({f"{at.host}:{at.port}".casefold()}))

    def plain_text_logins(self, *, brokers: str) -> Iterator[PlainTextLogin]:
        at = Address.of(self.url)
        return plain_text_logins(self.url, at.kind, at.host, at.options)

    @property
    def target(self) -> str:
        return f"{Address.of(self.url).database} {self.table}"

    def dataset(self, *, feed: str, brokers: str) -> DatasetName:
        address = Address.of(self.url)
        schema, _, table = self.table.rpartition(".")
        schema = schema or _DEFAULT_SCHEMAS.get(address.kind, "")
        databases = (schema,) if schema == address.database else (address.database, schema)
        namespace = f"{_SYSTEMS.get(address.kind, address.kind)}://{address.host}:{address.port}"
        return DatasetName(namespace, ".".join(part for part in (*databases, table) if part))

    @property
    def table_name(self) -> str:
        return self.table

    @property
    def where(self) -> str:
        return f"table {self.table} in {Address.of(self.url)}"


@dataclass(frozen=True, kw_only=True)
class Address:
    """The parts of a JDBC URL; ``kind`` is postgresql, mariadb or mysql, ``options`` are the URL's parameters."""

    kind: str
    host: str
    port: int
    database: str
    options: dict[str, str]

    @classmethod
    def of(cls, url: str) -> Address:
        """Parse a JDBC URL."""
        parts = urlsplit(url.removeprefix("jdbc:"))
        try:
            host, port = parts.hostname, parts.port or _PORTS.get(parts.scheme, 0)
        except ValueError:
            host, port = None, 0
        database = unquote(parts.path.removeprefix("/"))
        if not url.startswith("jdbc:") or parts.scheme not in _PORTS or not host or not database or "/" in database:
            hint = "write jdbc:postgresql://host:port/database, jdbc:mariadb://… or jdbc:mysql://…"
            raise ConfigError("this is not an address of a database", where=url, hint=hint)
        options = dict(parse_qsl(parts.query, keep_blank_values=True))
        return cls(kind=parts.scheme, host=host, port=port, database=database, options=options)

    def __str__(self) -> str:
        return f"{self.kind}://{self.host}:{self.port}/{self.database}"


# Python's client for MariaDB and MySQL uses TLS as MariaDB's Java driver does with the same JDBC URL:
# https://mariadb.com/docs/connectors describes these parameters; lakefeed.config.trust handles PostgreSQL's.
_MODES = {
    **dict.fromkeys(("disable", "disabled", "0", "false"), "disable"),
    **dict.fromkeys(("trust", "required"), "trust"),
    "verifyca": "verify-ca",
    **dict.fromkeys(("verifyfull", "verifyidentity", "1", "true"), "verify-full"),
}
"""The values of sslMode that MariaDB's driver accepts, including MySQL's values, in any case and punctuation."""
_JAVA_STORES = ("truststore", "keystore", "truststoretype", "keystoretype", "tlssockettype", "serversslcertpath")
_IGNORED: tuple[str, ...] = ("ssl", "requiressl", "verifyservercertificate")
_IGNORED += ("clientcertificatekeystoreurl", "trustcertificatekeystoreurl")
"""TLS parameters of other or old drivers. MariaDB's driver ignores them, so it would connect without TLS."""


def check(kind: str, options: Mapping[str, str]) -> None:
    """Refuse URL parameters that request TLS, but that the JVM's driver would ignore."""
    lower = {key.lower(): value for key, value in options.items()}
    if kind == "postgresql":
        if lower.get("sslmode", "disable").lower() not in trust.MODES:
            hint = f"sslmode is one of {', '.join(trust.MODES)}"
            raise ConfigError(f"'{lower['sslmode']}' is not an sslmode", hint=hint)
        return
    for name in _IGNORED:
        if name in lower:
            what = f"the database's driver ignores '{name}', and would connect as plain text"
            raise ConfigError(what, hint="write sslMode=verify-full")
    _mode(lower)


def plain_text_logins(url: str, kind: str, host: str, options: Mapping[str, str]) -> Iterator[PlainTextLogin]:
    """Yield the login if its database is on another machine and the URL does not require TLS."""
    if kind == "postgresql":
        return trust.plain_text_logins("url", url)
    is_required = _mode({key.lower(): value for key, value in options.items()}) != "disable"
    return iter(()) if is_required else without_required_tls("url", url, host, parameter="sslMode")


def _mode(lower: Mapping[str, str]) -> str:
    """Return the TLS mode of MariaDB's driver: disable, trust, verify-ca or verify-full."""
    if (given := lower.get("sslmode")) is not None:
        if mode := _MODES.get(given.lower().replace("-", "").replace("_", "")):
            return mode
        hint = "sslMode is disable, trust, verify-ca or verify-full"
        raise ConfigError(f"'{given}' is not an sslMode that the database's driver knows", hint=hint)
    if lower.get("usessl", "false").lower() in ("false", "0"):
        return "disable"
    if lower.get("trustservercertificate", "false").lower() in ("", "1", "true"):
        return "trust"
    if lower.get("disablesslhostnameverification", "false").lower() in ("", "1", "true"):
        return "verify-ca"
    return "verify-full"


def mariadb_context(options: Mapping[str, str], *, where: str) -> ssl.SSLContext | None:
    """Return the TLS context for MariaDB or MySQL; None if the Java driver would use no TLS."""
    lower = {key.lower(): value for key, value in options.items()}
    mode = _mode(lower)
    if mode == "disable":
        return None
    for name in _JAVA_STORES:
        if name in lower:
            raise JavaOnly.of(name, where, "serverSslCert=/path/ca.pem")
    authority = lower.get("serversslcert", "")
    text, file = (authority, None) if "-----BEGIN" in authority else (None, authority.removeprefix("file:") or None)
    try:
        context = ssl.create_default_context(cafile=file, cadata=text) if authority else trust.client_context()
    except (OSError, ssl.SSLError) as error:
        what = f"the certificates cannot be read: {getattr(error, 'strerror', None) or error}"
        raise ConfigError(
            what, where=f"{where}, serverSslCert", hint="name a PEM file that this user may read"
        ) from None
    context.check_hostname = mode == "verify-full"
    if mode == "trust":
        context.verify_mode = ssl.CERT_NONE
    return context
