"""``lakefeed offsets rewind``: moves a feed to other offsets."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
from lakefeed.cli.output import column_lines, echo, emit, figure, say
from lakefeed.clients.spark.session import log_path

if TYPE_CHECKING:
    from lakefeed_repair.rewind import RewindPlan

PAGE = "offsets"


@click.command()
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
    from lakefeed_repair import rewind as moving

    declared = lakefeed.Pipeline.from_file(pipeline, to_run=False)
    if declared.config.has_many_tables:
        declared = one_part_of(declared, topic)
    agreed = moving.plan_rewind(declared, to, topic=topic, **choice)
    lines = list(_plan_lines(agreed, has_checkpoint=bool(declared.config.checkpoint)))
    if dry_run:
        emit({**agreed.as_dict(), "done": False}, lines)
        return
    if not yes:
        say(lines)
        click.confirm("Move the feed?", abort=True, err=True)
    spark = declared.session(master=master, log_file=log_path(f"{declared.config.name}-rewind"))
    if message := moving.rewind(declared, agreed, spark=spark):
        echo(message, err=True)
    emit({**agreed.as_dict(), "done": True}, [*lines, "done; the next start resumes there"])


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
