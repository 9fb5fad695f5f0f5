"""``lakefeed plan``: what a run would do, before it does it."""

from __future__ import annotations

import re
import shutil
import textwrap
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.exceptions import Exit

import lakefeed
from lakefeed.cli.options import FILE, master_option, output_option, pipeline_argument, set_option
from lakefeed.cli.output import echo, echo_columns, emit, size_text, span
from lakefeed.clients.environment import measured_throughput
from lakefeed.clients.spark.session import log_path
from lakefeed.errors import ConfigError

if TYPE_CHECKING:
    from lakefeed.operations.plan.estimates import Estimates
    from lakefeed.operations.plan.plan import Plans, RunPlan
    from lakefeed.operations.plan.sizing import Sizing
    from lakefeed.sinks.definition import TableChange

INDENT = 12
MOST_PARTITIONS = 30
CLAUSE = re.compile(r" (?=USING iceberg|PARTITIONED BY|TBLPROPERTIES)|(?<!PARTITIONED BY)(?<!TBLPROPERTIES) (?=\()")
OWN_PROPERTY = re.compile(r"('lakefeed\.[^']*' = )'((?:[^'\\]|\\.){60,})'")
"""A property of lakefeed's own, too long to be read: ``--output json`` has it whole."""

_wrap = partial(textwrap.wrap, break_long_words=False, break_on_hyphens=False)


@click.command()
@pipeline_argument
@set_option
@click.option("--topic", help="Where each topic has a table of its own: this one only, in full.")
@click.option("--target-rate", metavar="RATE", help="Size the feed for records/time instead: 1_000_000/s, 112M/10min.")
@click.option(
    "--measured", type=FILE, help="With --target-rate: JSON of lakefeed-bench throughput.  [default: the last]"
)
@click.option("--topics", type=click.IntRange(1), help="With --target-rate: how many topics.  [default: the file's]")
@click.option("--partitions", type=click.IntRange(1), help="With --target-rate: of all topics.  [default: as needed]")
@master_option
@output_option
def plan(
    pipeline: Path,
    overrides: tuple[str, ...],
    topic: str | None,
    target_rate: str | None,
    measured: Path | None,
    topics: int | None,
    partitions: int | None,
    master: str | None,
) -> None:
    """Tell what a run of PIPELINE would do now: its start, DDL, offsets, files, S3 requests, time.

    Changes nothing, and may run beside the feed. Starts Spark to find out the rows' columns, and reads no record with
    it.

    With --target-rate it asks no server: it gives partitions, executors, memory, batches, files and S3 requests for
    that rate, by what lakefeed-bench throughput has measured on this machine.

    Exit status: 0 if the start would work, else that of its refusal.
    """
    if target_rate is not None:
        if topic is not None:
            hint = "--topics and --partitions say how many there are"
            raise ConfigError("--topic is for a plan of a run", where="lakefeed plan --target-rate", hint=hint)
        _size(pipeline, overrides, target_rate, measured=measured, topics=topics, partitions=partitions)
        return
    given = {"--measured": measured, "--topics": topics, "--partitions": partitions}
    if wrong := [name for name, value in given.items() if value is not None]:
        hint = "lakefeed plan --target-rate 1_000_000/s"
        raise ConfigError(f"{wrong[0]} belongs to --target-rate", where="lakefeed plan", hint=hint)
    declared = lakefeed.Pipeline.from_file(pipeline, overrides=overrides)
    found = declared.plan(topic=topic, master=master, log_file=log_path(f"{declared.config.name}-plan"))
    emit(found.as_dict(), lambda: _print(found))
    raise Exit(found.exit_status)


def _size(
    pipeline: Path,
    overrides: tuple[str, ...],
    target_rate: str,
    *,
    measured: Path | None,
    topics: int | None,
    partitions: int | None,
) -> None:
    from lakefeed.operations.plan.sizing import FeedLoad, MachineSpeed, parse_rate, size

    rate = parse_rate(target_rate)
    config = lakefeed.Pipeline.from_file(pipeline, overrides=overrides).config
    load = FeedLoad.of(rate, config, topics=topics, partitions=partitions)
    found = size(load, MachineSpeed.read(measured or measured_throughput(), sink=config.sink.kind))
    emit(found.as_dict(), lambda: _print_sizing(config.name, found))


def _print_sizing(name: str, found: Sizing) -> None:
    echo(f"{name}: {found.rate:,.0f} records/s\n", bold=True)
    for figure in found.figures:
        number = f"{figure.value:,}" if figure.value == int(figure.value) else f"{figure.value:,.2f}"
        value = size_text(figure.value) if figure.unit == "B" else f"{number} {figure.unit}".rstrip()
        basis = textwrap.wrap(figure.rests_on, _width(40, 140, less=40)) or [""]
        echo(f"  {figure.name:<22}{value:>14}  {basis[0]}")
        for more in basis[1:]:
            echo(" " * 40 + more)
    echo()
    for assumption in found.assumptions:
        _field("assumes", assumption)
    for warning in found.warnings:
        _field("warning", warning, colour="yellow")


