"""The trace of an ended or killed run is JSON, and an HTML page into which no text can inject markup."""

import errno
import json
import os
import re
import stat
import subprocess
import sys
import time
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from lakefeed.errors import Unreachable
from lakefeed.feed.progress import FinishedBatch
from lakefeed.feed.s3_requests import BatchRequests
from lakefeed.ledger.outcomes import Reason
from lakefeed.messages.redaction import remember
from lakefeed.monitor.feed_monitor import FeedMonitor
from lakefeed.offsets.ranges import OffsetRange
from lakefeed.pipeline import Pipeline
from lakefeed_observe.runs import follower, store
from lakefeed_observe.runs.cli import runs
from lakefeed_observe.runs.follower import RunTrace, tracing
from lakefeed_observe.runs.page import page_of
from lakefeed_observe.runs.store import LocalRuns, Trace, local_runs
from tests.support.clock import until
from tests.support.pipeline_text import ENVIRONMENT, GOOD

HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>\x1b[2J\u202e"
SECRET = "canary-77e0d1b2"


def batch(number: int, **fields: Any) -> FinishedBatch:
    given: dict[str, Any] = {"finished_at": 1e9 + number, "seconds": 1.0, "records": 100, "rows": 90}
    return FinishedBatch(batch_id=number, **{**given, **fields})


def run_of(monitor: FeedMonitor, *, text: str = "no JSON") -> None:
    """Let the monitor record a run that fills every part of a trace."""
    monitor.begin(sink=f"iceberg {text}", fence="7", start={"reason": f"the feed is new {text}", "data_loss": []})
    reasons = (Reason(f"a value is not a number {text}", 10, f"sample {text}"),)
    by_class = {"data": 3, "metadata": 4}
    for number in range(3):
        monitor.finish(
            batch(
                number,
                dead_letters=10,
                reasons=reasons,
                schema_id=1 + number // 2,
                requests=BatchRequests(total=9, by_class=by_class, budget=5),
                ranges=(OffsetRange("trips", 0, number * 100, number * 100 + 100),),
                notes=(f"upkeep of {text} took 2.0 s: 3 files became 1",),
            )
        )
    monitor.paused({"search": text})
    monitor.failed(Unreachable(f"{text} cannot be written", where=text, hint=text))


@pytest.fixture
def folder(tmp_path: Path) -> LocalRuns:
    return LocalRuns(tmp_path / "runs")


def test_a_trace_has_the_run_start_totals_events_and_end(folder: LocalRuns) -> None:
    monitor = FeedMonitor("taxi")
    with tracing(folder, monitor):
        run_of(monitor)
        monitor.ended(Unreachable("the broker does not answer", where="b:9092", hint="start it"))
    [kept] = folder.traces()
    trace = kept.as_dict()
    assert (trace["end"], trace["error"]["hint"], trace["start"]["reason"]) == (
        "failed",
        "start it",
        "the feed is new no JSON",
    )
    assert (trace["totals"]["batches"], trace["totals"]["records"], len(trace["batches"])) == (3, 300, 3)
    assert trace["dead_letters"] == [
        {"reason": "a value is not a number no JSON", "count": 30, "sample": "sample no JSON"}
    ]
    assert trace["requests"] == {
        "total": 27,
        "errors": 0,
        "by_class": {"data": 9, "metadata": 12, "unknown": 6},
        "batches_over_budget": 3,
    }
    assert [change["details"]["schema_id"] for change in trace["schema_changes"]] == [2]
    assert len(trace["upkeep"]) == 3
    assert [event["kind"] for event in trace["errors"]] == ["error", "failed"]
    assert [event["kind"] for event in trace["actions"]] == ["sink_paused"]
    assert trace["points"]
    [path] = folder.folder.iterdir()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.folder.stat().st_mode) & 0o077 == 0


def test_the_trace_of_a_killed_process_ends_with_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = (
        "import sys, time; from pathlib import Path; from lakefeed.monitor.feed_monitor import FeedMonitor;"
        "from lakefeed_observe.runs import follower; follower.SOON_SECONDS = 0.1;"
        "from lakefeed_observe.runs.store import LocalRuns\n"
        "monitor = FeedMonitor('taxi')\n"
        "with follower.tracing(LocalRuns(Path(sys.argv[1])), monitor):\n"
        "    monitor.begin(sink='iceberg t', fence='7')\n"
        "    time.sleep(60)\n"
    )
    folder = LocalRuns(tmp_path / "runs")
    process = subprocess.Popen([sys.executable, "-c", script, str(folder.folder)])
    try:
        until(lambda: any(trace.sink == "iceberg t" for trace in folder.traces()), seconds=60)
        [trace] = folder.traces()
        assert (trace.end, trace.ended_at) == ("running", None)
    finally:
        process.kill()
        process.wait()
    [trace] = folder.traces()
    assert (trace.end, trace.ended_at) == ("cut", None)
    monkeypatch.setattr("socket.gethostname", lambda: "elsewhere")
    assert next(folder.traces()).end == "unknown"


