"""Show on stderr how far a producer is: a live line, or a line every few seconds."""

from __future__ import annotations

import time

from rich.console import Console

from lakefeed.messages.text import duration
from lakefeed.monitor.terminal.progress_view import LiveLine

_SECONDS_A_LINE = 5.0


class ProduceView(LiveLine):
    """Shows how many records have reached the topic. Use it as a context manager."""

    def __init__(self, topic: str, *, expected: int | None = None, console: Console | None = None) -> None:
        self._topic = topic
        self._expected = expected
        self._printed = time.monotonic()
        self._first: tuple[float, int] | None = None
        super().__init__(self._line(0), console=console)

    def reached(self, records: int) -> None:
        """Take the number of records that are in the topic; may be called often."""
        if self.lives:
            self.update(self._line(records))
        elif time.monotonic() - self._printed >= _SECONDS_A_LINE:
            self._printed = time.monotonic()
            self.print(self._line(records))

    def _line(self, records: int) -> str:
        known = f" of {self._expected:,}" if self._expected is not None else ""
        parts = [f"produce {self._topic}: {records:,}{known}"]
        if (rate := self._rate(records)) > 0:
            parts.append(f"{rate:,.0f}/s")
            if self._expected is not None:
                parts.append(f"{duration(max(0, self._expected - records) / rate)} left")
        return " · ".join(parts)

    def _rate(self, records: int) -> float:
        """Return records a second since the first ones came, without Spark's start."""
        now = time.monotonic()
        if self._first is None:
            self._first = (now, records) if records > 0 else None
            return 0.0
        seconds = now - self._first[0]
        return (records - self._first[1]) / seconds if seconds > 0 else 0.0
