"""``RunView`` shows a run as lines, as structured lines, or as a panel in a terminal."""

import contextlib
import io
import json
import os
import re
import sys
import threading
import time

import pytest
from rich.console import Console

from lakefeed.errors import DecodeError
from lakefeed.feed.observer import TaskCounts
from lakefeed.feed.progress import FinishedBatch
from lakefeed.ledger.outcomes import Reason
from lakefeed.messages.redaction import remember
from lakefeed.monitor.feed_monitor import FeedMonitor
from lakefeed.monitor.terminal import MOST_OFFSETS, RunView, batch_fields, panel_lines, record_of
from lakefeed.offsets.ranges import OffsetRange

HOSTILE = "\x1b]0;pwned\x07\x1b[2J\u202egnp.exe <script>alert(1)</script> [bold]not markup[/bold]"


def batch(number: int = 0, **figures: object) -> FinishedBatch:
    known: dict[str, object] = {
        "batch_id": number,
        "finished_at": time.time(),
        "seconds": 2.0,
        "records": 1000,
        "rows": 990,
        "lag": 5000,
        "ranges": (OffsetRange("t", 0, 0, 600), OffsetRange("t", 1, 0, 400), OffsetRange("t", 2, 7, 7)),
    }
    return FinishedBatch(**{**known, **figures})


def lines_of(out: io.StringIO) -> list[str]:
    return out.getvalue().splitlines()


def test_without_a_terminal_each_batch_and_each_note_is_a_line() -> None:
    out = io.StringIO()
    with RunView(FeedMonitor("taxi"), console=Console(file=out, width=40)) as view:
        view.note("starting")
        view.batch(batch(), notes=["a new column"])
        view.batch(batch(1, records=1000, seconds=1.0, rows=1000, lag=0))
    assert lines_of(out) == [
        "taxi: starting",
        "taxi: a new column",
        "taxi: batch 0 · in 1,000 (500/s) · out 990 (495/s) · 2.0 s · lag 5,000 · 10 s left",
        "taxi: batch 1 · in 1,000 (1,000/s) · out 1,000 (1,000/s) · 1.0 s · lag 0",
    ]


def test_an_idle_feed_prints_a_heartbeat_a_minute() -> None:
    out, now = io.StringIO(), [0.0]
    monitor = FeedMonitor("taxi", clock=lambda: now[0])
    view = RunView(monitor, console=Console(file=out), clock=lambda: now[0])
    view.batch(batch(finished_at=0.0))
    monitor.finish(batch(finished_at=0.0))
    for second in range(190):
        now[0] = float(second)
        view.heartbeat()
    beats = lines_of(out)[1:]
    assert [line.split(" · ")[1] for line in beats] == [
        "last batch 0, 1 min 00 s ago",
        "last batch 0, 2 min 00 s ago",
        "last batch 0, 3 min 00 s ago",
    ]


def test_heartbeats_are_printed_by_a_separate_thread() -> None:
    out = io.StringIO()
    with RunView(FeedMonitor("taxi"), console=Console(file=out), heartbeat_seconds=0.05):
        time.sleep(0.5)
    assert "taxi: starting for 0 s" in lines_of(out)


def test_a_closed_pipe_ends_the_heartbeats_and_does_not_redirect_stdout(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = os.pipe()
    os.close(ours)
    replaced: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "dup2", lambda *given: replaced.append(given))
    with os.fdopen(theirs, "w") as gone:
        monkeypatch.setattr(sys, "stderr", gone)
        view = RunView(FeedMonitor("taxi"), heartbeat_seconds=0.05)
        with view:
            view._thread.join(5)
            assert not view._thread.is_alive()
            with pytest.raises(BrokenPipeError):
                view.note("starting")
        with contextlib.suppress(BrokenPipeError):
            gone.flush()
        gone_fd = os.open(os.devnull, os.O_WRONLY)
        monkeypatch.undo()
        os.dup2(gone_fd, theirs)
        os.close(gone_fd)
    assert replaced == []