def _print(found: Plans) -> None:
    if len(found.tables) == 1:
        _print_plan(found.tables[0])
        return
    if not found.tables:
        echo(f"{found.pipeline}: there is no topic yet that it reads")
        return
    echo(f"{found.pipeline}: {len(found.tables)} topics, each into a table of its own", bold=True)
    rows = [("topic", "start", "table", "records", "batches", "files", "S3 requests")]
    for feed in found.tables:
        records = files = requests = "-"
        if (figures := feed.estimates) is not None:
            records, files, requests = map(_number, (figures.records.all, figures.files.all, figures.requests.all))
        rows.append((feed.topics[0], feed.kind, _table_outcome(feed), records, f"{feed.batches:,}", files, requests))
    echo_columns(rows, left=3)
    if found.total is not None:
        echo()
        _print_estimates(found.total)
    for feed in found.tables:
        if feed.refusal is not None:
            echo(f"\n{feed.topics[0]}: the start would be refused", fg="red", bold=True)
            echo(str(feed.refusal))
    echo(f"\nin full: lakefeed plan … --topic {found.tables[0].topics[0]}")


def _table_outcome(feed: RunPlan) -> str:
    """Summarize the changes of the feed's own table."""
    if not feed.tables:
        return "-"
    if feed.tables[-1].is_new:
        return "new"
    return f"{len(feed.statements)} statements" if feed.statements else "nothing to do"


def _print_plan(feed: RunPlan) -> None:
    echo(f"{feed.feed}: {', '.join(feed.topics)} into {feed.sink}\n", bold=True)
    _field("start", feed.start, colour="red" if feed.refusal else "green")
    if feed.checkpoint is not None:
        _field("checkpoint", f"{feed.checkpoint.location}: {feed.checkpoint.told}")
    for table in feed.tables:
        _print_table(table)
    if (created := feed.dead_letter_topic) is not None:
        settings = ", ".join(f"{key}={value}" for key, value in created.config.items())
        _field("topic", f"{created.topic}: new, with {created.partitions} partitions; {settings}")
    if (again := feed.again) is not None:
        outcome = "is in the table already: it is left out" if again.is_landed else "is landed first, as it was planned"
        _field("again", f"batch {again.batch_id}, which Spark had planned before, {outcome}")
    if feed.path is not None:
        _field("reader", feed.path.reader)
        _field("encoder", feed.path.encoder)
    if feed.estimates is not None:
        _print_reading(feed)
        echo()
        _print_estimates(feed.estimates)
    for note in feed.notes:
        _field("note", note)
    if feed.refusal is not None:
        echo(f"\n{feed.refusal}")


def _print_table(table: TableChange) -> None:
    if not table.statements:
        _field("table", f"{table.table}: nothing to do")
        return
    _field("table", f"{table.table}: {'new' if table.is_new else 'changed before the first batch'}")
    for statement in table.statements:
        for number, line in enumerate(_statement_lines(OWN_PROPERTY.sub(r"\1'…'", statement))):
            echo(" " * (INDENT + 2 * bool(number)) + line)


def _statement_lines(text: str) -> Iterator[str]:
    """Split a statement into lines: the parts of CREATE TABLE in brackets have lines of their own."""
    text = f"{text};"
    width = _width(60, 120, less=INDENT + 2)
    if not text.startswith("CREATE TABLE"):
        yield from _wrap(text, width)
        return
    for part in CLAUSE.split(text):
        yield from _wrap(part, width, subsequent_indent="  ")


def _print_reading(feed: RunPlan) -> None:
    if not feed.batches:
        _field("reads", "nothing: all that the topics hold has landed")
        return
    first = sum(part.first for part in feed.partitions)
    number = "" if feed.batch_id is None else f" (batch {feed.batch_id})"
    _field("reads", f"{first:,} offsets in the first batch{number}, all there is in {feed.batches:,}")
    rows = [("partition", "first batch", "offsets", "there now", "offsets")]
    for part in feed.partitions[:MOST_PARTITIONS]:
        batch, all_now = span(part.start, part.first_end), span(part.start, part.end)
        rows.append((f"{part.topic}-{part.partition}", batch, f"{part.first:,}", all_now, f"{part.backlog:,}"))
    echo_columns(rows, left=1, indent=INDENT)
    if len(feed.partitions) > MOST_PARTITIONS:
        echo(" " * INDENT + f"… and {len(feed.partitions) - MOST_PARTITIONS} more: --output json")


def _print_estimates(found: Estimates) -> None:
    echo(f"  {'':<14}{'first batch':>14}{'in all':>16}")
    for name, estimate in found.named():
        basis = textwrap.wrap(estimate.rests_on, _width(40, 140, less=46)) or [""]
        as_text = _bytes if name.startswith("bytes") else _number
        echo(f"  {name:<14}{as_text(estimate.first):>14}{as_text(estimate.all):>16}  {basis[0]}")
        for more in basis[1:]:
            echo(" " * 48 + more)


def _field(name: str, text: str, *, colour: str | None = None) -> None:
    first, *others = _wrap(text, _width(60, 140, less=INDENT)) or [""]
    echo(name.ljust(INDENT), nl=False)
    echo(first, fg=colour)
    for line in others:
        echo(" " * INDENT + line)


def _width(least: int, most: int, *, less: int) -> int:
    """Return the columns of the terminal, up to a limit, less an indent."""
    return max(least, min(most, shutil.get_terminal_size().columns) - less)


def _number(figure: int | float | None) -> str:
    if figure is None:
        return "?"
    return f"{figure:,}" if isinstance(figure, int) else f"{figure:,.1f}"


def _bytes(figure: int | float | None) -> str:
    return "?" if figure is None else size_text(figure)
