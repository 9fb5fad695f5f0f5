"""The history stores the figures of a day's batches, and sums them to the points of a chart."""

from hypothesis import given
from hypothesis import strategies as st

from lakefeed.feed.progress import FinishedBatch
from lakefeed.feed.s3_requests import BatchRequests
from lakefeed.ledger.outcomes import Reason
from lakefeed.monitor.history import MOST_ROWS, WHOLE_BATCHES, BatchHistory, points_of
from lakefeed.offsets.ranges import OffsetRange


def batch(number: int, *, at: float, records: int = 1000, lag: int | None = 0) -> FinishedBatch:
    return FinishedBatch(
        batch_id=number,
        finished_at=at,
        seconds=0.5,
        records=records,
        rows=records,
        offsets=records,
        lag=lag,
        phases={"plan": 0.1, "check": 0.01, "write": 0.3, "add": 0.31, "log": 0.05},
        requests=BatchRequests(total=12, by_class={"data": 4, "metadata": 6, "offsets": 1, "commits": 1}),
        reasons=(Reason("not JSON", 2, "not JSON at 5"),),
        ranges=tuple(OffsetRange("trips", part, number * 100, number * 100 + 100) for part in range(10)),
    )


def test_a_copy_of_the_history_has_only_blocks_with_rows_after_a_time() -> None:
    history = BatchHistory()
    for number in range(5000):
        history.add(batch(number, at=1000.0 + number))
    assert sum(len(block["at"]) for block in history.blocks(since=1000.0 + 4999)) <= 1024
    assert [point.batch for point in points_of(history.blocks(since=5990.0), since=5990.0)] == list(range(4990, 5000))
    assert history.blocks(since=9000.0) == []


def test_batches_of_the_same_second_are_added_up() -> None:
    history = BatchHistory()
    for number in range(1000):
        history.add(batch(number, at=100.0 + number / 100))
    assert len(history) == 10
    points = points_of(history.blocks())
    assert [point.batches for point in points] == [100] * 10
    assert sum(point.records for point in points) == 1_000_000
    assert sum(point.requests or 0 for point in points) == 12_000
    assert len(history.newest) == WHOLE_BATCHES


@given(st.lists(st.tuples(st.floats(0.05, 30), st.integers(0, 10**9)), max_size=300), st.integers(1, 50))
def test_the_points_include_all_records_and_do_not_exceed_the_requested_number(
    steps: list[tuple[float, int]], most: int
) -> None:
    history, at = BatchHistory(), 1000.0
    for number, (seconds, records) in enumerate(steps):
        at += seconds
        history.add(batch(number, at=at, records=records))
    points = points_of(history.blocks(), most=most)
    assert len(points) <= most
    assert sum(point.records for point in points) == sum(records for _, records in steps)
    assert sum(point.batches for point in points) == len(steps)
    assert [point.at for point in points] == sorted(point.at for point in points)


def test_a_figure_that_a_batch_does_not_know_is_none_in_its_point() -> None:
    history = BatchHistory()
    history.add(FinishedBatch(batch_id=0, finished_at=1.0, seconds=1.0, records=5))
    [point] = points_of(history.blocks())
    assert (point.rows, point.lag, point.lag_seconds, point.requests, point.state_rows) == (None,) * 5
    assert (point.records, point.rate) == (5, 5.0)


def test_the_history_drops_its_oldest_rows() -> None:
    history = BatchHistory(seconds=1e9, most_rows=2000)
    for number in range(10_000):
        history.add(batch(number, at=float(number)))
    assert len(history) <= 2000 + 2 * 1024
    assert points_of(history.blocks(), since=9_990.0)[0].batch == 9_990
    assert MOST_ROWS == 24 * 3600


def test_the_rate_counts_the_time_between_batches() -> None:
    history = BatchHistory()
    assert history.rate(60, now=100.0) is None
    for number in range(10):
        history.add(batch(number, at=100.0 + 10 * number))
    assert history.rate(1000, now=190.0) == 10_000 / 90.5
    assert history.rate(5, now=200.0) is None
