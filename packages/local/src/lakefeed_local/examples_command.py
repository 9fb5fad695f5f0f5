"""``lakefeed examples``: the examples of the package, copied to run and to change."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from textwrap import fill, shorten

import click

from lakefeed.cli.options import FOLDER, output_option
from lakefeed.cli.output import emit
from lakefeed_local.examples import PackagedExample, copy_example, packaged_example, packaged_examples

PAGE = "examples"


@click.group()
def examples() -> None:
    """List the examples, and copy one to run and to change."""


@examples.command("list")
@output_option
def list_examples() -> None:
    """List the examples."""
    found = packaged_examples()
    emit([_document(example) for example in found], _list_lines(found))


@examples.command()
@click.argument("name")
@click.option("--to", type=FOLDER, default=Path("."), help="The folder to copy into.  [default: this one]")
@output_option
def copy(name: str, to: Path) -> None:
    """Copy example NAME into this folder, below examples/, and say how to run it."""
    example = packaged_example(name)
    copied = copy_example(example, to)
    emit({**_document(example), "copied": [str(to / file) for file in copied]}, _copy_lines(example, to, copied))


def _document(example: PackagedExample) -> dict[str, object]:
    pipelines = [
        {
            "file": str(file),
            "description": example.description(file),
            "commands": example.commands(file),
            **{name.lower(): text for name, text in example.notes(file).items()},
        }
        for file in example.pipelines
    ]
    return {"name": example.name, "pipelines": pipelines}


def _list_lines(found: list[PackagedExample]) -> Iterator[str]:
    for example in found:
        for number, file in enumerate(example.pipelines):
            sentence = shorten(example.description(file).split(". ")[0], 90, placeholder=" …")
            yield f"{example.name if number == 0 else '':<24} {file.name:<28} {sentence}"
    yield "\nlakefeed examples copy NAME copies one"


def _copy_lines(example: PackagedExample, to: Path, copied: list[Path]) -> Iterator[str]:
    for file in copied:
        yield f"  {to / file}"
    yield '\nServers to run it on, unless there are some: lakefeed local up; eval "$(lakefeed local env)"'
    if to != Path("."):
        yield f"Then, in {to}:"
    for file in example.pipelines:
        yield f"\n{fill(example.description(file), 100)}\n"
        for command in example.commands(file):
            yield f"  {command}"
        yield ""
        for name, text in example.notes(file).items():
            yield fill(f"{name + ':':<8} {text}", 100, subsequent_indent=" " * 9, break_on_hyphens=False)
