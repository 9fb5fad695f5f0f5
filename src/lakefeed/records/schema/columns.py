"""The columns that a schema means, said without a JVM: for an Avro record schema, and for an Iceberg table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lakefeed.errors import ConfigError, MissingExtra
from lakefeed.records.schema.avro import Array, AvroSchema, Fixed, Map, Primitive, Record, Ref, Type, members, nullable
from lakefeed.records.schema.parse import parse

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType


def columns_of(text: str) -> StructType:
    """The columns of an Avro record schema, as the decoder makes them (``io.lakefeed.decode.AvroTypes``).

    Raises:
        ConfigError: it is no Avro record schema.
        MissingExtra: PySpark is not installed.
    """
    spark_types()
    schema = parse(text)
    assert isinstance(schema.root, Ref)  # parse lets nothing else through.
    return _struct(schema, schema.root, frozenset())


def spark_types() -> Any:
    """PySpark's types, which need no JVM.

    Raises:
        MissingExtra: PySpark is not installed.
    """
    try:
        from pyspark.sql import types
    except ImportError:
        raise MissingExtra.of("pyspark", "spark", "comparing a schema with a table") from None
    return types


def _struct(schema: AvroSchema, ref: Ref, around: frozenset[str]) -> StructType:
    record = schema.named(ref)
    assert isinstance(record, Record)
    inside = around | {record.name}
    t = spark_types()
    struct: StructType = t.StructType(
        [t.StructField(each.name, _type(schema, each.type, inside), nullable(each.type)) for each in record.fields]
    )
    return struct


def _type(schema: AvroSchema, type_: Type, around: frozenset[str]) -> DataType:
    t = spark_types()
    made: DataType
    flat = members(type_)
    if not flat:
        made = t.NullType()
    elif len(flat) > 1:
        made = t.StructType(
            [t.StructField(f"member{at}", _type(schema, each, around), True) for at, each in enumerate(flat)]
        )
    else:
        made = _single(schema, flat[0], around)
    return made


def _single(schema: AvroSchema, type_: Type, around: frozenset[str]) -> DataType:
    t = spark_types()
    made: DataType
    match type_:
        case Array():
            made = t.ArrayType(_type(schema, type_.items, around), nullable(type_.items))
        case Map():
            made = t.MapType(t.StringType(), _type(schema, type_.values, around), nullable(type_.values))
        case Primitive():
            made = _leaf(type_)
        case Ref():
            named = schema.named(type_)
            if isinstance(named, Fixed):
                made = _leaf(named.logical)
            elif isinstance(named, Record) and named.name not in around:
                made = _struct(schema, type_, around)
            else:
                # An enum; or a record inside itself, as JSON: a table's type has an end.
                made = t.StringType()
        case _:
            raise TypeError(type_)
    return made


def _leaf(type_: Primitive) -> DataType:
    t = spark_types()
    made: DataType
    if type_.logical == "decimal":
        made = t.DecimalType(type_.precision, type_.scale)
    elif type_.logical == "date":
        made = t.DateType()
    elif type_.logical in {"timestamp-millis", "timestamp-micros"}:
        made = t.TimestampType()
    elif type_.logical in {"local-timestamp-millis", "local-timestamp-micros"}:
        made = t.TimestampNTZType()
    else:
        plain = {
            "boolean": t.BooleanType,
            "int": t.IntegerType,
            "long": t.LongType,
            "float": t.FloatType,
            "double": t.DoubleType,
            "string": t.StringType,
        }
        made = plain.get(type_.name, t.BinaryType)()
    return made


def columns_of_table(iceberg: Any) -> StructType:
    """The columns of an Iceberg table as Spark shows them.

    Args:
        iceberg: pyiceberg's ``table.schema()``.

    Raises:
        ConfigError: it has a type that Spark has not.
    """
    struct: StructType = _of_iceberg(iceberg.as_struct())  # type: ignore[assignment]
    return struct


def _of_iceberg(type_: Any) -> DataType:
    import pyiceberg.types as i

    t = spark_types()
    made: DataType
    match type_:
        case i.StructType():
            made = t.StructType(
                [t.StructField(each.name, _of_iceberg(each.field_type), not each.required) for each in type_.fields]
            )
        case i.ListType():
            made = t.ArrayType(_of_iceberg(type_.element_type), not type_.element_required)
        case i.MapType():
            made = t.MapType(_of_iceberg(type_.key_type), _of_iceberg(type_.value_type), not type_.value_required)
        case i.DecimalType():
            made = t.DecimalType(type_.precision, type_.scale)
        case _:
            plain: dict[Any, Any] = {
                i.BooleanType: t.BooleanType,
                i.IntegerType: t.IntegerType,
                i.LongType: t.LongType,
                i.FloatType: t.FloatType,
                i.DoubleType: t.DoubleType,
                i.StringType: t.StringType,
                i.UUIDType: t.StringType,
                i.BinaryType: t.BinaryType,
                i.FixedType: t.BinaryType,
                i.DateType: t.DateType,
                i.TimestampType: t.TimestampNTZType,
                i.TimestamptzType: t.TimestampType,
                i.UnknownType: t.NullType,
            }
            if type(type_) not in plain:
                raise ConfigError(f"Spark has no type for the table's {type_}")
            made = plain[type(type_)]()
    return made
