"""Create, describe, list and delete topics of a cluster, read their offsets, and find truncated partitions."""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, TypeVar

from confluent_kafka import OFFSET_INVALID, IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    ConfigResource,
    ListOffsetsResultInfo,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from lakefeed.clients.kafka.librdkafka import (
    SILENCE,
    TRANSIENT,
    UNREACHABLE,
    error_code,
    error_of,
    error_text,
    librdkafka_settings,
    missing_topic,
    open_consumer,
    refusal_of,
)
from lakefeed.clients.retry import retry_until
from lakefeed.config.sources import KafkaSource
from lakefeed.errors import BrokerUnreachable, ConfigError, LakefeedError, ResourceMissing, Unreachable
from lakefeed.offsets.ranges import OffsetRange, Partition

_TIMEOUT_SECONDS = 5.0
_LEADER_SECONDS = 0.03
"""The time that a broker may take to create one partition; it creates a topic's partitions one after another."""
_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")

_EARLIEST = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
_LATEST = OffsetSpec.latest()  # type: ignore[no-untyped-call]

T = TypeVar("T")
_Requested = dict[TopicPartition, Future[ListOffsetsResultInfo]]


@dataclass(frozen=True, kw_only=True)
class PartitionDescription:
    """One partition, with the offset of its first record, and the offset after its last record.

    Attributes:
        leader: id of the broker that leads the partition; None while there is no leader.
        lost: for a source without Kafka offsets, a message about records that the feed has lost; else None.
        leader_epoch: a number that grows with every new leader; None if the source or the broker has no epochs.
        agreed: in a truncated partition, the offset up to which it still has the records that a feed has read; else
            None.
    """

    id: int
    leader: int | None
    start_offset: int
    end_offset: int
    lost: str | None = None
    leader_epoch: int | None = None
    agreed: int | None = None


@dataclass(frozen=True, kw_only=True)
class TopicDescription:
    """One topic as it is now, with its partitions in the order of their numbers.

    If a topic is recreated under its name, its ``topic_id`` changes. ``noun`` is what messages call it, such as topic.
    """

    name: str
    topic_id: str
    partitions: tuple[PartitionDescription, ...]
    noun: str = "topic"

    @property
    def ends(self) -> dict[int, int]:
        return {partition.id: partition.end_offset for partition in self.partitions}

    @property
    def epochs(self) -> dict[Partition, int]:
        """Return the leader's epoch by partition; partitions whose broker returns no epoch are left out."""
        epochs = {(self.name, partition.id): partition.leader_epoch for partition in self.partitions}
        return {key: epoch for key, epoch in epochs.items() if epoch is not None}

    @property
    def offsets(self) -> int:
        """The number of offsets in all partitions; compaction and transactions leave some offsets without a record."""
        return sum(partition.end_offset - partition.start_offset for partition in self.partitions)


def partitions_of(topics: Mapping[str, TopicDescription | None]) -> dict[Partition, PartitionDescription]:
    return {(name, part.id): part for name, topic in topics.items() if topic for part in topic.partitions}


