"""``lakefeed bench decode``: the Avro decoder beside Spark's ``from_avro``, on the same records in the same run."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from statistics import median
from typing import TYPE_CHECKING, Any

from lakefeed.bench.decode_cases import DecodeCase, values
from lakefeed.messages.tabular import aligned

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

WARM_UP = 2
"""Rounds before those that count: the JVM compiles meanwhile."""


@dataclass(frozen=True, kw_only=True)
class Cost:
    """Medians over the rounds for one way of reading the records.

    Attributes:
        cpu_microseconds: CPU time of the tasks for each row; without the JVM's compiler and garbage collector.
        rows_per_second: by the clock, with all that a job costs.
    """

    cpu_microseconds: float
    rows_per_second: float


@dataclass(frozen=True, kw_only=True)
class DecoderComparison:
    """One schema's result.

    Attributes:
        case: the schema's name.
        about: what it has of Avro.
        rows: records in memory.
        rounds: how often each way took its turn, after the warm-up.
        bytes_per_record: mean length, header included.
        read: reading the values out of memory, and nothing else.
        from_avro: ``from_avro(substring(value, 6))``, all fields.
        lakefeed: ``rows(decoded(...))``: header, the writer's schema by its id, all fields, all checks.
    """

    case: str
    about: str
    rows: int
    rounds: int
    bytes_per_record: float
    read: Cost
    from_avro: Cost
    lakefeed: Cost

    @property
    def ratio_to_from_avro(self) -> float:
        """How many times as fast as ``from_avro`` the job is, by the CPU time of its tasks."""
        return self.from_avro.cpu_microseconds / self.lakefeed.cpu_microseconds

    @property
    def ratio_without_reading(self) -> float:
        """The same for the decoding alone: without what it takes to read the values out of memory."""
        reading = self.read.cpu_microseconds
        return (self.from_avro.cpu_microseconds - reading) / max(self.lakefeed.cpu_microseconds - reading, 1e-6)

    def as_dict(self) -> dict[str, Any]:
        """For ``--output json``."""
        return {
            **asdict(self),
            "ratio_to_from_avro": round(self.ratio_to_from_avro, 3),
            "ratio_without_reading": round(self.ratio_without_reading, 3),
        }


def compare(
    spark: SparkSession,
    case: DecodeCase,
    *,
    rows: int,
    rounds: int,
    warm_up: int = WARM_UP,
    say: Callable[[str], None] = lambda _: None,
) -> DecoderComparison:
    """Measures the two decoders on the same records, in turns.

    Args:
        spark: a session of ``lakefeed.session()``.
        case: schema and records.
        rows: how many; they have to fit into the driver's memory.
        rounds: how often each takes its turn.
        warm_up: rounds before, which do not count.
        say: called with each line of progress.
    """
    from pyspark import StorageLevel
    from pyspark.sql import functions as sf

    # Deserialized, so that no round measures the decompression of the cache instead of the decoders.
    held = values(spark, case, rows).persist(StorageLevel(False, True, False, True))
    try:
        say(f"{case.name}: making {rows} records")
        length = held.agg(sf.avg(sf.length("value"))).first()
        assert length is not None  # An aggregate without groups has one row.
        with _registry(case) as url:
            ways = _ways(held, case, url)
            say(f"{case.name}: {rounds} rounds")
            costs = _in_turns(spark, ways, rows=rows, rounds=rounds, warm_up=warm_up)
    finally:
        held.unpersist()
    return DecoderComparison(
        case=case.name, about=case.about, rows=rows, rounds=rounds, bytes_per_record=round(length[0], 1), **costs
    )


def _ways(held: DataFrame, case: DecodeCase, registry_url: str) -> dict[str, DataFrame]:
    from pyspark.sql import functions as sf
    from pyspark.sql.avro.functions import from_avro

    from lakefeed.records.decode import ConfluentAvro, decoded, rows

    spec = ConfluentAvro(registry_url=registry_url, reader_schema=case.schema)
    data = sf.expr("substring(value, 6)")
    position = [
        sf.lit("bench").alias("topic"),
        sf.lit(0).alias("partition"),
        sf.lit(0).cast("long").alias("offset"),
    ]
    return {
        "read": held.select("value"),
        "from_avro": held.select(from_avro(data, case.schema).alias("decoded")).select("decoded.*"),
        "lakefeed": rows(decoded(held.select(*position, "value"), spec)),
    }


def _in_turns(
    spark: SparkSession, ways: Mapping[str, DataFrame], *, rows: int, rounds: int, warm_up: int
) -> dict[str, Cost]:
    cpu: dict[str, list[float]] = {name: [] for name in ways}
    wall: dict[str, list[float]] = {name: [] for name in ways}
    names = list(ways)
    for turn in range(warm_up + rounds):
        for name in names if turn % 2 else reversed(names):
            started = time.perf_counter()
            nanoseconds = _task_cpu(spark, ways[name], group=f"{name} {turn}")
            if turn >= warm_up:
                wall[name].append(time.perf_counter() - started)
                cpu[name].append(nanoseconds)
    return {
        name: Cost(
            cpu_microseconds=round(median(cpu[name]) / 1000 / rows, 4),
            rows_per_second=round(rows / median(wall[name])),
        )
        for name in names
    }


def _task_cpu(spark: SparkSession, frame: DataFrame, *, group: str) -> int:
    """Computes every row without keeping any; the CPU time of the tasks in nanoseconds."""
    context = spark.sparkContext
    context.setJobGroup(group, group)
    frame.write.format("noop").mode("overwrite").save()
    java: Any = context._jsc.sc()
    java.listenerBus().waitUntilEmpty()
    tracker = context.statusTracker()
    jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group)]
    stages = {stage for job in jobs if job for stage in job.stageIds}
    return sum(int(java.statusStore().lastStageAttempt(stage).executorCpuTime()) for stage in stages)


@contextmanager
def _registry(case: DecodeCase) -> Iterator[str]:
    """A schema registry that has the one schema: as decoding expects it, and over as soon as it is known."""
    answer = json.dumps({"schema": case.schema}).encode()

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


def table(comparisons: Sequence[DecoderComparison]) -> str:
    """The results for people."""
    head = ("schema", "bytes", "only read", "from_avro", "lakefeed", "ratio", "without reading")
    lines = [head] + [
        (
            each.case,
            f"{each.bytes_per_record:.0f}",
            f"{each.read.cpu_microseconds:.3f} µs",
            f"{each.from_avro.cpu_microseconds:.3f} µs",
            f"{each.lakefeed.cpu_microseconds:.3f} µs",
            f"{each.ratio_to_from_avro:.2f}",
            f"{each.ratio_without_reading:.2f}",
        )
        for each in comparisons
    ]
    return "\n".join(
        [
            *aligned(lines, left=0),
            "",
            "CPU time of the tasks for each row; medians. A ratio above 1: faster than from_avro.",
        ]
    )