def test_a_full_disk_does_not_fail_the_run(folder: LocalRuns, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(store, "write_own_file", full)
    monitor = FeedMonitor("taxi")
    with tracing(folder, monitor):
        run_of(monitor)
        monitor.ended()
    notes = [event.message for event in monitor.events.after() if "trace" in event.message]
    assert notes == ["the trace of this run cannot be written: No space left on device"]
    assert list(folder.traces()) == []


def test_an_important_event_is_written_soon(folder: LocalRuns, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follower, "SOON_SECONDS", 0.2)
    monitor = FeedMonitor("taxi")
    with tracing(folder, monitor):
        monitor.begin(sink="iceberg t", fence=None)
        until(lambda: any(trace.sink == "iceberg t" for trace in folder.traces()))
        monitor.failed(Unreachable("a table cannot be written"))
        until(lambda: bool(next(folder.traces()).errors))
        monitor.ended()


def test_prune_deletes_the_oldest_traces_and_unreadable_files_are_skipped(folder: LocalRuns) -> None:
    ids = [f"20260101T00000{number}Z-abcdef" for number in range(8)]
    for run_id in ids:
        folder.save(Trace(run=run_id, end="ended", sink="x" * 1000))
    LocalRuns(folder.folder, most=5).prune()
    assert [trace.run for trace in folder.traces()] == ids[:2:-1]
    small = LocalRuns(folder.folder)
    small._most_bytes = int(2.5 * (folder.folder / f"{ids[7]}.json").stat().st_size)
    small.prune()
    assert [trace.run for trace in folder.traces()] == [ids[7], ids[6]]
    (folder.folder / f"{ids[0]}.json").write_text("not ours to read")
    (folder.folder / "20260101T000009Z-abcdef.json").write_text("{")
    assert len(list(folder.traces())) == 2


def test_the_trace_of_a_long_run_with_a_thousand_partitions_is_small() -> None:
    monitor = FeedMonitor("taxi")
    trace = RunTrace(monitor)
    ranges = tuple(OffsetRange("trips", number, 0, 10) for number in range(1000))
    reasons = tuple(Reason(f"reason {number} {'x' * 280}", 1, "y" * 300) for number in range(500))
    for number in range(300):
        monitor.finish(batch(number, ranges=ranges, reasons=reasons, notes=("z" * 5000,)))
    trace.take(monitor.events.after())
    document = trace.trace(is_over=True).as_dict()
    assert len(document["batches"]) == 100
    assert len(json.dumps(document)) < 3_000_000
    assert document["event_counts"]["note"] == 300


class Page(HTMLParser):
    """Collects the elements and the text of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


def test_texts_of_a_run_add_neither_markup_nor_secrets_to_the_page() -> None:
    remember([SECRET])
    monitor = FeedMonitor("taxi")
    trace = RunTrace(monitor)
    run_of(monitor, text=f"{HOSTILE} {SECRET}")
    monitor.ended(Unreachable(HOSTILE, where=HOSTILE, hint=HOSTILE))
    trace.take(monitor.events.after())
    html = page_of(trace.trace(is_over=True))
    page = Page()
    page.feed(html)
    tags = {tag for tag, _ in page.elements}
    assert not tags & {"script", "img", "a", "form", "iframe", "link", "object"}
    attributes = {name for _, given in page.elements for name in given}
    assert not {name for name in attributes if name.startswith("on") or name in ("style", "src", "href")}
    assert "<script>alert(1)</script>" in page.text  # The script is shown as text.
    for bad in (SECRET, "\x1b", "\u202e"):
        assert bad not in html
    [policy] = re.findall(r'Content-Security-Policy" content="([^"]*)"', html)
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    for heading in ("Start", "Newest error", "Course", "Dead letters", "S3 requests", "Upkeep", "Log"):
        assert f"<h2>{heading}</h2>" in html


def test_an_empty_trace_has_a_page() -> None:
    assert "<h1>" in page_of(Trace(run="20260101T000000Z-abcdef"))


def test_the_commands_list_and_show_print_the_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKEFEED_HOME", str(tmp_path / "home"))
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    path = tmp_path / "p.yaml"
    path.write_text(GOOD)
    folder = local_runs(Pipeline.from_file(path).config)
    assert folder is not None
    for error in (None, Unreachable("the broker does not answer", hint="start it")):
        monitor = FeedMonitor("taxi")
        with tracing(folder, monitor):
            run_of(monitor)
            monitor.ended(error)
        time.sleep(1.1)  # Ids sort by the second in which their run began, so let each run begin in another second.

    def command(*arguments: str) -> str:
        result = CliRunner().invoke(runs, list(arguments), catch_exceptions=False)
        assert result.exit_code == 0, result.output
        return result.stdout

    listed = json.loads(command("list", str(path), "--output", "json"))["runs"]
    assert [(run["end"], run["batches"], run["errors"]) for run in listed] == [("failed", 3, 2), ("ended", 3, 1)]
    assert json.loads(command("list", "--feed", "taxi", "--output", "json"))["runs"] == listed
    assert "failed" in command("list", str(path))
    assert "next          start it" in command("show", str(path))
    older = json.loads(command("show", str(path), "--run", listed[1]["run"], "--output", "json"))
    assert (older["run"], older["end"]) == (listed[1]["run"], "ended")
    page = tmp_path / "run.html"
    command("show", "--feed", "taxi", "--html", str(page))
    assert "the broker does not answer" in page.read_text()
    assert "no run" in command("list", "--feed", "other")