class Topics:
    """The topics of a cluster.

    Every method raises Unreachable if no broker answers, AccessDenied if the login or its permissions do not suffice,
    and ResourceMissing, with similar names, if there is no such topic.

    Args:
        bootstrap_servers: ``host:port`` of one or more brokers, separated by commas.
        options: settings of the Java client with the prefix ``kafka.``, of which only those for the connection are
            used; or settings of librdkafka, without the prefix.

    Raises:
        ConfigError: librdkafka does not know a setting, or cannot read a key store.
    """

    def __init__(self, bootstrap_servers: str, *, options: Mapping[str, Any] | None = None) -> None:
        self.bootstrap_servers = bootstrap_servers
        # The client calls this with refused connections; the error of a failed request lacks the cause.
        self._connection_errors: deque[KafkaError] = deque(maxlen=20)
        settings: dict[str, str | int | float | bool] = {
            "bootstrap.servers": bootstrap_servers,
            "socket.connection.setup.timeout.ms": 5000,
            **librdkafka_settings(options or {}),
        }
        try:
            self._admin = AdminClient(settings, logger=SILENCE, error_cb=self._connection_errors.append)
        except (KafkaException, TypeError, ValueError) as error:
            what, hint = f"the Kafka client refuses the settings: {error_text(error)}", "correct source.kafka.options"
            raise ConfigError(what, where=bootstrap_servers, hint=hint) from None

    def create(
        self,
        name: str,
        *,
        partitions: int = 10,
        replication_factor: int | None = None,
        config: Mapping[str, str] | None = None,
        exist_ok: bool = False,
    ) -> bool:
        """Create a topic, and wait until its partitions have leaders; return False if the topic exists already.

        Args:
            replication_factor: the number of copies of a partition. Default: the broker's.
            config: topic settings, such as ``{"retention.ms": "3600000"}``.
            exist_ok: leave an existing topic unchanged; otherwise raise a ConfigError for it.
        """
        if not _NAME.fullmatch(name) or name in {".", ".."}:
            raise ConfigError(f"'{name}' cannot name a topic", hint="use up to 249 letters, digits, '.', '_' and '-'")
        if partitions < 1:
            what, hint = f"a topic cannot have {partitions} partitions", "give 1 or more"
            raise ConfigError(what, where=f"topic {name}", hint=hint)
        new = NewTopic(
            name,
            num_partitions=partitions,
            replication_factor=-1 if replication_factor is None else replication_factor,
            config=dict(config or {}),
        )
        self._brokers()
        with self._errors(name):
            try:
                self._answer(self._admin.create_topics([new], request_timeout=_TIMEOUT_SECONDS)[name])
            except KafkaException as error:
                if exist_ok and error_code(error) == KafkaError.TOPIC_ALREADY_EXISTS:
                    return False
                raise
        self._settled(lambda: self._describe(name))
        self.end_offsets(name)
        return True

    def describe(self, name: str, *, committed: bool = False) -> TopicDescription:
        """Return a topic's description; with ``committed``, a partition ends at its first open transaction."""
        topics = self.describe_all([name], committed=committed)
        if name not in topics:
            raise self._missing(name)
        return topics[name]

    def identify(self, partitions: Iterable[Partition]) -> tuple[dict[str, str], dict[Partition, int]]:
        """Return the topics' ids and the partitions' leader epochs, from two concurrent requests."""
        where = [TopicPartition(*key) for key in partitions]
        return self._repeated(lambda: self._identify(where))

    def _identify(self, where: Sequence[TopicPartition]) -> tuple[dict[str, str], dict[Partition, int]]:
        described = self._described(sorted({each.topic for each in where}))
        sent = deque([self._requested(where, _LATEST)])
        topics: dict[str, Any] = {}
        for name, answer in described.items():
            with self._errors(name):
                topics[name] = self._answer(answer)
        # A recreated topic may have fewer partitions.
        there = partitions_of(topics)
        with self._errors(None):
            found = self._offsets([each for each in where if (each.topic, each.partition) in there], _LATEST, sent=sent)
        ids = {name: str(topic.topic_id) for name, topic in topics.items()}
        return ids, {key: info.leader_epoch for key, info in found.items() if info.leader_epoch is not None}

    def describe_all(self, names: Sequence[str], *, committed: bool = False) -> dict[str, TopicDescription]:
        """Return the descriptions of those topics that exist; a few requests are enough for all topics."""
        existing = self._brokers().topics if names else {}
        there = [name for name in names if name in existing]
        if not there:
            return {}
        return self._repeated(lambda: self._describe_existing(there, committed=committed))

    def _describe_existing(self, there: Sequence[str], *, committed: bool) -> dict[str, TopicDescription]:
        topics: dict[str, Any] = {}
        for name, answer in self._described(there).items():
            try:
                topics[name] = self._answer(answer)
            except KafkaException as error:
                if error_code(error) != KafkaError.UNKNOWN_TOPIC_OR_PART:
                    raise self._error(error, name) from None
        everywhere = [TopicPartition(*key) for key in partitions_of(topics)]
        level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
        with self._errors(there[0] if len(there) == 1 else None):
            starts = self._offsets(everywhere, _EARLIEST)
            ends = self._offsets(everywhere, _LATEST, level)
        described = {}
        for name, topic in topics.items():
            partitions = tuple(
                PartitionDescription(
                    id=part.id,
                    leader=part.leader.id if part.leader is not None else None,
                    start_offset=starts[name, part.id].offset,
                    end_offset=ends[name, part.id].offset,
                    leader_epoch=ends[name, part.id].leader_epoch,
                )
                for part in sorted(topic.partitions, key=lambda part: part.id)
            )
            described[name] = TopicDescription(name=name, topic_id=str(topic.topic_id), partitions=partitions)
        return described

    def setting(self, name: str, key: str) -> str | None:
        """Return a topic's setting, such as ``max.message.bytes``; None if the broker has no setting of this name."""
        return self.settings(name).get(key)

    def settings(self, name: str) -> dict[str, str]:
        """Return a topic's settings, with the broker's defaults."""
        resource = ConfigResource(ResourceType.TOPIC, name)
        with self._errors(name):
            answer = self._admin.describe_configs([resource], request_timeout=_TIMEOUT_SECONDS)[resource]
            return {key: str(entry.value) for key, entry in self._answer(answer).items()}

    def end_offsets(self, name: str) -> dict[int, int]:
        """Return the partitions' end offsets, with one request to each broker."""
        return self._offsets_of_all(name, _LATEST)

    def offsets_at(self, name: str, time: datetime) -> dict[int, int]:
        """Return by partition the offset of its first record from this time on; partitions without one are left out."""
        spec = OffsetSpec.for_timestamp(int(time.timestamp() * 1000))
        offsets = self._offsets_of_all(name, spec)
        return {partition: offset for partition, offset in offsets.items() if offset >= 0}

    def delete(self, name: str) -> None:
        self._brokers()
        with self._errors(name):
            self._answer(self._admin.delete_topics([name], request_timeout=_TIMEOUT_SECONDS)[name])

    def list(self) -> list[str]:
        """Return the sorted names of all topics except Kafka's internal ones."""
        return sorted(name for name in self._brokers().topics if not name.startswith("__"))

    def _brokers(self) -> Any:
        """Return the cluster's metadata. If no broker answers, this request fails sooner than any other."""
        with self._errors(None):
            return self._admin.list_topics(timeout=_TIMEOUT_SECONDS)

    def _describe(self, name: str) -> Any:
        if name not in self._brokers().topics:
            raise KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))
        return self._answer(self._described([name])[name])

    def _described(self, names: Sequence[str]) -> dict[str, Future[Any]]:
        if not names:
            return {}
        return self._admin.describe_topics(TopicCollection([*names]), request_timeout=_TIMEOUT_SECONDS)

    def _offsets_of_all(self, name: str, spec: OffsetSpec) -> dict[int, int]:
        with self._errors(name):
            partitions = [TopicPartition(name, part.id) for part in self._describe(name).partitions]
            return {partition: info.offset for (_, partition), info in self._offsets(partitions, spec).items()}

    def _offsets(
        self,
        partitions: Sequence[TopicPartition],
        spec: OffsetSpec,
        level: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
        *,
        sent: deque[_Requested] | None = None,
    ) -> dict[Partition, ListOffsetsResultInfo]:
        """Return offsets by partition; ``sent`` is the first request, if the caller has sent it already."""

        def ask() -> dict[Partition, ListOffsetsResultInfo]:
            requested = sent.pop() if sent else self._requested(partitions, spec, level)
            try:
                found = {(where.topic, where.partition): self._answer(answer) for where, answer in requested.items()}
                outdated = any(info.offset == OFFSET_INVALID for info in found.values())
            except KafkaException as error:
                if error_code(error) != KafkaError._UNKNOWN_PARTITION:
                    raise
                outdated = True
            if outdated:
                # librdkafka did not send the request, or sent it to a broker that has left, because its metadata are
                # older than the partition or the leader.
                self._admin.list_topics(timeout=_TIMEOUT_SECONDS)
                raise KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE))
            return found

        return self._settled(ask, seconds=_TIMEOUT_SECONDS + len(partitions) * _LEADER_SECONDS)

    def _requested(
        self,
        partitions: Sequence[TopicPartition],
        spec: OffsetSpec,
        level: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    ) -> _Requested:
        specs = dict.fromkeys(partitions, spec)
        return self._admin.list_offsets(specs, isolation_level=level, request_timeout=_TIMEOUT_SECONDS)

    def _answer(self, future: Future[T]) -> T:
        return future.result(timeout=_TIMEOUT_SECONDS + 2)

    def _settled(self, ask: Callable[[], T], *, seconds: float = _TIMEOUT_SECONDS) -> T:
        """Repeat a request while partitions have no leader: the topic is new, or a broker has just left."""

        def is_transient(error: Exception) -> bool:
            return isinstance(error, KafkaException) and error_code(error) in TRANSIENT

        return retry_until(ask, is_transient=is_transient, seconds=seconds, pause=0.1)

    def _repeated(self, ask: Callable[[], T]) -> T:
        """Repeat a request that no broker answers, each time with new metadata.

        librdkafka sends DescribeTopics to the controller in its metadata. If that broker has left the cluster,
        librdkafka would wait for five minutes before it renews the metadata.
        """
        again = False

        def attempt() -> T:
            nonlocal again
            if again:
                self._brokers()
            again = True
            return ask()

        return retry_until(
            attempt, is_transient=lambda error: isinstance(error, Unreachable), seconds=2 * _TIMEOUT_SECONDS
        )

    @contextmanager
    def _errors(self, name: str | None) -> Iterator[None]:
        """Raise lakefeed's errors, about the topic ``name`` or the cluster, instead of the client's."""
        try:
            yield
        except KafkaException as error:
            raise self._error(error, name) from None

    def _error(self, error: KafkaException, name: str | None) -> LakefeedError:
        if error_code(error) == KafkaError.UNKNOWN_TOPIC_OR_PART and name:
            return self._missing(name)
        if error_code(error) in UNREACHABLE:
            self._admin.poll(0)
            if (refused := refusal_of(self._connection_errors, servers=self.bootstrap_servers)) is not None:
                return refused
        return error_of(error, servers=self.bootstrap_servers, topic=name)

    def _missing(self, name: str) -> ResourceMissing:
        return missing_topic(name, self.list(), where=self.bootstrap_servers)


