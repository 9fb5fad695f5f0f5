"""How large a schema may be: anyone who may register schemas may register any.

A few named types that use each other mean millions of columns, so the limit is on what a schema means, not on its
text. The decoder has the same limits (``io.lakefeed.decode.SchemaLimits``).
"""

from __future__ import annotations

from lakefeed.errors import ConfigError
from lakefeed.records.schema.avro import Array, AvroSchema, Map, Record, Ref, Type, Union, members

MOST_COLUMNS = 10_000
"""Columns and fields inside them, at all levels."""
DEEPEST = 100
"""Levels of records, arrays, maps and unions inside each other."""


def require_bounded(schema: AvroSchema) -> None:
    """Refuses a schema of too many columns or levels, in a time that the limits bound.

    Raises:
        ConfigError: says which limit.
    """
    _Count(schema).type(schema.root, frozenset(), 1)


class _Count:
    def __init__(self, schema: AvroSchema) -> None:
        self._schema = schema
        self._columns = 0

    def type(self, type_: Type, around: frozenset[str], depth: int) -> None:
        if depth > DEEPEST:
            raise too_deep()
        match type_:
            case Array():
                self.type(type_.items, around, depth + 1)
            case Map():
                self.type(type_.values, around, depth + 1)
            case Union():
                flat = members(type_)
                for each in flat:
                    if len(flat) > 1:
                        self._add()
                    self.type(each, around, depth + (len(flat) > 1))
            case Ref():
                named = self._schema.named(type_)
                # A record inside itself is one column of JSON.
                if isinstance(named, Record) and named.name not in around:
                    inside = around | {named.name}
                    for field in named.fields:
                        self._add()
                        self.type(field.type, inside, depth + 1)

    def _add(self) -> None:
        self._columns += 1
        if self._columns > MOST_COLUMNS:
            raise ConfigError(
                f"the schema means more than {MOST_COLUMNS:,} columns, fields inside columns counted",
                hint="named types that use each other several times multiply; leave some of them out",
            )


def too_deep() -> ConfigError:
    """The error for a schema of too many levels."""
    return ConfigError(
        f"the schema has more than {DEEPEST} levels inside each other",
        hint="write a record that contains itself for what may be nested without end",
    )
