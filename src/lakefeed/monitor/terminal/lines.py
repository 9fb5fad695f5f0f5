"""Formats a feed's progress: a line for a finished or long batch, and the live panel in a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from lakefeed.feed.progress import FinishedBatch, RunningBatch
from lakefeed.ledger.outcomes import Reason
from lakefeed.messages.printable import counted
from lakefeed.messages.text import duration, one_line
from lakefeed.monitor.feed_monitor import FeedMonitor
from lakefeed.monitor.model import FeedProgress

MOST_REASONS = 3
BARS = "▁▂▃▄▅▆▇█"


def joined(parts: Iterable[str]) -> str:
    return " · ".join(part for part in parts if part)


def batch_line(batch: FinishedBatch, *, total: int | None = None) -> str:
    """Return a line about a finished batch; ``total`` is the number of records of the run."""
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
