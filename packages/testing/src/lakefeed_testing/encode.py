"""Encode the values and keys of test cases as producers do, with lakefeed's own encoders."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal, InvalidOperation
from typing import Any

from lakefeed.clients.spark.errors import quietly, translating
from lakefeed.config.decoding import Encoded
from lakefeed.errors import ConfigError, LakefeedError
from lakefeed.lazy import DataType, SparkSession, sf, t
from lakefeed.records.decode.avro_schema import avro_schema_of_schema
from lakefeed.records.decode.registry import SchemaText
from lakefeed.records.schema.avro import NO_DEFAULT, AvroSchema, Container, Field, Primitive, Ref, Type, members
from lakefeed.records.schema.parse import parse
from lakefeed_encode.avro import row_error, struct_of
from lakefeed_encode.encode import Encoding, Format, header, value_of

FORMATS: dict[str, tuple[Format, Format]] = {
    "avro": ("avro", "confluent-avro"),
    "protobuf": ("protobuf", "confluent-protobuf"),
}
"""The formats of a decoding block, by its name: without a registry, and with a registry."""
CORRUPT = "_lakefeed_corrupt"
LARGEST_FLOAT = (2 - 2**-23) * 2.0**127


@dataclass(frozen=True, kw_only=True)
class GivenValue:
    """A value of a case, its location in the file, and the id of its schema in the registry."""

    value: Any
    where: str
    schema_id: int | None = None


class CaseEncoder:
    """Encodes the values or the keys of one pipeline's records.

    ``encoded`` is the pipeline's block that decodes these bytes, and ``schemas`` are the registry's schemas by id.
    """

    def __init__(self, spark: SparkSession, encoded: Encoded, schemas: Mapping[int, SchemaText]) -> None:
        self._spark = spark
        self._encoded = encoded
        self._schemas = schemas
        self._encodings: dict[int | None, Encoding] = {}

    def encode(self, given: Sequence[GivenValue]) -> list[bytes]:
        """Return the values' bytes in order; raise ConfigError with the location of a value that does not fit."""
        if self._encoded.kind not in FORMATS:
            return [self._plain(each) for each in given]
        found: dict[int, bytes] = {}
        for schema_id in dict.fromkeys(each.schema_id for each in given):
            numbers = [number for number, each in enumerate(given) if each.schema_id == schema_id]
            chosen = [given[number] for number in numbers]
            encoding = self._encoding(schema_id, chosen[0].where)
            try:
                found.update(zip(numbers, self._encode_rows(encoding, chosen), strict=True))
            except LakefeedError:
                # Spark's error does not name the row, so find it by encoding the values one by one.
                for each in chosen:
                    self._encode_one(encoding, each)
                raise
        return [found[number] for number in range(len(given))]

    def _plain(self, given: GivenValue) -> bytes:
        """Encode a value in a format whose bytes do not depend on a schema."""
        kind, value = self._encoded.kind, given.value
        if kind in ("json", "json_schema"):
            text = json.dumps(value, default=_json_text, ensure_ascii=False).encode()
            if kind == "json":
                return text
            if given.schema_id is None:
                hint = "add schema_id: 1 to the record, and the schema to tests.schemas"
                raise ConfigError("the value has no schema", where=given.where, hint=hint)
            return bytes(header(given.schema_id)) + text
        if isinstance(value, dict | list):
            hint = "write text: '…', or hex: '…'"
            raise ConfigError(f"a value of the format {kind} must be text", where=given.where, hint=hint)
        return str(_json_text(value) if isinstance(value, date) else value).encode()

    def _encoding(self, schema_id: int | None, where: str) -> Encoding:
        if schema_id not in self._encodings:
            try:
                self._encodings[schema_id] = self._settle(schema_id)
            except LakefeedError as error:
                raise ConfigError(error.what, where=where, hint=error.hint) from None
        return self._encodings[schema_id]

    def _settle(self, schema_id: int | None) -> Encoding:
        how = self._encoded
        without, framed = FORMATS[how.kind]
        message = how.protobuf.message if how.protobuf is not None else None
        if how.registry is not None:
            if schema_id is None or schema_id not in self._schemas:
                raise ConfigError(
                    "the value has no schema" if schema_id is None else f"tests.schemas has no schema id {schema_id}",
                    hint="add the schema to tests.schemas; or write a value with an unknown schema as bytes, hex: '…'",
                )
            schema = self._schemas[schema_id]
        else:
            registered = how.avro or how.protobuf
            file = registered.schema_file if registered is not None else None
            if file is None or file.suffix not in (".avsc", ".json", ".proto"):
                what = "values of a descriptor set cannot be encoded"
                raise ConfigError(what, hint="write the value's bytes: hex: '…'")
            schema = SchemaText(text=file.read_text("utf-8"), kind="AVRO" if how.avro is not None else "PROTOBUF")
        return Encoding(
            format=without if how.registry is None else framed,
            schema=avro_schema_of_schema(self._spark, schema, message=message),
            written=schema,
            message=message,
            schema_id=schema_id if how.registry is not None else None,
        )

    def _encode_one(self, encoding: Encoding, given: GivenValue) -> None:
        """Encode one value; if that fails, raise an error with its location in the file."""
        try:
            self._encode_rows(encoding, [given])
        except LakefeedError as error:
            hint = error.hint or "compare it with its schema; or write wrong bytes on purpose as hex: '…'"
            raise ConfigError(f"the value cannot be encoded: {error.what}", where=given.where, hint=hint) from None

    def _encode_rows(self, encoding: Encoding, given: Sequence[GivenValue]) -> list[bytes]:
        columns = struct_of(self._spark, encoding.schema or "")
        for each in given:
            if not isinstance(each.value, dict):
                what = f"the value is {type(each.value).__name__}, and its schema is a record"
                raise ConfigError(what, hint="write the value as a mapping of fields: {name: …}")
            parts = list(_parts(each.value, columns))
            if unknown := next((part.path for part in parts if part.type_ is None), None):
                hint = f"the schema has {', '.join(columns.names)}"
                if self._encoded.protobuf is not None and encoding.message is None:
                    hint += "; this is the file's first message, and decode.protobuf.message names another"
                raise ConfigError(f"the schema has no field {unknown}", hint=hint)
            if misfit := next((part for part in parts if part.would_change and not part.fits), None):
                raise ConfigError(str(misfit), hint=misfit.hint)
        schema = parse(encoding.schema or "")
        values = [with_defaults(each.value, schema) for each in given]
        texts = [(number, json.dumps(value, default=_json_text)) for number, value in enumerate(values)]
        parsed = t.StructType([*columns.fields, t.StructField(CORRUPT, t.StringType())])
        options = {"columnNameOfCorruptRecord": CORRUPT, "mode": "PERMISSIVE"}
        with translating(row_error), quietly():
            rows = self._spark.createDataFrame(texts, "number INT, text STRING").coalesce(1)
            read = rows.select(sf.from_json("text", parsed, options).alias("row")).select("row.*").cache()
            try:
                if not read.filter(sf.col(CORRUPT).isNotNull()).isEmpty():
                    given_parts = (part for each in given for part in _parts(each.value, columns))
                    misfit = next((part for part in given_parts if not part.fits), None)
                    raise ConfigError(str(misfit or "a field has a value of another type than the schema's"))
                encoded = read.drop(CORRUPT).select(value_of(read.drop(CORRUPT), encoding).alias("value"))
                return [bytes(row["value"]) for row in encoded.collect()]
            finally:
                read.unpersist()


