"""Handles values that a change event lacks: Debezium writes a placeholder if the database did not log the column.

The placeholder can be text, bytes, the only item of an array or a map, or an array with the numbers of its bytes:
https://debezium.io/documentation/reference/stable/connectors/postgresql.html#postgresql-toasted-values
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple, Self

from lakefeed.clients.iceberg.sql import quoted
from lakefeed.lazy import Column, DataFrame, DataType, sf, t
from lakefeed.records.decode.formats import with_result

if TYPE_CHECKING:
    from lakefeed.config.models import PipelineConfig

Path = tuple[str, ...]
OnUnavailable = Literal["set_null", "keep", "error"]
OfLeaf = Callable[[Path, "Column", "DataType"], "Column | None"]


class Leaf(NamedTuple):
    """A field that may have the placeholder as its value."""

    path: Path
    value: Column
    type: DataType
    lacking: Column
    """True in rows whose field has the placeholder."""


@dataclass(frozen=True)
class Unavailable:
    """The rule for values that change events lack."""

    placeholder: str
    then: OnUnavailable = "set_null"
    """What replaces the placeholder if the sink has no stored value."""

    def is_placeholder(self, column: Column, type_: DataType) -> Column | None:
        """Return a column that is true for the placeholder; None if no value of this type can be the placeholder."""
        data = self.placeholder.encode()
        match type_:
            case t.StringType():
                return column.isin(*self._texts())
            case t.BinaryType():
                return column == sf.lit(bytearray(data))
            case t.ArrayType(elementType=t.StringType() | t.BinaryType() as item):
                inner = self.is_placeholder(sf.get(column, sf.lit(0)), item)
                return None if inner is None else (sf.size(column) == 1) & inner
            case t.ArrayType(elementType=t.ShortType() | t.IntegerType() | t.LongType() as item):
                numbers = [int.from_bytes(bytes([byte]), signed=True) for byte in data]
                return column == sf.array(*(sf.lit(number).cast(item) for number in numbers))
            case t.MapType(keyType=t.StringType()):
                return sf.map_keys(column) == sf.array(sf.lit(self.placeholder))
        return None

    @classmethod
    def of_records(cls, config: PipelineConfig) -> Self | None:
        """Return the rule to apply to decoded records; None if the sink applies it, or if no rule is needed."""
        placeholder, sink = config.decode.placeholder, config.upserting
        if placeholder is None or cls.of_sink(config) is not None or config.decode.on_unavailable == "keep":
            return None
        return cls(placeholder, config.decode.on_unavailable or ("set_null" if sink is None else "error"))

    @classmethod
    def of_sink(cls, config: PipelineConfig) -> Self | None:
        """Return the rule for a sink that reads the stored values itself; None for other sinks."""
        placeholder = config.decode.placeholder
        if placeholder is None or config.upserting is None or not config.sink.chosen.reads_stored_rows:
            return None
        return cls(placeholder, config.decode.on_unavailable or "set_null")

    def without(self, rows: DataFrame) -> DataFrame:
        """Return the rows with null in place of placeholders, unless the rule is to keep placeholders."""
        if self.then == "keep":
            return rows
        return rows.select(
            *(
                column if (value := rebuilt(column, field.dataType, self._null, (field.name,))) is None else value
                for field in rows.schema.fields
                for column in [sf.col(quoted((field.name,)))]
            )
        )

    def before_rows(self, decoded_records: DataFrame) -> DataFrame:
        """Apply the rule to ``decoded.value``: replace placeholders by null, or give their records an error."""
        decoded = sf.col("decoded")
        value, error, type_ = decoded["value"], decoded["error"], decoded_records.select("decoded.value.*").schema
        if self.then == "error":
            what = "the event lacks this value, but the sink replaces a whole document (decode.on_unavailable)"
            for leaf in self.leaves(value, type_):
                error = sf.coalesce(error, sf.when(leaf.lacking, sf.lit(f"{'.'.join(leaf.path)}: {what}")))
            value = sf.when(error.isNull(), value)
        elif self.then == "set_null" and (without := rebuilt(value, type_, self._null)) is not None:
            value = without
        return with_result(decoded_records, value, schema_id=decoded["schema_id"], error=error)

    def leaves(self, value: Column, type_: DataType, path: Path = ()) -> list[Leaf]:
        """Return the fields at all levels that can have the placeholder."""
        leaves: list[Leaf] = []

        def note(path: Path, column: Column, leaf: DataType) -> None:
            if (lacking := self.is_placeholder(column, leaf)) is not None:
                leaves.append(Leaf(path, column, leaf, lacking))

        rebuilt(value, type_, note, path)
        return leaves

    def _null(self, _: Path, column: Column, type_: DataType) -> Column | None:
        lacking = self.is_placeholder(column, type_)
        return None if lacking is None else sf.when(lacking, sf.lit(None)).otherwise(column)

    def _texts(self) -> set[str]:
        """Return all texts that mean the placeholder: plain, as encoded bytes, or in a JSON array or map."""
        own, data = self.placeholder, self.placeholder.encode()
        coded = {base64.b64encode(data).decode(), base64.urlsafe_b64encode(data).decode(), data.hex()}
        return {own, *coded, *(json.dumps(each, separators=(",", ":")) for each in ([own], {own: own}))}


def rebuilt(column: Column, type_: DataType, leaf: OfLeaf, path: Path = ()) -> Column | None:
    """Return a value with fields, at any level, replaced by the results of ``leaf``; None if all results are None."""
    if not isinstance(type_, t.StructType):
        made = leaf(path, column, type_)
        return made if made is None or not path else made.alias(path[-1])
    fields = [(column.getField(each.name), each) for each in type_.fields]
    parts = [rebuilt(inner, field.dataType, leaf, (*path, field.name)) for inner, field in fields]
    if all(part is None for part in parts):
        return None
    pairs = zip(parts, fields, strict=True)
    made = sf.struct(*(inner.alias(field.name) if part is None else part for part, (inner, field) in pairs))
    made = sf.when(column.isNotNull(), made)
    return made.alias(path[-1]) if path else made
