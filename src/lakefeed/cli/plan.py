"""``lakefeed plan``: what a run would do, before it does it."""

from __future__ import annotations

import re
import shutil
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from lakefeed.cli.output import echo, emit, output_option
from lakefeed.messages.tabular import aligned

if TYPE_CHECKING:
    from lakefeed.operations.plan.estimates import Estimates
    from lakefeed.operations.plan.plan import Plans, RunPlan
    from lakefeed.sinks.protocol import TableChange

INDENT = 12
MOST_PARTITIONS = 30
OWN_PROPERTY = re.compile(r"('lakefeed\.[^']*' = )'((?:[^'\\]|\\.){60,})'")
"""A property of lakefeed's own, too long to be read: ``--output json`` has it whole."""


@click.command()
@click.argument("pipeline", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Override a setting.")
@click.option("--topic", help="Where each topic has a table of its own: this one only, in full.")
@click.option("--master", help="Spark master.  [default: local[*]]")
@output_option
@click.pass_context
def plan(
    context: click.Context,
    pipeline: Path,
    overrides: tuple[str, ...],
    topic: str | None,
    master: str | None,
    output: str,
) -> None:
    """Tell what a run of PIPELINE would do now: its start, DDL, offsets, files, S3 requests, time.

    Changes nothing, and may run beside the feed. Starts Spark to find out the rows' columns, and reads no record with
    it.

    Exit status: 0 if the start would work, else that of its refusal.
    """
    from lakefeed.clients.spark.session import log_path
    from lakefeed.pipeline import Pipeline

    declared = Pipeline.from_file(pipeline, overrides=overrides)
    found = declared.plan(topic=topic, master=master, log_file=log_path(f"{declared.config.name}-plan"))
    emit(output, found.as_dict(), lambda: _print(found))
    context.exit(found.exit_status)


def _print(found: Plans) -> None:
    if len(found.tables) == 1:
        _print_plan(found.tables[0])
        return
    if not found.tables:
        echo(f"{found.pipeline}: there is no topic yet that it reads")
        return
    echo(f"{found.pipeline}: {len(found.tables)} topics, each into a table of its own", bold=True)
    rows = [("topic", "start", "table", "records", "batches", "files", "S3 requests")]
    for each in found.tables:
        figures = each.estimates
        rows.append(
            (
                each.topics[0],
                each.kind,
                _in_short(each),
                _number(figures.records.all) if figures else "-",
                f"{each.batches:,}",
                _number(figures.files.all) if figures else "-",
                _number(figures.requests.all) if figures else "-",
            )
        )
    _columns(rows, left=3)
    if found.total is not None:
        echo()
        _print_estimates(found.total)
    for each in found.tables:
        if each.refusal is not None:
            echo()
            echo(f"{each.topics[0]}: the start would be refused", fg="red", bold=True)
            echo(str(each.refusal))
    echo(f"\nin full: lakefeed plan … --topic {found.tables[0].topics[0]}")


def _in_short(each: RunPlan) -> str:
    """What becomes of the feed's own table."""
    if not each.tables:
        return "-"
    if each.tables[-1].is_new:
        return "new"
    return f"{len(each.statements)} statements" if each.statements else "nothing to do"


def _print_plan(each: RunPlan) -> None:
    echo(f"{each.feed}: {', '.join(each.topics)} into {each.sink}", bold=True)
    echo()
    _field("start", each.start, colour="red" if each.refusal else "green")
    if each.checkpoint is not None:
        _field("checkpoint", f"{each.checkpoint.location}: {each.checkpoint.told}")
    for table in each.tables:
        _print_table(table)
    if each.dead_letter_topic is not None:
        made = each.dead_letter_topic
        settings = ", ".join(f"{key}={value}" for key, value in made.config.items())
        _field("topic", f"{made.topic}: new, with {made.partitions} partitions; {settings}")
    if each.again is not None:
        what = (
            "is in the table already: it is left out" if each.again.is_landed else "is landed first, as it was planned"
        )
        _field("again", f"batch {each.again.batch_id}, which Spark had planned before, {what}")
    if each.estimates is not None:
        _print_reading(each)
        echo()
        _print_estimates(each.estimates)
    for note in each.notes:
        _field("note", note)
    if each.refusal is not None:
        echo()
        echo(str(each.refusal))


def _print_table(table: TableChange) -> None:
    if not table.statements:
        _field("table", f"{table.table}: nothing to do")
        return
    _field("table", f"{table.table}: {'new' if table.is_new else 'changed before the first batch'}")
    for statement in table.statements:
        short = OWN_PROPERTY.sub(r"\1'…'", statement)
        for number, line in enumerate(_statement(short)):
            echo(" " * (INDENT + 2 * bool(number)) + line)


def _statement(text: str) -> Iterator[str]:
    """A statement as lines: what is in brackets of CREATE TABLE has lines of its own."""
    text = f"{text};"
    width = max(60, min(120, shutil.get_terminal_size().columns) - INDENT - 2)
    if not text.startswith("CREATE TABLE"):
        yield from textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False)
        return
    parts = re.split(r" (?=\()| (?=USING iceberg)| (?=PARTITIONED BY)| (?=TBLPROPERTIES)", text)
    joined: list[str] = []
    for part in parts:
        if part.startswith("(") and joined and joined[-1] in ("PARTITIONED BY", "TBLPROPERTIES"):
            joined[-1] += f" {part}"
        else:
            joined.append(part)
    for part in joined:
        yield from textwrap.wrap(part, width, break_long_words=False, break_on_hyphens=False, subsequent_indent="  ")


