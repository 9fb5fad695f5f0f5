"""Lines of text about batches and heartbeats, and sparklines."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakefeed.feed.progress import FinishedBatch, RunningBatch
from lakefeed.feed.s3_requests import BatchRequests
from lakefeed.messages.text import json_line, one_line
from lakefeed.monitor.feed_monitor import FeedMonitor
from lakefeed.monitor.terminal import BARS, bar, batch_line, heartbeat_line, lag_text, running_text, sparkline


def batch(**figures: object) -> FinishedBatch:
    known: dict[str, object] = {"batch_id": 0, "finished_at": 1.0, "seconds": 2.0, "records": 1000}
    return FinishedBatch(**{**known, **figures})


def test_the_line_of_a_batch_has_its_figures() -> None:
    done = batch(rows=990, lag=5000, lag_seconds=75.0, dead_letters=4, skipped=6)
    assert batch_line(done) == (
        "batch 0 · in 1,000 (500/s) · out 990 (495/s) · dead letters 4 · skipped 6 · 2.0 s · lag 5,000 (oldest "
        "1 min 15 s) · 10 s left"
    )


@pytest.mark.parametrize(("budget", "text"), [(7, "S3 7"), (6, "S3 7, budget 6"), (None, "S3 7")])
def test_the_line_of_a_batch_names_an_exceeded_budget(budget: int | None, text: str) -> None:
    line = batch_line(batch(lag=0, requests=BatchRequests(total=7, budget=budget)), total=1000)
    assert line.split(" · ")[-3:] == ["lag 0", text, "total 1,000"]


def test_unknown_figures_are_left_out() -> None:
    assert batch_line(batch()) == "batch 0 · in 1,000 (500/s) · 2.0 s"
    assert lag_text(None, 3.0) == ""
    assert lag_text(0, 3.0) == "lag 0"


def test_a_heartbeat_shows_whether_a_feed_starts_waits_idles_or_runs_a_batch() -> None:
    now = [1000.0]
    monitor = FeedMonitor("taxi", clock=lambda: now[0])
    now[0] += 60
    assert heartbeat_line(monitor.snapshot()) == "starting for 1 min 00 s"
    monitor.begin(sink="", fence=None)
    assert heartbeat_line(monitor.snapshot()) == "waiting for the first batch for 1 min 00 s"
    monitor.finish(batch(batch_id=3, finished_at=now[0]), ends={("t", 0): 5})
    now[0] += 120
    assert heartbeat_line(monitor.snapshot()) == "idle · last batch 3, 2 min 00 s ago · total 1,000"
    with monitor.batch(4):
        now[0] += 65
        assert heartbeat_line(monitor.snapshot()) == "batch 4 has run for 1 min 05 s"


def test_a_heartbeat_reports_that_the_drivers_loop_hangs() -> None:
    now = [1000.0]
    monitor = FeedMonitor("taxi", clock=lambda: now[0])
    monitor.begin(sink="", fence=None)
    monitor.finish(batch(batch_id=3, finished_at=now[0]))
    now[0] += 1
    monitor.tick()
    now[0] += 120
    assert heartbeat_line(monitor.snapshot()) == "hangs: the driver's loop has not turned for 2 min 00 s"


def test_the_line_of_a_running_batch_has_its_progress() -> None:
    running = RunningBatch(batch_id=4, began_at=0.0, seconds=10.0, offsets=4000, records=1000, tasks_done=3, tasks=8)
    assert running_text(running) == (
        "batch 4 has run for 10 s · 3 of 8 tasks · 1,000 of 4,000 records (100/s) · 30 s left"
    )
    assert running_text(RunningBatch(batch_id=4, began_at=0.0, offsets=40)).endswith("· 40 offsets")


@given(
    st.integers(0, 10**9),
    st.none() | st.integers(0, 10**9),
    st.integers(0, 500),
    st.integers(0, 500),
    st.floats(0, 1e6),
)
def test_the_time_left_is_never_negative(
    offsets: int, records: int | None, done: int, tasks: int, seconds: float
) -> None:
    running = RunningBatch(
        batch_id=0, began_at=0.0, seconds=seconds, offsets=offsets, records=records, tasks_done=done, tasks=tasks
    )
    assert running.seconds_left is None or running.seconds_left >= 0
    running_text(running)


@given(st.lists(st.floats(-1, 1e12)), st.integers(1, 40), st.floats(-2, 2))
def test_sparklines_and_bars_have_the_requested_width(values: list[float], width: int, share: float) -> None:
    drawn = sparkline(values, width=width)
    assert len(drawn) == min(width, len(values))
    assert set(drawn) <= set(BARS)
    assert len(bar(share, width=width)) == width


HOSTILE = "\x1b]0;title\x07\x1b[2J\u202egnp.exe\u202c\r\n<script>" + "A" * 1_000_000


@given(st.text())
def test_any_text_becomes_one_printable_line(text: str) -> None:
    assert one_line(text).isprintable()
    assert json_line({"value": text, text: [text]}).isprintable()


def test_a_structured_line_cuts_long_values() -> None:
    line = json_line({"value": HOSTILE, "list": [HOSTILE]})
    assert len(line) < 6000
    assert "\x1b" not in line
