"""Topics of one cluster: create, describe, list, delete, and how far they reach."""

from __future__ import annotations

import difflib
import logging
import re
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    ConfigResource,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from lakefeed.errors import AccessDenied, ConfigError, LakefeedError, ResourceMissing, Unreachable
from lakefeed.kafka.librdkafka import librdkafka_settings

_TIMEOUT_SECONDS = 5.0
_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")
_silence = logging.getLogger("lakefeed.kafka.librdkafka")
_silence.addHandler(logging.NullHandler())
_silence.propagate = False

_EARLIEST = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
_LATEST = OffsetSpec.latest()  # type: ignore[no-untyped-call]

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class PartitionDescription:
    """One partition.

    Attributes:
        id: its number.
        leader: id of the broker that leads it; None while there is none.
        start_offset: the first offset that is still there.
        end_offset: one more than the last offset.
        lost: what was removed before the feed has read it, where the source knows its records by other names.
    """

    id: int
    leader: int | None
    start_offset: int
    end_offset: int
    lost: str | None = None


@dataclass(frozen=True, kw_only=True)
class TopicDescription:
    """One topic as it is now.

    Attributes:
        name: its name.
        topic_id: Kafka's id, which a topic created again under the same name does not share.
        partitions: in the order of their numbers.
    """

    name: str
    topic_id: str
    partitions: tuple[PartitionDescription, ...]

    @property
    def records(self) -> int:
        """Offsets between start and end: all records, if neither compaction nor transactions left gaps."""
        return sum(each.end_offset - each.start_offset for each in self.partitions)


