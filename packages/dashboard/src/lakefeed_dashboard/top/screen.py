"""The screen of ``lakefeed top``: draw it, and change it when a key is pressed."""

from __future__ import annotations

import codecs
import os
import re
import select
import signal
import termios
import time
import tty
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from types import FrameType
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from lakefeed.messages.printable import aligned
from lakefeed.messages.text import one_line
from lakefeed.monitor.model import PartitionLag
from lakefeed.monitor.terminal import batch_line, joined, panel_lines
from lakefeed_dashboard.top.table import (
    SORTED_BY,
    STYLES,
    SeenFeed,
    age,
    columns_for,
    header,
    row,
    since_text,
    sort,
    summary,
)

MOST_BATCHES = 5
MOST_EVENTS = 20
LONGEST_FILTER = 100
DRAW_SECONDS = 0.5
"""The time between two drawings; each drawing fits the terminal's current size."""
HELP = "q quit · ↑ ↓ enter open · / filter · sort n t r l o b c d s e · i invert"
OPEN_HELP = "q quit · esc back · ↑ ↓ scroll"


def run_top(screen: TopScreen, *, descriptor: int, console: Console) -> None:
    """Draw on the whole terminal, and pass keys to the screen until it ends.

    Raises:
        Terminated: SIGTERM or SIGHUP has arrived; the terminal is restored.
    """
    live = Live(
        console=console, screen=True, auto_refresh=False, redirect_stdout=False, redirect_stderr=False, transient=True
    )
    # The keyboard's block encloses the screen's: the terminal may echo keys again only after the screen is gone.
    with Keyboard(descriptor, leave=live.stop, resume=lambda: live.start(refresh=True)).entered() as keyboard:
        try:
            live.start()
            while not screen.is_over:
                width, height = console.size
                live.update(Group(*screen.lines(width, height)), refresh=True)
                for key in keyboard.read(DRAW_SECONDS):
                    if key == END:
                        return
                    screen.press(key)
        finally:
            live.stop()


def detail_lines(feed: SeenFeed, *, now: float) -> Iterator[Text]:
    if feed.progress is not None:
        yield from panel_lines(feed.progress, feed.batches)
    else:
        line = Text(f"{one_line(feed.name)} ", style="bold")
        yield line.append(joined(("", one_line(feed.sink), since_text(feed, now))), style="not bold")
    yield Text.assemble("  ", (feed.state, STYLES.get(feed.state, "")), joined((" ", one_line(feed.note))))
    if feed.driver:
        yield Text(f"  {one_line(feed.driver)}")
    error = feed.progress.last_error if feed.progress else None
    if error is not None and error.where:
        yield Text(f"    at {one_line(error.where)}", style="red")
    if error is not None and error.hint:
        yield Text(f"    next: {one_line(error.hint)}")
    if feed.batches:
        yield Text("batches", style="bold")
        yield from (Text(f"  {batch_line(batch)}") for batch in reversed(feed.batches[-MOST_BATCHES:]))
    if feed.partitions:
        yield Text("partitions, the greatest lag first", style="bold")
        yield from (Text(f"  {line}") for line in aligned(_partition_rows(feed), left=1))
    if feed.events:
        yield Text("events, the newest first", style="bold")
        for event in reversed(feed.events[-MOST_EVENTS:]):
            at = datetime.fromtimestamp(event.at, UTC)
            yield Text(f"  {at:%Y-%m-%d %H:%M:%S}  {event.kind}: {one_line(event.message)}")


def _partition_rows(feed: SeenFeed) -> list[tuple[str, ...]]:
    def greatest_first(part: PartitionLag) -> tuple[int, str, int]:
        return (-(part.lag if part.lag is not None else 1 << 62), part.topic, part.partition)

    rows: list[tuple[str, ...]] = [("partition", "committed", "read", "end", "lag", "oldest")]
    for part in sorted(feed.partitions, key=greatest_first):
        offsets = ["-" if at is None else str(at) for at in (part.committed, part.read, part.end, part.lag)]
        committed, read, end, lag = offsets
        rows.append((one_line(f"{part.topic}-{part.partition}"), committed, read, end, lag, age(part.seconds)))
    return rows


