"""Records into a topic through Spark's Kafka sink, as a batch or as a stream.

The sink is at-least-once: the idempotent client doubles nothing when it repeats a request, but a Spark task that
fails and runs again sends its rows again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lakefeed.errors import ConfigError, LakefeedError
from lakefeed.kafka.client_options import PRODUCER_DEFAULTS, producer_complaints
from lakefeed.kafka.topics import Topics
from lakefeed.produce.avro import NULL_MARK
from lakefeed.produce.encode import Encoding, encoded
from lakefeed.produce.pace import paced
from lakefeed.spark_errors import translated

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_POLL_SECONDS = 0.5
_STOP_SECONDS = 20.0

Reached = Callable[[int], None]
"""Called a few times a second with the number of records that have reached the topic."""


@dataclass(frozen=True, kw_only=True)
class Target:
    """Where records go, and how the Kafka client sends them.

    Attributes:
        bootstrap_servers: ``host:port`` of one or more brokers, separated by commas.
        topic: it must exist.
        options: Kafka producer settings with the prefix ``kafka.``; they win over ``PRODUCER_DEFAULTS``.
        rate: records a second in total, at most; None for as fast as it goes.
    """

    bootstrap_servers: str
    topic: str
    options: Mapping[str, str] | None = None
    rate: float | None = None

    def sink_options(self) -> dict[str, str]:
        """Options of Spark's Kafka sink.

        Raises:
            ConfigError: a setting that a producer does not have, or that cannot be set here.
        """
        given = dict(self.options or {})
        if complaints := producer_complaints(given):
            first = complaints[0]
            raise ConfigError(first.what, where=f"Kafka setting {first.key}", hint=first.hint)
        return {
            **PRODUCER_DEFAULTS,
            **given,
            "kafka.bootstrap.servers": self.bootstrap_servers,
            "topic": self.topic,
        }


@dataclass(frozen=True, kw_only=True)
class Produced:
    """What a producer has done.

    Attributes:
        topic: where the records are.
        records: how many more records the topic has: those of others count too, if others wrote meanwhile.
        seconds: how long it took.
        subject: under which the schema is registered, if it is.
        schema_id: its id in the registry, if it has one.
    """

    topic: str
    records: int
    seconds: float
    subject: str | None
    schema_id: int | None

    @property
    def records_per_second(self) -> float:
        """Records by seconds."""
        return self.records / self.seconds if self.seconds > 0 else 0.0


class Interrupted(KeyboardInterrupt):
    """Ctrl-C came while a batch was being sent; ``produced`` says what the topic has of it."""

    def __init__(self, produced: Produced) -> None:
        self.produced = produced
        super().__init__()


def produce(
    rows: DataFrame,
    target: Target,
    encoding: Encoding,
    *,
    key: str | None = None,
    headers: Mapping[str, str] | None = None,
    reached: Reached | None = None,
) -> Produced:
    """Sends all rows of a batch and returns when the brokers have acknowledged them.

    Args:
        rows: a batch.
        target: the topic.
        encoding: from :func:`lakefeed.produce.encode.settle`.
        key: column of the record's key.
        headers: the same for each record.
        reached: told about progress.

    Raises:
        ResourceMissing: there is no such topic.
        ConfigError: a Kafka setting is wrong, or a row does not fit the schema.
        Unreachable: no broker answers.
        Interrupted: Ctrl-C; what was sent until then stays in the topic.
    """
    topics = Topics(target.bootstrap_servers, options=target.options)
    options = target.sink_options()
    before = _end(topics, target.topic)
    records = paced(encoded(rows, encoding, key=key, headers=headers), target.rate)
    began = time.monotonic()

    def so_far() -> Produced:
        return Produced(
            topic=target.topic,
            records=_end(topics, target.topic) - before,
            seconds=time.monotonic() - began,
            subject=encoding.subject,
            schema_id=encoding.schema_id,
        )

    save = _Save(records, options)
    try:
        while not save.finished(_POLL_SECONDS):
            if reached is not None:
                reached(_end(topics, target.topic) - before)
    except KeyboardInterrupt:
        save.cancel()
        raise Interrupted(so_far()) from None
    except LakefeedError:
        save.cancel()
        raise
    if save.failure is not None:
        raise _error(save.failure) from save.failure
    return so_far()


def produce_stream(
    rows: DataFrame,
    target: Target,
    encoding: Encoding,
    *,
    checkpoint: str,
    stop: threading.Event,
    key: str | None = None,
    headers: Mapping[str, str] | None = None,
    reached: Reached | None = None,
) -> Produced:
    """Sends rows as they come, until ``stop`` is set; then ends between two micro-batches.

    Args:
        rows: a stream.
        target: the topic.
        encoding: from :func:`lakefeed.produce.encode.settle`.
        checkpoint: where the query keeps what it has read; started again, it goes on there.
        stop: ends it.
        key: column of the record's key.
        headers: the same for each record.
        reached: told about progress.

    Raises:
        ResourceMissing: there is no such topic.
        ConfigError: a Kafka setting is wrong, or a row does not fit the schema.
        Unreachable: no broker answers.
    """
    from pyspark.errors import PySparkException

    topics = Topics(target.bootstrap_servers, options=target.options)
    options = target.sink_options()
    before = _end(topics, target.topic)
    records = paced(encoded(rows, encoding, key=key, headers=headers), target.rate)
    began = time.monotonic()
    writer = records.writeStream.format("kafka").options(**options)
    try:
        query = writer.option("checkpointLocation", checkpoint).start()
        try:
            while not query.awaitTermination(_POLL_SECONDS):  # type: ignore[arg-type]
                if reached is not None:
                    reached(_end(topics, target.topic) - before)
                if stop.is_set() and not query.status["isTriggerActive"]:
                    break
        finally:
            query.stop()
    except PySparkException as error:
        raise _error(error) from error
    return Produced(
        topic=target.topic,
        records=_end(topics, target.topic) - before,
        seconds=time.monotonic() - began,
        subject=encoding.subject,
        schema_id=encoding.schema_id,
    )


class _Save:
    """Spark's blocking ``save()`` in a thread, so that progress can be shown and Ctrl-C is heard."""

    def __init__(self, records: DataFrame, options: Mapping[str, str]) -> None:
        from pyspark import InheritableThread

        self.failure: Exception | None = None
        self._context = records.sparkSession.sparkContext
        self._tag = f"lakefeed-produce-{id(self)}"

        def run() -> None:
            self._context.addJobTag(self._tag)
            try:
                records.write.format("kafka").options(**options).save()
            except Exception as error:  # Whatever it is, the caller's thread raises it.
                self.failure = error
            finally:
                self._context.removeJobTag(self._tag)

        self._thread: Any = InheritableThread(target=run, daemon=True)
        self._thread.start()

    def finished(self, seconds: float) -> bool:
        """Waits for the end, so long at most."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def cancel(self) -> None:
        """Stops the job and waits until its tasks have let go."""
        self._context.cancelJobsWithTag(self._tag)
        self._thread.join(_STOP_SECONDS)


def _end(topics: Topics, topic: str) -> int:
    return sum(topics.end_offsets(topic).values())


def _error(error: Exception) -> LakefeedError:
    text = str(error)
    if NULL_MARK in text:
        field = text.partition(NULL_MARK)[2].split()[0].strip("'\"")
        return ConfigError(
            f"a row has no value for the field '{field}', and the schema allows no null there",
            where=f"field {field}",
            hint="mend the row, or make the field a union with null in the schema",
        )
    return translated(error)
