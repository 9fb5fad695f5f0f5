"""Shows a run: in a terminal as a panel, otherwise as a line per batch, in text or JSON.

Without a terminal, a feed that finishes no batch for a minute prints a heartbeat, so a log without new lines means that
the driver does not run.
"""

from __future__ import annotations

import errno
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, Literal, Self

from rich.console import Console
from rich.live import Live
from rich.text import Text

from lakefeed.errors import LakefeedError
from lakefeed.feed.events import Event
from lakefeed.feed.progress import FinishedBatch
from lakefeed.messages.printable import printable
from lakefeed.messages.redaction import redacted
from lakefeed.messages.text import json_line, one_line, shortened
from lakefeed.monitor.feed_monitor import FeedMonitor
from lakefeed.monitor.terminal.lines import FeedPanel, batch_line, heartbeat_line

LogFormat = Literal["text", "json"]

HEARTBEAT_SECONDS = 60.0
REFRESH_PER_SECOND = 2
END_SECONDS = 1.0
"""The longest time that the end of a run waits for a heartbeat, which hangs if the reader of a pipe does not read."""
ACTION_SECONDS = 0.5
MOST_OFFSETS = 100
"""The largest number of partitions whose offsets one structured line lists."""

LONGEST_NOTE = 10_000
_RECORD = re.compile(r"\btopic ([A-Za-z0-9._-]{1,249}), partition (\d+), offset (\d+)")


class _Console(Console):
    """A console that only raises an error for a broken pipe; rich's console also closes the process's stdout."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))


class RunView:
    """Shows the batches, notes and errors of one run within its block."""

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
        """In JSON format, log the error that ends this block; in text format, the command prints it.

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
        """Print what the feed does now, if the last line is older than a minute."""
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
                    except OSError:  # The pipe has no reader any more, as in ``_beat``.
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
    """Return topic, partition and offset of the record that a message names, if it names one."""
    match = _RECORD.search(one_line(text, most=LONGEST_NOTE))
    return {} if match is None else {"topic": match[1], "partition": int(match[2]), "offset": int(match[3])}
