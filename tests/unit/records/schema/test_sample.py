"""Which records a guess looks at."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from lakefeed.clients.kafka.topics import PartitionDescription, TopicDescription
from lakefeed.config.kafka_source import KafkaSource
from lakefeed.offsets.ranges import OffsetRange
from lakefeed.records.schema import sample


class Cluster:
    def __init__(self, bootstrap_servers: str, *, options: object) -> None:
        self.topics = {"a": [(0, 100), (90, 100), (7, 7)], "b": [(0, 2)]}

    def list(self) -> Sequence[str]:
        return list(self.topics)

    def describe(self, name: str) -> TopicDescription:
        partitions = tuple(
            PartitionDescription(id=number, leader=1, start_offset=start, end_offset=end)
            for number, (start, end) in enumerate(self.topics[name])
        )
        return TopicDescription(name=name, topic_id="", partitions=partitions)


@pytest.mark.parametrize(
    ("source", "records", "starts"),
    [
        ({"topics": ["a"]}, 10, [95, 95, 7]),
        ({"topics": ["a"]}, 1000, [0, 90, 7]),
        ({"topics": ["a"]}, 1, [99, 100, 7]),
        ({"topics_pattern": "[ab]"}, 9, [97, 97, 7, 0]),
    ],
)
def test_the_newest_of_each_partition(
    monkeypatch: pytest.MonkeyPatch, source: dict[str, object], records: int, starts: list[int]
) -> None:
    monkeypatch.setattr(sample, "Topics", Cluster)
    ranges = list(sample.newest(KafkaSource.model_validate({"bootstrap_servers": "b:1", **source}), records))
    assert [each.start for each in ranges] == starts
    assert ranges[0] == OffsetRange("a", 0, starts[0], 100)
    assert sum(each.records for each in ranges) <= records
