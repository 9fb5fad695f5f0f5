"""Readers recognize copies of a record by the headers that the Kafka sink adds."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

import lakefeed
from lakefeed.config.sources import KafkaSource
from lakefeed.errors import ConfigError
from lakefeed_kafka.settings import KafkaSinkConfig
from lakefeed_kafka.sink import RowRecords, producer_settings

SCHEMA = (
    "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, timestampType INT, "
    "headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
)


@dataclass(frozen=True)
class Sent:
    """A record in the sink's topic."""

    value: str
    batch: str | None
    source: str | None = None
    row: str | None = None
    partition: int = 0

    def as_row(self, offset: int) -> tuple[object, ...]:
        named = {"lakefeed.batch": self.batch, "lakefeed.source": self.source, "lakefeed.row": self.row, "own": "x"}
        headers = [(name, bytearray(text.encode())) for name, text in named.items() if text is not None]
        return (None, bytearray(self.value.encode()), "out", self.partition, offset, None, 0, headers)


def read(spark: SparkSession, folder: Path, *batches: list[Sent]) -> list[str]:
    """Return the values of a deduplicated stream; after each batch, the query restarts with its state."""
    (folder / "in").mkdir()
    offset = 0
    for number, batch in enumerate(batches):
        rows = [each.as_row(offset + at) for at, each in enumerate(batch)]
        offset += len(rows)
        spark.createDataFrame(rows, SCHEMA).coalesce(1).write.parquet(f"{folder}/in/{number}")
        records = spark.readStream.schema(SCHEMA).option("recursiveFileLookup", "true").parquet(f"{folder}/in")
        writer = lakefeed.deduplicated(records).selectExpr("CAST(value AS STRING) AS value").writeStream.format("json")
        query = writer.option("checkpointLocation", f"{folder}/checkpoint").trigger(availableNow=True)
        assert query.start(f"{folder}/out").awaitTermination(120)
    return sorted(each.value for each in spark.read.schema("value STRING").json(f"{folder}/out").collect())


def test_deduplication_yields_each_row_once_over_batches_and_restarts(spark: SparkSession, tmp_path: Path) -> None:
    first = [Sent("a", "q/0", "t/0/1"), Sent("b", "q/0", "t/0/2"), Sent("e", "q/0", row="0"), Sent("e", "q/0", row="1")]
    again = [*first, Sent("c", "q/0", "t/0/3")]
    other = [
        # The first copy is from another query, as after a feed has started over; the second from another source
        # partition; the third is in a partition that the sink would not choose.
        Sent("a", "r/0", "t/0/1"),
        Sent("a", "q/0", "t/1/1"),  # From a record of another source partition.
        Sent("a", "q/0", "t/0/1", partition=1),  # In another partition of the sink's topic than the sink would choose.
        Sent("f", None),
        Sent("f", None, source="t/0/1"),
        Sent("f", "nonsense", source="t/0/1"),
        Sent("f", "q/0"),
        Sent("f", "q/0", source="t/0/x"),
    ]
    found = read(spark, tmp_path, first, again, other, [Sent("d", "q/1", "t/0/4")])
    assert Counter(found) == Counter("a" * 4 + "bcd" + "ee" + "fffff")


def test_a_late_record_of_an_older_batch_counts_as_a_copy(spark: SparkSession, tmp_path: Path) -> None:
    newer = [Sent("b", "q/1", "t/0/2")]
    late = [Sent("a", "q/0", "t/0/1"), Sent("b", "q/1", "t/0/2"), Sent("c", "q/1", "t/0/3")]
    # After a rollback of the checkpoint, a new batch has the number of an older batch but other records.
    rolled_back = [Sent("d", "q/0", "t/0/4"), Sent("e", "q/0", row="0"), Sent("c", "q/0", "t/0/3")]
    assert read(spark, tmp_path, [Sent("a", "q/0", "t/0/1")], newer, late, rolled_back) == list("abcde")


