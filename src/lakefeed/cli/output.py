"""Prints the results of commands as text or as JSON, and errors without stack traces."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import sys
import textwrap
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import click

from lakefeed.errors import LakefeedError, WorldError
from lakefeed.messages.printable import aligned, printable, printable_json
from lakefeed.messages.redaction import redacted

INDENT = 12
"""The width in characters of the column of names that ``field_lines`` prints."""

Text = str | Iterable[str]
"""A text for people, or an iterable of its lines; the iterable is consumed only if the lines are printed."""

wrapped = partial(textwrap.wrap, break_long_words=False, break_on_hyphens=False)


def is_json() -> bool:
    """Return whether the current command has ``--output json``."""
    return bool(click.get_current_context().meta.get("output") == "json")


def is_json_output(argv: list[str]) -> bool:
    """Return whether a command line, perhaps not parsed by click yet, has --output json."""
    return "--output=json" in argv or any(pair == ("--output", "json") for pair in itertools.pairwise(argv))


def emit(document: Any, text: Text, *, indent: int | None = 2) -> None:
    """Print the current command's result: its document with ``--output json``, otherwise its text.

    With ``indent=None`` the document is on one line, for a command that prints many results.
    """
    if is_json():
        _print_json(document, indent=indent)
        return
    for line in [text] if isinstance(text, str) else text:
        echo(line)


def _print_json(document: Any, *, indent: int | None) -> None:
    click.echo(printable_json(json.dumps(document, indent=indent, default=str, ensure_ascii=False)))
    sys.stdout.flush()


def fail(error: LakefeedError, *, as_json: bool) -> int:
    """Print an error and return its exit status. The text form goes to stderr and names a page of the documentation."""
    if as_json:
        _print_json(error.as_dict(), indent=2)
    else:
        echo(styled("error: ", fg="red", bold=True) + str(error), err=True)
        if "lakefeed docs " not in str(error):
            echo(f"  page:  {error.page}", err=True)
    if os.environ.get("LAKEFEED_DEBUG"):
        sys.stderr.write(redacted("".join(traceback.format_exception(error))))
    return error.exit_status


class Styled(str):
    """A text with colours. A plain text that is added to it gets its control characters escaped."""

    __slots__ = ()

    def __add__(self, other: str) -> Styled:
        return Styled(str(self) + (other if isinstance(other, Styled) else _plain(other)))


def styled(text: str, **style: Any) -> Styled:
    """Escape a text's control characters, and add colours, which click prints only in a terminal."""
    return Styled(click.style(_plain(text), **style))


def _plain(text: str) -> str:
    """Escape control characters, which may come from records, schemas or servers."""
    return printable(text, keep="\n\t")


def echo(text: str = "", *, err: bool = False, nl: bool = True) -> None:
    """Print a line immediately, for example a line of progress; ``emit`` prints a command's result."""
    click.echo(text if isinstance(text, Styled) else _plain(text), err=err, nl=nl)


def say(lines: Iterable[str]) -> None:
    """Print lines on stderr, for example before a question, or beside rows on stdout."""
    for line in lines:
        echo(line, err=True)


def column_lines(rows: Sequence[tuple[str, ...]], *, left: int, indent: int = 2) -> Iterator[str]:
    """Format rows as lines with columns: align the first ``left`` columns to the left, the rest to the right."""
    return (" " * indent + line for line in aligned(rows, left=left))


def field_lines(name: str, text: str, *, colour: str | None = None) -> Iterator[str]:
    """Yield lines with a name in the first column, and beside it a text that is wrapped to the terminal's width."""
    first, *others = wrapped(text, terminal_width(60, 140, less=INDENT)) or [""]
    yield styled(name.ljust(INDENT)) + styled(first, fg=colour)
    for line in others:
        yield " " * INDENT + line


def first_lines(items: Sequence[object], *, most: int) -> Iterator[str]:
    """Yield a line for each of the first ``most`` items, and a line with the number of items left out."""
    for item in items[:most]:
        yield f"  {item}"
    if len(items) > most:
        yield f"  … and {len(items) - most:,} more; --output json lists them all"


def terminal_width(least: int, most: int, *, less: int) -> int:
    """Return the terminal's width, at least ``least`` and at most ``most``, minus an indent of ``less`` characters."""
    return max(least, min(most, shutil.get_terminal_size().columns) - less)


def size_text(count: float) -> str:
    """Format a number of bytes: 12 B, 1.5 kB, 2.0 GB."""
    if count < 1000:
        return f"{count:,.0f} B"
    for unit in ("kB", "MB", "GB"):
        count /= 1000
        if count < 1000:
            return f"{count:,.1f} {unit}"
    return f"{count / 1000:,.1f} TB"


def figure(number: int | None) -> str:
    """Format a number with thousands separators; a dash if it is unknown."""
    return "-" if number is None else f"{number:,}"


def span(start: int | None, end: int | None) -> str:
    """Format an offset range, with its end excluded; a dash if it is unknown."""
    return "-" if start is None else f"[{start}, {end})"


watch_option = click.option("--watch", is_flag=True, help="Show again and again until Ctrl-C.")
every_option = click.option(
    "--every",
    type=click.FloatRange(0.2),
    default=2.0,
    show_default=True,
    metavar="SECONDS",
    help="Time between two updates of --watch.",
)

Shown = tuple[Any, Sequence[str], int]
"""A command's result: its JSON document, its lines for people, and its exit status."""


def show(look: Callable[[], Shown], *, watch: bool, every: float) -> int:
    """Show the result of ``look`` once, or with ``watch`` until Ctrl-C; return the last exit status.

    With ``watch``, a WorldError is shown like a result, and JSON has a document on each line.
    """
    if not watch:
        document, lines, status = look()
        emit(document, lines)
        return status
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text as RichText

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
            if live is not None:
                live.update(RichText("\n".join(printable(line) for line in lines)), refresh=True)
            else:
                emit(document, lines, indent=None)
            time.sleep(every)
    except KeyboardInterrupt:
        return status
    finally:
        if live is not None:
            live.stop()
