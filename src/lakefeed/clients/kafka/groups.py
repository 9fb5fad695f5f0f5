"""Read the offsets of consumer groups, and publish a feed's position as the offsets of a monitoring group."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

from confluent_kafka import (
    Consumer,
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient

from lakefeed.clients.kafka.librdkafka import COORDINATING, SILENCE, client_settings, error_code, error_of
from lakefeed.clients.kafka.scan import TIMEOUT_SECONDS
from lakefeed.clients.retry import retry_until
from lakefeed.config.sources import KafkaSource
from lakefeed.errors import LakefeedError, Unreachable
from lakefeed.offsets.ranges import OffsetRange, Partition

RETRY_SECONDS = 1.0
PATIENCE_SECONDS = 15.0
"""Report failures only after this time, because a group's coordinator usually loads within a few seconds."""
END_SECONDS = 10.0
"""How long a run waits at its end until the broker accepts the last offsets."""


def group_offsets(
    source: KafkaSource, group: str, topics: Sequence[str] | None = None, *, stable: bool = True
) -> dict[Partition, int]:
    """Return a consumer group's committed offsets in these topics, or in all topics, without joining the group.

    Args:
        stable: raise Unreachable if an open transaction may still change offsets (KIP-447); False ignores it.

    Raises:
        Unreachable: no broker answers, or an open transaction locks offsets of the group.
    """
    # Ask with a consumer; without a subscription, it does not join the group. A request of AdminClient would crash the
    # process while the broker sets up a new group's coordinator (confluentinc/librdkafka#5040).
    level = "read_committed" if stable else "read_uncommitted"
    settings = {**client_settings(source), "group.id": group, "enable.auto.commit": False, "isolation.level": level}
    consumer = Consumer(settings, logger=SILENCE)
    try:
        existing = consumer.list_topics(timeout=TIMEOUT_SECONDS).topics
        read = [name for name in existing if (not name.startswith("__") if topics is None else name in topics)]
        requested = [TopicPartition(name, number) for name in read for number in existing[name].partitions]
        answers = retry_until(
            lambda: _committed(consumer, requested),
            is_transient=lambda error: isinstance(error, KafkaException) and error_code(error) in COORDINATING,
            seconds=TIMEOUT_SECONDS,
            pause=0.1,
        )
    except KafkaException as error:
        if stable and error_code(error) == KafkaError._TIMED_OUT:
            # librdkafka reports an open transaction as a timeout, too. This call raises an error if the broker does not
            # answer.
            group_offsets(source, group, topics, stable=False)
            raise Unreachable(
                f"an open transaction has locked offsets of the group {group}",
                where=source.bootstrap_servers,
                hint="try again when the transaction has ended: after the producer's transaction.timeout.ms, by "
                "default a minute",
            ) from None
        raise _group_error(error, source, group) from None
    finally:
        consumer.close()
    return {(answer.topic, answer.partition): answer.offset for answer in answers if answer.offset >= 0}


def _committed(consumer: Consumer, requested: list[TopicPartition]) -> list[TopicPartition]:
    answers = consumer.committed(requested, TIMEOUT_SECONDS) if requested else []
    if refused := [answer.error for answer in answers if answer.error is not None]:
        raise KafkaException(refused[0])
    return answers


def group_names(source: KafkaSource) -> list[str]:
    """Return the sorted names of the cluster's consumer groups; an empty list if the request fails."""
    try:
        return sorted(group_states(source))
    except (KafkaException, TimeoutError):
        return []


def group_states(source: KafkaSource) -> dict[str, ConsumerGroupState]:
    """Return the states of the cluster's consumer groups by name; raise the client's error if the request fails."""
    # List all groups: a request to describe one group could crash librdkafka (see ``group_offsets``).
    admin = AdminClient(client_settings(source), logger=SILENCE)
    listed = admin.list_consumer_groups(request_timeout=TIMEOUT_SECONDS).result(TIMEOUT_SECONDS + 2)
    return {str(group.group_id): group.state for group in listed.valid}


def _group_error(error: KafkaException, source: KafkaSource, group: str) -> LakefeedError:
    known = error_of(error, servers=source.bootstrap_servers, topic=None)
    if isinstance(known, Unreachable):
        return known
    return type(known)(known.what, where=f"group {group} at {source.bootstrap_servers}", hint=known.hint)


