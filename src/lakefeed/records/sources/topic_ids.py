"""Which topic it is: the broker's id (KIP-516), so that a recreated topic is not taken for the old one."""

from __future__ import annotations

from collections.abc import Mapping

from lakefeed.clients.kafka.topics import TopicDescription, Topics
from lakefeed.config.kafka_source import KafkaSource
from lakefeed.errors import RecordsLost
from lakefeed.ledger.feed_position import Position
from lakefeed.offsets.ranges import OffsetRanges


class SourceTopics:
    """The topics that a source reads."""

    def __init__(self, source: KafkaSource) -> None:
        self._source = source
        self._topics = Topics(source.bootstrap_servers, options=dict(source.options))
        self._ids: dict[str, str] = {}

    def names(self) -> list[str]:
        """Those that are named, or else match now, in one request.

        Raises:
            Unreachable: no broker answers.
        """
        return sorted(self._source.topics or [name for name in self._topics.list() if self._source.reads(name)])

    def described(self, position: Position | None = None) -> dict[str, TopicDescription | None]:
        """Each of them as it is now; None for one that is named and not there.

        Args:
            position: where the feed stands; for sources that cannot tell what they have without it.

        Raises:
            Unreachable: no broker answers.
        """
        names = self._source.topics or [name for name in self._topics.list() if self._source.reads(name)]
        there = self._topics.describe_all(names)
        found = {name: there.get(name) for name in sorted(names)}
        self.expect({name: each.topic_id for name, each in found.items() if each is not None})
        return found

    def expect(self, ids: Mapping[str, str]) -> None:
        """The ids that the topics have, and have to keep."""
        self._ids = dict(ids)

    def identify(self, ranges: OffsetRanges) -> OffsetRanges:
        """The same ranges with the ids of their topics, asked for now: one request.

        Raises:
            RecordsLost: a topic was recreated since the last look.
        """
        ids = self._topics.ids(sorted({each.topic for each in ranges.ranges}))
        for name, topic_id in ids.items():
            if self._ids.setdefault(name, topic_id) != topic_id:
                raise RecordsLost(
                    f"the topic {name} was recreated while the feed was reading it (its id was {self._ids[name]}, and "
                    f"is {topic_id}); nothing of this batch is written",
                    where=self._source.bootstrap_servers,
                    hint="start the feed again: it says what is lost, and how to resume",
                )
        return OffsetRanges(ranges.ranges, ids)
