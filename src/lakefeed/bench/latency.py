"""Measure the time from a record's producer to a reader of the sink's topic: ``lakefeed bench latency``."""

from __future__ import annotations

import json
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakefeed.clients.kafka.topics import Topics
from lakefeed.config.models import PipelineConfig
from lakefeed.errors import JobFailed
from lakefeed.local import Endpoints
from lakefeed.messages.printable import aligned
from lakefeed.pipeline import Pipeline, RunSummary

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

START_SECONDS, DRAIN_SECONDS = 180.0, 120.0
SQL = "SELECT id, sent, upper(zip) AS zip, kafka_topic, kafka_partition, kafka_offset FROM {name} WHERE zip IS NOT NULL"
COLUMNS = "id BIGINT, sent BIGINT, zip STRING"


@dataclass(frozen=True, kw_only=True)
class Load:
    """The records to send: how many a second, for how many seconds after a warm-up, into how many partitions."""

    rate: int
    seconds: int
    warm_up: int
    partitions: int


@dataclass(frozen=True, kw_only=True)
class Latency:
    """The result of one trigger, by one clock for both ends; ``copies`` counts records that came more than once."""

    trigger: str
    guarantee: str
    records: int
    missing: int
    copies: int
    p50_ms: float
    p99_ms: float
    max_ms: float


def measure(
    spark: SparkSession, endpoints: Endpoints, trigger: str, load: Load, *, say: Callable[[str], None]
) -> Latency:
    """Run a pipeline from topic to topic under a load, and measure each record.

    Spark needs a task slot for each partition. Raises LakefeedError if the pipeline failed or no record came through.
    """
    from pyspark import inheritable_thread_target

    name = f"latency_{uuid.uuid4().hex[:8]}"
    topics = Topics(endpoints.bootstrap_servers)
    topics.create(name, partitions=load.partitions)
    topics.create(f"{name}_out", partitions=1)
    pipeline = Pipeline(_config(name, endpoints, trigger), environment=endpoints.as_environment())
    stop = threading.Event()
    with ExitStack() as stack:
        say(f"{trigger}: starting")
        pool = stack.enter_context(ThreadPoolExecutor(1))
        stack.callback(stop.set)
        running = pool.submit(inheritable_thread_target(spark)(pipeline.run), spark=spark, stop=stop)
        sender = stack.enter_context(closing(_Sender(name, endpoints, load.rate)))
        reader = stack.enter_context(closing(_Reader(name, endpoints, running)))
        reader.read(START_SECONDS, until=lambda: bool(reader.arrived))
        say(f"{trigger}: warm-up, {load.warm_up} s")
        reader.read(load.warm_up)
        first = sender.count
        say(f"{trigger}: measuring, {load.seconds} s")
        reader.read(load.seconds)
        measured = range(first, sender.count)
        # The load continues: otherwise the end of a stream would be measured.
        reader.read(DRAIN_SECONDS, until=lambda: all(number in reader.arrived for number in measured))
    running.result()
    took = sorted(reader.arrived[number] for number in measured if number in reader.arrived)
    if not took:
        raise JobFailed(f"no record came through with trigger: {trigger}", where=name)
    return Latency(
        trigger=trigger,
        guarantee="at-least-once",
        records=len(measured),
        missing=len(measured) - len(took),
        copies=sum(reader.copies[number] for number in measured),
        p50_ms=_milliseconds(took, 0.5),
        p99_ms=_milliseconds(took, 0.99),
        max_ms=_milliseconds(took, 1.0),
    )


def table(measured: Sequence[Latency], load: Load) -> str:
    """Show the results in columns."""
    lines: list[tuple[str, ...]] = [("trigger", "records", "missing", "copies", "p50", "p99", "max")]
    for result in measured:
        counts = (f"{count:,}" for count in (result.records, result.missing, result.copies))
        times = (f"{time_ms:,.1f} ms" for time_ms in (result.p50_ms, result.p99_ms, result.max_ms))
        lines.append((result.trigger, *counts, *times))
    partitions = f"{load.partitions} partition{'s' if load.partitions > 1 else ''}"
    text = f"{load.rate} records a second for {load.seconds} s after {load.warm_up} s, {partitions}"
    note = f"From the producer's call to a reader of the sink's topic; {text}. At-least-once both."
    return "\n".join([*aligned(lines, left=0), "", note])


def _milliseconds(took: Sequence[int], share: float) -> float:
    """Return the nearest rank, of nanoseconds in order."""
    return round(took[max(0, -(-int(len(took) * share * 1000) // 1000) - 1)] / 1e6, 3)


def _config(name: str, endpoints: Endpoints, trigger: str) -> PipelineConfig:
    return PipelineConfig.model_validate(
        {
            "name": name,
            "source": {"kafka": {"bootstrap_servers": endpoints.bootstrap_servers, "topics": [name]}},
            "decode": {"json": {"schema_ddl": COLUMNS}},
            "transform": {"sql": SQL.format(name=name)},
            "sink": {"kafka": {"topic": f"{name}_out", "key": "zip", "options": {"kafka.linger.ms": 0}}},
            "trigger": trigger,
            "checkpoint": f"s3a://{endpoints.bucket}/checkpoints/{name}",
        }
    )


class _Sender:
    """Sends records at a rate, each with its number and the time of the call."""

    def __init__(self, topic: str, endpoints: Endpoints, rate: int) -> None:
        from confluent_kafka import Producer

        self._producer = Producer({"bootstrap.servers": endpoints.bootstrap_servers, "linger.ms": 0, "log_level": 0})
        self._topic = topic
        self._rate = rate
        self._ended = threading.Event()
        self.count = 0
        self._thread = threading.Thread(target=self._send, daemon=True)
        self._thread.start()

    def _send(self) -> None:
        began = time.monotonic()
        while not self._ended.is_set():
            value = {"id": self.count, "sent": time.time_ns(), "zip": f"z{self.count % 100}"}
            self._producer.produce(self._topic, value=json.dumps(value).encode())
            self._producer.poll(0)
            self.count += 1
            self._ended.wait(max(0.0, began + self.count / self._rate - time.monotonic()))

    def close(self) -> None:
        self._ended.set()
        self._thread.join()
        self._producer.flush(30)


class _Reader:
    """Notes by its number how many nanoseconds a record's first copy took, and how many copies came after it."""

    def __init__(self, name: str, endpoints: Endpoints, running: Future[RunSummary]) -> None:
        from confluent_kafka import Consumer, TopicPartition

        self.arrived: dict[int, int] = {}
        self.copies: Counter[int] = Counter()
        self._running = running
        settings = {"bootstrap.servers": endpoints.bootstrap_servers, "group.id": name, "enable.auto.commit": False}
        self._consumer = Consumer({**settings, "fetch.wait.max.ms": 10, "log_level": 0})
        self._consumer.assign([TopicPartition(f"{name}_out", 0, 0)])

    def read(self, seconds: float, *, until: Callable[[], bool] = lambda: False) -> None:
        """Read until the condition holds or the time is up; raise the pipeline's error if it fails."""
        deadline, look = time.monotonic() + seconds, 0.0
        while (now := time.monotonic()) < deadline:
            if now >= look:
                if self._running.done():
                    self._running.result()
                if until():
                    return
                look = now + 0.5
            message = self._consumer.poll(0.05)
            if message is None or message.error():
                continue
            at = time.time_ns()
            row = json.loads(message.value() or b"{}")
            if row["id"] in self.arrived:
                self.copies[row["id"]] += 1
            else:
                self.arrived[row["id"]] = at - row["sent"]

    def close(self) -> None:
        self._consumer.close()
