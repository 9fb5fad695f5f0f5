"""Translates schemas of Avro and Iceberg to Spark's columns without a JVM, and fits rows to a table's columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from lakefeed.clients.iceberg.sql import quoted
from lakefeed.config.keyed import name_taken
from lakefeed.errors import ConfigError, MissingExtra, SchemaIncompatible, SchemaUnusable
from lakefeed.lazy import Column, DataFrame, sf, t
from lakefeed.records.schema.avro import AvroSchema, Container, Primitive, Ref, Type, child_path, members, nullable
from lakefeed.records.schema.parse import parse

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructField, StructType

# The values are the names of types in Spark's JSON of a schema.
_OF_LOGICAL = {
    "date": "date",
    "timestamp-millis": "timestamp",
    "timestamp-micros": "timestamp",
    "local-timestamp-millis": "timestamp_ntz",
    "local-timestamp-micros": "timestamp_ntz",
}
_PLAIN = {"int": "integer", **{name: name for name in ("boolean", "long", "float", "double", "string")}}
_OF_ICEBERG = {
    **_PLAIN,
    **{name: name for name in ("binary", "date")},
    "uuid": "string",
    "timestamp": "timestamp_ntz",
    "timestamptz": "timestamp",
    "unknown": "void",
}
WIDER = {
    "byte": ("short", "integer", "long", "float", "double"),
    "short": ("integer", "long", "float", "double"),
    "integer": ("long", "double"),
    "float": ("double",),
}
"""By type, the types that can represent all of its values exactly."""
RowTransform = Callable[[Any], "DataFrame"]
"""A function that takes decoded rows, or each stream's rows by name, and returns the sink's rows."""


def columns_of(text: str) -> StructType:
    """Return the Spark columns of an Avro record schema, as the decoder does (``io.lakefeed.decode.AvroTypes``)."""
    schema = parse(text)
    columns: StructType = spark_types().StructType.fromJson(_avro_type(schema, schema.root, frozenset()))
    return columns


def columns_of_table(iceberg: Any) -> StructType:
    """Return the Spark columns of an Iceberg table from pyiceberg's ``table.schema()``."""
    columns: StructType = spark_types().StructType.fromJson(_iceberg_type(iceberg.as_struct()))
    return columns


def spark_types() -> Any:
    """Return PySpark's module ``types``, which needs no JVM; raise ``MissingExtra`` if PySpark is not installed."""
    try:
        from pyspark.sql import types
    except ImportError:
        raise MissingExtra.of("pyspark", "spark", "comparing a schema with a table") from None
    return types


def _avro_type(schema: AvroSchema, type_: Type, around: frozenset[str]) -> Any:
    flat = members(type_)
    if not flat:
        return "void"
    if len(flat) > 1:
        return _struct((f"member{at}", _avro_type(schema, member, around), True) for at, member in enumerate(flat))
    match flat[0]:
        case Container("array", items):
            return _array(_avro_type(schema, items, around), nullable(items))
        case Container("map", values):
            return _map("string", _avro_type(schema, values, around), nullable(values))
        case Primitive() as plain:
            return _primitive(plain)
        case Ref() as ref:
            named = schema.look_up(ref)
            if named.kind == "fixed":
                return _primitive(named.logical)
            if named.kind == "record" and named.name not in around:
                inside = around | {named.name}
                return _struct(
                    (field.name, _avro_type(schema, field.type, inside), nullable(field.type)) for field in named.fields
                )
    # An enum becomes its symbol as text. A record inside itself becomes JSON text: a column's type must be finite.
    return "string"


def _primitive(type_: Primitive) -> str:
    if type_.logical == "decimal":
        return f"decimal({type_.precision},{type_.scale})"
    return _OF_LOGICAL.get(type_.logical or "") or _PLAIN.get(type_.name, "binary")


def _iceberg_type(type_: Any) -> Any:
    import pyiceberg.types as iceberg

    match type_:
        case iceberg.StructType():
            return _struct((field.name, _iceberg_type(field.field_type), not field.required) for field in type_.fields)
        case iceberg.ListType():
            return _array(_iceberg_type(type_.element_type), not type_.element_required)
        case iceberg.MapType():
            values = _iceberg_type(type_.value_type)
            return _map(_iceberg_type(type_.key_type), values, not type_.value_required)
        case iceberg.DecimalType():
            return f"decimal({type_.precision},{type_.scale})"
        case iceberg.FixedType():
            return "binary"
    if str(type_) not in _OF_ICEBERG:
        raise ConfigError(
            f"Spark has no type for the table's {type_}", hint="drop the column or replace it by one of another type"
        )
    return _OF_ICEBERG[str(type_)]


