"""Shows progress to people: a live line in a terminal, otherwise one line a batch."""

from __future__ import annotations

import sys
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.text import Text

from lakefeed.feed.progress import BatchProgress
from lakefeed.messages.printable import printable
from lakefeed.messages.redaction import redacted


class LiveLine:
    """A line on stderr that changes in a terminal; elsewhere its user prints lines. Use it as a context manager."""

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
        """Print a line that stays."""
        self.console.print(printable(text, keep="\n\t"), markup=False, soft_wrap=True)


class ProgressView(LiveLine):
    """Shows a run's batches, under the name of what runs. Use it as a context manager."""

    def __init__(self, title: str, *, console: Console | None = None) -> None:
        super().__init__(f"{title}: waiting for the first batch", console=console)
        self._title = title
        self._records = 0

    def note(self, text: str) -> None:
        """Print a line that stays, with the title."""
        self.print(redacted(f"{self._title}: {text}"))

    def batch(self, progress: BatchProgress) -> None:
        """Show a finished batch."""
        self._records += progress.records
        for note in progress.notes:
            self.note(note)
        if not self.lives:
            self.print(self._line(progress))
            return
        if progress.over_budget and progress.requests is not None:
            # The live line is gone with the next batch; this one stays.
            requests = f"{progress.requests.total:,} S3 requests"
            self.note(f"batch {progress.batch_id} made {requests}, budget {progress.request_budget:,}")
        self.update(self._line(progress))

    def _line(self, progress: BatchProgress) -> str:
        parts = [
            f"{self._title}: batch {progress.batch_id}",
            f"in {progress.records:,} ({progress.input_rate:,.0f}/s)",
        ]
        if progress.rows is not None and progress.output_rate is not None:
            parts.append(f"out {progress.rows:,} ({progress.output_rate:,.0f}/s)")
        if progress.dead_letters:
            parts.append(f"dead letters {progress.dead_letters:,}")
        if progress.skipped:
            parts.append(f"skipped {progress.skipped:,}")
        parts.append(f"{progress.seconds:.1f} s")
        if progress.lag is not None:
            parts.append(f"lag {progress.lag:,}")
        if progress.requests is not None:
            budget = f", budget {progress.request_budget:,}" if progress.over_budget else ""
            parts.append(f"S3 {progress.requests.total:,}{budget}")
        if progress.seconds_left:
            parts.append(f"{duration(progress.seconds_left)} left")
        if self.lives:
            parts.append(f"total {self._records:,}")
        return " · ".join(parts)


def duration(seconds: float) -> str:
    """Format seconds for people: ``12 s``, ``3 min 05 s``, ``2 h 10 min``."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02} min"
