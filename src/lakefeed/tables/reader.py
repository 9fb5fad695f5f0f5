"""Opens a table without Spark: with pyiceberg, from which DuckDB, pandas and Polars read on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakefeed.config.connections import Connections
from lakefeed.errors import ConfigError, MissingExtra, ResourceMissing
from lakefeed.session import default_connections

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table


def open_catalog(name: str, *, connections: Connections) -> Catalog:
    """The Iceberg catalog of that name.

    Raises:
        MissingExtra: pyiceberg is not installed.
        ConfigError: no such catalog is declared.
    """
    try:
        from pyiceberg.catalog import load_catalog
    except ImportError:
        raise MissingExtra.of("pyiceberg", "read", "reading a table without Spark") from None
    catalog, s3 = connections.catalog(name), connections.s3
    properties = {
        "type": "sql" if catalog.type == "jdbc" else "rest",
        "uri": _sqlalchemy_uri(catalog.uri) if catalog.type == "jdbc" else catalog.uri,
        "warehouse": catalog.warehouse,
        "s3.endpoint": s3.endpoint,
        "s3.region": s3.region,
        "s3.access-key-id": s3.access_key.get_secret_value() if s3.access_key else None,
        "s3.secret-access-key": s3.secret_key.get_secret_value() if s3.secret_key else None,
        "s3.session-token": s3.session_token.get_secret_value() if s3.session_token else None,
        "s3.force-virtual-addressing": str(not s3.uses_path_style).lower(),
        "py-io-impl": "pyiceberg.io.pyarrow.PyArrowFileIO",
    }
    return load_catalog(name, **{key: value for key, value in properties.items() if value is not None})


def open_table(table: str, *, connections: Connections | None = None) -> Table:
    """The table ``catalog.namespace.table`` as pyiceberg sees it: ``scan().to_arrow()``, ``to_duckdb(name)`` and so on.

    Args:
        table: its full name.
        connections: store and catalogs. Default: from the environment, else the local stack that is running.

    Raises:
        ResourceMissing: there is no such table.
        ConfigError: no such catalog is declared.
        MissingExtra: pyiceberg is not installed.

    Example:
        >>> import lakefeed as lf
        >>> lf.open_table("lake.nyc.trips").scan(limit=5).to_arrow().num_rows
        5
    """
    catalog_name, _, identifier = table.partition(".")
    catalog = open_catalog(catalog_name, connections=connections or default_connections())
    from pyiceberg.exceptions import NoSuchTableError

    try:
        return catalog.load_table(identifier)
    except NoSuchTableError:
        raise ResourceMissing(f"there is no table {table}", where=f"catalog {catalog_name}") from None


def _sqlalchemy_uri(jdbc: str) -> str:
    """``jdbc:sqlite:/path`` as SQLAlchemy writes it, ``sqlite:////path``."""
    if jdbc.startswith("jdbc:sqlite:"):
        return f"sqlite:///{jdbc.removeprefix('jdbc:sqlite:')}"
    if jdbc.startswith("jdbc:postgresql:"):
        return f"postgresql+psycopg2:{jdbc.removeprefix('jdbc:postgresql:')}"
    raise ConfigError("only SQLite and PostgreSQL catalogs can be opened without Spark", where=jdbc)