@dataclass(frozen=True)
class _Part:
    """A nested value, with its type in the schema; the type is None for an unknown field."""

    path: str
    value: Any
    type_: DataType | None

    @property
    def type_name(self) -> str:
        return "" if self.type_ is None else self.type_.typeName()

    @property
    def would_change(self) -> bool:
        """Return True if Spark would silently change a value to fit: 1.255 into 1.26, or a number into text."""
        return self.type_name in ("string", "decimal", "float")

    @property
    def hint(self) -> str:
        return "put a text in quotes" if self.type_name == "string" else "give a value that the type holds exactly"

    @property
    def fits(self) -> bool:
        """Return True if the value fits its type; Spark itself checks nulls, and the content of texts."""
        return self.value is None or (self.type_ is not None and _fits(self.value, self.type_))

    def __str__(self) -> str:
        written = json.dumps(self.value, default=_json_text, ensure_ascii=False)
        there = "nothing" if self.type_ is None else self.type_.simpleString()
        return f"{self.path} is {written}, and the schema has {there} there"


def _parts(value: Any, type_: DataType | None, path: str = "") -> Iterator[_Part]:
    """Yield a value and, recursively, the values in it."""
    yield _Part(path, value, type_)
    if isinstance(type_, t.StructType) and isinstance(value, dict):
        inner = {field.name: field.dataType for field in type_.fields}
        for name, below in value.items():
            yield from _parts(below, inner.get(name), f"{path}.{name}" if path else str(name))
    elif isinstance(type_, t.ArrayType) and isinstance(value, list):
        for number, below in enumerate(value):
            yield from _parts(below, type_.elementType, f"{path}[{number}]")
    elif isinstance(type_, t.MapType) and isinstance(value, dict):
        for name, below in value.items():
            yield from _parts(below, type_.valueType, f"{path}.{name}")


