"""The lag of a feed or a consumer group behind its topics, without a broker."""

from collections.abc import Mapping
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakefeed.cli.status import lag_lines
from lakefeed.clients.kafka.topics import PartitionDescription, TopicDescription
from lakefeed.config.connections import Connections
from lakefeed.config.sources import KafkaSource, StartingOffsets
from lakefeed.errors import ResourceMissing
from lakefeed.offsets.ranges import Partition
from lakefeed.operations import live_status
from lakefeed.operations.live_status import LedgerFacts
from lakefeed.operations.status import FeedOffsets, Lag, group_lag, lag_of, require_read
from tests.support.pipeline_text import feed_config

EARLIEST, LATEST = (StartingOffsets.parse(word) for word in ("earliest", "latest"))
SOURCE = KafkaSource(bootstrap_servers="127.0.0.1:9092", topics=["t"])
KEY = ("t", 0)


def topic(*bounds: tuple[int, int]) -> dict[str, TopicDescription | None]:
    partitions = tuple(
        PartitionDescription(id=number, leader=1, start_offset=start, end_offset=end)
        for number, (start, end) in enumerate(bounds)
    )
    return {"t": TopicDescription(name="t", topic_id="x", partitions=partitions)}


class Times:
    """Returns the offset of a record as its time in seconds, and stores the requested offsets."""

    def __init__(self) -> None:
        self.asked: dict[Partition, int] = {}

    def __call__(self, source: KafkaSource, offsets: Mapping[Partition, int]) -> Mapping[Partition, float | None]:
        self.asked = dict(offsets)
        return {key: float(offset) for key, offset in offsets.items()}


def test_record_times_are_read_only_in_partitions_with_lag() -> None:
    times = Times()
    position = {("t", 0): 100, ("t", 1): 40}
    lags = lag_of(position, topic((0, 100), (0, 50)), start=EARLIEST, source=SOURCE, times=times, now=100.0)
    assert times.asked == {("t", 1): 40}
    assert [(lag.lag, lag.seconds) for lag in lags] == [(0, 0.0), (10, 60.0)]


@pytest.mark.parametrize(
    ("position", "bounds", "start", "expected"),
    [
        pytest.param({}, [(20, 50)], EARLIEST, [(20, 30, 80.0)], id="a-new-feed-from-the-first-record"),
        pytest.param({}, [(20, 50)], LATEST, [(None, None, None)], id="a-new-feed-from-an-unknown-end"),
        pytest.param({("t", 0): 300}, [(0, 350)], None, [(300, 50, 0.0)], id="a-record-with-a-future-timestamp"),
        pytest.param(
            {("t", 0): 90}, [(0, 100), (5, 20)], LATEST, [(90, 10, 10.0), (5, 15, 95.0)], id="a-new-partition"
        ),
        pytest.param(
            {("t", 0): 10, ("gone", 0): 7}, [(0, 50)], EARLIEST, [(10, 40, 90.0)], id="a-topic-no-longer-read"
        ),
        pytest.param(
            {("t", 0): 50},
            [(0, 50), (9, 9), (0, 1)],
            None,
            [(50, 0, 0.0), (9, 0, 0.0), (None, None, None)],
            id="a-group-in-an-empty-partition",
        ),
    ],
)
def test_the_lag_counts_from_the_feeds_position_or_else_from_its_start(
    position: dict[Partition, int],
    bounds: list[tuple[int, int]],
    start: StartingOffsets | None,
    expected: list[tuple[int | None, int | None, float | None]],
) -> None:
    lags = lag_of(position, topic(*bounds), start=start, source=SOURCE, times=Times(), now=100.0)
    assert [(lag.committed, lag.lag, lag.seconds) for lag in lags] == expected


def test_the_lag_is_unknown_if_the_topic_was_deleted() -> None:
    [lag] = lag_of({("t", 0): 10}, {"t": None}, start=EARLIEST, source=SOURCE, times=Times())
    assert (lag.end, lag.lag) == (None, None)
    whole = Lag(name="f", kind="feed", partitions=(lag,))
    assert whole.records is None
    assert lag_lines(whole)[0] == "f: lag unknown"