def _struct(fields: Iterable[tuple[str, Any, bool]]) -> dict[str, Any]:
    documents = [{"name": name, "type": type_, "nullable": null, "metadata": {}} for name, type_, null in fields]
    return {"type": "struct", "fields": documents}


def _array(items: Any, null: bool) -> dict[str, Any]:
    return {"type": "array", "elementType": items, "containsNull": null}


def _map(keys: Any, values: Any, null: bool) -> dict[str, Any]:
    return {"type": "map", "keyType": keys, "valueType": values, "valueContainsNull": null}


def align_columns(rows: DataFrame, table_schema: StructType) -> DataFrame:
    """Return the rows with the table's columns in the table's order; ``rows`` itself if they already fit.

    Missing columns become null at all levels; a null struct stays null. Types are widened if no value is lost. Names
    are compared without case, as in Spark. The result is a projection without Python code, for batches and streams.

    Raises:
        SchemaIncompatible: the rows have data in a column that the table lacks, or a column of another type.
    """
    if same_type(rows.schema, table_schema):
        return rows
    refuse_same_but_for_case(rows.schema, where="the rows")
    return rows.select(*_fit_fields(lambda name: sf.col(quoted((name,))), rows.schema, table_schema, ""))


class StorableRows:
    """Wraps a transform: removes from its rows, at all levels, columns that cannot have data.

    Iceberg and Parquet have no columns for nulls, arrays of nulls and records without fields.
    """

    def __init__(self, transform: RowTransform) -> None:
        self._transform = transform
        self._reported: set[str] = set()
        self._notes: list[str] = []

    def __call__(self, decoded_rows: Any) -> DataFrame:
        """Return the transformed rows with their storable columns; raise ``ConfigError`` if no column is storable."""
        rows = self._transform(decoded_rows)
        if why := next(filter(None, (name_taken(name, ()) for name in rows.columns)), None):
            raise ConfigError(why.replace("field", "column", 1), hint="give the column another name in the transform")
        left_out: dict[str, str] = {}
        storable = _with_data(rows.schema, "", left_out)
        if not left_out:
            return rows
        for path, kind in left_out.items():
            if path not in self._reported:
                self._reported.add(path)
                self._notes.append(f"column {path} is left out: it carries no data ({kind})")
        if not storable.fields:
            message = ", ".join(f"{path} ({kind})" for path, kind in left_out.items())
            hint = "name metadata below decode, such as offset, or make a column in transform.sql"
            raise SchemaUnusable(f"no column of the rows carries data: {message}", hint=hint)
        return align_columns(rows, storable)

    def notes(self) -> tuple[str, ...]:
        """Return a message for each column that was first removed since the last call."""
        taken, self._notes = tuple(self._notes), []
        return taken


def same_type(have: DataType, want: DataType) -> bool:
    """Return whether two types differ at most in nullability."""
    return have.simpleString() == want.simpleString()


def find_field(struct: StructType, name: str) -> StructField | None:
    """Return the field called ``name``, without regard to case; None if there is no such field."""
    return by_name(struct).get(name.lower())


def by_name(struct: StructType) -> dict[str, StructField]:
    """Return the fields by lower-case name; if two names differ only in case, the first field counts."""
    return {field.name.lower(): field for field in reversed(struct.fields)}


def inner_types(type_: DataType, path: str = "") -> list[tuple[str, DataType]]:
    """Return path and type of each field of a struct, or of an array's elements, or of a map's values."""
    if isinstance(type_, t.StructType):
        return [(child_path(path, field.name), field.dataType) for field in type_.fields]
    if isinstance(type_, t.ArrayType):
        return [(child_path(path, "element"), type_.elementType)]
    if isinstance(type_, t.MapType):
        return [(child_path(path, "value"), type_.valueType)]
    return []


