"""Shows the progress of a backfill, of maintenance or of a producer on one changing line on stderr."""

from __future__ import annotations

import sys
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.text import Text

from lakefeed.feed.progress import FinishedBatch
from lakefeed.messages.printable import printable
from lakefeed.messages.redaction import redacted
from lakefeed.monitor.terminal.lines import batch_line


class LiveLine:
    """A context manager with a line on stderr that changes in a terminal."""

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
        """Print a line that stays above the changing line."""
        self.console.print(printable(text, keep="\n\t"), markup=False, soft_wrap=True)


class ProgressView(LiveLine):
    """Shows batches: in a terminal on the changing line, otherwise each batch on a new line."""

    def __init__(self, title: str, *, console: Console | None = None) -> None:
        super().__init__(f"{title}: waiting for the first batch", console=console)
        self._title = title
        self._records = 0

    def note(self, text: str) -> None:
        """Print the title and a text as a line that stays."""
        self.print(redacted(f"{self._title}: {text}"))

    def batch(self, batch: FinishedBatch) -> None:
        self._records += batch.records
        if self.lives:
            self.update(f"{self._title}: {batch_line(batch, total=self._records)}")
        else:
            self.print(f"{self._title}: {batch_line(batch)}")
