"""Generate random Avro schemas, and records of these schemas, from the schemas and rows of ``any_rows``."""

import io
import itertools
from typing import Any

import fastavro
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    LongType,
    MapType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from tests.support.any_rows import AnyRows


class AnyAvro:
    """A random schema, and encoded records of this schema."""

    def __init__(self, seed: int) -> None:
        self._rows = AnyRows(seed, names=["c", "field_"], keys=[StringType()])
        self._numbers = itertools.count()
        self.schema = self._record(self._rows.schema)

    def records(self, count: int) -> list[bytes]:
        """Return `count` records, encoded without Confluent's header."""
        parsed = fastavro.parse_schema(self.schema)
        found = []
        for row in self._rows.rows(count):
            buffer = io.BytesIO()
            fastavro.schemaless_writer(buffer, parsed, _value(self._rows.schema, row))
            found.append(buffer.getvalue())
        return found

    def _record(self, struct: StructType) -> dict[str, Any]:
        fields = [
            {"name": each.name, "type": ["null", kind] if each.nullable else kind}
            for each in struct.fields
            for kind in [self._type(each.dataType)]
        ]
        return {"type": "record", "name": f"R{next(self._numbers)}", "fields": fields}

    def _type(self, kind: DataType) -> Any:
        match kind:
            case StructType():
                return self._record(kind)
            case ArrayType():
                item = self._type(kind.elementType)
                return {"type": "array", "items": ["null", item] if kind.containsNull else item}
            case MapType():
                value = self._type(kind.valueType)
                return {"type": "map", "values": ["null", value] if kind.valueContainsNull else value}
            case DecimalType():
                decimal = {"type": "bytes", "logicalType": "decimal"}
                return {**decimal, "precision": kind.precision, "scale": kind.scale}
            case DateType():
                return {"type": "int", "logicalType": "date"}
            case TimestampType():
                return {"type": "long", "logicalType": "timestamp-micros"}
            case TimestampNTZType():
                return {"type": "long", "logicalType": "local-timestamp-micros"}
        names: dict[type[DataType], str] = {
            BooleanType: "boolean",
            LongType: "long",
            FloatType: "float",
            DoubleType: "double",
            StringType: "string",
            BinaryType: "bytes",
        }
        return names.get(type(kind), "int")


def _value(kind: DataType, value: Any) -> Any:
    if value is None:
        return None
    match kind:
        case StructType():
            return {each.name: _value(each.dataType, part) for each, part in zip(kind.fields, value, strict=True)}
        case ArrayType():
            return [_value(kind.elementType, item) for item in value]
        case MapType():
            return {key: _value(kind.valueType, item) for key, item in value.items()}
    return value
