"""Shows a run: in a terminal as a panel, otherwise as a line per batch, in text or JSON.

Without a terminal, a feed that finishes no batch for a minute prints a heartbeat. So if a log gets no new lines, the
driver does not run.
"""

from __future__ import annotations

import errno
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, Literal, Self

from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.text import Text

from lakefeed.errors import LakefeedError
from lakefeed.feed.events import Event
from lakefeed.feed.progress import FinishedBatch, RunningBatch
from lakefeed.ledger.outcomes import Reason
from lakefeed.messages.printable import counted, printable
from lakefeed.messages.redaction import redacted
from lakefeed.messages.text import duration, json_line, one_line, shortened
from lakefeed.monitor.feed_monitor import FeedMonitor
from lakefeed.monitor.model import FeedProgress

MOST_REASONS = 3
BARS = "▁▂▃▄▅▆▇█"


def joined(parts: Iterable[str]) -> str:
    return " · ".join(part for part in parts if part)


def batch_line(batch: FinishedBatch, *, total: int | None = None) -> str:
    """Return a line about a finished batch; ``total`` is the number of records of the run so far."""
    rows = requests = ""
    if batch.rows is not None:
        rows = f"out {batch.rows:,} ({batch.output_rate:,.0f}/s)"
    if batch.requests is not None:
        budget = f", budget {batch.requests.budget:,}" if batch.requests.over_budget else ""
        requests = f"S3 {batch.requests.total:,}{budget}"
    return joined(
        (
            f"batch {batch.batch_id}",
            f"in {batch.records:,} ({batch.processing_rate:,.0f}/s)",
            rows,
            f"dead letters {batch.dead_letters:,}" if batch.dead_letters else "",
            f"skipped {batch.skipped:,}" if batch.skipped else "",
            f"{batch.seconds:.1f} s",
            lag_text(batch.lag, batch.lag_seconds),
            requests,
            f"{duration(batch.seconds_left)} left" if batch.seconds_left else "",
            f"total {total:,}" if total is not None else "",
        )
    )


def lag_text(lag: int | None, seconds: float | None) -> str:
    """Format a lag: ``lag 5,000 (oldest 12 s)``; an unknown lag is an empty text."""
    if lag is None:
        return ""
    return f"lag {lag:,}" + (f" (oldest {duration(seconds)})" if lag and seconds else "")


def heartbeat_line(progress: FeedProgress) -> str:
    """Return the line that a feed prints if it has finished no batch for a minute."""
    now = progress.taken_at
    if progress.hangs:
        return f"hangs: the driver's loop has not turned for {duration(now - progress.alive_at)}"
    if progress.paused is not None:
        return joined((progress.paused.text, lag_text(progress.lag, progress.lag_seconds)))
    if progress.running is not None:
        return running_text(progress.running)
    if progress.last_batch is None:
        state = "starting" if progress.state == "starting" else "waiting for the first batch"
        return f"{state} for {duration(now - progress.started_at)}"
    return joined(
        (
            "idle",
            f"last batch {progress.last_batch.batch_id}, {duration(now - progress.last_batch.finished_at)} ago",
            lag_text(progress.lag, progress.lag_seconds),
            f"total {progress.totals.records:,}",
        )
    )


def running_text(running: RunningBatch) -> str:
    """Return a line about the running batch: its duration, tasks and records, and the remaining time."""
    rate, left = running.rate, running.seconds_left
    records = ""
    if running.records:
        of_all = f" of {running.offsets:,}" if running.offsets else ""
        records = f"{running.records:,}{of_all} records" + (f" ({rate:,.0f}/s)" if rate else "")
    return joined(
        (
            f"batch {running.batch_id} has run for {duration(running.seconds)}",
            f"{running.tasks_done:,} of {running.tasks:,} tasks" if running.tasks else "",
            records or (f"{running.offsets:,} offsets" if running.offsets else ""),
            f"{duration(left)} left" if left else "",
        )
    )