class MonitoringGroup:
    """A consumer group whose offsets show a feed's position.

    Spark's source commits no offsets, so tools that watch consumer lag do not see a feed. This group must have no
    members, because the broker refuses to alter the offsets of a group with members.
    """

    def __init__(self, source: KafkaSource, name: str) -> None:
        self.name = name
        self._settings = client_settings(source)
        self._admin = AdminClient(self._settings, logger=SILENCE)

    def publish(self, ranges: Iterable[OffsetRange]) -> str | None:
        """Set the group's offsets to the ends of these ranges; return a message if that fails."""
        failure = self.set_offsets(ranges)
        return None if failure is None else f"the monitoring group {self.name} could not be set: {failure}"

    def set_offsets(self, ranges: Iterable[OffsetRange]) -> str | None:
        """Set the group's offsets to the ends of these ranges; return the reason if that fails."""
        ends = [TopicPartition(span.topic, span.partition, span.end) for span in ranges]
        if not ends:  # Kafka's client raises an error for an empty list.
            return None
        try:
            requested = [ConsumerGroupTopicPartitions(self.name, ends)]
            answers = self._admin.alter_consumer_group_offsets(requested, request_timeout=TIMEOUT_SECONDS)
            for answer in answers[self.name].result(TIMEOUT_SECONDS + 2).topic_partitions:
                if answer.error is not None:
                    return f"{answer.topic}-{answer.partition}: {answer.error.str()}"
        except (KafkaException, TimeoutError) as error:
            return str(error) or type(error).__name__
        return None

    def offsets(self, partitions: Iterable[tuple[str, int]]) -> dict[tuple[str, int], int] | None:
        """Return the group's offsets of these partitions; None if the request fails."""
        requested = [TopicPartition(*partition) for partition in partitions]
        # Do not use AdminClient, which could crash the process: see ``group_offsets``.
        consumer = Consumer({**self._settings, "group.id": self.name, "enable.auto.commit": False}, logger=SILENCE)
        try:
            answers = consumer.committed(requested, TIMEOUT_SECONDS) if requested else []
        except KafkaException:
            return None
        finally:
            consumer.close()
        return {(answer.topic, answer.partition): answer.offset for answer in answers if answer.offset >= 0}


class GroupPublisher:
    """Publishes a feed's newest position to its monitoring group in a separate thread, so that batches do not wait.

    A broker refuses offsets while it loads a new group's coordinator, or while another broker takes over the group. The
    thread then sends the newest position again until the broker accepts it, or until the run ends.
    """

    def __init__(
        self, group: MonitoringGroup, *, retry_seconds: float = RETRY_SECONDS, patience: float = PATIENCE_SECONDS
    ) -> None:
        self._group = group
        self._retry_seconds, self._patience = retry_seconds, patience
        self._changed = threading.Condition()
        self._pending: dict[Partition, OffsetRange] = {}
        self._failure: str | None = None
        self._failing_since: float | None = None
        self._reported: str | None = None
        self._until: float | None = None
        self._thread = threading.Thread(target=self._run, name="lakefeed-group", daemon=True)
        self._thread.start()

    def publish(self, ranges: Iterable[OffsetRange]) -> str | None:
        """Queue the ends of these ranges for the thread; return a message, but only once, if it keeps failing."""
        with self._changed:
            self._pending.update({span.key: span for span in ranges})
            self._changed.notify_all()
            since = self._failing_since
            if since is None or time.monotonic() - since < self._patience or self._failure == self._reported:
                return None
            self._reported = self._failure
            return self._message()

    def close(self, *, seconds: float = END_SECONDS) -> str | None:
        """Send the queued offsets within this time, and end the thread; return a message if that fails."""
        with self._changed:
            self._until = time.monotonic() + seconds
            self._changed.notify_all()
        self._thread.join(seconds)
        with self._changed:
            return self._message() if self._pending and seconds > 0 else None

    def _message(self) -> str:
        return f"the monitoring group {self._group.name} could not be set: {self._failure or 'the broker is silent'}"

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._pending or self._until is not None)
                if self._until is not None and (not self._pending or time.monotonic() >= self._until):
                    return
                sent = dict(self._pending)
            failure = self._group.set_offsets(sent.values())
            with self._changed:
                self._note(sent, failure)
                if failure is not None:
                    self._changed.wait_for(lambda: self._until is not None, timeout=self._retry_seconds)
            if failure is not None and self._until is not None:
                # Do not wait beyond the deadline of ``close``, because ``close`` waits for this thread.
                time.sleep(min(self._retry_seconds, max(0.0, self._until - time.monotonic())))

    def _note(self, sent: dict[Partition, OffsetRange], failure: str | None) -> None:
        self._failure = failure
        if failure is not None:
            self._failing_since = self._failing_since or time.monotonic()
            return
        self._failing_since = self._reported = None
        # Remove only the offsets that were sent: a batch may have queued later ones meanwhile.
        self._pending = {key: span for key, span in self._pending.items() if sent.get(key) != span}


@contextmanager
def publishing(publisher: GroupPublisher | None, on_note: Callable[[str], None]) -> Iterator[None]:
    """Publish a feed's last position at the end of the ``with`` block; if that fails, pass a message to ``on_note``.

    If the block raises an error, do not publish: another driver may have taken over and published a later position.
    """
    try:
        yield
    except BaseException:
        if publisher is not None:
            publisher.close(seconds=0.0)
        raise
    if publisher is not None and (note := publisher.close()) is not None:
        on_note(note)