@pytest.mark.waits
def test_a_heartbeat_that_cannot_write_does_not_delay_the_end_of_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    ends = threading.Event()
    monkeypatch.setattr(RunView, "heartbeat", lambda self: ends.wait(30))
    began = time.monotonic()
    with RunView(FeedMonitor("taxi"), console=Console(file=io.StringIO()), heartbeat_seconds=0.01):
        time.sleep(0.1)
    assert time.monotonic() - began < 10
    ends.set()


def test_structured_lines_have_the_fields_of_notes_batches_heartbeats_and_errors() -> None:
    out, now = io.StringIO(), [0.0]
    monitor = FeedMonitor("taxi")
    view = RunView(monitor, log_format="json", console=Console(file=out, width=20), clock=lambda: now[0])
    view.note("starting")
    view.batch(batch(reasons=(Reason(HOSTILE, 1, HOSTILE),)))
    now[0] = 61.0
    view.heartbeat()
    error = DecodeError("cannot decode the record at topic t-1, partition 3, offset 42: not JSON", hint="fix it")
    with pytest.raises(DecodeError), view.logging_errors():
        raise error
    note, done, beat, failed = (json.loads(line) for line in lines_of(out))
    assert (note["event"], note["feed"], note["message"], note["level"]) == ("note", "taxi", "starting", "info")
    assert (done["event"], done["batch"], done["records"], done["lag"]) == ("batch", 0, 1000, 5000)
    assert done["offsets_read"] == [
        {"topic": "t", "partition": 0, "start": 0, "end": 600},
        {"topic": "t", "partition": 1, "start": 0, "end": 400},
    ]
    assert done["reasons"][0]["reason"] == HOSTILE
    assert (beat["event"], beat["state"], beat["hangs"]) == ("heartbeat", "starting", False)
    assert (failed["event"], failed["level"], failed["error"], failed["hint"]) == (
        "error",
        "error",
        "DecodeError",
        "fix it",
    )
    assert (failed["topic"], failed["partition"], failed["offset"]) == ("t-1", 3, 42)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", note["time"])


def test_a_logged_error_ends_the_command_with_its_exit_status() -> None:
    view = RunView(FeedMonitor("taxi"), log_format="json", console=Console(file=io.StringIO()))

    def end(status: int) -> None:
        raise SystemExit(status)

    with pytest.raises(SystemExit) as ended, view.logging_errors(exit_with=end):
        raise DecodeError("no")
    assert ended.value.code == 2


def test_the_structured_line_of_an_unexpected_error_omits_the_errors_text() -> None:
    out = io.StringIO()
    view = RunView(FeedMonitor("taxi"), log_format="json", console=Console(file=out))
    with pytest.raises(RuntimeError), view.logging_errors():
        raise RuntimeError("a value of a record")
    [failed] = (json.loads(line) for line in lines_of(out))
    assert (failed["event"], failed["level"], failed["error"]) == ("error", "error", "RuntimeError")
    assert "a value" not in out.getvalue()


def test_the_structured_line_of_a_batch_lists_at_most_100_partitions() -> None:
    many = batch(ranges=tuple(OffsetRange("t", part, 0, 1) for part in range(MOST_OFFSETS + 50)))
    fields = batch_fields(many)
    assert len(fields["offsets_read"]) == MOST_OFFSETS
    assert fields["partitions_left_out"] == 50
    assert record_of("a message without a record") == {}


def panel_text(monitor: FeedMonitor) -> list[str]:
    return [line.plain for line in panel_lines(monitor.snapshot(), monitor.batches())]


def test_the_panel_shows_rate_lag_batch_dead_letters_and_time_left() -> None:
    now = [1000.0]
    monitor = FeedMonitor("taxi", clock=lambda: now[0])
    monitor.begin(sink="iceberg lake.nyc.trips", fence="1 x", position=[OffsetRange("t", 0, 0, 0)])
    monitor.observe_ends({("t", 0): 6000})
    monitor.count_tasks_by(lambda: TaskCounts(3, 8, 250))
    with monitor.batch(0, [OffsetRange("t", 0, 0, 1000)]):
        now[0] += 2
    reasons = (Reason("not JSON", 3), Reason(HOSTILE, 1))
    monitor.finish(batch(finished_at=now[0], dead_letters=4, reasons=reasons, offsets=1000))
    with monitor.batch(1, [OffsetRange("t", 0, 1000, 2000)]):
        now[0] += 5
        monitor.tick()
        text = panel_text(monitor)
    assert text[0] == "taxi working · iceberg lake.nyc.trips · up 7 s"
    assert "records/s" in text[1]
    assert "lag 5,000" in text[1]
    assert "10 s left" in text[1]
    assert "batch 1 has run for 5 s · 3 of 8 tasks · 250 of 1,000 records (50/s) · 15 s left" in text[2]
    assert text[3].startswith("  dead letters 4: 3 times not JSON · 1 time ")
    assert all(line.isprintable() for line in text)


