"""How commands print: text for people, one JSON document for programs, errors without stack traces."""

from __future__ import annotations

import itertools
import json
import os
import sys
import traceback
from collections.abc import Callable
from typing import Any

import click

from lakefeed.errors import LakefeedError
from lakefeed.messages.printable import printable, printable_json
from lakefeed.messages.redaction import redacted

output_option = click.option(
    "--output",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="text for people, json for programs.",
)


def echo(text: str = "", *, err: bool = False, nl: bool = True, **style: Any) -> None:
    """Print text of a command. What it took from records, schemas and servers can do no harm to the terminal."""
    click.secho(printable(text, keep="\n\t"), err=err, nl=nl, **style)


def emit(output: str, document: Any, text: Callable[[], None]) -> None:
    """Prints ``document`` as JSON, or calls ``text`` to print it for people."""
    if output == "json":
        click.echo(printable_json(json.dumps(document, indent=2, default=str, ensure_ascii=False)))
    else:
        text()


def is_json_output(argv: list[str]) -> bool:
    """Whether the command line asks for JSON: errors then are JSON too."""
    return "--output=json" in argv or any(pair == ("--output", "json") for pair in itertools.pairwise(argv))


def fail(error: LakefeedError, *, as_json: bool) -> int:
    """Prints an error, as the JSON document on stdout or as text on stderr; returns its exit status."""
    if as_json:
        click.echo(printable_json(json.dumps(error.as_dict(), indent=2, ensure_ascii=False)))
    else:
        click.secho("error: ", fg="red", bold=True, nl=False, err=True)
        echo(str(error), err=True)
    if os.environ.get("LAKEFEED_DEBUG"):
        sys.stderr.write(redacted("".join(traceback.format_exception(error))))
    return error.exit_status
