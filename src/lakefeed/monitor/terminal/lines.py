"""Words for a feed's progress: one line for a finished batch, and one for a feed that is idle or in a long batch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lakefeed.messages.readable import counted
from lakefeed.monitor.model import DeadLetterReason, FeedProgress, FinishedBatch, RunningBatch
from lakefeed.monitor.text import duration, one_line

MOST_REASONS = 3
BARS = "▁▂▃▄▅▆▇█"


def joined(parts: Iterable[str]) -> str:
    return " · ".join(part for part in parts if part)


def batch_line(batch: FinishedBatch, *, total: int | None = None) -> str:
    """Describe a finished batch; ``total`` are the records of the run so far."""
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
    """Describe a lag: ``lag 5,000 (oldest 12 s)``; nothing if it is unknown."""
    if lag is None:
        return ""
    return f"lag {lag:,}" + (f" (oldest {duration(seconds)})" if lag and seconds else "")


def heartbeat_line(progress: FeedProgress) -> str:
    """Describe what a feed does that has finished no batch for a while."""
    now = progress.taken_at
    if progress.hangs:
        return f"hangs: the driver's loop has not turned for {duration(now - progress.alive_at)}"
    if progress.paused is not None:
        return joined((progress.paused.text, lag_text(progress.lag, progress.lag_seconds)))
    if progress.running is not None:
        return running_text(progress.running, now)
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


def running_text(running: RunningBatch, now: float) -> str:
    """Describe the batch at work: time, tasks, records, and the time that is left."""
    rate, left = running.rate(now), running.seconds_left(now)
    records = ""
    if running.records:
        of_all = f" of {running.offsets:,}" if running.offsets else ""
        records = f"{running.records:,}{of_all} records" + (f" ({rate:,.0f}/s)" if rate else "")
    return joined(
        (
            f"batch {running.batch_id} has run for {duration(running.seconds(now))}",
            f"{running.tasks_done:,} of {running.tasks:,} tasks" if running.tasks else "",
            records or (f"{running.offsets:,} offsets" if running.offsets else ""),
            f"{duration(left)} left" if left else "",
        )
    )


def reasons_text(reasons: Sequence[DeadLetterReason], *, most: int = MOST_REASONS) -> str:
    """Describe dead letters by reason, the most frequent first."""
    first = sorted(reasons, key=lambda reason: -reason.count)[:most]
    return joined(f"{counted(reason.count, 'time')} {one_line(reason.text, most=120)}" for reason in first)


def sparkline(values: Sequence[float], *, width: int) -> str:
    """Draw the last values as bars of eight heights; the highest value has the highest bar."""
    shown = [max(0.0, value) for value in values][-width:]
    top = max(shown, default=0.0)
    if top <= 0:
        return BARS[0] * len(shown)
    return "".join(BARS[min(len(BARS) - 1, int(value / top * len(BARS)))] for value in shown)


def bar(share: float, *, width: int) -> str:
    """Draw a share of 0 to 1 as a bar."""
    full = round(max(0.0, min(1.0, share)) * width)
    return "━" * full + "─" * (width - full)
