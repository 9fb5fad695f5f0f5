"""The versions of the schemas of a feed's tables, each with its differences from the previous version."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from lakefeed.config.models import PipelineConfig
from lakefeed.errors import ResourceMissing
from lakefeed.json_model import iso
from lakefeed.monitor.feed_monitor import FeedMonitor
from lakefeed_dashboard.details.tables import ReadMetadata, parts_of
from lakefeed_dashboard.workers import explained

MOST_TABLES = 20
MOST_FIELDS = 1_000
LONGEST = 200


@dataclass(frozen=True)
class SchemaField:
    """A column or a nested field; its path is, for example, ``address.zip``, ``items.element`` or ``totals.value``."""

    path: str
    type: str
    nullable: bool

    def as_dict(self) -> dict[str, Any]:
        return {"name": _cut(self.path), "type": _cut(self.type), "nullable": self.nullable}


def schemas_document(config: PipelineConfig, monitor: FeedMonitor, read: ReadMetadata) -> dict[str, Any]:
    """Return the schemas of the feed's own tables, newest last, and the schema changes during this run."""
    schemas: list[dict[str, Any]] = []
    errors: list[str] = []
    parts = list(parts_of(config, monitor))
    for part in parts[:MOST_TABLES]:
        table = part.sink.chosen.snapshot_table
        if table is None:
            continue
        try:
            schemas += history(table, read(table))
        except ResourceMissing:
            continue
        except Exception as error:
            errors.append(explained(error))
    writers = [
        {"id": event.details.get("schema_id"), "at": iso(event.at), "batch": event.details.get("batch")}
        for event in monitor.events.after(0)
        if event.kind == "schema"
    ]
    note = None
    if config.sink.chosen.snapshot_table is None:
        note = f"the sink is {config.sink.kind}, which keeps no history of its schema"
    return {
        "schemas": schemas,
        "writers": writers,
        "left_out": max(0, len(parts) - MOST_TABLES),
        "note": note,
        "error": "; ".join(errors) or None,
    }


def history(table: str, metadata: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return a table's schemas, newest last, each with its differences from the previous schema."""
    found = []
    before: dict[int, SchemaField] | None = None
    for schema in metadata["schemas"]:
        fields = dict(_fields(schema["fields"]))
        at = schema.get("first-ms")
        found.append(
            {
                "table": table,
                "id": schema["schema-id"],
                "current": schema["schema-id"] == metadata["current-schema-id"],
                "at": None if at is None else iso(at / 1000),
                "fields": [field.as_dict() for field in list(fields.values())[:MOST_FIELDS]],
                "fields_left_out": max(0, len(fields) - MOST_FIELDS),
                **(differences(before, fields) if before is not None else {"added": [], "removed": [], "changed": []}),
            }
        )
        before = fields
    return found


def differences(before: Mapping[int, SchemaField], after: Mapping[int, SchemaField]) -> dict[str, list[dict[str, Any]]]:
    """Compare two schemas by field ids, so that a renamed field is one change and not two."""
    changed = []
    for id_, field in after.items():
        old = before.get(id_)
        if old is not None and old != field:
            changed.append({"name": _cut(field.path), "before": old.as_dict(), "after": field.as_dict()})
    return {
        "added": [field.as_dict() for id_, field in after.items() if id_ not in before][:MOST_FIELDS],
        "removed": [field.as_dict() for id_, field in before.items() if id_ not in after][:MOST_FIELDS],
        "changed": changed[:MOST_FIELDS],
    }


def _fields(fields: list[dict[str, Any]], prefix: str = "") -> Iterator[tuple[int, SchemaField]]:
    for field in fields:
        yield from _field(f"{prefix}{field['name']}", field["id"], field["type"], nullable=not field["required"])


def _field(path: str, id_: int, type_: Any, *, nullable: bool) -> Iterator[tuple[int, SchemaField]]:
    if isinstance(type_, str):
        yield id_, SchemaField(path, type_, nullable)
        return
    kind = type_["type"]
    yield id_, SchemaField(path, kind, nullable)
    if kind == "struct":
        yield from _fields(type_["fields"], f"{path}.")
    elif kind == "list":
        of = type_["element"]
        yield from _field(f"{path}.element", type_["element-id"], of, nullable=not type_["element-required"])
    elif kind == "map":
        yield from _field(f"{path}.key", type_["key-id"], type_["key"], nullable=False)
        value = type_["value"]
        yield from _field(f"{path}.value", type_["value-id"], value, nullable=not type_["value-required"])


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"