def reasons_text(reasons: Sequence[Reason]) -> str:
    first = sorted(reasons, key=lambda reason: -reason.count)[:MOST_REASONS]
    return joined(f"{counted(reason.count, 'time')} {one_line(reason.reason, most=120)}" for reason in first)


def sparkline(values: Sequence[float], *, width: int) -> str:
    """Draw the last values as bars of eight heights, relative to the greatest value."""
    shown = [max(0.0, value) for value in values][-width:]
    top = max(shown, default=0.0)
    if top <= 0:
        return BARS[0] * len(shown)
    return "".join(BARS[min(len(BARS) - 1, int(value / top * len(BARS)))] for value in shown)


def bar(share: float, *, width: int) -> str:
    full = round(max(0.0, min(1.0, share)) * width)
    return "━" * full + "─" * (width - full)


SPARK_WIDTH = 20
BAR_WIDTH = 20
MOST_TABLES = 3
_STYLES = {
    "working": "green",
    "waiting": "green",
    "starting": "yellow",
    "stopping": "yellow",
    "retrying": "yellow",
    "paused": "yellow",
    "failed": "red",
}


class FeedPanel:
    """Draws a monitor's progress at the moment when rich renders it."""

    def __init__(self, monitor: FeedMonitor) -> None:
        self._monitor = monitor

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for line in panel_lines(self._monitor.snapshot(), self._monitor.batches()):
            line.truncate(options.max_width, overflow="ellipsis")
            line.no_wrap = True
            yield line


def panel_lines(progress: FeedProgress, batches: Sequence[FinishedBatch]) -> Iterator[Text]:
    """Yield the panel's lines: state, rates, the running batch, and problems."""
    newest, rate = batches[-SPARK_WIDTH:], progress.rate
    yield _state_line(progress)
    rates = sparkline([batch.processing_rate for batch in newest], width=SPARK_WIDTH)
    lags = sparkline([batch.lag or 0 for batch in newest], width=SPARK_WIDTH)
    batch = progress.last_batch
    yield Text(
        joined(
            (
                f"  {rate:,.0f} records/s {rates}" if rate is not None else "  no batch in the last minute",
                f"{lag_text(progress.lag, progress.lag_seconds)} {lags}" if progress.lag is not None else "",
                f"{duration(batch.seconds_left)} left" if batch and batch.seconds_left else "",
                f"total {progress.totals.records:,}",
            )
        )
    )
    if (running := progress.running) is not None:
        done, all_ = (running.records, running.offsets) if running.records else (running.tasks_done, running.tasks)
        drawn = f"{bar(done / all_, width=BAR_WIDTH)} " if done and all_ else ""
        yield Text(f"  {drawn}{running_text(running)}")
    elif progress.paused is not None:
        yield Text(f"  {progress.paused.text}", style="yellow")
    elif progress.last_commit_at is not None:
        yield Text(f"  waiting · last commit {duration(progress.taken_at - progress.last_commit_at)} ago")
    if progress.last_dead_letters:
        count = progress.totals.dead_letters
        yield Text(f"  dead letters {count:,}: {reasons_text(progress.last_dead_letters)}", style="yellow")
    if progress.waits_for is not None:
        yield Text(f"  waits for a server: {one_line(progress.waits_for)}", style="yellow")
    for sink, why in progress.paused_sinks.items():
        yield Text(f"  the sink {one_line(sink)} waits: {one_line(why)}", style="yellow")
    for topic, why in list(progress.failed_tables.items())[:MOST_TABLES]:
        yield Text(f"  the table of {one_line(topic)} has failed: {one_line(why)}", style="red")
    if progress.last_error is not None:
        yield Text(f"  last error: {one_line(progress.last_error.what)}", style="red")


