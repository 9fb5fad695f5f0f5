"""Generate random Spark schemas, also nested, and rows with values that are hard for Parquet encoders.

A seed decides schemas and rows. Dates and timestamps of columns are numbers, which ``frame`` converts, because their
range exceeds that of Python's types. Dates and timestamps inside nested values are Python's.
"""

import datetime as dt
import math
import random
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

DEEPEST = 3
NAMES = ["c", "c", "c", "a column ", "é", "1-", "日本", "x_x20", "element", "key`"]
KEYS: Sequence[DataType] = [StringType(), LongType()]
REALS = [0.0, -0.0, math.nan, math.inf, -math.inf, 5e-324, -1.5]
FLOATS = [0.0, -0.0, math.nan, math.inf, -math.inf, 1.401298464324817e-45, 3.4028234663852886e38]
TEXTS = ["", "a", "é", "\U0001f600" * 20, "\U0010ffff" * 17, "z" * 16, "z" * 17]
LONGS = [0, 1, -1, -(1 << 63), (1 << 63) - 1, 1 << 32]
MICROS = [0, -1, -62_135_596_800_000_000, 253_402_300_799_999_999, -(1 << 62), (1 << 62)]
EPOCH = dt.datetime(1970, 1, 1)
DAYS = [0, -1, -719_162, 2_932_896, -141_714]
MOMENTS: dict[type[DataType], str] = {
    DateType: "date_from_unix_date({})",
    TimestampType: "timestamp_micros({})",
    TimestampNTZType: "CAST(timestamp_micros({}) AS TIMESTAMP_NTZ)",
}
"""SQL that converts a number of ``rows`` to the column's type, for the types that ``rows`` returns as numbers."""
NUMBERS: dict[type[DataType], str] = {
    DateType: "unix_date({})",
    TimestampType: "unix_micros({})",
    TimestampNTZType: "unix_micros(CAST({} AS TIMESTAMP))",
}
"""SQL that converts a value of the column's type back to a number."""