def paths(type_: DataType, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield the paths and DDL names of all types inside a type, for ``SinkConfig.refuses``."""
    for inner, part in inner_types(type_, path):
        yield inner, part.typeName().upper()
        yield from paths(part, inner)


def carries_data(type_: DataType) -> bool:
    """Return whether values of the type can be anything but null."""
    inner = inner_types(type_)
    if inner or isinstance(type_, t.StructType):
        return any(carries_data(part) for _, part in inner)
    return not isinstance(type_, t.NullType)


def casts_to(have: DataType, want: DataType) -> bool:
    """Return whether ``want`` can represent every value of ``have`` exactly."""
    if same_type(have, want) or not carries_data(have):
        return True
    if isinstance(have, t.DecimalType) and isinstance(want, t.DecimalType):
        return have.scale <= want.scale and have.precision - have.scale <= want.precision - want.scale
    return want.typeName() in WIDER.get(have.typeName(), ())


def refuse_same_but_for_case(type_: DataType, *, where: str, path: str = "") -> None:
    """Refuse a struct with two fields whose names are equal but for case, because Spark treats them as one field."""
    spellings: dict[str, str] = {}
    for inner_path, inner in inner_types(type_, path):
        first = spellings.get(inner_path.lower())
        if first is not None:
            what = "have the same name" if first == inner_path else "differ in case only"
            hint = "give one of them another name"
            raise SchemaIncompatible(f"the columns {first} and {inner_path} {what}", where=where, hint=hint)
        spellings[inner_path.lower()] = inner_path
        refuse_same_but_for_case(inner, where=where, path=inner_path)


def _fit_fields(column_of: Callable[[str], Column], have: StructType, want: StructType, path: str) -> Iterator[Column]:
    expected, known = by_name(want), by_name(have)
    extra = [
        child_path(path, field.name)
        for field in have.fields
        if field.name.lower() not in expected and carries_data(field.dataType)
    ]
    if extra:
        hint = "add them to the table (ALTER TABLE … ADD COLUMNS), or omit them in transform.sql"
        raise SchemaIncompatible(f"the table lacks columns that the rows have: {', '.join(extra)}", hint=hint)
    for field in want.fields:
        own = known.get(field.name.lower())
        if own is None:
            column = sf.lit(None).cast(field.dataType)
        else:
            column = _fit(column_of(own.name), own.dataType, field.dataType, child_path(path, field.name))
        yield column.alias(field.name)


def _fit(column: Column, have: DataType, want: DataType, path: str) -> Column:
    if same_type(have, want):
        return column
    if not carries_data(have):
        return sf.lit(None).cast(want)
    if isinstance(have, t.StructType) and isinstance(want, t.StructType):
        return sf.when(column.isNotNull(), sf.struct(*_fit_fields(column.getField, have, want, path)))
    if isinstance(have, t.ArrayType) and isinstance(want, t.ArrayType):
        inner, requested = have.elementType, want.elementType
        return sf.transform(column, lambda item: _fit(item, inner, requested, f"{path}.element"))
    if isinstance(have, t.MapType) and isinstance(want, t.MapType) and same_type(have.keyType, want.keyType):
        inner, requested = have.valueType, want.valueType
        return sf.transform_values(column, lambda _, item: _fit(item, inner, requested, f"{path}.value"))
    if not casts_to(have, want):
        what = f"column {path} is {have.simpleString()} in the rows and {want.simpleString()} in the table"
        raise SchemaIncompatible(what, hint="cast the column in transform.sql")
    return column.cast(want)


def _kind(type_: DataType) -> str:
    if isinstance(type_, t.StructType):
        return "a record of such fields" if type_.fields else "a record without fields"
    for _, inner in inner_types(type_):
        return f"{'an array' if isinstance(type_, t.ArrayType) else 'a map'} of {_kind(inner).removeprefix('a ')}"
    return "null"


def _with_data(type_: Any, path: str, left_out: dict[str, str]) -> Any:
    """Return the type without fields that cannot have data; add these fields' paths and types to ``left_out``."""
    if isinstance(type_, t.StructType):
        fields = []
        for field in type_.fields:
            place = child_path(path, field.name)
            if carries_data(field.dataType):
                fields.append(t.StructField(field.name, _with_data(field.dataType, place, left_out), field.nullable))
            else:
                left_out[place] = _kind(field.dataType)
        return t.StructType(fields)
    if isinstance(type_, t.ArrayType):
        return t.ArrayType(_with_data(type_.elementType, child_path(path, "element"), left_out), type_.containsNull)
    if isinstance(type_, t.MapType):
        values = _with_data(type_.valueType, child_path(path, "value"), left_out)
        return t.MapType(type_.keyType, values, type_.valueContainsNull)
    return type_
