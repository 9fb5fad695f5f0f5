"""The progress of a feed as numbers and as a line, and the counts of its S3 requests; without a JVM."""

import io
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from lakefeed.feed import s3_requests
from lakefeed.feed.progress import FinishedBatch, batch_of, ends_of, phases_of, state_of
from lakefeed.feed.s3_requests import FeedRequests, S3Requests, location_of
from lakefeed.messages.text import duration
from lakefeed.monitor.terminal import ProgressView

REPORT = {
    "batchId": 3,
    "numInputRows": 1000,
    "durationMs": {"triggerExecution": 2000, "addBatch": 1500},
    "sources": [{"latestOffset": {"t": {"0": 150, "1": 60}}, "endOffset": {"t": {"0": 100, "1": 60}}}],
}


def batch(**figures: Any) -> FinishedBatch:
    return FinishedBatch(**{"batch_id": 0, "finished_at": 1.0, **figures})


def test_the_time_left_counts_offsets_as_the_lag_does() -> None:
    """In compacted topics and topics with transactions, some offsets have no record."""
    compacted = {
        "latestOffset": {"t": {"0": 90_000}},
        "startOffset": {"t": {"0": 0}},
        "endOffset": {"t": {"0": 30_000}},
    }
    progress = batch_of({**REPORT, "numInputRows": 10, "sources": [compacted]}, None)
    assert (progress.records, progress.offsets, progress.lag) == (10, 30_000, 60_000)
    assert progress.seconds_left == 4
    # The first batch of a query has no start offset, so only its number of records is known.
    first = batch_of({**REPORT, "sources": [{**compacted, "startOffset": None}]}, None)
    assert (first.offsets, first.seconds_left) == (None, 120)
    # A batch that has only transaction markers and aborted records makes progress, too.
    assert batch(records=0, seconds=2.0, lag=10, offsets=20).seconds_left == 1


def test_the_lag_is_unknown_if_a_partition_has_no_end_offset() -> None:
    source = {
        "latestOffset": {"t": {"0": 150, "1": 5_000}},
        "startOffset": {"t": {"0": 90}},
        "endOffset": {"t": {"0": 100}},
    }
    assert batch_of({**REPORT, "sources": [source]}, None).lag is None


@pytest.mark.parametrize(
    "source",
    [
        {"latestOffset": None, "endOffset": {"t": {"0": 100}}},
        {"latestOffset": {"logOffset": 4}, "endOffset": {"logOffset": 4}},
    ],
    ids=["planned by another driver", "files"],
)
def test_an_unknown_lag_is_not_shown(source: dict[str, object]) -> None:
    progress = batch_of({**REPORT, "sources": [source]}, None)
    assert progress.lag is None
    assert progress.seconds_left is None
    out = io.StringIO()
    with ProgressView("taxi", console=Console(file=out, width=200)) as view:
        view.batch(progress)
    assert "lag" not in out.getvalue()


def test_seconds_left_is_zero_without_lag_and_none_without_records() -> None:
    assert batch(records=10, seconds=1.0, lag=0).seconds_left == 0
    assert batch(records=0, seconds=1.0, lag=10).seconds_left is None
    assert batch(records=10, seconds=1.0, lag=0).output_rate is None


def test_in_a_terminal_the_view_updates_one_line() -> None:
    out = io.StringIO()
    with ProgressView("taxi", console=Console(file=out, width=120, force_terminal=True)) as view:
        view.batch(batch(records=1000, rows=990, seconds=2.0, lag=5000))
    text = out.getvalue()
    assert "batch 0" in text
    assert "total 1,000" in text


@pytest.mark.parametrize(("seconds", "text"), [(0, "0 s"), (59.4, "59 s"), (185, "3 min 05 s"), (7800, "2 h 10 min")])
def test_a_duration_is_in_seconds_minutes_or_hours(seconds: float, text: str) -> None:
    assert duration(seconds) == text


