"""In a feed of many tables: the offsets of a table's next batch, and when this batch is due."""

import time
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakefeed.clients.kafka.topics import PartitionDescription, TopicDescription
from lakefeed.errors import AccessDenied, BrokerUnreachable, DriverReplaced, JobFailed, LakefeedError, Unreachable
from lakefeed.feed.multi_table.table import TableTask, next_ranges
from lakefeed.ledger.continuity import DRIVER
from lakefeed.offsets.ranges import OffsetRange, OffsetRanges
from lakefeed.pipeline import Pipeline
from tests.unit.config.test_topic_tables import ENVIRONMENT, written

spans = st.tuples(st.integers(0, 50), st.integers(0, 200)).map(lambda pair: (pair[0], pair[0] + pair[1]))


def topic(*spans_: tuple[int, int]) -> TopicDescription:
    return TopicDescription(
        name="t",
        topic_id="id",
        partitions=tuple(
            PartitionDescription(id=number, leader=1, start_offset=start, end_offset=end)
            for number, (start, end) in enumerate(spans_)
        ),
    )


@settings(deadline=None)
@given(st.lists(spans, min_size=1, max_size=6), st.integers(1, 300))
def test_consecutive_batches_take_each_offset_once(given_spans: list[tuple[int, int]], limit: int) -> None:
    described = topic(*given_spans)
    position: dict[int, int] = {}
    taken: list[tuple[int, int]] = []
    while next_ranges(position, described).records:
        ranges = next_ranges(position, described, limit=limit)
        assert 0 < ranges.records <= limit + len(given_spans)
        taken += [(each.partition, offset) for each in ranges.ranges for offset in range(each.start, each.end)]
        position = {each.partition: each.end for each in ranges.ranges}
    there = [(number, offset) for number, span in enumerate(given_spans) for offset in range(*span)]
    assert sorted(taken) == there


@given(st.lists(spans, min_size=1, max_size=6), st.integers(1, 300))
def test_each_batch_has_all_partitions_and_records_of_partitions_with_lag(
    given_spans: list[tuple[int, int]], limit: int
) -> None:
    ranges = next_ranges({}, topic(*given_spans), limit=limit).ranges
    assert [each.partition for each in ranges] == list(range(len(given_spans)))
    assert all(each.records or start == end for each, (start, end) in zip(ranges, given_spans, strict=True))


def test_a_batch_ends_at_the_given_offsets_and_after_the_end_of_the_topic_it_is_empty() -> None:
    assert [(each.start, each.end) for each in next_ranges({0: 12}, topic((0, 10)), limit=5).ranges] == [(12, 12)]
    described = topic((0, 10), (0, 4))
    assert next_ranges({0: 3}, described, until={0: 5, 1: 0}).records == 2
    assert [each.end for each in next_ranges({0: 3}, described, limit=100, until={0: 5, 1: 0}).ranges] == [5, 0]


class Clock:
    """A clock that the test sets."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1_000.0
        monkeypatch.setattr(time, "monotonic", lambda: self.now)


def table(folder: Path, **source: Any) -> TableTask:
    kafka = {"bootstrap_servers": "localhost:9092", "topics_pattern": "shop[.].*", **source}
    pipeline = Pipeline.from_file(written(folder, source={"kafka": kafka}), environment=ENVIRONMENT)
    spark: Any = None
    made = TableTask("shop.a", pipeline.of_topic("shop.a").feed, spark, "pause", 60)
    started: Any = object()
    made._writer, made.reached = started, OffsetRanges((OffsetRange("shop.a", 0, 0, 0),))
    return made


def test_without_min_records_a_table_with_one_record_is_due(tmp_path: Path) -> None:
    assert table(tmp_path).is_due(topic((0, 1)))
    assert not table(tmp_path).is_due(topic((0, 0)))


def test_a_table_is_due_at_min_records_or_after_max_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    gathering = table(tmp_path, min_records_per_batch=100, max_wait="30 seconds")
    assert gathering.is_due(topic((0, 100)))
    assert not gathering.is_due(topic((0, 99)))
    clock.now += 29
    assert not gathering.is_due(topic((0, 99)))
    clock.now += 1
    assert gathering.is_due(topic((0, 99)))


def test_a_run_that_ends_by_itself_ignores_min_records(tmp_path: Path) -> None:
    gathering = table(tmp_path, min_records_per_batch=100)
    gathering.until = {0: 1}
    assert gathering.is_due(topic((0, 1)))
    gathering.until = {0: 0}
    assert not gathering.is_due(topic((0, 0)))


@pytest.mark.parametrize(
    ("error", "batches", "others", "waits"),
    [
        (Unreachable("the store answers with an error"), 1, True, True),
        (Unreachable("the store answers with an error"), 0, True, True),
        (Unreachable("the store answers with an error"), 0, False, False),
        (BrokerUnreachable("no broker answers"), 0, False, True),
        (AccessDenied("a token has expired"), 1, True, True),
        (AccessDenied("this table is not for you"), 0, True, False),
        (JobFailed("the disk is full"), 1, True, False),
    ],
)
def test_a_table_waits_for_a_server_only_if_the_server_has_answered_this_job(
    error: LakefeedError, batches: int, *, others: bool, waits: bool, tmp_path: Path
) -> None:
    failing = table(tmp_path)
    closed: Any = SimpleNamespace(reader=SimpleNamespace(close=lambda: None))
    failing.batches, failing.has_answered, failing._writer = batches, lambda: others, closed
    failing._fail(error)
    assert failing.waits_for_server is waits


MINE, EARLIER = f"2 {DRIVER}ab", f"3 {'0' * len(DRIVER)}cd"


@pytest.mark.parametrize(
    ("taken", "batches", "minutes", "takes_back"),
    [
        (EARLIER, 0, 0, True),
        (f"3 {'f' * len(DRIVER)}cd", 0, 0, False),
        # Both jobs run in one process, so their fences do not show which job began first.
        (f"3 {DRIVER}cd", 0, 0, False),
        # An operator started the other job later, but its fence looks earlier because the clock there is behind.
        (EARLIER, 1, 0, False),
        (EARLIER, 0, 3, False),
        (None, 0, 0, False),
    ],
    # The ids are fixed, because driver names differ between the processes of pytest's workers.
    ids=["earlier", "later", "same process", "has landed", "three minutes ago", "no fence"],
)
def test_the_later_of_two_simultaneous_jobs_takes_the_tables_back(
    taken: str | None, batches: int, minutes: int, takes_back: bool, tmp_path: Path
) -> None:
    replaced = table(tmp_path)
    replaced.on_failure, replaced.batches = "fail", batches
    replaced._created_at -= timedelta(minutes=minutes)
    closed: Any = SimpleNamespace(close=lambda: None)
    writer: Any = SimpleNamespace(sink=SimpleNamespace(fence_taken=lambda: taken), fence=MINE, reader=closed)
    replaced._writer = writer
    if takes_back:
        assert "the next attempt is in 10 s" in replaced._fail(
            DriverReplaced("another driver has taken over this feed")
        )
        assert replaced.waits_for_server
    else:
        with pytest.raises(DriverReplaced, match="has taken over"):
            replaced._fail(DriverReplaced("another driver has taken over this feed"))