@pytest.mark.quick
def test_copies_within_a_single_read_are_recognized(spark: SparkSession) -> None:
    rows = [Sent("a", "q/0", "t/0/1"), Sent("a", "q/0", "t/0/1"), Sent("b", "q/1", "t/0/2"), Sent("a", "q/0", "t/0/1")]
    frame = spark.createDataFrame([each.as_row(at) for at, each in enumerate(rows)], SCHEMA)
    assert sorted(bytes(each.value) for each in lakefeed.deduplicated(frame).collect()) == [b"a", b"b"]
    with pytest.raises(ConfigError, match="lack the column headers"):
        lakefeed.deduplicated(frame.drop("headers"))


def sent(rows: DataFrame, *, one_per_record: bool = True, key: str | None = None) -> list[dict[str, str | int | None]]:
    made = RowRecords.settle(KafkaSinkConfig(topic="out", key=key), rows)
    records = made.of(rows, batch=sf.lit("q/7"), one_per_record=one_per_record, partitions=50)
    return [
        {
            "value": bytes(each.value).decode(),
            "partition": each.partition,
            **{header.key: bytes(header.value).decode() for header in each.headers},
        }
        for each in records.collect()
    ]


def test_equal_rows_of_a_batch_have_different_numbers_in_their_headers(spark: SparkSession) -> None:
    rows = spark.createDataFrame([("a",), ("a",), ("b",)], "zip STRING")
    found = sent(rows)
    assert sorted((each["value"], each["lakefeed.row"]) for each in found) == [
        ('{"zip":"a"}', "0"),
        ('{"zip":"a"}', "1"),
        ('{"zip":"b"}', "0"),
    ]
    assert {each["lakefeed.batch"] for each in found} == {"q/7"}
    assert not any("lakefeed.source" in each for each in found)


def test_headers_have_the_records_offset_and_a_row_number_if_the_record_has_several_rows(spark: SparkSession) -> None:
    placed = "zip STRING, kafka_topic STRING, kafka_partition INT, kafka_offset BIGINT"
    rows = spark.createDataFrame([("a", "t", 0, 1), ("a", "t", 0, 1), ("a", "t", 3, 1)], placed)
    assert {each["value"] for each in sent(rows)} == {'{"zip":"a"}'}
    assert Counter(each["lakefeed.source"] for each in sent(rows)) == {"t/0/1": 2, "t/3/1": 1}
    assert not any("lakefeed.row" in each for each in sent(rows))
    several = sent(rows, one_per_record=False)
    assert sorted((each["lakefeed.source"], each["lakefeed.row"]) for each in several) == [
        ("t/0/1", "0"),
        ("t/0/1", "1"),
        ("t/3/1", "0"),
    ]


def test_a_repeated_row_goes_to_the_same_partition(spark: SparkSession) -> None:
    rows = spark.createDataFrame([(f"z{number}",) for number in range(40)], "zip STRING")
    first = {each["value"]: each["partition"] for each in sent(rows)}
    assert {each["value"]: each["partition"] for each in sent(rows.repartition(3))} == first
    assert len(set(first.values())) > 10
    # The sink chooses no partition for rows with a key: Kafka's partitioner chooses it by the key.
    assert {each["partition"] for each in sent(rows, key="zip")} == {None}


def test_spark_plans_do_not_show_the_brokers_login(spark: SparkSession) -> None:
    login = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="me" password="hunter2hunter2";'
    source = KafkaSource(bootstrap_servers="h:9092", topics=["t"], options={"kafka.sasl.jaas.config": login})
    options = producer_settings(
        KafkaSinkConfig(topic="out", options={"kafka.ssl.keystore.key": "hunter3hunter3"}), source
    )
    gateway: Any = spark._jvm
    frame: Any = spark.range(1)
    command = gateway.org.apache.spark.sql.execution.datasources.SaveIntoDataSourceCommand(
        frame._jdf.queryExecution().analyzed(),
        gateway.org.apache.spark.sql.kafka010.KafkaSourceProvider(),
        gateway.PythonUtils.toScalaMap(options),
        gateway.org.apache.spark.sql.SaveMode.Append,
    )
    shown = f"{command.treeString()} {command.simpleString(100)}"
    assert "kafka.acks" in shown
    assert "hunter" not in shown
