"""The lag of a position behind topics, without a broker."""

from __future__ import annotations

from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from lakefeed.cli.lag import lag_lines
from lakefeed.clients.kafka.topics import PartitionDescription, TopicDescription
from lakefeed.config.sources import KafkaSource
from lakefeed.offsets.ranges import Partition
from lakefeed.operations.lag import Lag, lag_of

SOURCE = KafkaSource(bootstrap_servers="127.0.0.1:9092", topics=["t"])


def topic(*bounds: tuple[int, int]) -> dict[str, TopicDescription | None]:
    partitions = tuple(
        PartitionDescription(id=number, leader=1, start_offset=start, end_offset=end)
        for number, (start, end) in enumerate(bounds)
    )
    return {"t": TopicDescription(name="t", topic_id="x", partitions=partitions)}


class Times:
    """Says that each record came at the second of its offset; remembers what was asked."""

    def __init__(self) -> None:
        self.asked: dict[Partition, int] = {}

    def __call__(self, source: KafkaSource, offsets: Mapping[Partition, int]) -> Mapping[Partition, float | None]:
        self.asked = dict(offsets)
        return {key: float(offset) for key, offset in offsets.items()}


def test_only_partitions_that_are_behind_are_read() -> None:
    times = Times()
    position = {("t", 0): 100, ("t", 1): 40}
    lags = lag_of(position, topic((0, 100), (0, 50)), start="earliest", source=SOURCE, times=times, now=100.0)
    assert times.asked == {("t", 1): 40}
    assert [(lag.lag, lag.seconds) for lag in lags] == [(0, 0.0), (10, 60.0)]


def test_a_partition_without_a_position_begins_where_the_feed_does() -> None:
    times = Times()
    [earliest] = lag_of({}, topic((20, 50)), start="earliest", source=SOURCE, times=times, now=100.0)
    assert (earliest.committed, earliest.lag, earliest.seconds) == (20, 30, 80.0)
    [latest] = lag_of({}, topic((20, 50)), start="latest", source=SOURCE, times=times, now=100.0)
    assert (latest.committed, latest.lag, latest.seconds) == (None, None, None)


def test_a_record_from_the_future_is_not_of_negative_age() -> None:
    [lag] = lag_of({("t", 0): 10}, topic((0, 50)), start=None, source=SOURCE, times=Times(), now=1.0)
    assert lag.seconds == 0.0


def test_a_topic_that_has_gone_leaves_the_lag_unknown() -> None:
    [lag] = lag_of({("t", 0): 10}, {"t": None}, start="earliest", source=SOURCE, times=Times())
    assert (lag.end, lag.lag) == (None, None)
    whole = Lag(name="f", kind="feed", partitions=(lag,))
    assert whole.records is None
    assert lag_lines([whole])[0] == "f: lag -"


def test_lines_name_partitions_and_ages() -> None:
    lags = lag_of({("t", 0): 40}, topic((0, 50)), start=None, source=SOURCE, times=Times(), now=165.0)
    assert lag_lines([Lag(name="f", kind="group", partitions=lags)]) == [
        "f: lag 10, the oldest 2 min 05 s old",
        "  partition  committed  end  lag      oldest",
        "  t-0               40   50   10  2 min 05 s",
    ]


@given(
    st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 1000)), min_size=1, max_size=20),
    st.lists(st.integers(0, 3000) | st.none(), min_size=20, max_size=20),
)
def test_the_sum_is_the_sum_of_the_partitions(bounds: list[tuple[int, int]], reached: list[int | None]) -> None:
    topics = topic(*((start, start + more) for start, more in bounds))
    position = {("t", number): offset for number, offset in enumerate(reached[: len(bounds)]) if offset is not None}
    times = Times()
    lags = lag_of(position, topics, start="earliest", source=SOURCE, times=times, now=1e6)
    assert all(start <= times.asked.get(("t", number), start) for number, (start, _) in enumerate(bounds))
    expected = sum(
        max(0, start + more - position.get(("t", number), start)) for number, (start, more) in enumerate(bounds)
    )
    assert Lag(name="f", kind="feed", partitions=lags).records == expected
    assert all((lag.lag == 0) == (lag.seconds == 0.0) for lag in lags)
