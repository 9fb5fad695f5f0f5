"""Write records into a topic with Spark's Kafka sink, as a batch or as a stream.

The sink is at-least-once: the idempotent client writes no duplicates when it repeats a request, but a repeated Spark
task sends all its rows again.
"""

from __future__ import annotations

import os
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from rich.console import Console

from lakefeed.clients.kafka.topics import Topics
from lakefeed.clients.spark.errors import translate
from lakefeed.config.kafka_client import PRODUCER_DEFAULTS, KafkaLogin, client_options, producer_problems
from lakefeed.errors import ConfigError, LakefeedError
from lakefeed.feed.progress import FinishedBatch
from lakefeed.feed.run import MicroBatches, watch
from lakefeed.lazy import DataFrame, sf
from lakefeed.messages.text import duration
from lakefeed.monitor.terminal import LiveLine
from lakefeed_encode.avro import row_error
from lakefeed_local.produce.sources import read_error

_POLL_SECONDS = 0.5
_SECONDS_A_LINE = 5.0
_STOP_SECONDS = 20.0


@dataclass(frozen=True, kw_only=True)
class Produced:
    """The result of a producer; ``records`` includes records that other writers added to the topic during the run."""

    topic: str
    records: int
    seconds: float

    @property
    def records_per_second(self) -> float:
        return self.records / self.seconds if self.seconds > 0 else 0.0


class ProduceView(LiveLine):
    """A context manager that shows the number of records that have reached the topic."""

    def __init__(self, topic: str, *, expected: int | None = None, console: Console | None = None) -> None:
        self._topic = topic
        self._expected = expected
        self._printed = time.monotonic()
        self._first: tuple[float, int] | None = None
        super().__init__(self._line(0), console=console)

    def reached(self, records: int) -> None:
        """Set the number of records that have reached the topic; show the number at intervals."""
        if self.lives:
            self.update(self._line(records))
        elif time.monotonic() - self._printed >= _SECONDS_A_LINE:
            self._printed = time.monotonic()
            self.print(self._line(records))

    def _line(self, records: int) -> str:
        known = f" of {self._expected:,}" if self._expected is not None else ""
        parts = [f"produce {self._topic}: {records:,}{known}"]
        if (rate := self._rate(records)) > 0:
            parts.append(f"{rate:,.0f}/s")
            if self._expected is not None:
                parts.append(f"{duration(max(0, self._expected - records) / rate)} left")
        return " · ".join(parts)

    def _rate(self, records: int) -> float:
        """Return the records per second since the first record arrived, without the time of Spark's start."""
        now = time.monotonic()
        if self._first is None:
            self._first = (now, records) if records > 0 else None
            return 0.0
        seconds = now - self._first[0]
        return (records - self._first[1]) / seconds if seconds > 0 else 0.0


class Interrupted(KeyboardInterrupt):
    """Ctrl-C has interrupted a batch; ``produced`` counts the records that are in the topic."""

    def __init__(self, produced: Produced) -> None:
        self.produced = produced
        super().__init__()


def produce(
    records: DataFrame,
    topic: str,
    *,
    bootstrap_servers: str,
    options: Mapping[str, str] | None = None,
    rate: float | None = None,
    reached: Callable[[int], None] | None = None,
) -> Produced:
    """Send a batch of records, and return when the brokers have acknowledged them.

    Args:
        records: the result of :func:`lakefeed_encode.encode.to_records`: the column ``value``, and perhaps
            ``key`` and ``headers``.
        topic: an existing topic.
        bootstrap_servers: ``host:port`` of one or more brokers, separated by commas.
        options: Kafka producer settings with the prefix ``kafka.``; they override ``PRODUCER_DEFAULTS``.
        rate: the most records per second in total. Default: unlimited.
        reached: gets the number of records that have reached the topic, a few times per second.

    Raises:
        LakefeedError: the topic or a setting does not exist, no broker answers, or a row does not fit the schema.
        Interrupted: Ctrl-C; the records sent so far stay in the topic.
    """
    sink = sink_options(topic, bootstrap_servers, options)
    count = _Count(topic, bootstrap_servers, options)
    save = _Save(_limit_rate(records, rate), sink)
    try:
        while not save.finished(_POLL_SECONDS):
            if reached is not None:
                reached(count.so_far().records)
    except KeyboardInterrupt:
        save.cancel()
        raise Interrupted(count.at_rest()) from None
    except LakefeedError:
        save.cancel()
        raise
    if save.failure is not None:
        raise _error(save.failure) from save.failure
    return count.so_far()


