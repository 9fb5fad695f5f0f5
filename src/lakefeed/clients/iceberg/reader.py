"""Opens a table without Spark, with pyiceberg; DuckDB, pandas and Polars can read the result."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from lakefeed.clients import postgresql
from lakefeed.clients.environment import default_connections
from lakefeed.clients.spark.errors import BRING_BACK, METADATA_GONE
from lakefeed.config import trust
from lakefeed.config.connections import S3, Connections
from lakefeed.config.connections import Catalog as Settings
from lakefeed.errors import AccessDenied, ConfigError, MissingExtra, ResourceMissing, Unreachable, WorldError

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table


_PLAIN_IO = "pyiceberg.io.pyarrow.PyArrowFileIO"
_TRUSTING_IO = "lakefeed.clients.iceberg.file_io.TrustingFileIO"
_CERTIFIED_IO = "lakefeed.clients.iceberg.certified_io.CertifiedFileIO"


def open_catalog(name: str, *, connections: Connections) -> Catalog:
    """Open the Iceberg catalog with this name."""
    try:
        from pyiceberg.catalog import load_catalog
    except ImportError:
        raise MissingExtra.of("pyiceberg", "read", "reading a table without Spark") from None
    catalog, s3 = connections.catalog(name), connections.s3
    if catalog.folder is not None and catalog.sqlite_file is not None and not catalog.sqlite_file.exists():
        # pyiceberg would create the file, or report that its folder is missing.
        hint = "the first run creates it: lakefeed run pipeline.yaml"
        raise ResourceMissing(f"the catalog {name} has no table yet", where=str(catalog.sqlite_file), hint=hint)
    properties = {
        **_reached(catalog, region=s3.region),
        "s3.endpoint": s3.endpoint,
        "s3.region": s3.region,
        "s3.force-virtual-addressing": str(not s3.uses_path_style).lower(),
        "py-io-impl": _file_io(s3),
    }
    if not catalog.vended_credentials:
        keys = {"access-key-id": s3.access_key, "secret-access-key": s3.secret_key, "session-token": s3.session_token}
        properties |= {f"s3.{key}": secret.get_secret_value() for key, secret in keys.items() if secret is not None}
    with _explained(catalog):
        opened = load_catalog(name, **{key: value for key, value in properties.items() if value is not None})
    if catalog.uri.startswith(postgresql.SCHEME):
        _without_pool(opened)
    return opened


def open_table(table: str, *, connections: Connections | None = None) -> Table:
    """Open a table with pyiceberg: ``scan().to_arrow()``, ``to_duckdb(name)`` and so on.

    Args:
        table: its full name.
        connections: store and catalogs. Default: from the environment, else the local stack that is running.

    Raises:
        ResourceMissing: there is no such table.
        ConfigError: no such catalog is declared.
        MissingExtra: pyiceberg is not installed.
        WorldError: the catalog has the table, but its metadata file is gone.

    Example:
        >>> import lakefeed as lf
        >>> lf.open_table("lake.nyc.trips").scan(limit=5).to_arrow().num_rows
        5
    """
    catalog_name, _, identifier = table.partition(".")
    connections = connections or default_connections()
    catalog = open_catalog(catalog_name, connections=connections)
    from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

    try:
        with _explained(connections.catalog(catalog_name)):
            return catalog.load_table(identifier)
    except (NoSuchTableError, NoSuchNamespaceError):
        raise ResourceMissing(f"there is no table {table}", where=f"catalog {catalog_name}") from None
    except FileNotFoundError as error:
        # Not a ResourceMissing: callers would create a missing table.
        raise WorldError(METADATA_GONE, where=f"{table}: {error}", hint=BRING_BACK) from None


def _reached(catalog: Settings, *, region: str) -> dict[str, Any]:
    """Return pyiceberg's settings for the catalog: Iceberg's own names, except for databases."""
    if catalog.type == "jdbc":
        return {"type": "sql", "uri": _sqlalchemy_uri(catalog), "warehouse": catalog.warehouse}
    presumed: dict[str, str | None] = {}
    if catalog.type == "glue":
        presumed["glue.region"] = region
    if catalog.credential is not None:
        # Iceberg's client uses this default silently; pyiceberg warns about it.
        presumed["oauth2-server-uri"] = f"{catalog.uri.rstrip('/')}/v1/oauth/tokens"
    secrets = {key: secret.get_secret_value() for key, secret in catalog.secrets().items()}
    return {**presumed, **_tls_of(catalog), **catalog.settings(), **secrets}


def _file_io(s3: S3) -> str:
    """Return pyiceberg's class for the store: with a client certificate, with private authorities, or the default."""
    if trust.own_files() is not None and (s3.endpoint or "").startswith("https://"):
        return _CERTIFIED_IO
    return _PLAIN_IO if trust.authorities_file() is None else _TRUSTING_IO


