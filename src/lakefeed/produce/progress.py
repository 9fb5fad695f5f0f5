"""How far a producer is, on stderr: a live line in a terminal, otherwise a line every few seconds."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.text import Text

from lakefeed.observe.terminal import duration

_SECONDS_A_LINE = 5.0


class ProduceView:
    """Shows how many records have reached the topic. Use it as a context manager.

    Args:
        topic: where they go.
        expected: how many there will be, if that is known.
        console: where to draw; default stderr.
    """

    def __init__(self, topic: str, *, expected: int | None = None, console: Console | None = None) -> None:
        self._topic = topic
        self._expected = expected
        self._console = console or Console(file=sys.stderr, highlight=False)
        self._live: Live | None = None
        self._printed = 0.0
        self._first: tuple[float, int] | None = None

    def __enter__(self) -> Self:
        self._printed = time.monotonic()
        if self._console.is_terminal:
            self._live = Live(Text(self._line(0)), console=self._console, refresh_per_second=4, transient=True)
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live:
            self._live.stop()

    def reached(self, records: int) -> None:
        """Takes the number of records that are in the topic by now; called as often as one likes."""
        if self._live:
            self._live.update(Text(self._line(records)))
        elif time.monotonic() - self._printed >= _SECONDS_A_LINE:
            self._printed = time.monotonic()
            self._console.print(self._line(records), markup=False, soft_wrap=True)

    def note(self, text: str) -> None:
        """Shows a line that stays."""
        self._console.print(text, markup=False, soft_wrap=True)

    def _line(self, records: int) -> str:
        known = f" of {self._expected:,}" if self._expected is not None else ""
        parts = [f"produce {self._topic}: {records:,}{known}"]
        if (rate := self._rate(records)) > 0:
            parts.append(f"{rate:,.0f}/s")
            if self._expected is not None:
                parts.append(f"{duration(max(0, self._expected - records) / rate)} left")
        return " · ".join(parts)

    def _rate(self, records: int) -> float:
        """Records a second since the first ones came: Spark's start would make it look slow for minutes."""
        now = time.monotonic()
        if self._first is None:
            self._first = (now, records) if records > 0 else None
            return 0.0
        seconds = now - self._first[0]
        return (records - self._first[1]) / seconds if seconds > 0 else 0.0
