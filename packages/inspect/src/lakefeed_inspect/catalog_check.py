"""The check of ``lakefeed check --connect``: commits to a scratch table in the user's own catalog."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from lakefeed.clients.iceberg.reader import open_catalog
from lakefeed.config.connections import Catalog, Connections
from lakefeed.config.models import PipelineConfig
from lakefeed.config.values import catalog_of
from lakefeed.errors import LakefeedError, MissingExtra
from lakefeed.sinks.definition import Problem

# pyiceberg would wait up to a minute for the lock of a Hive metastore, which one of the two commits here never gets.
_SHORT_WAITS = {"lock-check-min-wait-time": "0.1", "lock-check-max-wait-time": "0.2"}


def try_commits(config: PipelineConfig, connections: Connections) -> Iterator[Problem]:
    """Yield a problem for each promise that a sink's catalog breaks: an error if rows could be lost, else a warning."""
    tables = [each for _, block in config.sink_blocks for each in block.chosen.snapshot_tables.values()]
    for name, table in {catalog_of(each): each for each in reversed(tables)}.items():
        catalog = connections.catalogs.get(name)
        # The first run creates the database file of a SQLite catalog.
        if catalog is not None and (catalog.sqlite_file is None or catalog.sqlite_file.exists()):
            yield from _tried(name, catalog, table.split(".")[1:-1], connections)


def _tried(name: str, catalog: Catalog, namespace: list[str], connections: Connections) -> Iterator[Problem]:
    def problem(what: str, hint: str, severity: Literal["error", "warning"] = "warning", **more: Any) -> Problem:
        key = f"catalogs.{name}" if catalog.type == "glue" else f"catalogs.{name}.uri"
        return Problem(what=what, key=key, hint=hint, severity=severity, page="catalogs", **more)

    untried = "the commit check was not tried on a scratch table"
    if catalog.type == "hive":
        patient = catalog.model_copy(update={"properties": {**_SHORT_WAITS, **catalog.properties}})
        connections = connections.model_copy(update={"catalogs": {name: patient}})
    try:
        clients = (open_catalog(name, connections=connections), open_catalog(name, connections=connections))
    except (LakefeedError, ImportError) as error:
        refused = error if isinstance(error, LakefeedError) else MissingExtra.of(str(error.name), "read", "the check")
        yield problem(f"{untried}: {refused.what}", refused.hint or "correct the catalog's block")
        return
    from lakefeed_inspect import scratch

    # A table whose name comes from records has no known namespace yet.
    known = tuple(namespace) if "{" not in "".join(namespace) else (scratch.NAME.rstrip("_"),)
    table = scratch.ScratchTable(clients, known, server_decides=catalog.type == "rest")
    faults: list[scratch.Fault] = []
    try:
        table.create()
        faults += table.faults()
    except scratch.NotTried as error:
        allow = f"allow this login to create, change and drop tables in {name}.{'.'.join(known)}"
        yield problem(f"{untried}: {error}", f"{allow}, or rely on what the page says of this type of catalog")
    except Exception as error:
        yield problem(f"{untried}: {scratch.reason(error)}", "try again, or look at the catalog's log")
    finally:
        left = table.remove()
    shown = f"{name}.{'.'.join(table.name)}"
    if left is not None:
        yield problem(f"the scratch table of this check is still there: {left}", f"DROP TABLE {shown} PURGE")
    for fault in dict.fromkeys(faults):
        if fault.loses:
            what = f"this catalog does not guard commits, so rows could be lost or doubled: {fault.what}"
            yield problem(what, "use another catalog, or a release that guards commits", "error", about=shown)
        else:
            hint = "a feed commits again after it; programs without lakefeed that write the table stop with this error"
            yield problem(f"this catalog guards commits, but {fault.what}", hint)