class AnyRows:
    """A random schema, and rows of this schema.

    Attributes:
        names: candidate names of columns; a number is appended to each.
        keys: candidate types of map keys.
    """

    def __init__(self, seed: int, *, names: Sequence[str] = NAMES, keys: Sequence[DataType] = KEYS) -> None:
        self._random = random.Random(seed)
        self._names = names
        self._keys = keys
        self.schema = self._struct(self._random.randint(1, 6), 0)

    def pick(self, *values: Any) -> Any:
        """Return one of these values at random."""
        return self._random.choice(values)

    def _struct(self, count: int, depth: int) -> StructType:
        names = [f"{self._random.choice(self._names)}{at}" for at in range(count)]
        return StructType([StructField(name, self._type(depth), self._random.random() < 0.8) for name in names])

    def _type(self, depth: int) -> DataType:
        kind = self._random.randint(0, 17 if depth < DEEPEST else 12)
        if kind > 12:
            optional = self._random.random() < 0.7
            match kind:
                case 13 | 14:
                    return self._struct(self._random.randint(1, 3), depth + 1)
                case 15 | 16:
                    return ArrayType(self._type(depth + 1), optional)
            return MapType(self._random.choice(self._keys), self._type(depth + 1), optional)
        precision = self._random.randint(1, 38)
        return (
            *(BooleanType(), ByteType(), ShortType(), IntegerType(), LongType(), FloatType(), DoubleType()),
            *(StringType(), BinaryType(), DateType(), TimestampType(), TimestampNTZType()),
            DecimalType(precision, self._random.randint(0, precision)),
        )[kind]

    def rows(self, count: int) -> list[tuple[Any, ...]]:
        """Return random rows; a column has few or many distinct values, and may have nulls."""
        columns = [self._column(field, count) for field in self.schema.fields]
        return list(zip(*columns, strict=True))

    def _column(self, field: StructField, count: int) -> list[Any]:
        distinct = self.pick(1, 3, 40, count)
        pool = [self._value(field.dataType, 0) for _ in range(distinct)]
        nulls = self.pick(0.0, 0.0, 0.02, 0.3, 1.0) if field.nullable else 0.0
        return [None if self._random.random() < nulls else self._random.choice(pool) for _ in range(count)]

    def _item(self, kind: DataType, depth: int, *, optional: bool) -> Any:
        return None if optional and self._random.random() < 0.25 else self._value(kind, depth)

    def _length(self) -> int:
        return 200 if self._random.random() < 0.005 else self._random.randint(0, 3)

    def _value(self, kind: DataType, depth: int) -> Any:
        edge, draw = self._random.random() < 0.3, self._random
        match kind:
            case BooleanType():
                return draw.random() < 0.5
            case ByteType() | ShortType() | IntegerType():
                bits = {ByteType: 7, ShortType: 15}.get(type(kind), 31)
                return self.pick(-(1 << bits), (1 << bits) - 1) if edge else draw.randint(-100, 100)
            case LongType():
                return draw.choice(LONGS) if edge else draw.randint(-(1 << 63), (1 << 63) - 1)
            case FloatType():
                return draw.choice(FLOATS) if edge else draw.randint(-1000, 1000) / 8
            case DoubleType():
                return draw.choice(REALS) if edge else draw.gauss(0, 1)
            case DecimalType():
                most = 10**kind.precision - 1
                number = most if edge else draw.randint(0, most)
                return Decimal((draw.randint(0, 1), tuple(map(int, str(number))), -kind.scale))
            case StringType():
                huge = "huge " * 30_000 if draw.random() < 0.002 else None
                return huge or (
                    draw.choice(TEXTS) if edge else f"text {draw.randint(0, 9999)}{'x' * draw.randint(0, 11)}"
                )
            case BinaryType():
                return draw.randbytes(0 if edge else draw.randint(0, 60))
            case DateType():
                if depth:
                    return (
                        self.pick(dt.date.min, dt.date.max)
                        if edge
                        else EPOCH.date() + dt.timedelta(draw.randint(0, 40_000))
                    )
                return draw.choice(DAYS) if edge else draw.randint(-30_000, 60_000)
            case TimestampType() | TimestampNTZType():
                if depth:
                    within = EPOCH + dt.timedelta(microseconds=draw.randint(-(10**15), 2 * 10**15))
                    moment = self.pick(dt.datetime.min, dt.datetime.max) if edge else within
                    return moment.replace(tzinfo=dt.UTC) if isinstance(kind, TimestampType) else moment
                return draw.choice(MICROS) if edge else draw.randint(-(10**15), 4 * 10**15)
            case ArrayType():
                count = self._length()
                return [self._item(kind.elementType, depth + 1, optional=kind.containsNull) for _ in range(count)]
            case MapType():
                keys = [self._value(kind.keyType, depth + 1) for _ in range(self._length())]
                return {key: self._item(kind.valueType, depth + 1, optional=kind.valueContainsNull) for key in keys}
            case StructType():
                return tuple(self._item(each.dataType, depth + 1, optional=each.nullable) for each in kind.fields)
        raise AssertionError(kind)

    def frame(self, spark: SparkSession, count: int) -> DataFrame:
        """Return the rows in one partition, so that all writers get them in the same order."""
        fields = [StructField(each.name, _as_number(each.dataType), each.nullable) for each in self.schema.fields]
        numbers = spark.createDataFrame(self.rows(count), StructType(fields), verifySchema=False).coalesce(1)
        # With the checkpoint, the rows are serialised from Python only once, not for each job.
        numbers = numbers.localCheckpoint()
        return numbers.selectExpr(*(_convert(each, MOMENTS) for each in self.schema.fields))

    def texts(self, frame: DataFrame) -> list[str]:
        """Return the rows as JSON, in order; dates and timestamps are numbers, since JSON cannot show all of them."""
        numbers = frame.selectExpr(*(_convert(each, NUMBERS) for each in self.schema.fields))
        return [row.text for row in numbers.selectExpr("to_json(struct(*)) AS text").collect()]


def _as_number(kind: DataType) -> DataType:
    if isinstance(kind, DateType):
        return IntegerType()
    return LongType() if type(kind) in MOMENTS else kind


def _convert(field: StructField, how: dict[type[DataType], str]) -> str:
    name = "`" + field.name.replace("`", "``") + "`"
    return f"{how.get(type(field.dataType), '{}').format(name)} AS {name}"
