"""``lakefeed plan``: predicts what a run would do."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.exceptions import Exit

import lakefeed
from lakefeed.cli.options import master_option, output_option, pipeline_argument, set_option, topic_option
from lakefeed.cli.output import (
    INDENT,
    column_lines,
    emit,
    field_lines,
    size_text,
    span,
    styled,
    terminal_width,
    wrapped,
)
from lakefeed.clients.spark.session import log_path
from lakefeed.messages.printable import counted

if TYPE_CHECKING:
    from lakefeed.operations.plan import Plans, RunPlan
    from lakefeed.operations.plan.estimates import Estimates
    from lakefeed.sinks.definition import TableChange

MOST_PARTITIONS = 30
CLAUSE = re.compile(r" (?=USING iceberg|PARTITIONED BY|TBLPROPERTIES)|(?<!PARTITIONED BY)(?<!TBLPROPERTIES) (?=\()")
OWN_PROPERTY = re.compile(r"('lakefeed\.[^']*' = )'((?:[^'\\]|\\.){60,})'")
"""A table property that lakefeed sets for itself and whose value is too long to read; ``--output json`` shows it whole.
"""


@click.command()
@pipeline_argument
@set_option
@topic_option
@master_option
@output_option
def plan(pipeline: Path, overrides: tuple[str, ...], topic: str | None, master: str | None) -> None:
    """Predict a run: start, DDL, offsets, files, requests, time.

    Changes nothing, and may run beside the feed. Starts Spark to find out the rows' columns; Spark reads no record.

    Exit status: 0 if the run would start, otherwise the status of the refused run.
    """
    declared = lakefeed.Pipeline.from_file(pipeline, overrides=overrides)
    found = declared.plan(topic=topic, master=master, log_file=log_path(f"{declared.config.name}-plan"))
    emit(found.as_dict(), _lines(found))
    raise Exit(found.exit_status)


def _lines(found: Plans) -> Iterator[str]:
    if len(found.tables) == 1:
        yield from _plan_lines(found.tables[0])
        return
    if not found.tables:
        yield f"{found.pipeline}: none of its topics exists yet"
        return
    yield styled(f"{found.pipeline}: {len(found.tables)} topics, each into its own table", bold=True)
    rows = [("topic", "start", "table", "records", "batches", "files", "S3 requests")]
    for feed in found.tables:
        records = files = requests = "-"
        if (figures := feed.estimates) is not None:
            records, files, requests = map(_number, (figures.records.all, figures.files.all, figures.requests.all))
        rows.append((feed.topics[0], feed.kind, _table_outcome(feed), records, f"{feed.batches:,}", files, requests))
    yield from column_lines(rows, left=3)
    if found.total is not None:
        yield ""
        yield from _estimates_lines(found.total)
    for feed in found.tables:
        if feed.refusal is not None:
            yield styled(f"\n{feed.topics[0]}: the start would be refused", fg="red", bold=True)
            yield str(feed.refusal)
    yield f"\nlakefeed plan … --topic {found.tables[0].topics[0]} shows the whole plan of a topic"


def _table_outcome(feed: RunPlan) -> str:
    if not feed.tables:
        return "-"
    if feed.tables[-1].is_new:
        return "new"
    return f"{len(feed.statements)} statements" if feed.statements else "nothing to do"


def _plan_lines(feed: RunPlan) -> Iterator[str]:
    yield styled(f"{feed.feed}: {', '.join(feed.topics)} into {feed.sink}\n", bold=True)
    yield from field_lines("start", feed.start, colour="red" if feed.refusal else "green")
    if feed.checkpoint is not None:
        yield from field_lines("checkpoint", f"{feed.checkpoint.location}: {feed.checkpoint.reason}")
    for table in feed.tables:
        yield from _table_lines(table)
    if (created := feed.dead_letter_topic) is not None:
        settings = ", ".join(f"{key}={value}" for key, value in created.config.items())
        yield from field_lines("topic", f"{created.topic}: new, with {created.partitions} partitions; {settings}")
    if (again := feed.again) is not None:
        outcome = "has landed already: the run skips it" if again.is_landed else "lands first, with the same offsets"
        yield from field_lines("again", f"batch {again.batch_id}, which Spark had planned in the last run, {outcome}")
    if feed.path is not None:
        yield from field_lines("reader", feed.path.reader)
        yield from field_lines("encoder", feed.path.encoder)
        if feed.path.upserts is not None:
            yield from field_lines("upserts", feed.path.upserts)
    if feed.estimates is not None:
        yield from _reading_lines(feed)
        yield ""
        yield from _estimates_lines(feed.estimates)
    for note in feed.notes:
        yield from field_lines("note", note)
    if feed.refusal is not None:
        yield f"\n{feed.refusal}"


def _table_lines(table: TableChange) -> Iterator[str]:
    if not table.statements:
        yield from field_lines("table", f"{table.table}: nothing to do")
        return
    yield from field_lines("table", f"{table.table}: {'new' if table.is_new else 'changed before the first batch'}")
    for statement in table.statements:
        for number, line in enumerate(_statement_lines(OWN_PROPERTY.sub(r"\1'…'", statement))):
            yield " " * (INDENT + 2 * bool(number)) + line


def _statement_lines(text: str) -> Iterator[str]:
    """Yield the wrapped lines of a statement; in CREATE TABLE, each clause begins on a new line."""
    text = f"{text};"
    width = terminal_width(60, 120, less=INDENT + 2)
    if not text.startswith("CREATE TABLE"):
        yield from wrapped(text, width)
        return
    for part in CLAUSE.split(text):
        yield from wrapped(part, width, subsequent_indent="  ")


def _reading_lines(feed: RunPlan) -> Iterator[str]:
    if not feed.batches:
        yield from field_lines("reads", "nothing: all records of the topics have landed")
        return
    first = sum(part.first for part in feed.partitions)
    number = "" if feed.batch_id is None else f" (batch {feed.batch_id})"
    batches = counted(feed.batches, "batch", "batches")
    yield from field_lines("reads", f"{first:,} offsets in the first batch{number}, all present offsets in {batches}")
    rows = [("partition", "first batch", "offsets", "there now", "offsets")]
    for part in feed.partitions[:MOST_PARTITIONS]:
        batch, all_now = span(part.start, part.first_end), span(part.start, part.end)
        rows.append((f"{part.topic}-{part.partition}", batch, f"{part.first:,}", all_now, f"{part.backlog:,}"))
    yield from column_lines(rows, left=1, indent=INDENT)
    if len(feed.partitions) > MOST_PARTITIONS:
        yield " " * INDENT + f"… and {len(feed.partitions) - MOST_PARTITIONS} more: --output json"


def _estimates_lines(found: Estimates) -> Iterator[str]:
    yield f"  {'':<14}{'first batch':>14}{'in all':>16}"
    for name, estimate in found.named():
        basis = textwrap.wrap(estimate.rests_on, terminal_width(40, 140, less=46)) or [""]
        as_text = _bytes if name.startswith("bytes") else _number
        yield f"  {name:<14}{as_text(estimate.first):>14}{as_text(estimate.all):>16}  {basis[0]}"
        for more in basis[1:]:
            yield " " * 48 + more


def _number(figure: int | float | None) -> str:
    if figure is None:
        return "?"
    return f"{figure:,}" if isinstance(figure, int) else f"{figure:,.1f}"


def _bytes(figure: int | float | None) -> str:
    return "?" if figure is None else size_text(figure)
