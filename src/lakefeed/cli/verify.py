"""``lakefeed verify``: proves from the table and the broker that each record has landed exactly once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.exceptions import Exit

import lakefeed
from lakefeed.cli.options import options_of_packages, output_option, parts_of, pipeline_argument, topic_option
from lakefeed.cli.output import column_lines, emit, figure, first_lines, span, styled
from lakefeed.messages.printable import counted

if TYPE_CHECKING:
    from lakefeed.operations.verify import Verification

MOST_FINDINGS_SHOWN = 50
MOST_TABLES_SHOWN = 10


@click.command(epilog=options_of_packages("verify"))
@pipeline_argument
@click.option("--deep", is_flag=True, help="Also compare the rows' own offsets, if the table has their columns.")
@topic_option
@output_option
def verify(pipeline: Path, deep: bool, topic: str | None) -> None:
    """Prove that each record landed once, or list the faults.

    Compares the offset ranges and counts in the table's snapshots with the dead letters and the broker's offsets.
    Starts no Spark, changes nothing, and may run beside the feed.

    Exit status: 0 without faults, 1 with a fault, 2 if the feed cannot be verified.
    """
    declared = lakefeed.Pipeline.from_file(pipeline, to_run=False)
    all_done = [part.verify(deep=deep) for part in parts_of(declared, topic)]
    has_faults = any(done.faults for done in all_done)
    if topic is not None or not declared.config.has_many_tables:
        emit(all_done[0].as_dict(), _lines(all_done[0]))
    else:
        document = {"verified": not has_faults, "tables": [done.as_dict() for done in all_done]}
        emit(document, _all_lines(all_done))
    raise Exit(1 if has_faults else 0)


def _all_lines(all_done: list[Verification]) -> Iterator[str]:
    """Yield a short summary of each table without faults, then the full result of each table with faults."""
    for done in all_done:
        if not done.faults:
            yield from _verdict_lines(done)
            if done.commits:
                yield f"  {done.commits:,} commits, {done.records:,} records, {done.rows:,} rows"
    for done in all_done:
        if done.faults:
            yield from _lines(done)


def _verdict_lines(done: Verification) -> Iterator[str]:
    color, verdict = "green", "each record once"
    if done.faults:
        color, verdict = "red", f"{len(done.faults):,} fault{'s' if len(done.faults) > 1 else ''}"
    elif not done.commits:
        color, verdict = "yellow", "no commits yet"
    yield styled(f"{done.feed} in {done.table}: ") + styled(verdict, fg=color, bold=True)


def _lines(done: Verification) -> Iterator[str]:
    yield from _verdict_lines(done)
    if done.commits:
        yield ""
        yield from _sum_lines(done)
        yield ""
        lines = [("partition", "landed", "in the topic", "lag")]
        for part in done.partitions:
            name, landed = f"{part.topic}-{part.partition}", span(part.start, part.end)
            lines.append((name, landed, span(part.topic_start, part.topic_end), figure(part.lag)))
        yield from column_lines(lines, left=1)
    for title, found in (("faults", done.faults), ("notes", done.notes)):
        if found:
            yield f"\n{title}"
        yield from first_lines([f"{finding.kind:<16} {finding.what}" for finding in found], most=MOST_FINDINGS_SHOWN)


def _sum_lines(done: Verification) -> Iterator[str]:
    since = "all commits" if done.whole else "older commits have expired"
    backfills = f", and {done.backfills:,} of backfills" if done.backfills else ""
    yield f"  commits  {done.commits:,}, batches {done.first_batch} to {done.last_batch}{backfills}: {since}"
    without = done.offsets - done.records
    hold = f", {without:,} without a record (transaction markers, aborted or compacted records)" if without else ""
    again = f", {done.offsets_again:,} read again after a rewind" if done.offsets_again else ""
    yield f"  offsets  {done.offsets:,}{again}{hold}"
    rest = done.records - done.dead_letters - done.skipped
    letters = counted(done.dead_letters, "dead letter")
    yield f"  records  {done.records:,} = {rest:,} good + {letters} + {done.skipped:,} skipped"
    if (upserts := done.upserts) is not None:
        yield (
            f"  changes  {upserts.changes:,} = {upserts.inserted:,} inserted + {upserts.updated:,} updated + "
            f"{upserts.deleted:,} deleted + {upserts.superseded:,} superseded + {upserts.void:,} without effect"
        )
    rows = {
        "from before the oldest commit": done.rows_before,
        "written": done.rows_added,
        "of replayed dead letters": done.replayed,
        "deleted by rewinds": -done.rows_rewound,
    }
    parts = [f"{count:,} {origin}" for origin, count in rows.items() if count]
    sums = f" in the table: {', '.join(parts)}" if len(parts) > 1 else ""
    compared = ", compared by their own offsets" if done.deep else ""
    yield f"  rows     {done.rows:,}{sums}{compared}"
    if done.tables:
        shown = [f"{name} {rows:,}" for name, rows in done.tables.items()]
        more = f", and {len(shown) - MOST_TABLES_SHOWN:,} more" if len(shown) > MOST_TABLES_SHOWN else ""
        yield f"  tables   {len(shown):,}: {', '.join(shown[:MOST_TABLES_SHOWN])}{more}"
    if done.files:
        yield f"  files    {done.files:,} of the newest snapshots are in the store, with the right size"
