"""Run a program in a real pseudo-terminal: read its screen as a user sees it, and press keys."""

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress

import pyte

UP, DOWN, ENTER, ESCAPE = "\x1b[A", "\x1b[B", "\r", "\x1b"


class Terminal:
    """A pseudo-terminal, and the program that runs in it."""

    def __init__(self, *, width: int, height: int) -> None:
        self.ours, self.theirs = pty.openpty()
        self.written = b""
        self.screen = pyte.Screen(width, height)
        self._stream = pyte.ByteStream(self.screen)
        self._process: subprocess.Popen[bytes] | None = None
        self.resize(width, height)
        self.mode_before = termios.tcgetattr(self.theirs)

    @property
    def process(self) -> subprocess.Popen[bytes]:
        assert self._process is not None
        return self._process

    def begin(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(
            command,
            stdin=self.theirs,
            stdout=self.theirs,
            stderr=self.theirs,
            env=dict(environment),
            start_new_session=True,
        )

    def resize(self, width: int, height: int) -> None:
        fcntl.ioctl(self.theirs, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))
        self.screen.resize(height, width)

    def press(self, keys: str) -> None:
        os.write(self.ours, keys.encode())

    def read(self, seconds: float) -> str:
        """Read the program's output for this time; return the screen."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            if not select.select([self.ours], [], [], left)[0]:
                break
            data = os.read(self.ours, 65536)
            self.written += data
            self._stream.feed(data)
        return "\n".join(line.rstrip() for line in self.screen.display)

    def until(self, is_so: Callable[[str], bool], *, seconds: float = 20.0) -> str:
        """Wait until the screen satisfies the condition; return the screen."""
        until, shown = time.monotonic() + seconds, ""
        while time.monotonic() < until:
            shown = self.read(0.1)
            if is_so(shown):
                return shown
        raise AssertionError(f"the screen is not so within {seconds} s:\n{shown}")

    @property
    def is_restored(self) -> bool:
        """Check that the terminal has its former mode, its usual screen and its cursor."""
        ends = [(b"\x1b[?1049h", b"\x1b[?1049l"), (b"\x1b[?25l", b"\x1b[?25h")]
        back = all(self.written.rfind(off) > self.written.rfind(on) for on, off in ends)
        return back and termios.tcgetattr(self.theirs) == self.mode_before


@contextmanager
def terminal(
    arguments: Sequence[str], *, environment: Mapping[str, str], width: int = 80, height: int = 24
) -> Iterator[Terminal]:
    """Run ``lakefeed`` with these arguments in a terminal until the block ends."""
    opened = Terminal(width=width, height=height)
    command = [sys.executable, "-m", "lakefeed.cli", *arguments]
    try:
        # Some test runners set a size in the environment, which would override the terminal's.
        usual = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
        opened.begin(command, {**usual, "TERM": "xterm-256color", **environment})
        yield opened
    finally:
        with suppress(ProcessLookupError):
            opened.process.send_signal(signal.SIGKILL)
        opened.process.wait(10)
        os.close(opened.ours)
        os.close(opened.theirs)