def _fits(value: Any, type_: DataType) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    match type_:
        case t.StructType() | t.MapType():
            return isinstance(value, dict)
        case t.ArrayType():
            return isinstance(value, list)
        case t.BooleanType():
            return isinstance(value, bool)
        case t.ByteType() | t.ShortType() | t.IntegerType() | t.LongType():
            bits = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}[type_.simpleString()]
            return is_number and isinstance(value, int) and -(2 ** (bits - 1)) <= value < 2 ** (bits - 1)
        case t.FloatType() | t.DoubleType():
            is_large = isinstance(type_, t.FloatType) and is_number and LARGEST_FLOAT < abs(value) < math.inf
            return (is_number and not is_large) or value in ("NaN", "Infinity", "-Infinity")
        case t.DecimalType():
            return not isinstance(value, bool) and _is_decimal(str(value), type_.precision, type_.scale)
        case t.StringType() | t.BinaryType():
            return isinstance(value, str | date)
        case _:
            return not isinstance(value, bool | dict | list)


def _is_decimal(text: str, precision: int, scale: int) -> bool:
    """Return True if a text is a number that fits into a decimal type without rounding."""
    try:
        number = Decimal(text)
    except InvalidOperation:
        return False
    if not number.is_finite():
        return False
    # Remove zeros by hand, because normalize() rounds to the 28 digits of Python's decimal context.
    _, digits, exponent = number.as_tuple()
    held = "".join(map(str, digits)).rstrip("0")
    least = int(exponent) + len(digits) - len(held)
    return number == 0 or (least >= -scale and len(held) + least <= precision - scale)


def _json_text(value: Any) -> str:
    return value.isoformat() if isinstance(value, date) else str(value)


def with_defaults(value: Any, schema: AvroSchema, type_: Type | None = None) -> Any:
    """Return a value with the defaults of its missing fields, at all levels; an explicit null stays null.

    ``type_`` is the value's type; by default the value is a whole record.
    """
    kinds = members(schema.root if type_ is None else type_)
    if len(kinds) != 1 or value is None:
        return value
    kind = kinds[0]
    if isinstance(kind, Container):
        if kind.kind == "array" and isinstance(value, list):
            return [with_defaults(each, schema, kind.values) for each in value]
        if kind.kind == "map" and isinstance(value, dict):
            return {key: with_defaults(each, schema, kind.values) for key, each in value.items()}
        return value
    if not isinstance(kind, Ref) or not isinstance(value, dict) or schema.look_up(kind).kind != "record":
        return value
    filled = dict(value)
    for field in schema.look_up(kind).fields:
        if field.name in value:
            filled[field.name] = with_defaults(value[field.name], schema, field.type)
        elif field.default is not NO_DEFAULT and field.default is not None:
            filled[field.name] = _default(field, schema)
    return filled


def _default(field: Field, schema: AvroSchema) -> Any:
    """Return a field's default in a case's notation; Avro writes bytes as text with the code points 0 to 255."""
    kind = members(field.type)[0]
    if isinstance(kind, Primitive) and kind.name == "bytes":
        content = str(field.default).encode("latin-1")
        if kind.logical == "decimal":
            return str(Decimal(int.from_bytes(content, signed=True)).scaleb(-kind.scale))
        return base64.b64encode(content).decode()
    return with_defaults(field.default, schema, field.type)
