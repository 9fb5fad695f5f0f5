"""Shows ``lakefeed top`` on a whole terminal until it is left."""

from __future__ import annotations

from collections.abc import Callable

from rich.console import Console, Group
from rich.live import Live

from lakefeed_dashboard.top.keyboard import END, Keyboard
from lakefeed_dashboard.top.screen import TopScreen

DRAWS_EACH_SECONDS = 0.5
"""Also after a change of the terminal's size."""


def run_top(screen: TopScreen, *, descriptor: int, console: Console) -> None:
    """Draw the screen and pass keys to it, until it is over.

    Raises:
        Terminated: SIGTERM or SIGHUP came; the terminal is as it was before.
    """
    live = Live(
        console=console, screen=True, auto_refresh=False, redirect_stdout=False, redirect_stderr=False, transient=True
    )
    # The outer one gives the terminal's mode back last: nothing is echoed onto the screen before.
    with Keyboard(descriptor, leave=live.stop, resume=_starting(live)).entered() as keyboard:
        try:
            live.start()
            while not screen.is_over:
                width, height = console.size
                live.update(Group(*screen.lines(width, height)), refresh=True)
                for key in keyboard.read(DRAWS_EACH_SECONDS):
                    if key == END:
                        return
                    screen.press(key)
        finally:
            live.stop()


def _starting(live: Live) -> Callable[[], None]:
    return lambda: live.start(refresh=True)
