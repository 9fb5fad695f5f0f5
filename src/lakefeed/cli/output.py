"""Prints the reports of commands, as text for people or as JSON for programs, and errors without stack traces."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import sys
import textwrap
import time
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import click

from lakefeed.errors import LakefeedError, WorldError
from lakefeed.messages.printable import aligned, printable, printable_json
from lakefeed.messages.redaction import redacted

INDENT = 12
"""The width of the names in ``field_lines``, in columns."""

Text = str | Iterable[str]
"""A report for people: a text, or an iterable of its lines, which is consumed only if text is printed."""

wrapped = partial(textwrap.wrap, break_long_words=False, break_on_hyphens=False)


class Output(ABC):
    """The output of a command; commands print only through it."""

    @abstractmethod
    def report(self, document: Any, text: Text) -> None:
        """Print the command's result; called once."""

    @abstractmethod
    def item(self, document: Any, text: Text) -> None:
        """Print one of many results as soon as it exists."""

    @abstractmethod
    def error(self, error: LakefeedError) -> None:
        """Print the error that ended the command."""


class ConsoleOutput(Output):
    """Prints lines for people; errors go to stderr, with the page of the documentation that helps."""

    def report(self, document: Any, text: Text) -> None:
        for line in [text] if isinstance(text, str) else text:
            echo(line)

    def item(self, document: Any, text: Text) -> None:
        self.report(document, text)

    def error(self, error: LakefeedError) -> None:
        echo(styled("error: ", fg="red", bold=True) + str(error), err=True)
        if "lakefeed docs " not in str(error):
            echo(f"  page:  {error.page}", err=True)


class JsonOutput(Output):
    """Prints a result or an error as a JSON document, and each of many results on one line."""

    def report(self, document: Any, text: Text) -> None:
        self._print(document, indent=2)

    def item(self, document: Any, text: Text) -> None:
        self._print(document, indent=None)

    def error(self, error: LakefeedError) -> None:
        self._print(error.as_dict(), indent=2)

    def _print(self, document: Any, *, indent: int | None) -> None:
        click.echo(printable_json(json.dumps(document, indent=indent, default=str, ensure_ascii=False)))
        sys.stdout.flush()


def output() -> Output:
    """Return the output of the current command, by its option ``--output``."""
    return JsonOutput() if is_json() else ConsoleOutput()


def is_json() -> bool:
    """Check that the current command has ``--output json``."""
    return bool(click.get_current_context().meta.get("output") == "json")


def is_json_output(argv: list[str]) -> bool:
    """Check that the command line has ``--output json``, before click has parsed it: errors must be JSON then."""
    return "--output=json" in argv or any(pair == ("--output", "json") for pair in itertools.pairwise(argv))


def emit(document: Any, text: Text) -> None:
    """Print the current command's result."""
    output().report(document, text)


def fail(error: LakefeedError, *, as_json: bool) -> int:
    """Print an error and return its exit status."""
    (JsonOutput() if as_json else ConsoleOutput()).error(error)
    if os.environ.get("LAKEFEED_DEBUG"):
        sys.stderr.write(redacted("".join(traceback.format_exception(error))))
    return error.exit_status


class Styled(str):
    """A text with colours; adding a plain text escapes the control characters of that text."""

    __slots__ = ()

    def __add__(self, other: str) -> Styled:
        return Styled(str(self) + (other if isinstance(other, Styled) else _plain(other)))


def styled(text: str, **style: Any) -> Styled:
    """Return a text with colours and escaped control characters; click drops the colours outside a terminal."""
    return Styled(click.style(_plain(text), **style))


def _plain(text: str) -> str:
    """Escape control characters, which may come from records, schemas or servers."""
    return printable(text, keep="\n\t")


def echo(text: str = "", *, err: bool = False, nl: bool = True) -> None:
    """Print a line immediately, such as a note or a line of progress; a command's result goes to ``emit``."""
    click.echo(text if isinstance(text, Styled) else _plain(text), err=err, nl=nl)


def say(lines: Iterable[str]) -> None:
    """Print lines on stderr: those before a question, or those beside rows on stdout."""
    for line in lines:
        echo(line, err=True)


def column_lines(rows: Sequence[tuple[str, ...]], *, left: int, indent: int = 2) -> Iterator[str]:
    """Yield rows as lines of aligned columns: the first ``left`` columns hold words, the others figures."""
    return (" " * indent + line for line in aligned(rows, left=left))


def field_lines(name: str, text: str, *, colour: str | None = None) -> Iterator[str]:
    """Yield a name with a text beside it, wrapped to the terminal's width."""
    first, *others = wrapped(text, terminal_width(60, 140, less=INDENT)) or [""]
    yield styled(name.ljust(INDENT)) + styled(first, fg=colour)
    for line in others:
        yield " " * INDENT + line


def first_lines(items: Sequence[object], *, most: int) -> Iterator[str]:
    """Yield a line for each of the first ``most`` items, and then the number of the others."""
    for item in items[:most]:
        yield f"  {item}"
    if len(items) > most:
        yield f"  … and {len(items) - most:,} more; --output json lists them all"


def terminal_width(least: int, most: int, *, less: int) -> int:
    """Return the width of the terminal within these bounds, reduced by an indent."""
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


watch_option = click.option("--watch", is_flag=True, help="Repeat until Ctrl-C.")
every_option = click.option(
    "--every", type=click.FloatRange(0.2), default=2.0, show_default=True, metavar="SECONDS", help="With --watch."
)

Shown = tuple[Any, Sequence[str], int]
"""The document, the lines for people, and the exit status."""


def show(look: Callable[[], Shown], *, watch: bool, every: float) -> int:
    """Show the result of ``look``, with ``watch`` repeatedly; return the last exit status.

    With ``watch``, a WorldError is shown and the next look may succeed. JSON then has one document on each line.
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
                output().item(document, lines)
            time.sleep(every)
    except KeyboardInterrupt:
        return status
    finally:
        if live is not None:
            live.stop()
