"""A consumer group that shows a feed's position, for tools that watch lag. A feed never reads it back."""

from __future__ import annotations

from collections.abc import Iterable

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from lakefeed.clients.kafka.librdkafka import SILENCE, client_settings
from lakefeed.config.sources import KafkaSource
from lakefeed.offsets.ranges import OffsetRange

TIMEOUT_SECONDS = 5.0


class MonitoringGroup:
    """The positions of a feed, as offsets of a consumer group.

    Spark's source commits no offsets, so that tools which compare groups with topics do not see a feed. The group must
    have no members: the broker refuses to alter one that has.
    """

    def __init__(self, source: KafkaSource, name: str) -> None:
        self.name = name
        self._settings = client_settings(source)
        self._admin = AdminClient(self._settings, logger=SILENCE)
        self._failing: str | None = None

    def publish(self, ranges: Iterable[OffsetRange]) -> str | None:
        """Set the group to the ends of these ranges.

        Returns:
            A message for the user, once for each failure that lasts; None if all is well. A feed continues without.
        """
        ends = [TopicPartition(span.topic, span.partition, span.end) for span in ranges]
        failure = None
        try:
            requested = [ConsumerGroupTopicPartitions(self.name, ends)]
            answers = self._admin.alter_consumer_group_offsets(requested, request_timeout=TIMEOUT_SECONDS)
            for answer in answers[self.name].result(TIMEOUT_SECONDS + 2).topic_partitions:
                if answer.error is not None:
                    failure = f"{answer.topic}-{answer.partition}: {answer.error.str()}"
        except (KafkaException, TimeoutError) as error:
            failure = str(error)
        is_new, self._failing = failure != self._failing, failure
        return f"the monitoring group {self.name} could not be set: {failure}" if failure and is_new else None

    def offsets(self, partitions: Iterable[tuple[str, int]]) -> dict[tuple[str, int], int] | None:
        """Return the group's offsets of these partitions; None if the broker does not say."""
        requested = [TopicPartition(*partition) for partition in partitions]
        # Not by AdminClient: while the broker sets up a new group's coordinator, librdkafka crashes the process there
        # (confluentinc/librdkafka#5040). A consumer that subscribes to nothing does not join the group.
        consumer = Consumer({**self._settings, "group.id": self.name, "enable.auto.commit": False}, logger=SILENCE)
        try:
            answers = consumer.committed(requested, TIMEOUT_SECONDS) if requested else []
        except KafkaException:
            return None
        finally:
            consumer.close()
        return {(answer.topic, answer.partition): answer.offset for answer in answers if answer.offset >= 0}
