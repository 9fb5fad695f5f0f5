"""A consumer group that shows where a feed stands, for tools that watch lag. Nothing ever reads it back."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from lakefeed.clients.kafka.librdkafka import librdkafka_settings
from lakefeed.config.sources import KafkaSource
from lakefeed.offsets.ranges import OffsetRange

TIMEOUT_SECONDS = 5.0
_silence = logging.getLogger("lakefeed.clients.kafka.librdkafka")


class MonitoringGroup:
    """The positions of a feed, as offsets of a consumer group.

    Spark's source commits no offsets, so that tools which compare groups with topics do not see a feed. The group must
    have no members: the broker refuses to alter one that has.

    Args:
        source: the cluster.
        name: the group's.
    """

    def __init__(self, source: KafkaSource, name: str) -> None:
        self.name = name
        self._settings: dict[str, Any] = {
            **librdkafka_settings(source.options),
            "bootstrap.servers": source.bootstrap_servers,
            "error_cb": lambda error: None,
        }
        self._admin = AdminClient(self._settings, logger=_silence)
        self._failing: str | None = None

    def publish(self, ranges: Iterable[OffsetRange]) -> str | None:
        """Sets the group to where these ranges end.

        Returns:
            What the user should hear, once for each failure that lasts; None if all is well. A feed continues without.
        """
        requested = [TopicPartition(each.topic, each.partition, each.end) for each in ranges]
        failure = None
        try:
            asked = [ConsumerGroupTopicPartitions(self.name, requested)]
            answers = self._admin.alter_consumer_group_offsets(asked, request_timeout=TIMEOUT_SECONDS)
            for each in answers[self.name].result(TIMEOUT_SECONDS + 2).topic_partitions:
                if each.error is not None:
                    failure = f"{each.topic}-{each.partition}: {each.error.str()}"
        except (KafkaException, TimeoutError) as error:
            failure = str(error)
        message = failure if failure != self._failing else None
        self._failing = failure
        return None if message is None else f"the monitoring group {self.name} could not be set: {message}"

    def offsets(self, partitions: Iterable[tuple[str, int]]) -> dict[tuple[str, int], int] | None:
        """Read what the group is set to for these partitions; None if the broker does not say."""
        asked = [TopicPartition(*each) for each in partitions]
        # Not by AdminClient: while the broker sets up a new group's coordinator, librdkafka crashes the process there
        # (confluentinc/librdkafka#5040). A consumer that subscribes to nothing does not join the group.
        settings = {**self._settings, "group.id": self.name, "enable.auto.commit": False}
        consumer = Consumer(settings, logger=_silence)
        try:
            found = consumer.committed(asked, TIMEOUT_SECONDS) if asked else []
        except KafkaException:
            return None
        finally:
            consumer.close()
        return {(each.topic, each.partition): each.offset for each in found if each.offset >= 0}
