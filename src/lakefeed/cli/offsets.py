"""``lakefeed offsets``: where a feed stands, and to move it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.exceptions import Exit

import lakefeed
from lakefeed.cli.options import (
    master_option,
    output_option,
    parts_of,
    pipeline_argument,
    topic_option,
    yes_option,
)
from lakefeed.cli.output import echo, echo_columns, emit, figure, span
from lakefeed.clients.spark.session import log_path

if TYPE_CHECKING:
    from lakefeed.operations.rewind.execute import RewindPlan
    from lakefeed.operations.status import FeedStatus


@click.group()
def offsets() -> None:
    """Show where a feed stands, and move it: checkpoint, ledger and monitoring group together."""


@offsets.command()
@pipeline_argument
@topic_option
@output_option
def show(pipeline: Path, topic: str | None) -> None:
    """Show where PIPELINE stands in each partition, and what a start would do now.

    Changes nothing, and may run beside the feed. Starts Spark only if the transform changed since the last start, since
    only Spark knows what state a transform keeps.

    Exit status: 0 if a start would resume, 1 if it would be refused.
    """
    declared = lakefeed.Pipeline.from_file(pipeline, to_run=False)
    log_file = log_path(f"{declared.config.name}-show")
    found = [part.status(log_file=log_file) for part in parts_of(declared, topic)]
    documents = [feed.as_dict() for feed in found]

    def text() -> None:
        for feed in found:
            _print_status(feed)

    many = declared.config.has_many_tables and topic is None
    emit({"tables": documents} if many else documents[0], text)
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
@click.option("--topic", help="Only this topic. To be said where each topic has a table of its own.")
@click.option("--partition", type=click.IntRange(0), help="Only partitions of this number.")
@click.option(
    "--delete-rows/--keep-rows",
    default=None,
    help="What becomes of the rows of records that are read again: deleted in the same commit, or kept beside the new.",
)
@click.option("--accept-loss", is_flag=True, help="Leave records unread where the feed moves forward.")
@click.option("--dry-run", is_flag=True, help="Only say what would be done.")
@yes_option
@master_option
@output_option
def rewind(
    pipeline: Path, to: str, topic: str | None, dry_run: bool, yes: bool, master: str | None, **choice: Any
) -> None:
    """Move PIPELINE to other offsets: ledger, rows, dead letters, checkpoint and monitoring group together.

    --to table leaves the feed where its table is and recreates the checkpoint. A driver that runs is stopped at its
    next commit. Whatever is cut off is completed by the next start, or by the same command once more.
    """
    declared = lakefeed.Pipeline.from_file(pipeline, to_run=False)
    if declared.config.has_many_tables:
        if topic is None:
            raise click.UsageError("each topic has a table of its own: --topic says which one is moved")
        declared = declared.of_topic(topic)
    agreed = declared.plan_rewind(to, topic=topic, **choice)
    has_checkpoint = bool(declared.config.checkpoint)
    if dry_run:
        emit({**agreed.as_dict(), "done": False}, lambda: _print_plan(agreed, has_checkpoint=has_checkpoint))
        return
    if not yes:
        _print_plan(agreed, has_checkpoint=has_checkpoint, err=True)
        click.confirm("Move the feed?", abort=True, err=True)
    spark = declared.session(master=master, log_file=log_path(f"{declared.config.name}-rewind"))
    if message := declared.rewind(agreed, spark=spark):
        echo(message, err=True)

    def text() -> None:
        _print_plan(agreed, has_checkpoint=has_checkpoint)
        echo("done; the next start resumes there")

    emit({**agreed.as_dict(), "done": True}, text)


def _print_status(feed: FeedStatus) -> None:
    echo(f"{feed.feed} in {feed.sink}: ", nl=False)
    if feed.refusal is None:
        echo(f"a start {feed.start}", fg="green", bold=True)
    else:
        echo("a start would be refused", fg="red", bold=True)
    if feed.checkpoint.batch_id is not None:
        done = "done" if feed.checkpoint.committed else "planned"
        echo(f"  the checkpoint has batch {feed.checkpoint.batch_id} {done}")
    if feed.publication is not None:
        echo(f"  branch {feed.publication.sentence}")
    lines = [("partition", "checkpoint", "table", "group", "in the topic", "lag", "the table has")]
    for part in feed.partitions:
        name = f"{part.topic}-{part.partition}"
        checkpoint, table, group = (
            "-" if offset is None else f"{offset}" for offset in (part.checkpoint, part.table, part.group)
        )
        there, lag = span(part.topic_start, part.topic_end), figure(part.lag)
        has = "-" if part.covered is None else " ".join(span(*ends) for ends in part.covered) or "nothing"
        lines.append((name, checkpoint, table, group, there, lag, has))
    echo_columns(lines, left=1)
    if feed.refusal is not None:
        echo(f"\n{feed.refusal}")


def _print_plan(agreed: RewindPlan, *, has_checkpoint: bool, err: bool = False) -> None:
    if not agreed.moves:
        then = "the checkpoint is recreated" if has_checkpoint else "it has no checkpoint to recreate"
        echo(f"{agreed.feed} stays where {agreed.table} is; {then}", err=err)
    else:
        echo(f"{agreed.feed} in {agreed.table}:", err=err)
        lines = [("partition", "from", "to", "read again", "given up", "rows", "dead letters")]
        for move in agreed.moves:
            start = "?" if move.start is None else f"{move.start}"
            counts = (f"{move.again:,}", f"{move.given_up:,}", figure(move.rows), f"{move.letters:,}")
            lines.append((f"{move.topic}-{move.partition}", start, f"{move.to}", *counts))
        echo_columns(lines, left=1, err=err)
    if agreed.rows:
        echo(f"{agreed.rows:,} rows {'are deleted' if agreed.delete_rows else 'stay beside the new ones'}", err=err)
    if agreed.letters:
        echo(f"{agreed.letters:,} dead letters are deleted", err=err)
