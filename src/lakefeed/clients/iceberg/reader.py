"""Open a table with pyiceberg instead of Spark, for DuckDB, pandas or Polars."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, partial, wraps
from typing import TYPE_CHECKING, Any

from lakefeed.clients.environment import default_connections
from lakefeed.clients.iceberg import catalogs
from lakefeed.clients.spark.errors import BRING_BACK, METADATA_GONE
from lakefeed.config import trust
from lakefeed.config.connections import S3, Connections
from lakefeed.config.connections import Catalog as Settings
from lakefeed.errors import AccessDenied, ConfigError, MissingExtra, ResourceMissing, Unreachable, WorldError

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table
    from requests import Session


_PLAIN_IO = "pyiceberg.io.pyarrow.PyArrowFileIO"
_TRUSTING_IO = "lakefeed.clients.iceberg.file_io.TrustingFileIO"
_CERTIFIED_IO = "lakefeed.clients.iceberg.file_io.CertifiedFileIO"


def open_catalog(name: str, *, connections: Connections) -> Catalog:
    try:
        from pyiceberg.catalog import load_catalog
    except ImportError:
        raise MissingExtra.of("pyiceberg", "read", "reading a table without Spark") from None
    let_variants_pass()
    limit_waits()
    catalog, s3 = connections.catalog(name), connections.s3
    if catalog.folder is not None and catalog.sqlite_file is not None and not catalog.sqlite_file.exists():
        # Without this check, pyiceberg would create the SQLite file, or report that its folder is missing.
        hint = "the first run creates it: lakefeed run pipeline.yaml"
        raise ResourceMissing(f"the catalog {name} has no table yet", where=str(catalog.sqlite_file), hint=hint)
    properties = {
        **_catalog_properties(catalog, region=s3.region),
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
    if catalog.uri.startswith(catalogs.POSTGRESQL):
        _without_pool(opened)
    return opened


def open_table(table: str, *, connections: Connections | None = None) -> Table:
    """Open a table with pyiceberg, to call ``scan().to_arrow()``, ``scan().to_duckdb(name)`` and so on.

    Args:
        table: the full name: ``catalog.namespace.table``.
        connections: store and catalogs. Default: from the environment, else the local stack that is running.

    Raises:
        ResourceMissing: there is no such table.
        ConfigError: the connections declare no such catalog.
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
        hint = "correct the name; or run the feed: its first run creates the table"
        raise ResourceMissing(f"there is no table {table}", where=f"catalog {catalog_name}", hint=hint) from None
    except FileNotFoundError as error:
        # Do not raise ResourceMissing, because callers handle that error by creating the table.
        raise WorldError(METADATA_GONE, where=f"{table}: {error}", hint=BRING_BACK) from None


def _catalog_properties(catalog: Settings, *, region: str) -> dict[str, Any]:
    """Return pyiceberg's properties for the catalog, with Iceberg's names, or pyiceberg's for one in a database."""
    if catalog.type == "jdbc":
        return {"type": "sql", "uri": _sqlalchemy_uri(catalog), "warehouse": catalog.warehouse}
    defaults: dict[str, str | None] = {}
    if catalog.type == "glue":
        defaults["glue.region"] = region
    if catalog.credential is not None:
        # Set Iceberg's default: pyiceberg would warn that it is missing.
        defaults["oauth2-server-uri"] = f"{catalog.uri.rstrip('/')}/v1/oauth/tokens"
    secrets = {key: secret.get_secret_value() for key, secret in catalog.secrets().items()}
    return {**defaults, **_tls_of(catalog), **catalog.settings(), **secrets}


def _file_io(s3: S3) -> str:
    if trust.own_files() is not None and (s3.endpoint or "").startswith("https://"):
        return _CERTIFIED_IO
    return _PLAIN_IO if trust.authorities_file() is None else _TRUSTING_IO


def _tls_of(catalog: Settings) -> dict[str, Any]:
    """Return the property that makes pyiceberg use this process's certificate files for a REST catalog."""
    if not catalog.uri.startswith("https://"):
        return {}
    bundle, own = trust.authorities_file(), trust.own_files()
    tls: dict[str, Any] = {} if bundle is None else {"cabundle": bundle}
    if own is not None:
        tls["client"] = {"cert": str(own[0]), "key": str(own[1])}
    return {"ssl": tls} if tls else {}


