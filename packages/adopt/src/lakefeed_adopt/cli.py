"""``lakefeed adopt`` takes over another tool's table; ``lakefeed offsets export`` exports a feed's offsets."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

import lakefeed
from lakefeed.cli.options import (
    dry_run_option,
    master_option,
    one_part_of,
    output_option,
    pipeline_argument,
    yes_option,
)
from lakefeed.cli.output import column_lines, emit, figure, first_lines, say, span
from lakefeed.clients.spark.session import log_path

if TYPE_CHECKING:
    from lakefeed_adopt.export import ExportPlan
    from lakefeed_adopt.plan import AdoptionPlan

MOST_NOTES_SHOWN = 20


@click.command()
@pipeline_argument
@click.option(
    "--from",
    "origin",
    required=True,
    metavar="TOOL:PLACE",
    help="Location of the other tool's offsets: spark-checkpoint:PATH, group:NAME, iceberg-connect (Iceberg's sink for "
    "Kafka Connect), hudi:PATH (Hudi Streamer) or s3-files:PATH (a sink for S3 of Kafka Connect).",
)
@click.option("--topic", help="Take over only this topic; required if each topic has its own table.")
@click.option(
    "--offset-columns",
    metavar="NAME,…",
    help="The table's columns for topic, partition and offset, or for the last two if all rows are of one topic.  "
    "[default: lakefeed's own, if the table has them]",
)
@click.option(
    "--by-rows",
    is_flag=True,
    help="Begin after the last row of each partition, even if the other tool's offsets differ.",
)
@click.option("--new-table", is_flag=True, help="Begin with a new table, without the other tool's rows.")
@click.option("--stopped", is_flag=True, help="Confirm that the other tool is stopped, although it has just written.")
@dry_run_option
@yes_option
@master_option
@output_option
def adopt(
    pipeline: Path,
    origin: str,
    topic: str | None,
    offset_columns: str | None,
    by_rows: bool,
    new_table: bool,
    stopped: bool,
    dry_run: bool,
    yes: bool,
    master: str | None,
) -> None:
    """Take over the table of PIPELINE from another tool.

    The feed begins exactly where the other tool ended. The command compares that tool's offsets with the topics, with
    the table's commits, and with the offsets in its rows, if any. Then it records the offsets in the table's ledger, in
    one commit without rows; lakefeed run begins there. The other tool must be stopped. A second call changes nothing.
    """
    from lakefeed.clients.spark.errors import translating
    from lakefeed_adopt.plan import execute_adoption, plan_adoption
    from lakefeed_adopt.position import Origin

    declared = lakefeed.Pipeline.from_file(pipeline)
    if declared.config.has_many_tables:
        declared = one_part_of(declared, topic)
    agreed = plan_adoption(
        declared.feed,
        Origin.parse(origin),
        offset_columns=offset_columns,
        by_rows=by_rows,
        is_stopped=stopped,
        new_table=new_table,
    )
    if dry_run:
        emit({**agreed.as_dict(), "done": agreed.is_done}, _plan_lines(agreed))
        return
    if not yes and not agreed.is_done:
        say(_plan_lines(agreed))
        click.confirm("Take the table over?", abort=True, err=True)
    if not agreed.is_done:
        spark = declared.session(master=master, log_file=log_path(f"{declared.config.name}-adopt"))
        with translating():
            execute_adoption(declared.feed, agreed, spark)

    def text() -> Iterator[str]:
        yield from _plan_lines(agreed)
        if not agreed.is_done:
            more = "" if agreed.is_new_table else ", and the other tool must not write to the table again"
            yield f"done; lakefeed run resumes there{more}"

    emit({**agreed.as_dict(), "done": True}, text())


def _plan_lines(agreed: AdoptionPlan) -> Iterator[str]:
    yield f"{agreed.feed} takes {agreed.table} over from {agreed.tool}, {agreed.place}:"
    lines = [("partition", "begins at", "in the topic", "to read", "rows")]
    for part in agreed.partitions:
        begins = f"{part.offset}{' (new)' if part.is_new else ''}"
        there = span(part.topic_start, part.topic_end)
        lines.append((f"{part.topic}-{part.partition}", begins, there, f"{part.unread:,}", figure(part.rows)))
    yield from column_lines(lines, left=1)
    if agreed.is_checked:
        yield "the rows' own offsets agree with this position"
    yield from first_lines([f"  {note}" for note in agreed.notes], most=MOST_NOTES_SHOWN)


@click.command()
@pipeline_argument
@click.option(
    "--to",
    "target",
    required=True,
    metavar="TOOL:PLACE",
    help="Where to write the offsets: group:NAME, a consumer group without members; or spark-checkpoint:PATH, an empty "
    "checkpoint location for a plain job of Structured Streaming.",
)
@click.option("--topic", help="Export only this topic; required if each topic has its own table.")
@click.option("--stopped", is_flag=True, help="Confirm that the feed is stopped, although it has just committed.")
@dry_run_option
@yes_option
@output_option
def export(pipeline: Path, target: str, topic: str | None, stopped: bool, dry_run: bool, yes: bool) -> None:
    """Export the offsets of PIPELINE to another tool.

    The tool begins where the feed ended; the feed must stay stopped. Needs no Spark. A second call changes nothing.
    """
    from lakefeed_adopt.export import ExportTarget, execute_export, plan_export

    declared = lakefeed.Pipeline.from_file(pipeline, to_run=False)
    if declared.config.has_many_tables:
        declared = one_part_of(declared, topic)
    agreed = plan_export(declared.feed, ExportTarget.parse(target), is_stopped=stopped)
    if dry_run:
        emit({**agreed.as_dict(), "done": False}, _export_lines(agreed))
        return
    if not yes:
        say(_export_lines(agreed))
        click.confirm("Export the position?", abort=True, err=True)
    execute_export(declared.feed, agreed)

    def text() -> Iterator[str]:
        yield from _export_lines(agreed)
        yield "done; the other tool resumes there, and the feed must not be started again"

    emit({**agreed.as_dict(), "done": True}, text())


def _export_lines(agreed: ExportPlan) -> Iterator[str]:
    yield f"the position of {agreed.feed} in {agreed.sink} goes to {agreed.target}:"
    lines = [("partition", "begins at", "before")]
    for (topic, partition), at in sorted(agreed.offsets.items()):
        before = agreed.before.get((topic, partition))
        lines.append((f"{topic}-{partition}", f"{at}", "-" if before is None else f"{before}"))
    yield from column_lines(lines, left=1)
