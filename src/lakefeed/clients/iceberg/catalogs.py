"""Log in to REST and PostgreSQL catalogs of Iceberg without Spark, and create a catalog in a SQLite file."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qsl, quote, unquote, urlencode, urljoin, urlsplit

from pydantic import SecretStr

from lakefeed.clients.http import ask, fetch_token, json_object, refuse_outage
from lakefeed.config import trust
from lakefeed.config.connections import Catalog
from lakefeed.config.trust import explain_libpq
from lakefeed.errors import AccessDenied, ConfigError, LakefeedError, ResourceMissing, Unreachable, WorldError

POSTGRESQL = "jdbc:postgresql:"


@dataclass(frozen=True, kw_only=True)
class CatalogDatabase:
    """The address of a database; ``options`` are the URL's parameters in libpq's names."""

    host: str
    port: int
    name: str
    options: dict[str, str]

    @classmethod
    def of(cls, jdbc_url: str) -> CatalogDatabase:
        """Parse ``jdbc:postgresql://host:port/database?options``; raise JavaOnly for TLS settings that libpq lacks."""
        parts = urlsplit(jdbc_url.removeprefix("jdbc:"))
        try:
            host, port = parts.hostname, parts.port or 5432
        except ValueError:
            host, port = None, 0
        name = unquote(parts.path.removeprefix("/"))
        if not jdbc_url.startswith(POSTGRESQL) or not host or not name:
            hint = "write jdbc:postgresql://host:port/database"
            raise ConfigError("this is not the JDBC URL of a PostgreSQL database", where=jdbc_url, hint=hint)
        given = dict(parse_qsl(parts.query, keep_blank_values=True))
        options = trust.libpq_options(given, where=f"{host}:{port}/{name}")
        return cls(host=host, port=port, name=name, options=options)

    def sqlalchemy_url(self, *, username: str | None, password: SecretStr | None) -> str:
        """Return the URL for SQLAlchemy with psycopg; it contains the password."""
        login = quote(username or "", safe="")
        if password is not None:
            login += f":{quote(password.get_secret_value(), safe='')}"
        query = f"?{urlencode(self.options)}" if self.options else ""
        login = f"{login}@" if login else ""
        return f"postgresql+psycopg://{login}{self.host}:{self.port}/{quote(self.name, safe='')}{query}"


def can_log_in() -> bool:
    try:
        import psycopg  # noqa: F401
    except ImportError:
        return False
    return True


def log_in(catalog: Catalog, *, timeout: float) -> None:
    """Connect to the catalog's database, to check the login; ``timeout`` is in seconds."""
    import psycopg

    database = CatalogDatabase.of(catalog.uri)
    login = {
        **database.options,
        "host": database.host,
        "port": str(database.port),
        "dbname": database.name,
        "user": catalog.username,
        "password": catalog.password.get_secret_value() if catalog.password else None,
        "connect_timeout": str(max(2, int(timeout))),
    }
    try:
        psycopg.connect(psycopg.conninfo.make_conninfo("", **login)).close()
    except psycopg.Error as error:
        raise login_error(str(error), database) from None


def login_error(text: str, database: CatalogDatabase) -> LakefeedError:
    """Return lakefeed's error for a failed login, from the message of the client or the server."""
    where = f"{database.host}:{database.port}/{database.name}"
    if (refused := explain_libpq(text, server="the catalog's database", where=where)) is not None:
        return refused
    if re.search(r"password authentication failed|no password supplied|role \".*\" does not exist|pg_hba|denied", text):
        hint = "check catalogs.<name>.username and password"
        return AccessDenied("the catalog's database refuses the user or the password", where=where, hint=hint)
    if re.search(r"database \".*\" does not exist", text):
        hint = f"create it: CREATE DATABASE {database.name}; Iceberg then creates its tables"
        return ResourceMissing(f"the catalog's database server has no database {database.name}", where=where, hint=hint)
    reason = text.strip().splitlines()[-1] if text.strip() else "no answer"
    hint = "check catalogs.<name>.uri, and that the database runs and accepts connections from this machine"
    return Unreachable(f"the catalog's database does not answer: {reason}", where=where, hint=hint)


_SERVER = "the REST catalog"