def _state_line(progress: FeedProgress) -> Text:
    line = Text(f"{one_line(progress.feed)} ", style="bold")
    line.append(progress.state, style=_STYLES.get(progress.state, ""))
    place = f" · {one_line(progress.sink)}" if progress.sink else ""
    restarts = f" · {counted(progress.restarts, 'restart')}" if progress.restarts else ""
    line.append(f"{place} · up {duration(progress.taken_at - progress.started_at)}{restarts}", style="not bold")
    return line


class LiveLine:
    """A context manager that shows a line on stderr and, in a terminal, changes it in place."""

    def __init__(self, text: str, *, console: Console | None = None) -> None:
        self.console = console or Console(file=sys.stderr, highlight=False)
        self.lives = self.console.is_terminal
        self._live = Live(Text(text), console=self.console, refresh_per_second=4, transient=True)

    def __enter__(self) -> Self:
        if self.lives:
            self._live.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self.lives:
            self._live.stop()

    def update(self, text: str) -> None:
        if self.lives:
            self._live.update(Text(printable(text)))

    def print(self, text: str) -> None:
        self.console.print(printable(text, keep="\n\t"), markup=False, soft_wrap=True)


class ProgressView(LiveLine):
    """Shows batches: in a terminal on one line that changes, otherwise each batch on a new line."""

    def __init__(self, title: str, *, console: Console | None = None) -> None:
        super().__init__(f"{title}: waiting for the first batch", console=console)
        self._title = title
        self._records = 0

    def note(self, text: str) -> None:
        self.print(redacted(f"{self._title}: {text}"))

    def batch(self, batch: FinishedBatch) -> None:
        self._records += batch.records
        if self.lives:
            self.update(f"{self._title}: {batch_line(batch, total=self._records)}")
        else:
            self.print(f"{self._title}: {batch_line(batch)}")


LogFormat = Literal["text", "json"]

HEARTBEAT_SECONDS = 60.0
REFRESH_PER_SECOND = 2
END_SECONDS = 1.0
"""How long a run waits at its end for the thread of heartbeats, which hangs if a pipe's reader does not read."""
ACTION_SECONDS = 0.5
MOST_OFFSETS = 100
"""The most partitions whose offsets a structured line lists."""

LONGEST_NOTE = 10_000
_RECORD = re.compile(r"\btopic ([A-Za-z0-9._-]{1,249}), partition (\d+), offset (\d+)")


