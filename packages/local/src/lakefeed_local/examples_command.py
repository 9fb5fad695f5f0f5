"""``lakefeed examples``: the examples of the package, copied to run and to change."""

from __future__ import annotations

from pathlib import Path
from textwrap import fill, shorten

import click

from lakefeed.cli.options import FOLDER, output_option
from lakefeed.cli.output import echo, emit
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
    emit([_document(example) for example in found], lambda: _print_list(found))


@examples.command()
@click.argument("name")
@click.option("--to", type=FOLDER, default=Path("."), help="The folder to copy into.  [default: this one]")
@output_option
def copy(name: str, to: Path) -> None:
    """Copy example NAME into this folder, below examples/, and say how to run it."""
    example = packaged_example(name)
    copied = copy_example(example, to)
    emit(
        {**_document(example), "copied": [str(to / file) for file in copied]}, lambda: _print_copy(example, to, copied)
    )


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


def _print_list(found: list[PackagedExample]) -> None:
    for example in found:
        for number, file in enumerate(example.pipelines):
            sentence = shorten(example.description(file).split(". ")[0], 90, placeholder=" …")
            echo(f"{example.name if number == 0 else '':<24} {file.name:<28} {sentence}")
    echo("\nlakefeed examples copy NAME copies one")


def _print_copy(example: PackagedExample, to: Path, copied: list[Path]) -> None:
    for file in copied:
        echo(f"  {to / file}")
    echo('\nServers to run it on, unless there are some: lakefeed local up; eval "$(lakefeed local env)"')
    if to != Path("."):
        echo(f"Then, in {to}:")
    for file in example.pipelines:
        echo(f"\n{fill(example.description(file), 100)}\n")
        for command in example.commands(file):
            echo(f"  {command}")
        echo()
        for name, text in example.notes(file).items():
            echo(fill(f"{name + ':':<8} {text}", 100, subsequent_indent=" " * 9, break_on_hyphens=False))