def _print_reading(each: RunPlan) -> None:
    first = sum(one.first for one in each.partitions)
    if not each.batches:
        _field("reads", "nothing: all that the topics hold has landed")
        return
    number = "" if each.batch_id is None else f" (batch {each.batch_id})"
    _field("reads", f"{first:,} offsets in the first batch{number}, all there is in {each.batches:,}")
    rows = [("partition", "first batch", "offsets", "there now", "offsets")]
    for one in each.partitions[:MOST_PARTITIONS]:
        rows.append(
            (
                f"{one.topic}-{one.partition}",
                f"[{one.start}, {one.first_end})",
                f"{one.first:,}",
                f"[{one.start}, {one.end})",
                f"{one.backlog:,}",
            )
        )
    _columns(rows, left=1, indent=INDENT)
    if len(each.partitions) > MOST_PARTITIONS:
        echo(" " * INDENT + f"… and {len(each.partitions) - MOST_PARTITIONS} more: --output json")


def _print_estimates(found: Estimates) -> None:
    width = max(40, min(140, shutil.get_terminal_size().columns) - 46)
    echo(f"  {'':<14}{'first batch':>14}{'in all':>16}")
    for name, each in found.named():
        basis = textwrap.wrap(each.rests_on, width) or [""]
        size = _bytes if name.startswith("bytes") else _number
        echo(f"  {name:<14}{size(each.first):>14}{size(each.all):>16}  {basis[0]}")
        for more in basis[1:]:
            echo(" " * 48 + more)


def _field(name: str, text: str, *, colour: str | None = None) -> None:
    width = max(60, min(140, shutil.get_terminal_size().columns) - INDENT)
    lines = textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False) or [""]
    echo(name.ljust(INDENT), nl=False)
    echo(lines[0], fg=colour)
    for line in lines[1:]:
        echo(" " * INDENT + line)


def _columns(rows: Sequence[tuple[str, ...]], *, left: int, indent: int = 2) -> None:
    for line in aligned(rows, left=left):
        echo(" " * indent + line)


def _number(figure: int | float | None) -> str:
    if figure is None:
        return "?"
    return f"{figure:,}" if isinstance(figure, int) else f"{figure:,.1f}"


def _bytes(figure: int | float | None) -> str:
    if figure is None:
        return "?"
    size = float(figure)
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:,.0f} {unit}" if unit == "B" else f"{size:,.1f} {unit}"
        size /= 1000
    return f"{size:,.1f} TB"