BEFORE = "PutObject\tdata\tlake/t\t2\t100\t0\t0\nHeadObject\tother\tlake/elsewhere\t1\t0\t0\t1"
AFTER = (
    "PutObject\tdata\tlake/t\t4\t300\t0\t0\nPutObject\tdata\tlake/t\t1\t10\t0\t0\n"
    "PutObject\toffsets\tlake/c\t1\t5\t0\t1\nHeadObject\tother\tlake/elsewhere\t1\t0\t0\t1"
)


def test_s3_requests_of_driver_and_executors_are_summed() -> None:
    requests = S3Requests.parse(AFTER)
    assert (requests.total, requests.bytes_out, requests.bytes_in, requests.errors) == (7, 315, 0, 2)
    assert requests.by_operation == {"HeadObject": 1, "PutObject": 6}
    assert requests.by_key_class == {"data": 5, "offsets": 1, "other": 1}


def test_the_difference_of_s3_requests_has_only_later_requests() -> None:
    between = S3Requests.parse(AFTER) - S3Requests.parse(BEFORE)
    assert between.as_dict() == {
        "total": 4,
        "bytes_out": 215,
        "bytes_in": 0,
        "errors": 1,
        "calls": {"data": {"PutObject": 3}, "offsets": {"PutObject": 1}},
    }
    assert S3Requests.parse("") == S3Requests()


def test_requests_for_one_location_exclude_locations_whose_names_begin_alike() -> None:
    requests = S3Requests.parse("PutObject\tdata\tlake/t\t2\t0\t0\t0\nPutObject\tdata\tlake/t2\t1\t0\t0\t0")
    assert requests.below([location_of("s3a://lake/t/")]).total == 2
    assert requests.below(["lake"]).total == 3


def test_offsets_of_a_python_source_may_have_any_partition_names() -> None:
    report = {**REPORT, "sources": [{"startOffset": {"src": {"pos": 1}}, "endOffset": {"src": {"pos": 5}}}]}
    assert batch_of(report, None).offsets == 4


class Meter:
    """A stand-in for the JVM's meter, which stores the counts at the start and at the commit of a batch."""

    def __init__(self) -> None:
        self.requests, self.start, self.commits = 0, None, dict[int, str]()

    def report(self) -> str:
        return f"PutObject\tdata\tlake/t\t{self.requests}\t0\t0\t0"

    def watch(self, checkpoint: str, locations: str) -> None:
        self.start, self.commits = None, {}

    def unwatch(self, checkpoint: str) -> None: ...

    def atFirstBatch(self, checkpoint: str) -> str | None:  # noqa: N802
        return self.start

    def atCommit(self, checkpoint: str, batch: int) -> str | None:  # noqa: N802
        return self.commits.get(batch)

    def batch(self, number: int, requests: int) -> None:
        self.start = self.start or cast("Any", self.report())
        self.requests += requests
        self.commits[number] = self.report()


def test_requests_between_two_queries_belong_to_no_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    meter = Meter()
    monkeypatch.setattr(s3_requests, "java", lambda spark: SimpleNamespace(s3=SimpleNamespace(RequestMeter=meter)))
    counted = FeedRequests(
        cast("Any", None), checkpoint="s3a://lake/c", written=lambda: ["s3://lake/t"], since=S3Requests()
    )
    with counted as requests:
        meter.requests += 7
        meter.batch(0, 15)
        meter.batch(1, 16)
        assert [requests.of_batch(number).total for number in (0, 1)] == [15, 16]
        # Pause and upkeep send 40 requests; then the next query reads the checkpoint.
        meter.requests += 40
        requests.next_query()
        meter.requests += 5
        meter.batch(2, 15)
        assert requests.of_batch(2).total == 15
        # The next query resumes a batch whose offsets are already in the checkpoint, so its start has no count.
        meter.requests += 30
        requests.next_query()
        meter.requests += 14
        assert requests.of_batch(3).total == 14
        assert (requests.of_startup().total, requests.total().total) == (7, 142)


