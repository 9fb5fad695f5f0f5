"""Times upserts beside a MERGE in ``foreachBatch``: the same records, jars, store and catalog, in turns."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lakefeed.bench import jobs
from lakefeed.bench.cases import Way
from lakefeed.bench.throughput_jobs import TimedRun
from lakefeed.clients.kafka.topics import Topics
from lakefeed.clients.spark import statements
from lakefeed.clients.spark.session import session
from lakefeed.config.models import PipelineConfig
from lakefeed.lazy import DataFrame, SparkSession, sf
from lakefeed.local import Endpoints
from lakefeed.operations.produce.write import produce
from lakefeed.pipeline import Pipeline
from lakefeed.records.encode.encode import to_records

TOPIC, WARM_UP = "bench-upserts", 1
WAYS: tuple[Way, Way] = ("spark-iceberg", "lakefeed-iceberg")
MERGE = """
MERGE INTO {table} t USING (
  SELECT * EXCEPT (place) FROM (SELECT *, row_number() OVER (PARTITION BY id ORDER BY offset DESC) AS place FROM batch)
  WHERE place = 1
) s ON t.id = s.id WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *
"""


@dataclass(frozen=True, kw_only=True)
class UpsertWork:
    """``rows`` inserts in a first batch, then as many random updates as ``changes``; ``columns`` beside the key."""

    rows: int
    changes: int
    columns: int

    @property
    def schema(self) -> str:
        texts = [{"name": f"c{at}", "type": "string"} for at in range(self.columns)]
        fields = [{"name": "id", "type": "long"}, *texts]
        return json.dumps({"type": "record", "name": "Change", "fields": fields})


def fill(work: UpsertWork, endpoints: Endpoints) -> tuple[int, int]:
    """Produce inserts and updates; return the rows and the checksum that a table of the newest changes has."""
    spark = session("bench-produce")
    at_random = sf.pmod(sf.hash("id"), sf.lit(work.rows))
    sizes = ((0, work.rows, sf.col("id")), (work.rows, work.changes, at_random))
    for start, count, key in sizes:
        number = sf.col("id")
        texts = [sf.concat(sf.lit(f"{at}-"), number * (at + 7)).alias(f"c{at}") for at in range(work.columns)]
        rows = spark.range(start, start + count).select(key.cast("long").alias("id"), *texts)
        registry = endpoints.schema_registry_url
        records = to_records(rows, topic=TOPIC, registry=registry, schema=work.schema, key="id")
        produce(records, TOPIC, bootstrap_servers=endpoints.bootstrap_servers)
    records = jobs.topic_source(spark.read, TOPIC, endpoints).load()
    changes = jobs.decoded_plainly(records, work.schema, keep=["offset"])
    newest = changes.selectExpr("id", "struct(*) AS change", "offset").groupBy("id").agg(sf.max_by("change", "offset"))
    return _checksum(newest.toDF("key", "change").select("change.*"), work)


def _checksum(rows: DataFrame, work: UpsertWork) -> tuple[int, int]:
    hashed = sf.xxhash64("id", *(f"c{at}" for at in range(work.columns)))
    [row] = rows.agg(sf.count(sf.lit(1)), sf.sum(hashed.cast("decimal(38, 0)"))).collect()
    return int(row[0]), int(row[1])


def land(run: TimedRun, work: UpsertWork, endpoints: Endpoints) -> tuple[float, float, tuple[int, int]]:
    """Land the topic in one way; return the seconds, the CPU seconds, and the table's checksum."""
    is_plain, pipeline = run.manager == "spark", _pipeline(run, work, endpoints)
    spark = jobs.plain_session(run, endpoints) if is_plain else session(run.way, connections=pipeline.connections)
    began, cpu = time.monotonic(), jobs.cpu_seconds()
    if is_plain:
        _land_plain(spark, run, work, endpoints)
    else:
        pipeline.run(spark=spark, once=True)
    seconds, cpu = time.monotonic() - began, jobs.cpu_seconds() - cpu
    spark.catalog.refreshTable(run.table)
    found = _checksum(spark.table(run.table), work)
    statements.run(spark, f"DROP TABLE {run.table} PURGE")
    return seconds, cpu, found


def _land_plain(spark: SparkSession, run: TimedRun, work: UpsertWork, endpoints: Endpoints) -> None:
    spark.sql("CREATE NAMESPACE IF NOT EXISTS lake.bench")
    columns = ", ".join(["id BIGINT", *(f"c{at} STRING" for at in range(work.columns)), "offset BIGINT"])
    merge_on_read = "'format-version' = '2', 'write.merge.mode' = 'merge-on-read'"
    statements.run(spark, f"CREATE TABLE {run.table} ({columns}) USING iceberg TBLPROPERTIES ({merge_on_read})")

    def merge(batch: DataFrame, _: int) -> None:
        batch.createOrReplaceTempView("batch")
        statements.run(batch.sparkSession, MERGE.format(table=run.table))

    source = jobs.topic_source(spark.readStream, TOPIC, endpoints).option("startingOffsets", "earliest")
    records = source.option("maxOffsetsPerTrigger", work.rows).load()
    changes = jobs.decoded_plainly(records, work.schema, keep=["offset"])
    writer = changes.writeStream.foreachBatch(merge).option("checkpointLocation", run.checkpoint)
    writer.trigger(availableNow=True).start().awaitTermination()


def _pipeline(run: TimedRun, work: UpsertWork, endpoints: Endpoints) -> Pipeline:
    kafka = {"bootstrap_servers": endpoints.bootstrap_servers, "topics": [TOPIC], "max_records_per_batch": work.rows}
    block = {
        "name": run.name.replace("-", "_"),
        "source": {"kafka": kafka},
        "decode": {"avro": {"registry": endpoints.schema_registry_url}},
        "sink": {"iceberg": {"table": run.table, "mode": "upsert", "keys": ["id"]}},
        "checkpoint": run.checkpoint,
    }
    return Pipeline(PipelineConfig.model_validate(block), environment=jobs.environment_of(run, endpoints))


def compare(
    work: UpsertWork, endpoints: Endpoints, *, rounds: int, home: Path, say: Callable[[str], None]
) -> dict[str, Any]:
    """Run both ways in turns, each in a JVM that stays warm, and compare each table with the topic's newest changes."""
    Topics(endpoints.bootstrap_servers).create(TOPIC, partitions=1)
    found: dict[Way, list[tuple[float, float]]] = {way: [] for way in WAYS}
    equal = True
    with ExitStack() as stack:
        environment = endpoints.as_environment()
        started = {
            name: stack.enter_context(jobs.job_process(environment=environment, log=home / f"{name}.log"))
            for name in ("produce", *WAYS)
        }
        expected = started["produce"](fill, work, endpoints)
        for number in range(WARM_UP + rounds):
            for way in WAYS if number % 2 else reversed(WAYS):
                run = TimedRun.of(way, number, bucket=endpoints.bucket)
                seconds, cpu, rows = started[way](land, run, work, endpoints)
                equal &= rows == expected
                say(
                    f"round {number}, {way}: {seconds:.1f} s, {cpu:.1f} CPU s"
                    + ("" if rows == expected else "; DIFFERS")
                )
                found[way] += [(seconds, cpu)] if number >= WARM_UP else []
    plain, ours = (found[way] for way in WAYS)
    ratio, of_cpu = (statistics.median(b[at] / a[at] for a, b in zip(plain, ours, strict=True)) for at in (0, 1))
    return {"runs": found, "ratio": round(ratio, 3), "cpu_ratio": round(of_cpu, 3), "rows_equal": equal}
