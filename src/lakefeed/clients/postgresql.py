"""Parse the JDBC URL of an Iceberg catalog in PostgreSQL, and check the login."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from pydantic import SecretStr

from lakefeed.config import tls
from lakefeed.config.connections import Catalog
from lakefeed.config.trust import explain_libpq
from lakefeed.errors import AccessDenied, ConfigError, LakefeedError, ResourceMissing, Unreachable

SCHEME = "jdbc:postgresql:"


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
        if not jdbc_url.startswith(SCHEME) or not host or not name:
            hint = "write jdbc:postgresql://host:port/database"
            raise ConfigError("this is not the JDBC URL of a PostgreSQL database", where=jdbc_url, hint=hint)
        given = dict(parse_qsl(parts.query, keep_blank_values=True))
        options = tls.libpq_options(given, where=f"{host}:{port}/{name}")
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
    """Return the error for the text of a failed login; the text is from the client or from the server."""
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