def produce_stream(
    records: DataFrame,
    topic: str,
    *,
    bootstrap_servers: str,
    checkpoint: str,
    stop: threading.Event,
    on_batch: Callable[[FinishedBatch], None],
    options: Mapping[str, str] | None = None,
    rate: float | None = None,
) -> Produced:
    """Send the records of a stream until ``stop`` is set, then end between two micro-batches.

    A restarted stream resumes at the offsets in its ``checkpoint``. ``on_batch`` is called after every micro-batch.
    Other arguments and the errors are those of :func:`produce`.
    """
    sink = sink_options(topic, bootstrap_servers, options)
    count = _Count(topic, bootstrap_servers, options)
    writer = _limit_rate(records, rate).writeStream.format("kafka").options(**sink)
    try:
        query = writer.option("checkpointLocation", checkpoint).start()
        watch(query, MicroBatches(stop), on_batch=on_batch)
    except LakefeedError as error:
        raise _error(error.__cause__ or error) from error
    return count.so_far()


def sink_options(topic: str, bootstrap_servers: str, options: Mapping[str, str] | None) -> dict[str, str]:
    """Return the options of Spark's Kafka sink, with the environment's login; refuse unknown settings."""
    if complaints := producer_problems(options or {}):
        first = complaints[0]
        raise ConfigError(first.what, where=f"Kafka setting {first.key}", hint=first.hint)
    servers = {"kafka.bootstrap.servers": bootstrap_servers, "topic": topic}
    return {**PRODUCER_DEFAULTS, **client_options(KafkaLogin.from_environment(os.environ), options or {}), **servers}


class _Count:
    """Counts the records that the topic gets after this object is created, by the partitions' end offsets."""

    def __init__(self, topic: str, bootstrap_servers: str, options: Mapping[str, str] | None) -> None:
        login = client_options(KafkaLogin.from_environment(os.environ), options or {})
        self._topics, self._topic = Topics(bootstrap_servers, options=login), topic
        self._before, self._began = self._end(), time.monotonic()

    def so_far(self) -> Produced:
        return Produced(topic=self._topic, records=self._end() - self._before, seconds=time.monotonic() - self._began)

    def at_rest(self) -> Produced:
        """Return the count when it no longer grows: clients of cancelled tasks still send buffered records."""
        now = self.so_far()
        for _ in range(int(_STOP_SECONDS)):
            last = now
            time.sleep(1)
            if (now := self.so_far()).records == last.records:
                return last
        return now

    def _end(self) -> int:
        return sum(self._topics.end_offsets(self._topic).values())


class _Save:
    """Runs Spark's blocking ``save()`` in a thread, so that the caller's thread can show progress."""

    def __init__(self, records: DataFrame, options: Mapping[str, str]) -> None:
        from pyspark import InheritableThread

        self.failure: Exception | None = None
        self._context = records.sparkSession.sparkContext
        self._tag = f"lakefeed-produce-{id(self)}"

        def run() -> None:
            self._context.addJobTag(self._tag)
            try:
                records.write.format("kafka").options(**options).save()
            except Exception as error:  # The caller's thread raises this error.
                self.failure = error

        self._thread: Any = InheritableThread(target=run, daemon=True)
        self._thread.start()

    def finished(self, seconds: float) -> bool:
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def cancel(self) -> None:
        self._context.cancelJobsWithTag(self._tag)
        self._thread.join(_STOP_SECONDS)


def _error(error: BaseException) -> LakefeedError:
    text = str(error)
    return row_error(text) or read_error(text) or translate(error)


def _limit_rate(records: DataFrame, rate: float | None) -> DataFrame:
    """Limit the records per second of all tasks by a token bucket in each JVM (``io.lakefeed.local.Pace``).

    Each executor that runs now gets an equal share, so executors that join later raise the total rate.
    """
    if rate is None:
        return records
    if not rate > 0:
        raise ConfigError(f"{rate:g} records a second is not a rate", where="rate", hint="give a number above 0")
    spark = records.sparkSession
    context: Any = spark.sparkContext._jsc
    # The list contains the driver, which runs tasks only if there are no executors.
    executors = max(1, int(context.sc().getExecutorMemoryStatus().size()) - 1)
    # Spark reads the options of a function's catalog only once, so each call gets its own catalog.
    catalog = f"lakefeed_pace_{uuid.uuid4().hex[:12]}"
    spark.conf.set(f"spark.sql.catalog.{catalog}", "io.lakefeed.local.PaceCatalog")
    spark.conf.set(f"spark.sql.catalog.{catalog}.rows-per-second", str(rate / executors))
    return records.withColumn("value", sf.call_function(f"{catalog}.pace", sf.col("value")))
