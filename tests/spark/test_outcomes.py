"""The counts of a batch's records decide whether it is refused, before any row is visible in a table or in files."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from lakefeed.clients.spark import jvm
from lakefeed.ledger.outcomes import RECORD, BatchOutcomes, Counts, OverBudget, SchemasMissing, Stopped
from lakefeed.ledger.snapshot_summary import COMMIT_ID, COUNTS, Commit
from lakefeed.records.decode import ConfluentJson, DecodeSpec, Json, RecordPolicy, classify, decoded
from lakefeed.records.decode.json_schema import avro_schema
from lakefeed.records.decode.verdict import DEAD_LETTER, ROW, SKIPPED, STOP
from tests.support.feed_table import FEED, Table, refused, span
from tests.support.registry_in_a_thread import RegistryInAThread

RECORDS = 10
Limit = Callable[[BatchOutcomes], None]


def judged(spark: SparkSession, *, verdict: int = ROW, schema_id: int = 7) -> DataFrame:
    """Return ten decoded records: the second has this verdict, and the others are rows."""
    record = sf.struct(sf.lit("topic").alias("topic"), sf.lit(0).alias("partition"), sf.col("id").alias("offset"))
    reason = sf.when(sf.col("id") == 1, sf.lit("because")) if verdict != ROW else sf.lit(None).cast("string")
    return (
        # createDataFrame gives rows of unknown partitioning, as Kafka's source does.
        spark.createDataFrame([(number,) for number in range(RECORDS)], "id BIGINT").withColumn(
            RECORD,
            sf.struct(
                record.alias("record"),
                sf.lit(schema_id).alias("schema_id"),
                reason.alias("reason"),
                sf.when(sf.col("id") == 1, sf.lit(verdict)).otherwise(sf.lit(ROW)).alias("verdict"),
            ),
        )
    )


def land(table: Table, rows: DataFrame, outcomes: BatchOutcomes) -> None:
    """Append the rows with the properties of a commit, as the sink does."""
    writer = rows.writeTo(table.name)
    for key, value in {**Commit(FEED, 0, span(0, RECORDS)).properties(), COMMIT_ID: outcomes.commit_id}.items():
        writer = writer.option(f"snapshot-property.{key}", value)
    writer.append()


# Each refusal has its class, the arguments of ``judged`` that cause it, and the limit that is exceeded.
MUST_NOT: list[tuple[type, dict[str, int], Limit]] = [
    (SchemasMissing, {"schema_id": 8}, lambda outcomes: outcomes.cover([7])),
    (Stopped, {"verdict": STOP}, lambda outcomes: None),
    (OverBudget, {"verdict": DEAD_LETTER}, lambda outcomes: outcomes.bound(max_rows=0, max_share=None)),
    (OverBudget, {"verdict": DEAD_LETTER}, lambda outcomes: outcomes.bound(max_rows=None, max_share=0.05)),
    (
        OverBudget,
        {"verdict": DEAD_LETTER},
        lambda outcomes: outcomes.bound(max_rows=1, max_share=None, before=Counts(records=100, dead_letters=1)),
    ),
]


@pytest.mark.quick
def test_a_refused_batch_leaves_the_table_unchanged(table: Table) -> None:
    for why, records, limit in MUST_NOT:
        with BatchOutcomes(table.spark) as outcomes:
            limit(outcomes)
            rows = outcomes.accepted(judged(table.spark, **records))
            refused(lambda rows=rows, outcomes=outcomes: land(table, rows, outcomes), "")  # type: ignore[misc]
            assert isinstance(outcomes.refusal, why)
            assert table.ids() == []
    with BatchOutcomes(table.spark) as outcomes:
        outcomes.bound(max_rows=1, max_share=0.1)
        outcomes.cover([7])
        land(table, outcomes.accepted(judged(table.spark, verdict=DEAD_LETTER)), outcomes)
    assert len(table.ids()) == RECORDS - 1


def test_a_refused_batch_leaves_the_sinks_log_unchanged(spark: SparkSession, tmp_path: Path) -> None:
    session: Any = spark
    path = tmp_path / "files"
    files = jvm.java(spark).sink.LoggedFiles(session._jsparkSession, str(path), "parquet", [], {})
    for why, records, limit in MUST_NOT:
        with BatchOutcomes(spark) as outcomes:
            limit(outcomes)
            frame: Any = outcomes.accepted(judged(spark, **records))
            with pytest.raises(Py4JJavaError, match="lakefeed refuses the commit"):
                files.add(0, outcomes.commit_id, frame._jdf)
            assert isinstance(outcomes.refusal, why)
            assert not (path / "_spark_metadata" / "0").exists()
    with BatchOutcomes(spark) as outcomes:
        frame = outcomes.accepted(judged(spark, verdict=SKIPPED))
        files.add(0, outcomes.commit_id, frame._jdf)
        assert outcomes.counts == Counts(records=RECORDS, skipped=1)
    assert spark.read.parquet(str(path)).count() == RECORDS - 1
    # The batch is already in the sink's log, so it is not written again, and no record is read or counted.
    with BatchOutcomes(spark) as outcomes:
        frame = outcomes.accepted(judged(spark))
        files.add(0, outcomes.commit_id, frame._jdf)
        assert outcomes.counts == Counts()
    assert spark.read.parquet(str(path)).count() == RECORDS - 1


def test_a_record_that_a_plan_reads_twice_is_counted_once(table: Table) -> None:
    with BatchOutcomes(table.spark) as outcomes:
        rows = outcomes.accepted(judged(table.spark, verdict=DEAD_LETTER))
        land(table, rows.union(rows), outcomes)
        assert outcomes.counts == Counts(records=RECORDS, dead_letters=1)
    assert len(table.ids()) == 2 * (RECORDS - 1)
    [summary] = table.spark.sql(f"SELECT summary FROM {table.name}.snapshots").collect()
    assert summary.summary[COUNTS] == '{"topic":{"0":[10,1,0]}}'


def test_records_with_unknown_json_fields_are_counted_and_the_first_field_is_named(
    spark: SparkSession,
) -> None:
    values = [
        b'{"id": 1, "inner": {"a": 2}}',
        b'{"id": 2, "more": [1, {"x": {}}], "inner": {"a": 3, "b": 4}}',
        b'{"id": 3, "inner": {"b": 4}, "list": [{"c": 1}, {"d": 2}]}',
        b'{"id": "no number", "more": 5}',
    ]

    json_of = Json(schema="id BIGINT, inner STRUCT<a: INT>, list ARRAY<STRUCT<c: INT>>")

    def left_out(*documents: bytes, spec: DecodeSpec = json_of) -> tuple[int, str]:
        rows = [("t", 0, at, None, document) for at, document in enumerate(documents)]
        columns = "topic STRING, partition INT, offset BIGINT, key BINARY, value BINARY"
        records = spark.createDataFrame(rows, columns).coalesce(1)
        with BatchOutcomes(spark) as outcomes:
            policy = RecordPolicy(on_error="dead_letter")
            outcomes.accepted(classify(decoded(records, spec), policy)).write.format("noop").mode("overwrite").save()
            count = outcomes.counts.left_out
            return count, outcomes.left_out_field if count else ""

    assert left_out(*values) == (2, "more")
    assert left_out(values[0]) == (0, "")
    assert left_out(values[0], values[2]) == (1, "inner.b")
    assert left_out(b'{"list": [{"c": 1}, {"d": 2}]}') == (1, "list.d")
    # If one of several fields differs from a column only in case, the message names this field, as the likeliest
    # mistake.
    assert left_out(b'{"more": 1, "inner": {"A": 1}, "ID": 4}') == (1, "inner.A (the column is a)")
    assert left_out(values[3]) == (0, "")
    # A JSON Schema with properties may have additional properties, which get no column.
    schema = {"properties": {"id": {"type": "integer"}}, "additionalProperties": {"type": "string"}}
    with RegistryInAThread() as registry:
        registry.schemas[7] = {"schema": json.dumps(schema), "schemaType": "JSON"}
        beside = ConfluentJson(registry_url=registry.url, reader_schema=avro_schema(json.dumps(schema)))
        assert left_out(b'\0\0\0\0\7{"id": 1, "more": "x"}', b'\0\0\0\0\7{"id": 2}', spec=beside) == (1, "more")
