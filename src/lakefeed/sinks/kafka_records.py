"""How rows become records: key, value, the headers that tell copies, and the partition of those without a key."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING

from lakefeed.clients.spark.errors import quietly
from lakefeed.config.kafka_sink import KafkaSinkConfig
from lakefeed.config.keyed import POSITION_COLUMNS
from lakefeed.errors import ConfigError
from lakefeed.records.decode.registry import SchemaRegistry
from lakefeed.records.encode import avro
from lakefeed.records.encode.encode import Encoding, Format, settle, value_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

HEADERS_TYPE = "array<struct<key:string,value:binary>>"
BATCH, SOURCE, ROW = "lakefeed.batch", "lakefeed.source", "lakefeed.row"
"""Headers; ``io.lakefeed.copies.OnceOnly`` reads them."""
_FRAMED: dict[str, Format] = {
    "avro": "confluent-avro",
    "protobuf": "confluent-protobuf",
    "json_schema": "json-schema",
}
_PLAIN: dict[str, Format] = {"avro": "avro", "protobuf": "protobuf", "json": "json"}


@dataclass(frozen=True, kw_only=True)
class RowRecords:
    """How rows of one schema become records of a topic.

    Attributes:
        sink: the sink's block.
        schema: of the rows.
        encoding: of the value; None if it is one column as it is.
    """

    sink: KafkaSinkConfig
    schema: StructType
    encoding: Encoding | None

    @classmethod
    def settled(cls, sink: KafkaSinkConfig, rows: DataFrame) -> RowRecords:
        """Looks whether the rows have what the sink names, and settles the value's schema in the registry.

        Raises:
            ConfigError: they lack a column, or do not fit the schema.
        """
        require_columns(sink, rows)
        return cls(sink=sink, schema=rows.schema, encoding=_encoding(sink, described(rows)))

    def of(self, rows: DataFrame, *, batch: Column, one_per_record: bool, partitions: int) -> DataFrame:
        """The records of a batch's rows.

        Args:
            rows: with the columns ``POSITION_COLUMNS``, if it is known which record each is made of.
            batch: the query and the number of the batch.
            one_per_record: whether a record makes one row at most.
            partitions: how many the topic has.
        """
        from pyspark.sql import Window
        from pyspark.sql import functions as sf

        placed = all(name in rows.columns for name in POSITION_COLUMNS)
        numbered = not (placed and one_per_record)
        source = sf.lit(None).cast("string")
        if placed:
            is_known = reduce(and_, (sf.col(name).isNotNull() for name in POSITION_COLUMNS))
            source = sf.when(is_known, sf.concat_ws("/", *POSITION_COLUMNS))
        records = rows.select(
            key_of(self.sink, rows).alias("key"),
            self._value(rows).alias("value"),
            source.alias("source"),
            batch.alias("batch"),
            *(sf.expr(text).cast("string").alias(f"header_{at}") for at, text in enumerate(self.sink.headers.values())),
        )
        named = {BATCH: sf.col("batch")}
        if placed:
            named[SOURCE] = sf.col("source")
        if numbered:
            equal = Window.partitionBy("key", "value", "source").orderBy("key")
            records = records.withColumn("row", sf.row_number().over(equal) - 1)
            named[ROW] = sf.col("row")
        named |= {name: sf.col(f"header_{at}") for at, name in enumerate(self.sink.headers)}
        # The row itself decides its partition where no key does, so that a copy goes where the first one went.
        hashed = [sf.col("source")] if placed else [sf.col("value"), sf.col("row")]
        own = sf.pmod(sf.xxhash64(*hashed), sf.lit(partitions)).cast("int")
        return records.select(
            sf.when(sf.col("key").isNull(), own).alias("partition"),
            "key",
            "value",
            sf.array(*(_header(name, value) for name, value in named.items())).cast(HEADERS_TYPE).alias("headers"),
        )

    def _value(self, rows: DataFrame) -> Column:
        if self.encoding is not None:
            return value_of(described(rows), self.encoding)
        assert self.sink.value.column is not None  # The only value that has no encoding.
        return _plain(self.sink.value.column.name, rows)


def described(rows: DataFrame) -> DataFrame:
    """The rows without what the headers tell."""
    return rows.drop(*POSITION_COLUMNS)


def require_columns(sink: KafkaSinkConfig, rows: DataFrame) -> None:
    """Refuses rows that lack what the sink's key, value or headers name.

    Raises:
        ConfigError: naming the setting.
    """
    from pyspark.errors import PySparkException
    from pyspark.sql import functions as sf

    def tried(setting: str, made: Callable[[], Column]) -> None:
        try:
            with quietly():
                _ = rows.select(made()).schema
        except PySparkException as error:
            raise ConfigError(
                f"the rows cannot give it: {str(error).splitlines()[0]}",
                where=f"sink.kafka.{setting}",
                hint=f"they have {', '.join(rows.columns)}",
            ) from None

    tried("key", lambda: key_of(sink, rows))
    for name, text in sink.headers.items():
        tried(f"headers.{name}", lambda text=text: sf.expr(text).cast("string"))  # type: ignore[misc]
    if (column := sink.value.column) is not None:
        if column.name not in rows.columns:
            raise ConfigError(
                f"value names the column '{column.name}', which the rows do not have",
                where="sink.kafka.value.column",
                hint=f"they have {', '.join(rows.columns)}",
            )
        tried("value.column", lambda: _plain(column.name, rows))


def key_of(sink: KafkaSinkConfig, rows: DataFrame) -> Column:
    """The record's key: bytes as they are, all else as text; null if the sink names none."""
    from pyspark.sql import functions as sf
    from pyspark.sql.types import BinaryType

    if sink.key is None:
        return sf.lit(None).cast("binary")
    if isinstance(sink.key, list):
        columns = sf.struct(*(sf.col(avro.quoted(name)) for name in sink.key))
        return sf.to_json(columns, {"ignoreNullFields": "false"}).cast("binary")
    made = sf.expr(sink.key)
    is_bytes = isinstance(rows.select(made).schema.fields[0].dataType, BinaryType)
    return made if is_bytes else made.cast("string").cast("binary")


def _plain(name: str, rows: DataFrame) -> Column:
    from pyspark.sql import functions as sf
    from pyspark.sql import types as t

    type_ = rows.schema[name].dataType
    if isinstance(type_, t.StructType | t.ArrayType | t.MapType):
        raise ConfigError(
            f"the column {name} is {type_.simpleString()}, which has no one form as bytes",
            where="sink.kafka.value.column",
            hint="value: json, or make a text of it in the transform",
        )
    column = sf.col(avro.quoted(name))
    return column if isinstance(type_, t.BinaryType) else column.cast("string").cast("binary")


def _encoding(sink: KafkaSinkConfig, rows: DataFrame) -> Encoding | None:
    value, known = sink.value, sink.value.registered
    if value.column is not None:
        return None
    registry = None
    if value.registry is not None:
        registry = SchemaRegistry(
            value.registry.url, username=value.registry.username, password=value.registry.password
        )
    return settle(
        rows,
        format=_FRAMED[value.kind] if registry is not None else _PLAIN[value.kind],
        topic=sink.topic,
        registry=registry,
        subject=known.subject if known else None,
        schema=known.schema_file.read_text("utf-8") if known and known.schema_file else None,
        message=value.protobuf.message if value.protobuf else None,
    )


def _header(name: str, value: Column) -> Column:
    from pyspark.sql import functions as sf

    return sf.struct(sf.lit(name).alias("key"), value.cast("string").cast("binary").alias("value"))
