"""Print for people (text), for programs (one JSON document), and errors without stack traces."""

from __future__ import annotations

import itertools
import json
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import Any

import click

from lakefeed.errors import LakefeedError
from lakefeed.messages.pages import names_page
from lakefeed.messages.printable import aligned, printable, printable_json
from lakefeed.messages.redaction import redacted


def echo(text: str = "", *, err: bool = False, nl: bool = True, **style: Any) -> None:
    """Print text, without control characters that came from records, schemas or servers."""
    click.secho(printable(text, keep="\n\t"), err=err, nl=nl, **style)


def echo_columns(rows: Sequence[tuple[str, ...]], *, left: int, indent: int = 2, err: bool = False) -> None:
    """Print rows in columns, of which the first ``left`` hold words and the others figures."""
    for line in aligned(rows, left=left):
        echo(" " * indent + line, err=err)


def echo_first(items: Sequence[object], *, most: int) -> None:
    """Print the first items, a line each, and how many are left out."""
    for item in items[:most]:
        echo(f"  {item}")
    if len(items) > most:
        echo(f"  … and {len(items) - most:,} more; --output json lists them all")


def is_json() -> bool:
    """Check that the command that runs has ``--output json``."""
    return bool(click.get_current_context().meta.get("output") == "json")


def emit(document: Any, text: str | Callable[[], None]) -> None:
    """Print the document as JSON, or else the text, which may be a function that prints."""
    if is_json():
        click.echo(printable_json(json.dumps(document, indent=2, default=str, ensure_ascii=False)))
    elif isinstance(text, str):
        echo(text)
    else:
        text()


def is_json_output(argv: list[str]) -> bool:
    """Check that the command line asks for JSON: errors then are JSON too."""
    return "--output=json" in argv or any(pair == ("--output", "json") for pair in itertools.pairwise(argv))


def fail(error: LakefeedError, *, as_json: bool) -> int:
    """Print an error, as the JSON document on stdout or as text on stderr; return its exit status."""
    if as_json:
        click.echo(printable_json(json.dumps(error.as_dict(), indent=2, ensure_ascii=False)))
    else:
        click.secho("error: ", fg="red", bold=True, nl=False, err=True)
        echo(str(error), err=True)
        if not names_page(str(error)):
            echo(f"  page:  {error.page}", err=True)
    if os.environ.get("LAKEFEED_DEBUG"):
        sys.stderr.write(redacted("".join(traceback.format_exception(error))))
    return error.exit_status


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
    """Format an offset range, END not included; unknown ends give a dash."""
    return "-" if start is None else f"[{start}, {end})"
