"""The live panel of a running feed: a few lines at the bottom of the terminal, drawn from the model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from lakefeed.messages.readable import counted
from lakefeed.monitor.feed_monitor import FeedMonitor
from lakefeed.monitor.model import FeedProgress, FinishedBatch
from lakefeed.monitor.terminal.lines import bar, joined, lag_text, reasons_text, running_text, sparkline
from lakefeed.monitor.text import duration, one_line

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
    """Draws a monitor's progress as it is when rich asks for it."""

    def __init__(self, monitor: FeedMonitor) -> None:
        self._monitor = monitor

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for line in panel_lines(self._monitor.snapshot(), self._monitor.batches()):
            line.truncate(options.max_width, overflow="ellipsis")
            line.no_wrap = True
            yield line


def panel_lines(progress: FeedProgress, batches: Sequence[FinishedBatch]) -> Iterator[Text]:
    """Yield the panel's lines: state, rates, the batch at work, and what needs a look."""
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
        yield Text(f"  {drawn}{running_text(running, progress.taken_at)}")
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
