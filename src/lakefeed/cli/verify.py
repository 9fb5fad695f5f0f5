"""``lakefeed verify``: proves from table and broker that each record has landed once."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from lakefeed.cli.output import echo, emit, output_option
from lakefeed.cli.topic import parts_of, topic_option
from lakefeed.messages.tabular import aligned

if TYPE_CHECKING:
    from lakefeed.operations.verify.verify import Verification

MOST_FINDINGS_SHOWN = 50


@click.command()
@click.argument("pipeline", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--deep", is_flag=True, help="Also compare each row's own offset, for which the table has to keep it.")
@topic_option
@output_option
@click.pass_context
def verify(context: click.Context, pipeline: Path, deep: bool, topic: str | None, output: str) -> None:
    """Prove that each record of PIPELINE's topics has landed once, or list what is missing or double.

    Holds the offset ranges and counts in the table's snapshots, the dead letters and the broker's offsets against each
    other. Starts no Spark, changes nothing, and may run beside the feed.

    Exit status: 0 if all is proven, 1 if there is a fault, 2 if it cannot be verified.
    """
    from lakefeed.pipeline import Pipeline

    declared = Pipeline.from_file(pipeline)
    all_done = [each.verify(deep=deep) for each in parts_of(declared, topic)]
    if topic is not None or not declared.config.has_many_tables:
        [done] = all_done
        emit(output, done.as_dict(), lambda: _print(done))
        context.exit(1 if done.faults else 0)
    faulty = [each for each in all_done if each.faults]
    tables = {"verified": not faulty, "tables": [each.as_dict() for each in all_done]}
    emit(output, tables, lambda: _print_all(all_done))
    context.exit(1 if faulty else 0)


def _print_all(all_done: list[Verification]) -> None:
    """The sound ones in a line each, then all that there is to say of the others."""
    for done in all_done:
        if not done.faults:
            _print_verdict(done)
            if done.commits:
                echo(f"  {done.commits:,} commits, {done.records:,} records, {done.rows:,} rows")
    for done in all_done:
        if done.faults:
            _print(done)


def _print_verdict(done: Verification) -> None:
    color, verdict = "green", "each record once"
    if done.faults:
        color, verdict = "red", f"{len(done.faults):,} fault{'s' if len(done.faults) > 1 else ''}"
    elif not done.commits:
        color, verdict = "yellow", "no commits yet"
    echo(f"{done.feed} in {done.table}: ", nl=False)
    echo(verdict, fg=color, bold=True)


def _print(done: Verification) -> None:
    _print_verdict(done)
    if done.commits:
        echo()
        _print_sums(done)
        echo()
        _print_partitions(done)
    for title, found in (("faults", done.faults), ("notes", done.notes)):
        if found:
            echo(f"\n{title}")
        for each in found[:MOST_FINDINGS_SHOWN]:
            echo(f"  {each.kind:<16} {each.what}")
        if len(found) > MOST_FINDINGS_SHOWN:
            echo(f"  … and {len(found) - MOST_FINDINGS_SHOWN:,} more; --output json lists them all")


def _print_sums(done: Verification) -> None:
    since = "all that there were" if done.whole else "older ones have expired"
    backfills = f", and {done.backfills:,} of backfills" if done.backfills else ""
    echo(f"  commits  {done.commits:,}, batches {done.first_batch} to {done.last_batch}{backfills}: {since}")
    without = done.offsets - done.records
    hold = f", {without:,} hold no record (transaction markers, aborted or compacted records)" if without else ""
    again = f", {done.offsets_again:,} read again after a rewind" if done.offsets_again else ""
    echo(f"  offsets  {done.offsets:,}{again}{hold}")
    rest = done.records - done.dead_letters - done.skipped
    echo(f"  records  {done.records:,} = {rest:,} good + {done.dead_letters:,} dead letters + {done.skipped:,} skipped")
    if (upserts := done.upserts) is not None:
        echo(
            f"  changes  {upserts.changes:,} = {upserts.inserted:,} inserted + {upserts.updated:,} updated + "
            f"{upserts.deleted:,} deleted + {upserts.superseded:,} superseded + {upserts.void:,} without effect"
        )
    parts = [
        f"{count:,} {what}"
        for count, what in (
            (done.rows_before, "from before the oldest commit"),
            (done.rows_added, "written"),
            (done.replayed, "of replayed dead letters"),
            (-done.rows_rewound, "deleted by rewinds"),
        )
        if count
    ]
    sums = f" in the table: {', '.join(parts)}" if len(parts) > 1 else ""
    compared = ", compared by their own offsets" if done.deep else ""
    echo(f"  rows     {done.rows:,}{sums}{compared}")


def _print_partitions(done: Verification) -> None:
    lines = [("partition", "landed", "in the topic", "lag")]
    for each in done.partitions:
        there = "-" if each.topic_start is None else f"[{each.topic_start}, {each.topic_end})"
        lag = "-" if each.lag is None else f"{each.lag:,}"
        lines.append((f"{each.topic}-{each.partition}", f"[{each.start}, {each.end})", there, lag))
    for line in aligned(lines, left=1):
        echo(f"  {line}")