def test_the_lag_is_unknown_if_the_topic_was_recreated() -> None:
    times = Times()
    position = {("t", 0): 50, ("t", 1): 5}
    ids = {"t": "old"}
    lags = lag_of(position, topic((0, 30), (0, 0), (0, 9)), start=EARLIEST, source=SOURCE, topic_ids=ids, times=times)
    assert [(lag.end, lag.lag) for lag in lags] == [(30, None), (0, None), (9, None)]
    assert not times.asked
    assert Lag(name="f", kind="feed", partitions=lags).records is None
    for same in ({"t": "x"}, {"t": ""}, {}, None):
        [lag] = lag_of({("t", 0): 20}, topic((0, 30)), start=EARLIEST, source=SOURCE, topic_ids=same, times=times)
        assert lag.lag == 10


@pytest.mark.parametrize("start", [EARLIEST, LATEST, None])
def test_the_lag_is_unknown_if_the_topic_ends_before_the_position(start: StartingOffsets | None) -> None:
    [lag] = lag_of({("t", 0): 60}, topic((0, 50)), start=start, source=SOURCE, times=Times())
    assert (lag.end, lag.lag, lag.seconds) == (50, None, None)


def test_a_lag_without_partitions_is_unknown() -> None:
    lag = Lag(name="f", kind="feed", partitions=())
    assert (lag.records, lag.seconds, lag_lines(lag)[0]) == (None, None, "f: lag unknown")


def test_the_position_is_read_before_the_end_offsets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Position and end offset advance at every call, so that the wrong order would give a negative lag."""
    clock = count(10)
    monkeypatch.setattr(
        live_status, "_ledger", lambda *_: (LedgerFacts(known=FeedOffsets(offsets={KEY: next(clock)})), ())
    )
    monkeypatch.setattr("lakefeed.monitor.drivers.find", lambda _: None)
    monkeypatch.setattr("lakefeed.operations.status.group_offsets", lambda *_, **__: {KEY: next(clock)})
    monkeypatch.setattr("lakefeed.operations.live_status.SourceTopics.describe", lambda _: topic((0, next(clock))))
    monkeypatch.setattr("lakefeed.operations.status.Topics.describe_all", lambda *_: topic((0, next(clock))))
    monkeypatch.setattr("lakefeed.operations.status.record_times", Times())
    lag = live_status.live_status(feed_config(source={"kafka": SOURCE}), connections=Connections()).lag
    assert lag is not None
    assert lag.records == 1
    assert group_lag(SOURCE, "g").records == 1


def test_a_topic_that_the_feed_does_not_read_is_refused() -> None:
    require_read(SOURCE, ["t"], feed="f")
    with pytest.raises(ResourceMissing, match="'f' does not read the topic typo"):
        require_read(SOURCE, ["t", "typo"], feed="f")


def test_lag_lines_show_partitions_and_ages() -> None:
    lags = lag_of({("t", 0): 40}, topic((0, 50)), start=None, source=SOURCE, times=Times(), now=165.0)
    assert lag_lines(Lag(name="f", kind="group", partitions=lags)) == [
        "f: lag 10, the oldest 2 min 05 s old",
        "  partition  committed  end  lag      oldest",
        "  t-0               40   50   10  2 min 05 s",
    ]


@given(
    st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 1000)), min_size=1, max_size=20),
    st.lists(st.integers(0, 3000) | st.none(), min_size=20, max_size=20),
)
def test_the_lag_of_a_feed_is_the_sum_of_its_partitions(
    bounds: list[tuple[int, int]], reached: list[int | None]
) -> None:
    topics = topic(*((start, start + more) for start, more in bounds))
    position = {("t", number): offset for number, offset in enumerate(reached[: len(bounds)]) if offset is not None}
    times = Times()
    lags = lag_of(position, topics, start=EARLIEST, source=SOURCE, times=times, now=1e6)
    assert all(start <= times.asked.get(("t", number), start) for number, (start, _) in enumerate(bounds))
    expected = sum(
        max(0, start + more - position.get(("t", number), start)) for number, (start, more) in enumerate(bounds)
    )
    is_beyond = any(position.get(("t", number), 0) > start + more for number, (start, more) in enumerate(bounds))
    assert Lag(name="f", kind="feed", partitions=lags).records == (None if is_beyond else expected)
    assert all((lag.lag == 0) == (lag.seconds == 0.0) for lag in lags)
