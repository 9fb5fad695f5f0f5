"""The jobs of ``lakefeed-bench upserts``: produce changes, and land them with plain Spark or lakefeed."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, get_args

from lakefeed.clients.spark import jvm, statements
from lakefeed.clients.spark.session import session
from lakefeed.config.keyed import POSITION_COLUMNS
from lakefeed.feed.s3_requests import s3_requests
from lakefeed.lazy import DataFrame, SparkSession, sf
from lakefeed.ledger.iceberg import IcebergLedger
from lakefeed.records.decode.registry import SchemaRegistry
from lakefeed_bench import jobs
from lakefeed_bench.jobs import LandingCase
from lakefeed_bench.processes import Took, forget_peaks, peak_megabytes, timed
from lakefeed_encode.encode import settle, to_records, value_of
from lakefeed_local.produce.write import produce
from lakefeed_local.stack import Endpoints

Workload = Literal["fill", "inserts", "updates", "newest", "deletes"]
"""``fill`` inserts the first keys, ``inserts`` adds further keys. ``updates`` and ``deletes`` change random keys that
``fill`` has inserted; ``newest`` updates random keys of the last 1 % that ``fill`` has inserted."""
Way = Literal["merge", "lakefeed", "append", "debezium"]
"""``merge``: plain Spark's MERGE. ``lakefeed``: upserts. ``append``: lakefeed appends the same rows. ``debezium``:
upserts of the same changes as Debezium's envelopes, with tombstones."""
WORKLOADS: tuple[Workload, ...] = get_args(Workload)
WAYS: tuple[Way, ...] = get_args(Way)

MERGE = """
MERGE INTO {table} t USING (
  SELECT * EXCEPT (place) FROM (SELECT *, row_number() OVER (PARTITION BY id ORDER BY offset DESC) AS place FROM batch)
  WHERE place = 1
) s ON t.id = s.id WHEN MATCHED AND s.op = 'd' THEN DELETE WHEN MATCHED THEN UPDATE SET *
WHEN NOT MATCHED AND s.op <> 'd' THEN INSERT *
"""
_AT_RANDOM = "i * 2654435761 % 4294967291 % {of}"
UNSTEADY = 2
"""The number of first batches that do not count, because one of them fills the index of keys."""