class TopScreen:
    """The state of the screen.

    Args:
        feeds: returns the newest state of the feeds.
        opened: called with a feed's key when the user opens the feed, and with an empty key when the user closes it.
    """

    def __init__(
        self,
        feeds: Callable[[], Sequence[SeenFeed]],
        *,
        opened: Callable[[str], None] = lambda key: None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.is_over = False
        self._feeds = feeds
        self._report_opened = opened
        self._clock = clock
        self._sorted_by, self._is_reversed = "n", False
        self._filter, self._is_typing = "", False
        self._chosen, self._open = "", ""
        self._first = 0
        self._rows = 10

    def press(self, key: str) -> None:
        """Handle a key: a character, or the name of a key such as ``page up``."""
        if self._is_typing:
            self._type(key)
        elif key == "q":
            self.is_over = True
        elif self._open:
            self._press_open(key)
        else:
            self._press_table(key)

    def lines(self, width: int, height: int) -> list[Text]:
        """Return the lines of a screen of this size."""
        feeds = list(self._feeds())
        self._rows = max(1, height - 4)
        found = next((feed for feed in feeds if feed.key == self._open), None)
        shown = self._table(feeds, width) if found is None else self._detail(found)
        if found is None and self._open:
            self._set_open("")
        foot = OPEN_HELP if self._open else HELP
        lines = [*shown[: height - 1], *[Text() for _ in range(height - 1 - len(shown))], Text(foot, style="dim")]
        for line in lines:
            line.no_wrap = True
            line.truncate(width, overflow="ellipsis")
        return lines[-height:] if height > 1 else lines[:1]

    def _press_table(self, key: str) -> None:
        if key == "/":
            self._is_typing = True
        elif key == "escape":
            self._filter = ""
        elif key == "enter":
            self._set_open(self._chosen or next((feed.key for feed in self._shown(self._feeds())), ""))
        elif key == "i":
            self._sort(self._sorted_by, is_reversed=not self._is_reversed)
        elif key in SORTED_BY:
            self._sort(key, is_reversed=False)
        else:
            self._move(key)

    def _press_open(self, key: str) -> None:
        if key in ("escape", "backspace", "left", "enter"):
            self._set_open("")
            return
        steps = {"up": -1, "k": -1, "down": 1, "j": 1, "page up": -self._rows, "page down": self._rows}
        self._first = max(0, self._first + steps.get(key, 0))
        if key == "home":
            self._first = 0

    def _sort(self, key: str, *, is_reversed: bool) -> None:
        """Sort by the column of this key, and choose the feed that is then the first."""
        self._sorted_by, self._is_reversed = key, is_reversed
        self._chosen, self._first = "", 0

    def _set_open(self, key: str) -> None:
        self._open, self._first = key, 0
        self._report_opened(key)

    def _type(self, key: str) -> None:
        if key in ("enter", "escape"):
            self._is_typing = False
            if key == "escape":
                self._filter = ""
        elif key == "backspace":
            self._filter = self._filter[:-1]
        elif len(key) == 1 and key.isprintable():
            self._filter = (self._filter + key)[:LONGEST_FILTER]

    def _shown(self, feeds: Sequence[SeenFeed]) -> list[SeenFeed]:
        text = self._filter.casefold()
        found = [feed for feed in feeds if text in f"{feed.name} {feed.state} {feed.sink}".casefold()]
        return sort(found, key=self._sorted_by, is_reversed=self._is_reversed, now=self._clock())

    def _move(self, key: str) -> None:
        shown = [feed.key for feed in self._shown(self._feeds())]
        if not shown:
            return
        at = shown.index(self._chosen) if self._chosen in shown else 0
        steps = {"up": -1, "k": -1, "down": 1, "j": 1, "page up": -self._rows, "page down": self._rows}
        steps |= {"home": -len(shown), "end": len(shown)}
        self._chosen = shown[min(len(shown) - 1, max(0, at + steps.get(key, 0)))]

    def _table(self, feeds: Sequence[SeenFeed], width: int) -> list[Text]:
        shown, now = self._shown(feeds), self._clock()
        keys = [feed.key for feed in shown]
        # The first line is chosen until the user moves the choice, even if the order of the feeds changes.
        chosen = keys.index(self._chosen) if self._chosen in keys else 0
        first = min(max(0, chosen - self._rows + 1, self._first), max(0, len(shown) - self._rows), chosen)
        self._first = first
        columns = columns_for(width)
        lines = [Text(self._title(feeds, shown)), header(columns, key=self._sorted_by)]
        lines += [
            row(feed, columns, now=now, is_chosen=at == chosen)
            for at, feed in list(enumerate(shown))[first : first + self._rows]
        ]
        if not feeds:
            lines.append(Text("  no driver is known on this machine; lakefeed run pipeline.yaml starts one"))
        elif not shown:
            lines.append(Text("  no feed matches; esc shows all"))
        lines += [Text() for _ in range(self._rows + 2 - len(lines))]
        why = (shown[chosen].last_error or shown[chosen].note) if shown else ""
        lines.append(Text(one_line(why), style="yellow" if why else ""))
        return lines

    def _title(self, feeds: Sequence[SeenFeed], shown: Sequence[SeenFeed]) -> str:
        if self._is_typing or self._filter:
            return f"/{one_line(self._filter)}{'_' if self._is_typing else ''}  {len(shown):,} of {len(feeds):,} feeds"
        return summary(feeds)

    def _detail(self, feed: SeenFeed) -> list[Text]:
        lines = list(detail_lines(feed, now=self._clock()))
        self._first = min(self._first, max(0, len(lines) - self._rows - 2))
        return lines[self._first :]


ESCAPE_SECONDS = 0.05
"""An arrow key sends Escape and more bytes within this time; the key Escape sends nothing more."""
END = "end of input"
_SEQUENCE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|O[ -~])")
_NAMES = {
    "\x1b[A": "up",
    "\x1b[B": "down",
    "\x1b[C": "right",
    "\x1b[D": "left",
    "\x1b[H": "home",
    "\x1b[F": "end",
    "\x1b[1~": "home",
    "\x1b[4~": "end",
    "\x1b[5~": "page up",
    "\x1b[6~": "page down",
    "\x1b": "escape",
    "\r": "enter",
    "\n": "enter",
    "\x7f": "backspace",
    "\x08": "backspace",
}