def ask_rest_catalog(catalog: Catalog) -> None:
    """Request a REST catalog's configuration, every client's first request; raise an error that explains a refusal."""
    url = f"{catalog.uri.rstrip('/')}/v1/config"
    if catalog.warehouse is not None:
        url += f"?warehouse={quote(catalog.warehouse, safe='')}"
    headers = {"accept": "application/json"}
    token = catalog.token.get_secret_value() if catalog.token else _traded(catalog)
    if token is not None:
        headers["authorization"] = f"Bearer {token}"
    status, body = ask(url, server=_SERVER, headers=headers)
    if status in (401, 403, 419):
        if token is None and catalog.secrets():
            return  # The login is set by a property that only Iceberg's own client can use.
        if token is None:
            what, hint = "requires a login", "set catalogs.<name>.credential or token from the environment"
        elif catalog.token is not None:
            what = "refuses the token: it is wrong or has expired"
            hint = "renew catalogs.<name>.token; with a credential lakefeed renews its tokens itself"
        else:
            what, hint = "refuses the token that it issued for the credential", "check catalogs.<name>.scope"
        raise AccessDenied(f"{_SERVER} {what} (HTTP status {status})", where=catalog.uri, hint=hint)
    refuse_outage(status, server=_SERVER, where=catalog.uri)
    document = json_object(body)
    error = document.get("error")
    message = error.get("message") if isinstance(error, dict) else None
    if status in (400, 404) and catalog.warehouse is not None and message:
        hint = "correct catalogs.<name>.warehouse: the server has its own name for it"
        what = f"{_SERVER} has no warehouse {catalog.warehouse}: {str(message)[:200]}"
        raise ResourceMissing(what, where=catalog.uri, hint=hint)
    if status != 200 or not {"defaults", "overrides"} <= document.keys():
        hint = "correct catalogs.<name>.uri: the catalog's root, which ends before /v1/config"
        what = f"this address answers, but not as an Iceberg REST catalog does (HTTP status {status})"
        raise ConfigError(what, where=catalog.uri, hint=hint)


def _traded(catalog: Catalog) -> str | None:
    """Return an access token that the server gives for the catalog's credential; None without a credential."""
    if catalog.credential is None:
        return None
    client, has_id, secret = catalog.credential.get_secret_value().partition(":")
    return fetch_token(
        urljoin(f"{catalog.uri.rstrip('/')}/", catalog.oauth2_server_uri or "v1/oauth/tokens"),
        # Iceberg treats a credential without a colon as a secret without an id.
        client_id=client if has_id else None,
        client_secret=SecretStr(secret if has_id else client),
        scope=catalog.scope or "catalog",
        in_body=True,
        setting="catalogs.<name>.credential ('id:secret'), scope and oauth2_server_uri",
    )


# Copied from V1_CREATE_CATALOG_SQL and CREATE_NAMESPACE_PROPERTIES_TABLE_SQL in org.apache.iceberg.jdbc.JdbcUtil.
_CATALOG_TABLES = """
CREATE TABLE IF NOT EXISTS iceberg_tables (
  catalog_name VARCHAR(255) NOT NULL,
  table_namespace VARCHAR(255) NOT NULL,
  table_name VARCHAR(255) NOT NULL,
  metadata_location VARCHAR(1000),
  previous_metadata_location VARCHAR(1000),
  iceberg_type VARCHAR(5),
  PRIMARY KEY (catalog_name, table_namespace, table_name)
);
CREATE TABLE IF NOT EXISTS iceberg_namespace_properties (
  catalog_name VARCHAR(255) NOT NULL,
  namespace VARCHAR(255) NOT NULL,
  property_key VARCHAR(255) NOT NULL,
  property_value VARCHAR(1000),
  PRIMARY KEY (catalog_name, namespace, property_key)
);
"""


def make_catalog(file: Path) -> None:
    """Create the tables of Iceberg's JDBC catalog (schema version V1) in a SQLite file, unless the tables exist."""
    try:
        with closing(sqlite3.connect(file)) as connection:
            # In WAL mode, readers neither fail nor wait for a writer, so Spark may commit while other processes query.
            connection.execute("PRAGMA journal_mode=WAL")
            connection.executescript(_CATALOG_TABLES)
    except sqlite3.OperationalError as error:
        hint = "free disk space, and make the folder writable for this user"
        raise WorldError(f"the catalog cannot be written: {error}", where=str(file), hint=hint) from None
