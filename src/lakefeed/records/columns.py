"""The columns of a feed's rows, as plain values without Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

DEEPEST = 20
MOST_COLUMNS = 2000


@dataclass(frozen=True)
class RowColumn:
    name: str
    type: str
    """The name of the type in SQL."""
    columns: tuple[RowColumn, ...] = ()
    """The columns of a struct, or of the structs in an array or a map."""

    def as_dict(self) -> dict[str, Any]:
        """Return the column for JSON, with the keys of OpenLineage's schema facet."""
        nested = {"fields": [column.as_dict() for column in self.columns]} if self.columns else {}
        return {"name": self.name, "type": self.type, **nested}


def columns_of(schema: Mapping[str, Any], *, deepest: int = DEEPEST) -> tuple[RowColumn, ...]:
    """Return the columns of a Spark schema (``StructType.jsonValue()``), with at most ``deepest`` levels of structs."""
    fields: Sequence[Mapping[str, Any]] = schema.get("fields", ())
    return tuple(_column(field, deepest) for field in fields[:MOST_COLUMNS])


def _column(field: Mapping[str, Any], deepest: int) -> RowColumn:
    kind = field["type"]
    if isinstance(kind, str):
        return RowColumn(field["name"], kind)
    inner = kind
    while isinstance(inner, Mapping) and inner["type"] in ("array", "map"):
        inner = inner["elementType" if inner["type"] == "array" else "valueType"]
    is_struct = isinstance(inner, Mapping) and inner["type"] == "struct" and deepest > 0
    return RowColumn(field["name"], kind["type"], columns_of(inner, deepest=deepest - 1) if is_struct else ())
