"""Measure the Avro decoder and Spark's ``from_avro`` on the same records: ``lakefeed bench decode``."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib.resources import files
from statistics import median
from typing import Any

from lakefeed.clients.http_server import HttpAnswer, serve_http
from lakefeed.clients.spark.statements import expression
from lakefeed.lazy import DataFrame, SparkSession, sf
from lakefeed.messages.printable import aligned
from lakefeed.operations.produce.taxi import KEY, taxi_rows, taxi_schema
from lakefeed.records.decode import ConfluentAvro, decoded, rows

_SCHEMA_ID = 100_001
"""In every record's header: more than a byte, as in a registry that is in use."""

WARM_UP = 2
"""Rounds before those that count: the JVM compiles meanwhile."""


@dataclass(frozen=True, kw_only=True)
class DecodeCase:
    """A schema (JSON), and a function that makes a number of rows with its columns."""

    name: str
    about: str
    schema: str
    rows: Callable[[SparkSession, int], DataFrame]


@dataclass(frozen=True, kw_only=True)
class Cost:
    """Medians over the rounds: CPU time of the tasks for each row, and rows by the clock, with the cost of the job."""

    cpu_microseconds: float
    rows_per_second: float


@dataclass(frozen=True, kw_only=True)
class DecoderComparison:
    """One schema's result.

    Attributes:
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
        """Return how many times as fast as ``from_avro`` the job is, by the CPU time of its tasks."""
        return self.from_avro.cpu_microseconds / self.lakefeed.cpu_microseconds

    @property
    def ratio_without_reading(self) -> float:
        """Return the same for the decoding alone: without reading the values out of memory."""
        reading = self.read.cpu_microseconds
        return (self.from_avro.cpu_microseconds - reading) / max(self.lakefeed.cpu_microseconds - reading, 1e-6)

    def as_dict(self) -> dict[str, Any]:
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
    """Measure the two decoders on the same records, in turns; the records have to fit into the driver's memory."""
    from pyspark import StorageLevel

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


def values(spark: SparkSession, case: DecodeCase, rows: int) -> DataFrame:
    """Return the column ``value`` in Confluent's wire format, written by Spark's ``to_avro``."""
    from pyspark.sql.avro.functions import to_avro

    header = sf.lit(bytearray(b"\0" + _SCHEMA_ID.to_bytes(4, "big")))
    encoded = to_avro(sf.struct("*"), case.schema)
    return case.rows(spark, rows).select(sf.concat(header, encoded).alias("value"))


def _ways(held: DataFrame, case: DecodeCase, registry_url: str) -> dict[str, DataFrame]:
    from pyspark.sql.avro.functions import from_avro

    spec = ConfluentAvro(registry_url=registry_url, reader_schema=case.schema)
    data = sf.expr("substring(value, 6)")
    records = held.selectExpr("'bench' AS topic", "0 AS partition", "0L AS offset", "value")
    return {
        "read": held.select("value"),
        "from_avro": held.select(from_avro(data, case.schema).alias("decoded")).select("decoded.*"),
        "lakefeed": rows(decoded(records, spec)),
    }


def _in_turns(
    spark: SparkSession, ways: dict[str, DataFrame], *, rows: int, rounds: int, warm_up: int
) -> dict[str, Cost]:
    cpu: dict[str, list[float]] = {name: [] for name in ways}
    wall: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(warm_up + rounds):
        for name in ways if turn % 2 else reversed(ways):
            started = time.perf_counter()
            nanoseconds = _task_cpu(spark, ways[name])
            if turn >= warm_up:
                wall[name].append(time.perf_counter() - started)
                cpu[name].append(nanoseconds)
    return {
        name: Cost(
            cpu_microseconds=round(median(cpu[name]) / 1000 / rows, 4), rows_per_second=round(rows / median(wall[name]))
        )
        for name in ways
    }


def _task_cpu(spark: SparkSession, frame: DataFrame) -> int:
    """Compute every row without keeping any; return the CPU time of the tasks in nanoseconds."""
    context = spark.sparkContext
    # A group for each: Spark keeps the jobs of all groups, and those of another schema must not be counted.
    group = uuid.uuid4().hex
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
    """Serve a schema registry that has the one schema, until the block ends; yield its URL."""
    answer = json.dumps({"schema": case.schema}).encode()

    with serve_http(lambda request: HttpAnswer(200, answer)) as address:
        yield address