def test_requests_to_a_new_location_are_counted_from_the_start_of_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    class Both(Meter):
        beside, watched = 100, ""

        def report(self) -> str:
            return f"{super().report()}\nPutObject\tdata\tlake/beside\t{self.beside}\t0\t0\t0"

        def watch(self, checkpoint: str, locations: str) -> None:
            self.watched = locations

        def atFirstBatch(self, checkpoint: str) -> str:  # noqa: N802
            return self.below(super().atFirstBatch(checkpoint))

        def atCommit(self, checkpoint: str, batch: int) -> str:  # noqa: N802
            return self.below(super().atCommit(checkpoint, batch))

        def below(self, report: str | None) -> str:
            lines = (report or "").splitlines()
            return "\n".join(line for line in lines if line.split("\t")[2] in self.watched)

    meter, places = Both(), ["s3://lake/t"]
    monkeypatch.setattr(s3_requests, "java", lambda spark: SimpleNamespace(s3=SimpleNamespace(RequestMeter=meter)))
    since = S3Requests.parse(meter.report())
    counted = FeedRequests(cast("Any", None), checkpoint="s3a://lake/c", written=lambda: places, since=since)
    with counted as requests:
        meter.batch(0, 15)
        assert requests.of_batch(0).total == 15
        meter.beside += 3
        places.append("s3://lake/beside")
        meter.batch(1, 15)
        assert requests.of_batch(1).total == 15
        meter.beside += 4
        meter.batch(2, 15)
        assert requests.of_batch(2).total == 15 + 3 + 4
        assert requests.total().total == 45 + 3 + 4


FULL_REPORT: dict[str, Any] = {
    "durationMs": {
        "triggerExecution": 900, "latestOffset": 20, "getBatch": 5, "queryPlanning": 25, "walCommit": 40,
        "addBatch": 700, "commitOffsets": 60,
    },
    "eventTime": {"watermark": "2026-11-20T06:30:00.000Z"},
    "stateOperators": [
        {"numRowsTotal": 10, "memoryUsedBytes": 1000, "numRowsDroppedByWatermark": 2},
        {"numRowsTotal": 5, "memoryUsedBytes": 500, "numRowsDroppedByWatermark": 0},
    ],
    "sources": [{"latestOffset": {"t": {"0": 150}, "u": {"1": {"at": 7, "mark": "x"}}}}],
}  # fmt: skip


def test_phases_are_in_the_order_of_a_batch() -> None:
    phases = phases_of(FULL_REPORT, {"check": 0.1, "write": 0.5, "dead_letters": 0.1})
    assert phases == {"plan": 0.05, "check": 0.1, "write": 0.5, "dead_letters": 0.1, "add": 0.7, "log": 0.1}
    assert list(phases) == ["plan", "check", "write", "dead_letters", "add", "log"]
    assert phases_of({}, {}) == {}


def test_the_state_of_a_query_is_the_sum_over_its_operators() -> None:
    state = state_of(FULL_REPORT)
    assert (state.watermark, state.rows, state.bytes, state.late_rows) == ("2026-11-20T06:30:00.000Z", 15, 1500, 2)
    assert state_of({}).rows is None


def test_end_offsets_in_a_report_are_numbers_or_objects_with_a_number() -> None:
    assert ends_of(FULL_REPORT, "latestOffset") == {("t", 0): 150, ("u", 1): 7}
    assert ends_of({"sources": [{"latestOffset": {"logOffset": 4}}, {"latestOffset": None}]}, "latestOffset") == {}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(JSON)
def test_end_offsets_of_any_form_in_a_report_raise_no_error(latest: Any) -> None:
    assert all(
        isinstance(end, int) for end in ends_of({"sources": [{"latestOffset": latest}]}, "latestOffset").values()
    )