class Topics:
    """The topics of a cluster.

    Args:
        bootstrap_servers: ``host:port`` of one or more brokers, separated by commas.
        options: Kafka client settings with the prefix ``kafka.``, of which those count that say how to reach
            the cluster; or librdkafka's own without it.

    Raises:
        ConfigError: a setting that librdkafka does not know, or a key store that it cannot read.
    """

    def __init__(self, bootstrap_servers: str, *, options: Mapping[str, Any] | None = None) -> None:
        self.bootstrap_servers = bootstrap_servers
        settings: dict[str, str | int | float | bool] = {
            "bootstrap.servers": bootstrap_servers,
            "socket.connection.setup.timeout.ms": 5000,
            **librdkafka_settings(options or {}),
        }
        try:
            # librdkafka reports a broker that is away by itself, over and over: our own error says it once.
            self._admin = AdminClient(settings, logger=_silence, error_cb=lambda error: None)
        except (KafkaException, TypeError, ValueError) as error:
            raise ConfigError(
                f"the Kafka client refuses its settings: {_text(error)}", where=bootstrap_servers
            ) from None

    def create(
        self,
        name: str,
        *,
        partitions: int = 10,
        replication_factor: int | None = None,
        config: Mapping[str, str] | None = None,
        exist_ok: bool = False,
    ) -> bool:
        """Creates a topic and waits until it can be written to.

        Args:
            name: letters, digits, ``.``, ``_`` and ``-``.
            partitions: how many.
            replication_factor: copies of each partition; the broker's default if not said.
            config: topic settings, such as ``{"retention.ms": "3600000"}``.
            exist_ok: whether a topic that is already there is left as it is.

        Returns:
            Whether it was created.

        Raises:
            ConfigError: a wrong name, number or setting, or the topic exists.
            AccessDenied: these credentials may not create it.
            Unreachable: no broker answers.
        """
        if not _NAME.fullmatch(name) or name in {".", ".."}:
            raise ConfigError(
                f"'{name}' cannot name a topic",
                hint="use up to 249 letters, digits, '.', '_' and '-'",
            )
        if partitions < 1:
            raise ConfigError(f"a topic has at least 1 partition, not {partitions}", where=f"topic {name}")
        new = NewTopic(
            name,
            num_partitions=partitions,
            replication_factor=-1 if replication_factor is None else replication_factor,
            config=dict(config or {}),
        )
        self._brokers()
        try:
            self._answer(self._admin.create_topics([new], request_timeout=_TIMEOUT_SECONDS)[name])
        except KafkaException as error:
            if exist_ok and _code(error) == KafkaError.TOPIC_ALREADY_EXISTS:
                return False
            raise self._error(error, name) from None
        self._settled(lambda: self._describe(name))
        self.end_offsets(name)
        return True

    def describe(self, name: str, *, committed: bool = False) -> TopicDescription:
        """A topic with its partitions and their offsets.

        Args:
            name: the topic.
            committed: let a partition end where the first transaction is still open, as for a reader of committed
                records.

        Raises:
            ResourceMissing: there is no such topic; the error has the nearest names.
            AccessDenied: these credentials may not describe it.
            Unreachable: no broker answers.
        """
        try:
            found: Any = self._describe(name)
            numbers = sorted(each.id for each in found.partitions)
            starts = self._settled(lambda: self._offsets(name, numbers, _EARLIEST))
            isolation = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
            ends = self._settled(lambda: self._offsets(name, numbers, _LATEST, isolation))
        except KafkaException as error:
            raise self._error(error, name) from None
        leaders = {each.id: each.leader.id if each.leader is not None else None for each in found.partitions}
        return TopicDescription(
            name=name,
            topic_id=str(found.topic_id),
            partitions=tuple(
                PartitionDescription(
                    id=number, leader=leaders[number], start_offset=starts[number], end_offset=ends[number]
                )
                for number in numbers
            ),
        )

    def ids(self, names: Sequence[str]) -> dict[str, str]:
        """The ids of topics, in one request.

        Raises:
            ResourceMissing: one of them is not there.
            AccessDenied: these credentials may not describe it.
            Unreachable: no broker answers.
        """
        if not names:
            return {}
        answers = self._admin.describe_topics(TopicCollection(list(names)), request_timeout=_TIMEOUT_SECONDS)
        found: dict[str, str] = {}
        for name, answer in answers.items():
            try:
                described: Any = self._answer(answer)
            except KafkaException as error:
                raise self._error(error, name) from None
            found[name] = str(described.topic_id)
        return found

    def describe_all(self, names: Sequence[str], *, committed: bool = True) -> dict[str, TopicDescription]:
        """Topics with their partitions and offsets, in a few requests however many they are.

        Args:
            names: which; those that are not there are left out.
            committed: end where a reader of committed records does, before the first open transaction.

        Raises:
            AccessDenied: these credentials may not describe one of them.
            Unreachable: no broker answers.
        """
        there = [name for name in names if name in self._brokers().topics]
        if not there:
            return {}
        answers = self._admin.describe_topics(TopicCollection(there), request_timeout=_TIMEOUT_SECONDS)
        found: dict[str, Any] = {}
        for name in there:
            try:
                found[name] = self._answer(answers[name])
            except KafkaException as error:
                if _code(error) != KafkaError.UNKNOWN_TOPIC_OR_PART:
                    raise self._error(error, name) from None
        everywhere = [TopicPartition(name, each.id) for name, topic in found.items() for each in topic.partitions]
        level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
        try:
            starts = self._settled(lambda: self._offsets_of(everywhere, _EARLIEST, level))
            ends = self._settled(lambda: self._offsets_of(everywhere, _LATEST, level))
        except KafkaException as error:
            raise self._error(error, None) from None
        return {
            name: TopicDescription(
                name=name,
                topic_id=str(topic.topic_id),
                partitions=tuple(
                    PartitionDescription(
                        id=each.id,
                        leader=each.leader.id if each.leader is not None else None,
                        start_offset=starts[name, each.id],
                        end_offset=ends[name, each.id],
                    )
                    for each in sorted(topic.partitions, key=lambda each: each.id)
                ),
            )
            for name, topic in found.items()
        }

    def setting(self, name: str, key: str) -> str | None:
        """A setting of a topic as it holds now, such as ``max.message.bytes``; None if the broker has no such.

        Raises:
            AccessDenied: these credentials may not see it.
            Unreachable: no broker answers.
        """
        resource = ConfigResource(ResourceType.TOPIC, name)
        try:
            found = self._answer(self._admin.describe_configs([resource], request_timeout=_TIMEOUT_SECONDS)[resource])
        except KafkaException as error:
            raise self._error(error, name) from None
        return str(found[key].value) if key in found else None

    def end_offsets(self, name: str) -> dict[int, int]:
        """The end offset of each partition: one request to each broker, cheap enough to poll.

        Raises:
            ResourceMissing: there is no such topic.
            Unreachable: no broker answers.
        """
        try:
            numbers = [each.id for each in self._describe(name).partitions]
            return self._settled(lambda: self._offsets(name, numbers, _LATEST))
        except KafkaException as error:
            raise self._error(error, name) from None

    def offsets_at(self, name: str, time: datetime) -> dict[int, int]:
        """The offset of each partition's first record with this timestamp or a later one; without those that have none.

        Raises:
            ResourceMissing: there is no such topic.
            Unreachable: no broker answers.
        """
        spec = OffsetSpec.for_timestamp(int(time.timestamp() * 1000))
        try:
            numbers = [each.id for each in self._describe(name).partitions]
            found = self._settled(lambda: self._offsets(name, numbers, spec))
        except KafkaException as error:
            raise self._error(error, name) from None
        return {partition: offset for partition, offset in found.items() if offset >= 0}

    def delete(self, name: str) -> None:
        """Deletes a topic and what it holds.

        Raises:
            ResourceMissing: there is no such topic.
            AccessDenied: these credentials may not delete it.
            Unreachable: no broker answers.
        """
        self._brokers()
        try:
            self._answer(self._admin.delete_topics([name], request_timeout=_TIMEOUT_SECONDS)[name])
        except KafkaException as error:
            raise self._error(error, name) from None

    def _brokers(self) -> Any:
        """The cluster's metadata; also the quickest way to learn that nobody answers."""
        try:
            return self._admin.list_topics(timeout=_TIMEOUT_SECONDS)
        except KafkaException as error:
            raise self._error(error, None) from None

    def _describe(self, name: str) -> Any:
        if name not in self._brokers().topics:
            raise KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))
        answer = self._admin.describe_topics(TopicCollection([name]), request_timeout=_TIMEOUT_SECONDS)
        return self._answer(answer[name])

    def _offsets(
        self,
        name: str,
        partitions: Sequence[int],
        spec: OffsetSpec,
        isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    ) -> dict[int, int]:
        wanted = {TopicPartition(name, number): spec for number in partitions}
        answers = self._admin.list_offsets(wanted, request_timeout=_TIMEOUT_SECONDS, isolation_level=isolation)
        return {where.partition: self._answer(answer).offset for where, answer in answers.items()}

    def _offsets_of(
        self, partitions: Sequence[TopicPartition], spec: OffsetSpec, level: IsolationLevel
    ) -> dict[tuple[str, int], int]:
        answers = self._admin.list_offsets(
            dict.fromkeys(partitions, spec), isolation_level=level, request_timeout=_TIMEOUT_SECONDS
        )
        return {(where.topic, where.partition): self._answer(answer).offset for where, answer in answers.items()}

    def _answer(self, future: Future[T]) -> T:
        return future.result(timeout=_TIMEOUT_SECONDS + 2)

    def _settled(self, ask: Callable[[], T]) -> T:
        """Asks again while partitions have no leader: their topic is new, or a broker has just left."""
        end = time.monotonic() + _TIMEOUT_SECONDS
        while True:
            try:
                return ask()
            except KafkaException as error:
                if _code(error) not in _PASSING or time.monotonic() > end:
                    raise
            time.sleep(0.1)

    def _missing(self, name: str) -> ResourceMissing:
        return missing_topic(name, self.list(), where=self.bootstrap_servers)

    def _error(self, error: KafkaException, name: str | None) -> LakefeedError:
        code = _code(error)
        where = f"topic {name} at {self.bootstrap_servers}" if name else self.bootstrap_servers
        if code in _AWAY:
            return Unreachable(
                "no Kafka broker answers",
                where=self.bootstrap_servers,
                hint="check the address and that the broker runs; 'lakefeed local up' starts a local one",
            )
        if code == KafkaError.UNKNOWN_TOPIC_OR_PART and name:
            return self._missing(name)
        if code in _DENIED:
            return AccessDenied(f"Kafka refuses these credentials: {_text(error)}", where=where)
        if code == KafkaError.TOPIC_ALREADY_EXISTS:
            return ConfigError(
                f"the topic {name} already exists",
                where=self.bootstrap_servers,
                hint="use --if-not-exists to leave it as it is, or choose another name",
            )
        if code == KafkaError.INVALID_REPLICATION_FACTOR:
            return ConfigError(
                f"the cluster cannot keep that many copies: {_text(error)}",
                where=where,
                hint="choose a replication factor between 1 and the number of brokers",
            )
        return ConfigError(f"Kafka refuses: {_text(error)}", where=where)

    def list(self) -> list[str]:
        """The names of all topics but Kafka's own, sorted.

        Raises:
            Unreachable: no broker answers.
        """
        return sorted(name for name in self._brokers().topics if not name.startswith("__"))


_AWAY = {
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._RESOLVE,
    KafkaError._TIMED_OUT,
    KafkaError.REQUEST_TIMED_OUT,
}
_PASSING = {
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.OFFSET_NOT_AVAILABLE,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
}
_DENIED = {
    KafkaError._AUTHENTICATION,
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
}


def missing_topic(name: str, existing: Sequence[str], *, where: str) -> ResourceMissing:
    """The error for a topic that is not there, with the nearest names."""
    near = difflib.get_close_matches(name, existing, n=3, cutoff=0.6)
    hint = f"did you mean {' or '.join(near)}? " if near else ""
    return ResourceMissing(
        f"there is no topic {name}", where=where, hint=f"{hint}create it: lakefeed topics create {name}"
    )


def _code(error: KafkaException) -> int:
    code: int = error.args[0].code()
    return code


def _text(error: Exception) -> str:
    detail = error.args[0] if error.args else error
    return str(detail.str()) if isinstance(detail, KafkaError) else str(detail)