# After an unclean election, the new leader may lack records that a feed has read, and give their offsets to new
# records. Each leader has an epoch, in which it only appends records. An unchanged epoch therefore proves without a
# request that the partition was not truncated. If the epoch has changed, the broker returns the offset at which the old
# epoch ended (KIP-320).
SECONDS = 30.0
# librdkafka reports the offset only in the text of an error.
_TRUNCATED = re.compile(r"log truncation detected.*broker end offset is (\d+)")


def mark_cut_offs(
    source: KafkaSource, topics: Mapping[str, TopicDescription | None], read: Iterable[OffsetRange]
) -> dict[str, TopicDescription | None]:
    """Return the topics with ``agreed`` set in truncated partitions; ``read`` are ranges that the feed has read."""
    there = partitions_of(topics)
    positions = {
        span.key: (span.end, span.epoch)
        for span in read
        if span.epoch is not None and span.key in there and there[span.key].leader_epoch not in (None, span.epoch)
    }
    agreed = find_cut_offs(source, positions)
    return {
        name: topic
        and replace(
            topic,
            partitions=tuple(replace(part, agreed=agreed.get((name, part.id))) for part in topic.partitions),
        )
        for name, topic in topics.items()
    }


def find_cut_offs(source: KafkaSource, positions: Mapping[Partition, tuple[int, int]]) -> dict[Partition, int]:
    """Return the offsets at which partitions were truncated since a feed read them up to ``positions``.

    A position is an offset with the leader's epoch. Before a consumer fetches from a position, it asks the broker
    whether the two still fit (OffsetsForLeaderEpoch).
    """
    found: dict[Partition, int] = {}
    if not positions:
        return found
    settings = {"auto.offset.reset": "error", "fetch.message.max.bytes": 1024, "fetch.wait.max.ms": 10}
    with open_consumer(source, "lakefeed-epochs", settings) as consumer:
        consumer.assign([TopicPartition(*key, at, leader_epoch=epoch) for key, (at, epoch) in positions.items()])
        left, deadline = set(positions), time.monotonic() + SECONDS
        while left:
            message = consumer.poll(1.0)
            if message is None:
                if time.monotonic() > deadline:
                    names = ", ".join(f"{topic}-{partition}" for topic, partition in sorted(left)[:10])
                    raise BrokerUnreachable(
                        f"no broker says whether {names} was truncated after the feed read it",
                        where=source.bootstrap_servers,
                        hint="check that the partitions have leaders, then start the feed again",
                    )
                continue
            # A record, the end of a partition and an error all show that the broker has answered for the partition.
            key, error = (str(message.topic()), int(message.partition() or 0)), message.error()
            if error is None or error.code() in (KafkaError._PARTITION_EOF, KafkaError._AUTO_OFFSET_RESET):
                left.discard(key)
                if error is not None and (cut := _TRUNCATED.search(error.str())):
                    found[key] = int(cut[1])
            elif not error.retriable() and error.code() != KafkaError._ALL_BROKERS_DOWN:
                raise error_of(KafkaException(error), servers=source.bootstrap_servers, topic=key[0])
    return found