def terminal(**options: object) -> tuple[io.StringIO, Console]:
    out = io.StringIO()
    return out, Console(file=out, width=100, force_terminal=True, highlight=False, **options)  # type: ignore[arg-type]


def test_a_terminal_shows_the_lines_of_batches_above_the_panel() -> None:
    out, console = terminal()
    monitor = FeedMonitor("taxi")
    with RunView(monitor, console=console) as view:
        for number in range(3):
            view.batch(monitor.finish(batch(number)))
        view._live.refresh()
    text = out.getvalue()
    assert all(f"taxi: batch {number} · " in text for number in range(3))
    assert "waiting" in text or "starting" in text
    assert "\x1b[" in text


def test_the_panel_has_no_colours_if_the_variable_no_color_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    out, console = terminal()
    monitor = FeedMonitor("taxi")
    monitor.finish(batch(dead_letters=1, reasons=(Reason("not JSON", 1),)))
    with RunView(monitor, console=console) as view:
        view._live.refresh()
    # Of the SGR codes, bold may remain, but no colour.
    colours = [code for match in re.findall(r"\x1b\[([\d;]*)m", out.getvalue()) for code in match.split(";")]
    assert not [code for code in colours if code.startswith(("3", "4", "9", "10"))]


@pytest.mark.parametrize("log_format", ["text", "json"])
@pytest.mark.parametrize("is_terminal", [True, False])
def test_hostile_text_and_secrets_reach_neither_terminal_nor_log(log_format: str, is_terminal: bool) -> None:
    remember(["canary-secret-4711"])
    out = io.StringIO()
    console = Console(file=out, width=100, force_terminal=is_terminal, highlight=False)
    monitor = FeedMonitor("taxi")
    hostile = f"{HOSTILE} canary-secret-4711 " + "x" * 1_000_000
    monitor.finish(batch(reasons=(Reason(hostile, 1, hostile),), notes=(hostile,)))
    monitor.paused({"side": hostile})
    with RunView(monitor, log_format=log_format, console=console) as view:  # type: ignore[arg-type]
        view.note(hostile)
        view.batch(monitor.batches()[-1], notes=[hostile])
        view._written_at = -1000.0
        view.heartbeat()
        if is_terminal and log_format == "text":
            view._live.refresh()
    text = out.getvalue()
    assert "canary-secret" not in text
    assert "\x1b]" not in text
    assert "\x07" not in text
    assert "\u202e" not in text
    assert len(text) < 100_000


def test_a_narrow_terminal_truncates_the_lines_of_the_panel() -> None:
    out = io.StringIO()
    console = Console(file=out, width=20, force_terminal=True, highlight=False)
    monitor = FeedMonitor("a-feed-with-a-long-name")
    with RunView(monitor, console=console) as view:
        view._live.refresh()
    panel = [line for line in out.getvalue().splitlines() if "a-feed" in line]
    assert panel
    assert all("…" in line for line in panel)


def test_each_request_of_an_operator_is_a_line_of_the_log() -> None:
    file = io.StringIO()
    monitor = FeedMonitor("taxi")
    monitor.control.open(threading.Event())
    with RunView(monitor, log_format="json", console=Console(file=file)):
        monitor.control.request("pause", by="anna", reason="one\ntwo\x1b")
    [document] = [json.loads(line) for line in file.getvalue().splitlines()]
    assert (document["event"], document["action"], document["by"]) == ("action", "pause", "anna")
    assert document["reason"] == r"one two\x1b"
    text = io.StringIO()
    with RunView(monitor, console=Console(file=text)):
        pass
    assert text.getvalue() == "taxi: anna requests: pause, reason: one two\\x1b\n"