class _Console(Console):
    """A console that raises an error for a broken pipe; rich's own console would close the process's stdout."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))


class RunView:
    """Shows the batches, notes and errors of one run during its ``with`` block."""

    def __init__(
        self,
        monitor: FeedMonitor,
        *,
        log_format: LogFormat = "text",
        console: Console | None = None,
        heartbeat_seconds: float = HEARTBEAT_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.monitor = monitor
        self._console = console or _Console(file=sys.stderr, highlight=False)
        self._is_json = log_format == "json"
        self._is_live = self._console.is_terminal and not self._is_json
        self._live = Live(
            get_renderable=lambda: FeedPanel(monitor),
            console=self._console,
            refresh_per_second=REFRESH_PER_SECOND,
            transient=True,
        )
        self._heartbeat_seconds = heartbeat_seconds
        self._clock = clock
        self._written_at = clock()
        self._ends = threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._beat, name="lakefeed-heartbeat", daemon=True)
        self._actions = threading.Thread(target=self._follow_actions, name="lakefeed-actions", daemon=True)

    def __enter__(self) -> Self:
        if self._is_live:
            self._live.start()
        else:
            self._thread.start()
        self._actions.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ends.set()
        self._actions.join(END_SECONDS)
        if self._is_live:
            self._live.stop()
        else:
            self._thread.join(END_SECONDS)

    def note(self, text: str) -> None:
        text = shortened(text, most=LONGEST_NOTE)
        if self._is_json:
            self.log("note", message=text)
        else:
            self._print(text)

    def batch(self, batch: FinishedBatch, *, notes: Iterable[str] = ()) -> None:
        for note in notes:
            self.note(note)
        if self._is_json:
            self.log("batch", **batch_fields(batch))
            return
        total = self.monitor.snapshot().totals.records if self._is_live else None
        self._print(batch_line(batch, total=total))

    @contextmanager
    def logging_errors(self, *, exit_with: Callable[[int], object] | None = None) -> Iterator[None]:
        """With the format json, log an error that ends the ``with`` block; with text, the command prints it.

        Args:
            exit_with: called with the error's exit status after the log line; without it, the error is raised.
        """
        try:
            yield
        except LakefeedError as error:
            if self._is_json:
                self.log("error", level="error", **{**error.as_dict(), **record_of(error.what)})
                if exit_with is not None:
                    exit_with(error.exit_status)
            raise
        except Exception as error:
            # The error's text may contain values of records, so log only its class; the stack trace follows on stderr.
            if self._is_json and not isinstance(error, BrokenPipeError):
                what = "lakefeed has failed with an unexpected error: please report it"
                self.log("error", level="error", error=type(error).__name__, what=what, where=None, hint=None)
            raise

    def heartbeat(self) -> None:
        """Print a line about what the feed does now, if the last line is older than a minute."""
        if self._clock() - self._written_at < self._heartbeat_seconds:
            return
        progress = self.monitor.snapshot()
        if not self._is_json:
            self._print(heartbeat_line(progress))
            return
        running = progress.running.as_dict() if progress.running else None
        last = progress.last_batch
        self.log(
            "heartbeat",
            state=progress.state,
            hangs=progress.hangs,
            batch=running["batch"] if running else last.batch_id if last else None,
            running=running,
            lag=progress.lag,
            records=progress.totals.records,
        )

    def log(self, event: str, *, level: str = "info", **fields: Any) -> None:
        now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        document = {"time": now, "level": level, "event": event, "feed": self.monitor.feed, **fields}
        self._write(json_line(document))

    def _print(self, text: str) -> None:
        self._write(printable(redacted(f"{self.monitor.feed}: {text}"), keep="\n\t"))

    def _write(self, text: str) -> None:
        with self._lock:
            self._written_at = self._clock()
            self._console.print(Text(text), soft_wrap=True, highlight=False)

    def action(self, event: Event) -> None:
        """Print an event of an operator's request: the request itself, or its outcome."""
        if self._is_json:
            details = {name: value for name, value in event.details.items() if name not in ("event", "level")}
            self.log(event.kind, **{**details, "message": event.message})
        else:
            self._print(event.message)

    def _follow_actions(self) -> None:
        number = 0
        while True:
            ends = self._ends.is_set()
            for event in self.monitor.events.wait(number, seconds=0.0 if ends else ACTION_SECONDS):
                number = event.number
                if event.kind == "action" or (event.kind in ("note", "error") and "action" in event.details):
                    try:
                        self.action(event)
                    except OSError:  # The pipe has no reader any more; ``_beat`` has the same case.
                        return
            if ends:
                return

    def _beat(self) -> None:
        while not self._ends.wait(min(1.0, self._heartbeat_seconds)):
            try:
                self.heartbeat()
            except OSError:  # The pipe has no reader any more; the main thread gets the same error.
                return


def batch_fields(batch: FinishedBatch) -> dict[str, Any]:
    """Return the fields of a structured line about a batch, with the offsets of partitions that had records."""
    document = batch.as_dict()
    document.pop("ranges")
    moved = [span for span in batch.ranges if span.records]
    document["offsets_read"] = [
        {"topic": span.topic, "partition": span.partition, "start": span.start, "end": span.end}
        for span in moved[:MOST_OFFSETS]
    ]
    if len(moved) > MOST_OFFSETS:
        document["partitions_left_out"] = len(moved) - MOST_OFFSETS
    return document


def record_of(text: str) -> dict[str, Any]:
    """Return topic, partition and offset of the record that a message names; empty if it names no record."""
    match = _RECORD.search(one_line(text, most=LONGEST_NOTE))
    return {} if match is None else {"topic": match[1], "partition": int(match[2]), "offset": int(match[3])}