def table(comparisons: Sequence[DecoderComparison]) -> str:
    """Show the results in columns."""
    lines: list[tuple[str, ...]] = [
        ("schema", "bytes", "only read", "from_avro", "lakefeed", "ratio", "without reading")
    ]
    for result in comparisons:
        costs = (f"{cost.cpu_microseconds:.3f} µs" for cost in (result.read, result.from_avro, result.lakefeed))
        ratios = (f"{ratio:.2f}" for ratio in (result.ratio_to_from_avro, result.ratio_without_reading))
        lines.append((result.case, f"{result.bytes_per_record:.0f}", *costs, *ratios))
    note = "CPU time of the tasks for each row; medians. A ratio above 1: faster than from_avro."
    return "\n".join([*aligned(lines, left=0), "", note])


def _taxi(spark: SparkSession, rows: int) -> DataFrame:
    return taxi_rows(spark, rows).drop(KEY)


_NESTED_ROWS = (
    "id",
    """named_struct(
        'name', concat('customer ', id), 'email', if(id % 3 = 0, null, concat(id, '@example.org')),
        'address', named_struct('street', concat(id % 500, ' Main Street'), 'city', 'Springfield',
            'zip', if(id % 2 = 0, null, '12345'))) AS customer""",
    """transform(sequence(1, 1 + cast(id % 4 AS INT)), at -> named_struct(
        'sku', concat('sku-', at), 'quantity', at, 'price', at * 1.5D,
        'note', if(at % 2 = 0, null, 'a note'))) AS items""",
    "map('channel', 'web', 'campaign', concat('c', id % 10)) AS labels",
    """if(id % 4 = 0, null, named_struct(
        'member0', if(id % 4 = 1, named_struct('number', '4111111111111111', 'month', 7), null),
        'member1', if(id % 4 = 2, named_struct('account', 'DE00123456780000000000'), null),
        'member2', if(id % 4 = 3, 12.5D, null))) AS payment""",
    "element_at(array('OPEN', 'PAID', 'SENT'), 1 + cast(id % 3 AS INT)) AS status",
    "if(id % 2 = 0, null, 0.25D) AS discount",
)

_LOGICAL_ROWS = (
    "concat('6ba7b810-9dad-11d1-80b4-', lpad(hex(id), 12, '0')) AS id",
    "date_add(DATE'2020-01-01', cast(id % 3000 AS INT)) AS day",
    "timestamp_micros(1700000000000000 + id * 1234567) AS created",
    "timestamp_millis(1700000000000 + id * 1234) AS seen",
    "cast(timestamp_micros(1700000000000000 + id * 7654321) AS TIMESTAMP_NTZ) AS opens",
    "cast(id % 86400000 AS INT) AS lasted",
    "cast(id % 10000000 / 100 AS DECIMAL(10, 2)) AS amount",
    "cast(id * 1.2345 AS DECIMAL(18, 4)) AS balance",
    "cast(id * 123456789.123456 AS DECIMAL(30, 6)) AS rate",
    "if(id % 2 = 0, null, timestamp_micros(1700000000000000 + id)) AS changed",
    "if(id % 3 = 0, null, DATE'2026-01-31') AS due",
)


def _schema(name: str) -> str:
    return files("lakefeed.bench").joinpath(f"{name}.avsc").read_text()


def _of(*columns: str) -> Callable[[SparkSession, int], DataFrame]:
    return lambda spark, rows: spark.range(rows).select(*(expression(spark, each) for each in columns))


CASES: Mapping[str, DecodeCase] = {
    case.name: case
    for case in (
        DecodeCase(name="taxi", about="17 fields, flat", schema=taxi_schema(), rows=_taxi),
        DecodeCase(
            name="nested",
            about="records, an array, a map, unions, an enum",
            schema=_schema("nested"),
            rows=_of(*_NESTED_ROWS),
        ),
        DecodeCase(
            name="logical",
            about="dates, moments, decimals, a UUID",
            schema=_schema("logical"),
            rows=_of(*_LOGICAL_ROWS),
        ),
    )
}
