"""``lakefeed bench latency``: how long a record takes from its producer to a reader of the sink's topic, by trigger."""

from __future__ import annotations

import json
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from lakefeed.clients.kafka.topics import Topics
from lakefeed.config.models import PipelineConfig
from lakefeed.errors import JobFailed, LakefeedError
from lakefeed.local import Endpoints
from lakefeed.messages.tabular import aligned
from lakefeed.pipeline import Pipeline

if TYPE_CHECKING:
    from confluent_kafka import Consumer
    from pyspark.sql import SparkSession

START_SECONDS, DRAIN_SECONDS = 180.0, 120.0
SQL = "SELECT id, sent, upper(zip) AS zip, kafka_topic, kafka_partition, kafka_offset FROM {name} WHERE zip IS NOT NULL"
COLUMNS = "id BIGINT, sent BIGINT, zip STRING"


@dataclass(frozen=True, kw_only=True)
class Load:
    """What is sent through the pipeline.

    Attributes:
        rate: records a second.
        seconds: how long, after the warm-up.
        warm_up: seconds before, which do not count.
        partitions: of the topic that is read.
    """

    rate: int = 100
    seconds: int = 60
    warm_up: int = 20
    partitions: int = 1


@dataclass(frozen=True, kw_only=True)
class Latency:
    """What one trigger makes of it.

    Attributes:
        trigger: as a pipeline file has it.
        guarantee: of what is in the topic.
        records: how many were measured.
        missing: how many of them did not arrive.
        copies: how many came more than once.
        p50_ms: milliseconds that half of them took at most; producer and reader have the same clock.
        p99_ms: that 99 of 100 took at most.
        max_ms: that the slowest took.
    """

    trigger: str
    guarantee: str
    records: int
    missing: int
    copies: int
    p50_ms: float
    p99_ms: float
    max_ms: float

    def as_dict(self) -> dict[str, Any]:
        """For ``--output json``."""
        return asdict(self)


def measure(
    spark: SparkSession, endpoints: Endpoints, trigger: str, load: Load, *, say: Callable[[str], None]
) -> Latency:
    """Runs a pipeline from topic to topic under a load, and measures each record.

    Args:
        spark: a session on these servers with a task slot for each partition.
        endpoints: the servers.
        trigger: as a pipeline file has it.
        load: what is sent.
        say: called with each line of progress.

    Raises:
        LakefeedError: the pipeline failed, or no record came through.
    """
    name = f"latency_{uuid.uuid4().hex[:8]}"
    topics = Topics(endpoints.bootstrap_servers)
    topics.create(name, partitions=load.partitions)
    topics.create(f"{name}_out", partitions=1)
    pipeline = Pipeline(_config(name, endpoints, trigger), environment=endpoints.as_environment())
    running = _Running(pipeline, spark)
    with _Sender(name, endpoints, load.rate) as sender, _Reader(f"{name}_out", endpoints) as reader:
        say(f"{trigger}: starting")
        sender.start()
        reader.until(lambda: bool(reader.arrived), START_SECONDS, failing=running.failure)
        say(f"{trigger}: warm-up, {load.warm_up} s")
        reader.until(lambda: False, load.warm_up, failing=running.failure)
        first = sender.count
        say(f"{trigger}: measuring, {load.seconds} s")
        reader.until(lambda: False, load.seconds, failing=running.failure)
        last = sender.count
        # On under load: an end would be measured otherwise.
        reader.until(
            lambda: all(n in reader.arrived for n in range(first, last)), DRAIN_SECONDS, failing=running.failure
        )
        sender.stop()
        running.stop()
        took = sorted(reader.arrived[each] for each in range(first, last) if each in reader.arrived)
        copies = sum(reader.copies.get(each, 0) for each in range(first, last))
    if not took:
        raise JobFailed(f"no record came through with trigger: {trigger}", where=name)
    return Latency(
        trigger=trigger,
        guarantee="at-least-once",
        records=last - first,
        missing=last - first - len(took),
        copies=copies,
        p50_ms=_milliseconds(took, 0.5),
        p99_ms=_milliseconds(took, 0.99),
        max_ms=_milliseconds(took, 1.0),
    )