def _without_pool(catalog: Any) -> None:
    """Make a catalog open a connection for each query, because no method of a table closes pooled connections."""
    from sqlalchemy import NullPool, create_engine

    pooled = catalog.engine
    pooled.dispose()
    catalog.engine = create_engine(pooled.url, poolclass=NullPool)


def _sqlalchemy_uri(catalog: Settings) -> str:
    """Return SQLAlchemy's URL of the catalog's database; a URL for PostgreSQL contains the login."""
    if (file := catalog.sqlite_file) is not None:
        return f"sqlite:///{file}"
    if catalog.uri.startswith(catalogs.POSTGRESQL):
        if not catalogs.can_log_in():
            raise MissingExtra.of("psycopg", "postgresql", "reading a table of a PostgreSQL catalog without Spark")
        database = catalogs.CatalogDatabase.of(catalog.uri)
        return database.sqlalchemy_url(username=catalog.username, password=catalog.password)
    what, hint = "this database of a catalog can only be opened with Spark", "read the table with lakefeed.session()"
    raise ConfigError(f"{what}: it is neither SQLite nor PostgreSQL", where=catalog.uri, hint=hint)


@contextmanager
def _explained(catalog: Settings) -> Iterator[None]:
    """Raise lakefeed's errors instead of those that pyiceberg and its clients raise in the ``with`` block."""
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
        hint = "check catalogs.<name>.uri and that the catalog runs: lakefeed check --connect"
        raise Unreachable("the catalog does not answer", where=where, hint=hint) from None
    except DatabaseError as error:
        if not (isinstance(error, OperationalError) and catalog.uri.startswith(catalogs.POSTGRESQL)):
            what = f"the catalog's database cannot be used: {error.orig}"
            raise Unreachable(what, where=where, hint="lakefeed check --connect shows the cause") from None
        raise catalogs.login_error(str(error.orig), catalogs.CatalogDatabase.of(catalog.uri)) from None


@cache
def limit_waits() -> None:
    """Give pyiceberg's REST client the timeouts of Iceberg's client; it has none, and would wait forever."""
    from pyiceberg.catalog.rest import RestCatalog

    configure = RestCatalog._config_headers

    def with_timeouts(self: RestCatalog, session: Session) -> None:
        configure(self, session)
        limits = (self.properties.get(f"rest.client.{each}-timeout-ms", 120_000) for each in ("connection", "socket"))
        connect, answer = (int(each) / 1000 for each in limits)
        session.request = partial(session.request, timeout=(connect, answer))  # type: ignore[method-assign]

    RestCatalog._config_headers = with_timeouts  # type: ignore[method-assign]


# pyiceberg 0.12 does not know the type variant. With the replacement below, pyiceberg reads metadata and manifests, but
# no rows. Remove it when pyiceberg has the type: https://github.com/apache/iceberg-python/issues/1819
_SHOWN_AS = "binary"
_PARTS = ("type", "element", "value")


@cache
def let_variants_pass() -> None:
    """Make pyiceberg read the metadata of tables with a type variant as if the type were binary."""
    from pyiceberg.catalog.rest import TableResponse
    from pyiceberg.table.metadata import TableMetadataUtil

    parse_raw, parse_response = TableMetadataUtil.parse_raw, TableResponse.model_validate_json

    @wraps(parse_raw)
    def raw(data: str) -> Any:
        return parse_raw(_without_variants(data))

    @wraps(parse_response)
    def response(json_data: str, *arguments: Any, **options: Any) -> Any:
        return parse_response(_without_variants(json_data), *arguments, **options)

    TableMetadataUtil.parse_raw = staticmethod(raw)  # type: ignore[method-assign]
    TableResponse.model_validate_json = response  # type: ignore[method-assign, assignment]


def _without_variants(text: str) -> str:
    if '"variant"' not in text:
        return text
    document = json.loads(text)
    metadata = document.get("metadata", document)
    for schema in metadata.get("schemas") or ():
        _replace(schema)
    return json.dumps(document)


def _replace(node: Any) -> None:
    """Replace the type variant in a type, a field or a list of fields."""
    if isinstance(node, list):
        for each in node:
            _replace(each)
    elif isinstance(node, dict):
        for key in _PARTS:
            if node.get(key) == "variant":
                node[key] = _SHOWN_AS
            else:
                _replace(node.get(key))
        _replace(node.get("fields"))
