"""``--watch``: repeats what a command shows until Ctrl-C; in a terminal in place, else one after the other."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from typing import Any

import click

from lakefeed.cli.output import echo, emit, is_json
from lakefeed.errors import WorldError
from lakefeed.messages.printable import printable, printable_json

watch_option = click.option("--watch", is_flag=True, help="Repeat until Ctrl-C.")
every_option = click.option(
    "--every", type=click.FloatRange(0.2), default=2.0, show_default=True, metavar="SECONDS", help="With --watch."
)

Shown = tuple[Any, Sequence[str], int]
"""The document, the lines for people, and the exit status."""


def show(look: Callable[[], Shown], *, watch: bool, every: float) -> int:
    """Show once, or repeatedly; return the last exit status.

    With ``--watch`` an error of the world is shown, and the next look may succeed. JSON is then a document a line.
    """
    if not watch:
        document, lines, status = look()
        emit(document, "\n".join(lines))
        return status
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    console = Console(highlight=False)
    status = 0
    live = Live(console=console, auto_refresh=False) if console.is_terminal and not is_json() else None
    if live is not None:
        live.start()
    try:
        while True:
            try:
                document, lines, status = look()
            except WorldError as error:
                document, lines, status = error.as_dict(), str(error).splitlines(), error.exit_status
            if is_json():
                click.echo(printable_json(json.dumps(document, default=str, ensure_ascii=False)))
            elif live is not None:
                live.update(Text("\n".join(printable(line) for line in lines)), refresh=True)
            else:
                echo("\n".join(lines))
            time.sleep(every)
    except KeyboardInterrupt:
        return status
    finally:
        if live is not None:
            live.stop()
