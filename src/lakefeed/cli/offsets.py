"""``lakefeed offsets``: where a feed stands, and to move it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from lakefeed.cli.output import echo, emit, output_option
from lakefeed.cli.topic import parts_of, topic_option
from lakefeed.messages.tabular import aligned

if TYPE_CHECKING:
    from lakefeed.operations.rewind.execute import RewindPlan
    from lakefeed.operations.status import FeedStatus

pipeline_argument = click.argument("pipeline", type=click.Path(path_type=Path, dir_okay=False))


@click.group()
def offsets() -> None:
    """Where a feed stands, and move it: checkpoint, ledger and monitoring group together."""


@offsets.command()
@pipeline_argument
@topic_option
@output_option
@click.pass_context
def show(context: click.Context, pipeline: Path, topic: str | None, output: str) -> None:
    """Show where PIPELINE stands in each partition, and what a start would do now.

    Changes nothing, and may run beside the feed. Starts Spark only if the transform changed since the last start, since
    only Spark knows what state a transform keeps.

    Exit status: 0 if a start would resume, 1 if it would be refused.
    """
    from lakefeed.clients.spark.session import log_path
    from lakefeed.pipeline import Pipeline

    declared = Pipeline.from_file(pipeline)
    log_file = log_path(f"{declared.config.name}-show")
    all_found = [each.status(log_file=log_file) for each in parts_of(declared, topic)]
    documents = [each.as_dict() for each in all_found]

    def text() -> None:
        for found in all_found:
            _print_survey(found)

    many = declared.config.has_many_tables and topic is None
    emit(output, {"tables": documents} if many else documents[0], text)
    context.exit(1 if any(each.refusal for each in all_found) else 0)


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
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--master", help="Spark master.  [default: local[*]]")
@output_option
def rewind(
    pipeline: Path,
    to: str,
    topic: str | None,
    partition: int | None,
    delete_rows: bool | None,
    accept_loss: bool,
    dry_run: bool,
    yes: bool,
    master: str | None,
    output: str,
) -> None:
    """Move PIPELINE to other offsets: ledger, rows, dead letters, checkpoint and monitoring group together.

    --to table leaves the feed where its table is and recreates the checkpoint. A driver that runs is stopped at its
    next commit. Whatever is cut off is completed by the next start, or by the same command once more.
    """
    from lakefeed.clients.spark.session import log_path
    from lakefeed.pipeline import Pipeline

    declared = Pipeline.from_file(pipeline)
    if declared.config.has_many_tables:
        if topic is None:
            raise click.UsageError("each topic has a table of its own: --topic says which one is moved")
        declared = declared.of_topic(topic)
    agreed = declared.plan_rewind(
        to, topic=topic, partition=partition, delete_rows=delete_rows, accept_loss=accept_loss
    )
    if dry_run:
        emit(output, {**agreed.as_dict(), "done": False}, lambda: _print_plan(agreed))
        return
    if not yes:
        _print_plan(agreed, err=True)
        click.confirm("Move the feed?", abort=True, err=True)
    spark = declared.session(master=master, log_file=log_path(f"{declared.config.name}-rewind"))
    if message := declared.rewind(agreed, spark=spark):
        echo(message, err=True)

    def text() -> None:
        _print_plan(agreed)
        echo("done; the next start resumes there")

    emit(output, {**agreed.as_dict(), "done": True}, text)


def _print_survey(found: FeedStatus) -> None:
    echo(f"{found.feed} in {found.sink}: ", nl=False)
    if found.refusal is None:
        echo(f"a start {found.start}", fg="green", bold=True)
    else:
        echo("a start would be refused", fg="red", bold=True)
    if found.checkpoint.batch_id is not None:
        done = "done" if found.checkpoint.committed else "planned"
        echo(f"  the checkpoint has batch {found.checkpoint.batch_id} {done}")
    lines: list[tuple[str, ...]] = [
        ("partition", "checkpoint", "table", "group", "in the topic", "lag", "the table has")
    ]
    for each in found.partitions:
        there = "-" if each.topic_start is None else f"[{each.topic_start}, {each.topic_end})"
        has = "-" if each.covered is None else " ".join(f"[{start}, {end})" for start, end in each.covered) or "nothing"
        cells = (each.checkpoint, each.table, each.group)
        numbers = ("-" if cell is None else f"{cell}" for cell in cells)
        lines.append(
            (f"{each.topic}-{each.partition}", *numbers, there, "-" if each.lag is None else f"{each.lag:,}", has)
        )
    _print_columns(lines, err=False)
    if found.refusal is not None:
        echo()
        echo(str(found.refusal))


def _print_plan(agreed: RewindPlan, *, err: bool = False) -> None:
    if not agreed.moves:
        echo(f"{agreed.feed} stays where {agreed.table} is; the checkpoint is recreated", err=err)
    else:
        echo(f"{agreed.feed} in {agreed.table}:", err=err)
        lines: list[tuple[str, ...]] = [("partition", "from", "to", "read again", "given up", "rows", "dead letters")]
        for each in agreed.moves:
            start = "?" if each.start is None else f"{each.start}"
            rows = "-" if each.rows is None else f"{each.rows:,}"
            name = f"{each.topic}-{each.partition}"
            lines.append(
                (name, start, f"{each.to}", f"{each.again:,}", f"{each.given_up:,}", rows, f"{each.letters:,}")
            )
        _print_columns(lines, err=err)
    if agreed.rows:
        echo(f"{agreed.rows:,} rows {'are deleted' if agreed.delete_rows else 'stay beside the new ones'}", err=err)
    if agreed.letters:
        echo(f"{agreed.letters:,} dead letters are deleted", err=err)


def _print_columns(lines: Sequence[tuple[str, ...]], *, err: bool) -> None:
    for line in aligned(lines, left=1):
        echo(f"  {line}", err=err)