class Terminated(BaseException):
    """SIGTERM or SIGHUP has arrived; the process ends after it has restored the terminal."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class Keyboard:
    """The keys of a terminal.

    Args:
        descriptor: the terminal's file descriptor.
        leave: called before Ctrl-Z suspends the process; ``resume`` is called when the process continues.
    """

    def __init__(
        self,
        descriptor: int,
        *,
        leave: Callable[[], None] = lambda: None,
        resume: Callable[[], None] = lambda: None,
    ) -> None:
        self._descriptor = descriptor
        self._leave, self._resume = leave, resume
        self._decode = codecs.getincrementaldecoder("utf-8")("ignore")

    @contextmanager
    def entered(self) -> Iterator[Keyboard]:
        """Switch the terminal's echo off while the block runs; SIGTERM and SIGHUP raise Terminated."""
        before = termios.tcgetattr(self._descriptor)
        handlers: dict[int, Any] = {}

        def end(number: int, frame: FrameType | None) -> None:
            # A second signal must not interrupt the restoring of the terminal.
            signal.signal(number, signal.SIG_IGN)
            raise Terminated(number)

        def pause(number: int, frame: FrameType | None) -> None:
            self._leave()
            termios.tcsetattr(self._descriptor, termios.TCSADRAIN, before)
            os.kill(os.getpid(), signal.SIGSTOP)
            tty.setcbreak(self._descriptor)
            self._resume()

        try:
            for number, handler in ((signal.SIGTERM, end), (signal.SIGHUP, end), (signal.SIGTSTP, pause)):
                handlers[number] = signal.signal(number, handler)
            tty.setcbreak(self._descriptor)
            yield self
        finally:
            with suppress(termios.error):  # The terminal may be closed.
                termios.tcsetattr(self._descriptor, termios.TCSAFLUSH, before)
            for restored, handler in handlers.items():
                signal.signal(restored, handler)

    def read(self, seconds: float) -> list[str]:
        """Return the keys that arrive within this time, or ``END`` if the terminal is closed."""
        if not select.select([self._descriptor], [], [], seconds)[0]:
            return []
        try:
            found = os.read(self._descriptor, 1024)
            if found == b"\x1b" and select.select([self._descriptor], [], [], ESCAPE_SECONDS)[0]:
                found += os.read(self._descriptor, 1024)
        except OSError:
            return [END]
        return self.keys(found) if found else [END]

    def keys(self, data: bytes) -> list[str]:
        """Split a terminal's bytes into keys; ignore unknown sequences."""
        text, found = self._decode.decode(data), []
        while text:
            match = _SEQUENCE.match(text)
            taken = match[0] if match else text[0]
            text = text[len(taken) :]
            name = _NAMES.get(taken.replace("\x1bO", "\x1b["), taken)
            if len(name) > 1 or name.isprintable():
                found.append(name)
        return [name for name in found if not name.startswith("\x1b")]
