"""Which topic it is: the broker's id (KIP-516), so that a topic made again is not taken for the old one."""

from __future__ import annotations

from lakefeed.commit.ranges import OffsetRanges
from lakefeed.config.models import KafkaSource
from lakefeed.kafka.topics import Topics


class TopicIds:
    """Ids of a source's topics, asked for once for each topic."""

    def __init__(self, source: KafkaSource) -> None:
        self._topics = Topics(source.bootstrap_servers, options=dict(source.options))
        self._ids: dict[str, str] = {}

    def identify(self, ranges: OffsetRanges) -> OffsetRanges:
        """The same ranges with the ids of their topics."""
        names = {each.topic for each in ranges.ranges}
        for name in sorted(names - self._ids.keys()):
            self._ids[name] = self._topics.describe(name).topic_id
        return OffsetRanges(ranges.ranges, {name: self._ids[name] for name in names})