def table(measured: Sequence[Latency], load: Load) -> str:
    """The results for people."""
    head = ("trigger", "records", "missing", "copies", "p50", "p99", "max")
    lines = [head] + [
        (
            each.trigger,
            f"{each.records:,}",
            f"{each.missing:,}",
            f"{each.copies:,}",
            f"{each.p50_ms:,.1f} ms",
            f"{each.p99_ms:,.1f} ms",
            f"{each.max_ms:,.1f} ms",
        )
        for each in measured
    ]
    partitions = f"{load.partitions} partition{'s' if load.partitions > 1 else ''}"
    text = f"{load.rate} records a second for {load.seconds} s after {load.warm_up} s, {partitions}"
    return "\n".join(
        [
            *aligned(lines, left=0),
            "",
            f"From the producer's call to a reader of the sink's topic; {text}. At-least-once both.",
        ]
    )


def _milliseconds(took: Sequence[int], share: float) -> float:
    """The nearest rank, of nanoseconds in order."""
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


class _Running:
    """A pipeline in a thread of its own."""

    def __init__(self, pipeline: Pipeline, spark: SparkSession) -> None:
        from pyspark import InheritableThread

        self._stop = threading.Event()
        self._failure: LakefeedError | None = None

        def run() -> None:
            try:
                pipeline.run(spark=spark, stop=self._stop)
            except LakefeedError as error:
                self._failure = error

        self._thread: Any = InheritableThread(target=run, daemon=True)
        self._thread.start()

    def failure(self) -> None:
        """Raises what the pipeline has failed with."""
        if self._failure is not None:
            raise self._failure

    def stop(self) -> None:
        """Ends it after the batch at hand."""
        self._stop.set()
        self._thread.join()
        self.failure()


class _Sender:
    """Sends records at a rate, each with its number and the time of the call."""

    def __init__(self, topic: str, endpoints: Endpoints, rate: int) -> None:
        from confluent_kafka import Producer

        self._producer = Producer({"bootstrap.servers": endpoints.bootstrap_servers, "linger.ms": 0, "log_level": 0})
        self._topic = topic
        self._rate = rate
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._send, daemon=True)
        self.count = 0

    def _send(self) -> None:
        began = time.monotonic()
        while not self._ended.is_set():
            value = {"id": self.count, "sent": time.time_ns(), "zip": f"z{self.count % 100}"}
            self._producer.produce(self._topic, value=json.dumps(value).encode())
            self._producer.poll(0)
            self.count += 1
            self._ended.wait(max(0.0, began + self.count / self._rate - time.monotonic()))

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()
        self._producer.flush(30)

    def __enter__(self) -> _Sender:
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()


class _Reader:
    """Notes when each record is there.

    Attributes:
        arrived: nanoseconds that each took, by its number; of its first copy.
        copies: how often it came again.
    """

    def __init__(self, topic: str, endpoints: Endpoints) -> None:
        from confluent_kafka import Consumer, TopicPartition

        self.arrived: dict[int, int] = {}
        self.copies: dict[int, int] = {}
        settings = {
            "bootstrap.servers": endpoints.bootstrap_servers,
            "group.id": topic,
            "fetch.wait.max.ms": 10,
            "log_level": 0,
        }
        self._consumer: Consumer = Consumer({**settings, "enable.auto.commit": False})
        self._consumer.assign([TopicPartition(topic, 0, 0)])

    def until(self, over: Callable[[], bool], seconds: float, *, failing: Callable[[], None]) -> None:
        """Reads until something is so, or the time is up."""
        deadline, look = time.monotonic() + seconds, 0.0
        while (now := time.monotonic()) < deadline:
            if now >= look:
                failing()
                if over():
                    return
                look = now + 0.5
            message = self._consumer.poll(0.05)
            if message is None or message.error():
                continue
            at = time.time_ns()
            row = json.loads(message.value() or b"{}")
            if row["id"] in self.arrived:
                self.copies[row["id"]] = self.copies.get(row["id"], 0) + 1
            else:
                self.arrived[row["id"]] = at - row["sent"]

    def __enter__(self) -> _Reader:
        return self

    def __exit__(self, *error: object) -> None:
        self._consumer.close()