@dataclass(frozen=True, kw_only=True)
class Changes:
    """The changes of a workload.

    Attributes:
        keys: the number of keys that ``fill`` inserts.
        columns: the number of text columns besides the key.
        first, count: the changes have the numbers ``first`` to ``first + count - 1``.
        most: the most changes per batch.
    """

    topic: str
    workload: Workload
    keys: int
    columns: int
    first: int
    count: int
    most: int

    @property
    def names(self) -> list[str]:
        return ["id", *(f"c{at}" for at in range(self.columns))]

    @property
    def key_sql(self) -> str:
        """SQL that computes the key of change number ``i``, in Spark and in DuckDB."""
        own = {"fill": "i", "inserts": "i", "newest": f"{self.keys - 1} - {_AT_RANDOM}"}
        of = max(1, self.keys // 100) if self.workload == "newest" else self.keys
        return f"{own.get(self.workload, _AT_RANDOM)} AS id".format(of=of)

    @property
    def texts_sql(self) -> list[str]:
        return [f"concat('{at}-', i * {at + 7}) AS c{at}" for at in range(self.columns)]

    @property
    def operation(self) -> str:
        return {"fill": "c", "inserts": "c", "deletes": "d"}.get(self.workload, "u")


def send(changes: Changes, endpoints: Endpoints, has_envelopes: bool) -> None:
    """Produce the changes in order, because the last change of a key decides its row."""
    spark = session("bench-produce")
    numbers = spark.range(changes.first, changes.first + changes.count, numPartitions=1).toDF("i")
    rows = numbers.select(*(statements.expression(spark, text) for text in (changes.key_sql, *changes.texts_sql)))
    operation, one, deletes = sf.lit(changes.operation), sf.lit(1).cast("bigint"), sf.lit(changes.operation == "d")
    servers, registry, topic = endpoints.bootstrap_servers, endpoints.schema_registry_url, changes.topic
    flat = to_records(rows.withColumn("op", operation), topic=topic, registry=registry, key="id")
    produce(flat, topic, bootstrap_servers=servers)
    if not has_envelopes:
        return
    topic, row = f"{changes.topic}-debezium", sf.struct(*changes.names)
    keys = settle(rows.select("id"), topic=topic, subject=f"{topic}-key", registry=registry)
    events = rows.select(
        value_of(rows, keys).alias("key"),
        sf.when(deletes, row).alias("before"),
        sf.when(~deletes, row).alias("after"),
        operation.alias("op"),
        one.alias("ts_ms"),
        sf.struct(one.alias("ts_ms")).alias("source"),
    )
    produce(to_records(events, topic=topic, registry=registry, key="key"), topic, bootstrap_servers=servers)
    if changes.operation == "d":
        produce(events.select("key", sf.lit(None).cast("binary").alias("value")), topic, bootstrap_servers=servers)


@dataclass(frozen=True, kw_only=True)
class LandedChanges(Took):
    """One run of a way, and the table afterwards.

    Attributes:
        batch_seconds, batch_requests: medians of the batches after the first two.
        batch_files: the median number of data and delete files of these batches.
        fill_seconds: the time to fill an index of the table's keys after the run; None for other ways, and if the
            index refused the table.
        bytes_written: the bytes of data and delete files, including those of upkeep.
        pyiceberg_seconds, duckdb_seconds: the time to scan the table; None if DuckDB cannot read its delete files.
        time_ratio, cpu_ratio: the time and CPU time, divided by those of lakefeed's upserts in the same round.
    """

    workload: Workload
    way: Way
    batches: int
    batch_seconds: float
    batch_requests: float
    requests: dict[str, int]
    peak_rss_mb: int
    fill_seconds: float | None
    batch_files: float = 0
    bytes_written: int = 0
    pyiceberg_seconds: float = 0
    duckdb_seconds: float | None = None
    time_ratio: float | None = None
    cpu_ratio: float | None = None

    @property
    def s3_requests(self) -> int:
        return sum(self.requests.values())


def land(way: Way, case: LandingCase, changes: Changes, endpoints: Endpoints, memory: str) -> LandedChanges:
    """Land the changes that are not in the table yet, and return the run's figures."""
    spark = jobs.start_session(case, changes.topic, endpoints, {"spark.driver.memory": memory})
    java: Any = spark.sparkContext._jvm
    context: Any = spark.sparkContext._jsc
    java.java.lang.System.gc()
    forget_peaks()
    before = s3_requests(spark).by_operation
    ended = [(0.0, sum(before.values()))]  # For each batch: its seconds, and the run's requests until its end.

    def note(progress: Any) -> None:
        print(progress.json, flush=True)  # Print the figures into the process's log.
        if any(source.startOffset != source.endOffset for source in progress.sources):
            ended.append((progress.durationMs["triggerExecution"] / 1000, s3_requests(spark).total))

    remove_listener = jobs.on_progress(spark, note)
    took = timed(lambda: _run(way, spark, case, changes, endpoints))
    peak, after = peak_megabytes(), s3_requests(spark).by_operation
    context.sc().listenerBus().waitUntilEmpty()
    remove_listener()
    steady = [(seconds, now - then) for (_, then), (seconds, now) in pairwise(ended)]
    steady = steady[min(UNSTEADY, len(steady) - 1) :]
    return LandedChanges(
        seconds=took.seconds,
        cpu_seconds=took.cpu_seconds,
        workload=changes.workload,
        way=way,
        batches=len(ended) - 1,
        batch_seconds=statistics.median(seconds for seconds, _ in steady),
        batch_requests=statistics.median(requests for _, requests in steady),
        requests={name: new for name, count in after.items() if (new := count - before.get(name, 0))},
        peak_rss_mb=peak,
        fill_seconds=_fill_index(spark, case) if way == "lakefeed" else None,
    )


def _run(way: Way, spark: SparkSession, case: LandingCase, changes: Changes, endpoints: Endpoints) -> None:
    if way != "merge":
        avro = {"avro": {"registry": endpoints.schema_registry_url}}
        envelopes = {"decode": {**avro, "key": avro, "envelope": "debezium"}} if way == "debezium" else {}
        topic = f"{changes.topic}-debezium" if envelopes else changes.topic
        deletes = {} if envelopes else {"delete": {"column": "op", "equals": ["d"]}}
        sink = {} if way == "append" else {"mode": "upsert", "keys": ["id"], **deletes}
        case.pipeline(topic, endpoints, most=changes.most, blocks=envelopes, **sink).run(spark=spark, once=True)
        return
    if changes.workload == "fill":
        columns = ", ".join(["id BIGINT", *(f"{name} STRING" for name in ("op", *changes.names[1:])), "offset BIGINT"])
        merge_on_read = "TBLPROPERTIES ('format-version' = '2', 'write.merge.mode' = 'merge-on-read')"
        jobs.create_table(spark, case, columns, properties=merge_on_read)

    def merge(batch: DataFrame, _: int) -> None:
        batch.createOrReplaceTempView("batch")
        statements.run(batch.sparkSession, MERGE.format(table=case.table))

    source = jobs.topic_source(spark.readStream, changes.topic, endpoints).option("startingOffsets", "earliest")
    records = source.option("maxOffsetsPerTrigger", changes.most).load()
    schema = SchemaRegistry(endpoints.schema_registry_url).latest(f"{changes.topic}-value").text
    decoded = jobs.decoded_plainly(records, schema, keep=["offset"])
    writer = decoded.writeStream.foreachBatch(merge).option("checkpointLocation", case.checkpoint)
    writer.trigger(availableNow=True).start().awaitTermination()


def _fill_index(spark: SparkSession, case: LandingCase) -> float | None:
    """Return the seconds to fill an index of the table's keys, as a run's first batch does; None if that fails."""
    index = jvm.java(spark).upsert.KeyIndex(["id"], [], list(POSITION_COLUMNS), None, -1)
    rows, loaded = spark.table(case.table), IcebergLedger(spark, case.table, case.name).loaded()
    began = time.monotonic()
    if (refused := index.begin(rows._jdf, loaded, "{}")) is not None:
        print(refused, flush=True)
        return None
    return time.monotonic() - began


def drop(case: LandingCase, topic: str, endpoints: Endpoints, memory: str) -> None:
    """Remove a table and its files, because the files of all rounds would fill the disk."""
    spark = jobs.start_session(case, topic, endpoints, {"spark.driver.memory": memory})
    statements.run(spark, f"DROP TABLE {case.table} PURGE")
