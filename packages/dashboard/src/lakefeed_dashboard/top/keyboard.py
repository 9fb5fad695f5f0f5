"""Read single keys from a terminal, and restore the terminal's mode at the end, after an error and before Ctrl-Z."""

from __future__ import annotations

import codecs
import os
import re
import select
import signal
import termios
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

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
        """Switch the echo off while the block runs; SIGTERM and SIGHUP raise Terminated."""
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
