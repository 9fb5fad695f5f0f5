"""``lakefeed offsets``: shows a feed's offsets, and moves the feed to others."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.exceptions import Exit

import lakefeed
from lakefeed.cli.group import CommandGroup
from lakefeed.cli.options import (
    dry_run_option,
    master_option,
    one_part_of,
    output_option,
    parts_of,
    pipeline_argument,
    topic_option,
    yes_option,
)
from lakefeed.cli.output import column_lines, echo, emit, figure, say, span, styled
from lakefeed.clients.spark.session import log_path

if TYPE_CHECKING:
    from lakefeed.operations.rewind.execute import RewindPlan
    from lakefeed.operations.status import FeedStatus


@click.group(cls=CommandGroup)
def offsets() -> None:
    """Show or move a feed's offsets: checkpoint, ledger and group."""


@offsets.command()
@pipeline_argument
@topic_option
@output_option
def show(pipeline: Path, topic: str | None) -> None:
    """Show PIPELINE's offsets, and what a start would do now.

    Changes nothing, and may run beside the feed. Starts Spark only if the transform has changed since the last start,
    to find out which state it keeps.

    Exit status: 0 if a start would resume, 1 if it would be refused.
    """
    declared = lakefeed.Pipeline.from_file(pipeline, to_run=False)
    log_file = log_path(f"{declared.config.name}-show")
    found = [part.status(log_file=log_file) for part in parts_of(declared, topic)]
    documents = [feed.as_dict() for feed in found]

    def text() -> Iterator[str]:
        for feed in found:
            yield from _status_lines(feed)

    many = declared.config.has_many_tables and topic is None
    emit({"tables": documents} if many else documents[0], text())
    raise Exit(1 if any(feed.refusal for feed in found) else 0)


@offsets.command()
@pipeline_argument
@click.option(
    "--to",
    required=True,
    metavar="TARGET",
    help="earliest, latest, table, timestamp:2026-11-20T06:30, snapshot:ID, topic:partition:offset,… or the JSON of "
    "Spark's offsets.",
)
@click.option("--topic", help="Move only this topic; required for a pipeline with many tables.")
@click.option("--partition", type=click.IntRange(0), help="Move only partitions with this number.")
@click.option(
    "--delete-rows/--keep-rows",
    default=None,
    help="Delete the rows of records that are read again, in the same commit, or keep them beside the new rows.",
)
@click.option("--accept-loss", is_flag=True, help="Allow moves forward, which leave records unread.")
@dry_run_option
@yes_option
@master_option
@output_option
def rewind(
    pipeline: Path, to: str, topic: str | None, dry_run: bool, yes: bool, master: str | None, **choice: Any
) -> None:
    """Move PIPELINE to other offsets.

    Moves ledger, rows, dead letters, checkpoint and monitoring group; --to table only recreates the checkpoint. Stops a
    running driver at its next commit. The next start, or the same command, completes an interrupted move.
    """
    declared = lakefeed.Pipeline.from_file(pipeline, to_run=False)
    if declared.config.has_many_tables:
        declared = one_part_of(declared, topic)
    agreed = declared.plan_rewind(to, topic=topic, **choice)
    lines = list(_plan_lines(agreed, has_checkpoint=bool(declared.config.checkpoint)))
    if dry_run:
        emit({**agreed.as_dict(), "done": False}, lines)
        return
    if not yes:
        say(lines)
        click.confirm("Move the feed?", abort=True, err=True)
    spark = declared.session(master=master, log_file=log_path(f"{declared.config.name}-rewind"))
    if message := declared.rewind(agreed, spark=spark):
        echo(message, err=True)
    emit({**agreed.as_dict(), "done": True}, [*lines, "done; the next start resumes there"])


def _status_lines(feed: FeedStatus) -> Iterator[str]:
    verdict, color = (f"a start {feed.start}", "green") if feed.refusal is None else ("a start would be refused", "red")
    yield styled(f"{feed.feed} in {feed.sink}: ") + styled(verdict, fg=color, bold=True)
    if feed.checkpoint.batch_id is not None:
        done = "done" if feed.checkpoint.committed else "planned"
        yield f"  the checkpoint has batch {feed.checkpoint.batch_id} {done}"
    if feed.publication is not None:
        yield f"  branch {feed.publication.sentence}"
    lines = [("partition", "checkpoint", "table", "group", "in the topic", "lag", "the table has")]
    for part in feed.partitions:
        name = f"{part.topic}-{part.partition}"
        checkpoint, table, group = (
            "-" if offset is None else f"{offset}" for offset in (part.checkpoint, part.table, part.group)
        )
        there, lag = span(part.topic_start, part.topic_end), figure(part.lag)
        has = "-" if part.covered is None else " ".join(span(*ends) for ends in part.covered) or "nothing"
        lines.append((name, checkpoint, table, group, there, lag, has))
    yield from column_lines(lines, left=1)
    if feed.refusal is not None:
        yield f"\n{feed.refusal}"


def _plan_lines(agreed: RewindPlan, *, has_checkpoint: bool) -> Iterator[str]:
    if not agreed.moves:
        then = "the checkpoint is recreated" if has_checkpoint else "it has no checkpoint to recreate"
        yield f"{agreed.feed} keeps the position of {agreed.table}; {then}"
    else:
        yield f"{agreed.feed} in {agreed.table}:"
        lines = [("partition", "from", "to", "read again", "given up", "rows", "dead letters")]
        for move in agreed.moves:
            start = "?" if move.start is None else f"{move.start}"
            counts = (f"{move.again:,}", f"{move.given_up:,}", figure(move.rows), f"{move.letters:,}")
            lines.append((f"{move.topic}-{move.partition}", start, f"{move.to}", *counts))
        yield from column_lines(lines, left=1)
    if agreed.rows:
        yield f"{agreed.rows:,} rows {'are deleted' if agreed.delete_rows else 'stay beside the new rows'}"
    if agreed.letters:
        yield f"{agreed.letters:,} dead letters are deleted"
