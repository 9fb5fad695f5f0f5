"""Time upserts beside a MERGE in ``foreachBatch``: the same records, jars, store and catalog, in turns."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

from lakefeed.clients.spark import statements
from lakefeed.clients.spark.session import session
from lakefeed.lazy import DataFrame, SparkSession, sf
from lakefeed.records.encode.encode import to_records
from lakefeed_bench import jobs
from lakefeed_bench.harness import Bench, Outcome, in_turns, measurement, median_ratio, number, store_option
from lakefeed_bench.jobs import LandingCase, Manager, Work
from lakefeed_bench.processes import Took, timed
from lakefeed_local.produce.write import produce
from lakefeed_local.stack import Endpoints

WAYS: dict[str, Manager] = {"spark-iceberg": "spark", "lakefeed-iceberg": "lakefeed"}
MERGE = """
MERGE INTO {table} t USING (
  SELECT * EXCEPT (place) FROM (SELECT *, row_number() OVER (PARTITION BY id ORDER BY offset DESC) AS place FROM batch)
  WHERE place = 1
) s ON t.id = s.id WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *
"""


@dataclass(frozen=True, kw_only=True)
class UpsertWork(Work):
    """``rows`` inserts in a first batch, then as many random updates as ``changes``; ``columns`` beside the key."""

    changes: int
    columns: int

    @property
    def names(self) -> list[str]:
        return [f"c{at}" for at in range(self.columns)]

    @property
    def schema(self) -> str:
        texts = [{"name": name, "type": "string"} for name in self.names]
        return json.dumps({"type": "record", "name": "Change", "fields": [{"name": "id", "type": "long"}, *texts]})


@dataclass(frozen=True, kw_only=True)
class UpsertComparison:
    """The runs of both ways, and lakefeed's cost by plain Spark's."""

    runs: dict[str, list[Took]]

    @property
    def ratio(self) -> float:
        return median_ratio(self.runs["lakefeed-iceberg"], self.runs["spark-iceberg"], lambda run: run.seconds)

    @property
    def cpu_ratio(self) -> float:
        return median_ratio(self.runs["lakefeed-iceberg"], self.runs["spark-iceberg"], lambda run: run.cpu_seconds)

    @property
    def rows_equal(self) -> bool:
        return all(run.rows_equal for runs in self.runs.values() for run in runs)


@measurement(
    "upserts",
    number("--rows", 300_000, "Inserts, in a first batch."),
    number("--changes", 300_000, "Random updates after it."),
    number("--columns", 10, "Beside the key."),
    number("--rounds", 3, "Pairs that count."),
    store_option("s3proxy"),
)
def upserts(bench: Bench, rounds: int, **sizes: int) -> Outcome:
    """Time upserts beside a foreachBatch of plain Spark that merges the newest change of each key, in turns.

    Each table is compared with the topic. The status is 1 if one differs, or if lakefeed takes longer.
    """
    work = UpsertWork(name="upserts", partitions=1, **sizes)
    bench.topics.create(work.topic, partitions=1)
    with bench.processes("produce", *WAYS) as processes:
        expected = processes["produce"](fill, work, bench.endpoints)

        def run(way: str, at: int) -> Took:
            name = f"upserts-{way}-{at + 1}"
            case = LandingCase(name=name, bucket=bench.endpoints.bucket, manager=WAYS[way], sink="iceberg")
            landed: tuple[Took, tuple[int, int]] = processes[way](land, case, work, bench.endpoints)
            return replace(landed[0], rows_equal=landed[1] == expected)

        found = UpsertComparison(runs=in_turns(list(WAYS), run, rounds=rounds))
    text = f"lakefeed / plain, medians of the pairs: {found.ratio:.3f} of the time, {found.cpu_ratio:.3f} of the CPU"
    return Outcome(results=found, text=text, holds=found.rows_equal and found.ratio <= 1)


def fill(work: UpsertWork, endpoints: Endpoints) -> tuple[int, int]:
    """Produce inserts and updates; return the rows and the checksum that a table of the newest changes has."""
    spark = session("bench-produce")
    at_random = sf.pmod(sf.hash("id"), sf.lit(work.rows))
    for start, count, key in ((0, work.rows, sf.col("id")), (work.rows, work.changes, at_random)):
        texts = [sf.concat(sf.lit(f"{at}-"), sf.col("id") * (at + 7)).alias(name) for at, name in enumerate(work.names)]
        rows = spark.range(start, start + count).select(key.cast("long").alias("id"), *texts)
        registry = endpoints.schema_registry_url
        records = to_records(rows, topic=work.topic, registry=registry, schema=work.schema, key="id")
        produce(records, work.topic, bootstrap_servers=endpoints.bootstrap_servers)
    records = jobs.topic_source(spark.read, work.topic, endpoints).load()
    changes = jobs.decoded_plainly(records, work.schema, keep=["offset"])
    newest = changes.selectExpr("id", "struct(*) AS change", "offset").groupBy("id").agg(sf.max_by("change", "offset"))
    return _checksum(newest.toDF("key", "change").select("change.*"), work)


def _checksum(rows: DataFrame, work: UpsertWork) -> tuple[int, int]:
    hashed = sf.xxhash64("id", *work.names).cast("decimal(38, 0)")
    [row] = rows.agg(sf.count(sf.lit(1)), sf.sum(hashed)).collect()
    return int(row[0]), int(row[1])


def land(case: LandingCase, work: UpsertWork, endpoints: Endpoints) -> tuple[Took, tuple[int, int]]:
    """Land the topic in one way; return its costs and the table's checksum."""
    spark = jobs.start_session(case, work, endpoints)
    if case.manager == "lakefeed":
        pipeline = case.pipeline(work.topic, endpoints, most=work.rows, mode="upsert", keys=["id"])
        took = timed(lambda: pipeline.run(spark=spark, once=True))
    else:
        took = timed(lambda: _land_plain(spark, case, work, endpoints))
    spark.catalog.refreshTable(case.table)
    found = _checksum(spark.table(case.table), work)
    statements.run(spark, f"DROP TABLE {case.table} PURGE")
    return took, found


def _land_plain(spark: SparkSession, case: LandingCase, work: UpsertWork, endpoints: Endpoints) -> None:
    columns = ", ".join(["id BIGINT", *(f"{name} STRING" for name in work.names), "offset BIGINT"])
    merge_on_read = "TBLPROPERTIES ('format-version' = '2', 'write.merge.mode' = 'merge-on-read')"
    jobs.create_table(spark, case, columns, properties=merge_on_read)

    def merge(batch: DataFrame, _: int) -> None:
        batch.createOrReplaceTempView("batch")
        statements.run(batch.sparkSession, MERGE.format(table=case.table))

    source = jobs.topic_source(spark.readStream, work.topic, endpoints).option("startingOffsets", "earliest")
    records = source.option("maxOffsetsPerTrigger", work.rows).load()
    changes = jobs.decoded_plainly(records, work.schema, keep=["offset"])
    writer = changes.writeStream.foreachBatch(merge).option("checkpointLocation", case.checkpoint)
    writer.trigger(availableNow=True).start().awaitTermination()