def _tls_of(catalog: Settings) -> dict[str, Any]:
    """Return the certificates for a REST catalog in pyiceberg's settings."""
    if not catalog.uri.startswith("https://"):
        return {}
    bundle, own = trust.authorities_file(), trust.own_files()
    found: dict[str, Any] = {} if bundle is None else {"cabundle": bundle}
    if own is not None:
        found["client"] = {"cert": str(own[0]), "key": str(own[1])}
    return {"ssl": found} if found else {}


def _without_pool(catalog: Any) -> None:
    """Let a catalog open a connection for every query: no one closes a table, so no one would close its pool."""
    from sqlalchemy import NullPool, create_engine

    pooled = catalog.engine
    pooled.dispose()
    catalog.engine = create_engine(pooled.url, poolclass=NullPool)


def _sqlalchemy_uri(catalog: Settings) -> str:
    """Return the URL of the catalog's database for SQLAlchemy: ``sqlite:////path``, or PostgreSQL's with the login."""
    if (file := catalog.sqlite_file) is not None:
        return f"sqlite:///{file}"
    if catalog.uri.startswith(postgresql.SCHEME):
        if not postgresql.can_log_in():
            raise MissingExtra.of("psycopg", "postgresql", "reading a table of a PostgreSQL catalog without Spark")
        database = postgresql.CatalogDatabase.of(catalog.uri)
        return database.sqlalchemy_url(username=catalog.username, password=catalog.password)
    raise ConfigError("only SQLite and PostgreSQL catalogs can be opened without Spark", where=catalog.uri)


@contextmanager
def _explained(catalog: Settings) -> Iterator[None]:
    """Raise errors of pyiceberg and its clients about a catalog as lakefeed's errors."""
    from pyiceberg.exceptions import AuthorizationExpiredError, ForbiddenError, OAuthError, UnauthorizedError
    from requests.exceptions import ConnectionError as NoConnection
    from requests.exceptions import Timeout
    from sqlalchemy.exc import DatabaseError, OperationalError

    where = catalog.uri or f"the {catalog.type} catalog"
    try:
        yield
    except (AuthorizationExpiredError, ForbiddenError, OAuthError, UnauthorizedError) as error:
        hint = "check catalogs.<name>.credential or token; a token may have expired"
        what = f"the catalog refuses the login ({type(error).__name__})"
        raise AccessDenied(what, where=where, hint=hint) from None
    except (NoConnection, Timeout):
        raise Unreachable("the catalog does not answer", where=where) from None
    except DatabaseError as error:
        if not (isinstance(error, OperationalError) and catalog.uri.startswith(postgresql.SCHEME)):
            what = f"the catalog's database cannot be used: {error.orig}"
            raise Unreachable(what, where=where, hint="lakefeed check --connect says what is wrong with it") from None
        raise postgresql.login_error(str(error.orig), postgresql.CatalogDatabase.of(catalog.uri)) from None
