"""``lakefeed backfill``: lands old records in a feed's table, beside the running feed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

import lakefeed
from lakefeed.cli.options import (
    dry_run_option,
    log_file_option,
    master_option,
    output_option,
    pipeline_argument,
    set_option,
    topic_option,
)
from lakefeed.cli.output import emit, first_lines
from lakefeed.clients.spark.session import log_path
from lakefeed.clients.spark.signals import stop_on_signals
from lakefeed.offsets.ranges import OffsetRange

if TYPE_CHECKING:
    from lakefeed_repair.backfill import BackfillCommit, BackfillRequest, BackfillSummary

PAGE = "read-and-backfill"

MOST_RANGES_SHOWN = 20


@click.command()
@pipeline_argument
@click.option(
    "--from",
    "start",
    metavar="earliest|OFFSET|TIME",
    default="earliest",
    show_default=True,
    help="Land only records from this position on, in all partitions.",
)
@click.option(
    "--range",
    "ranges",
    multiple=True,
    metavar="TOPIC:PARTITION:START:END",
    help="Land only records of these offsets; repeatable.",
)
@topic_option
@dry_run_option
@set_option
@master_option
@log_file_option
@output_option
def backfill(
    pipeline: Path,
    start: str,
    ranges: tuple[str, ...],
    topic: str | None,
    dry_run: bool,
    overrides: tuple[str, ...],
    master: str | None,
    log_file: Path | None,
) -> None:
    """Land old records of PIPELINE's topics, exactly once.

    Lands records that the table lacks and the feed will never read, because it began after them or was moved past them.
    May run beside the feed, and does not change its position. A commit has at most max_records_per_batch records.

    SIGTERM, SIGHUP and Ctrl-C end the backfill after the current commit, with status 0; a second Ctrl-C ends it
    immediately, with 130. After any end, the next backfill lands the remaining records.
    """
    from lakefeed.monitor.terminal.progress_view import ProgressView
    from lakefeed_repair.backfill import backfill as land

    request = _request(start, ranges)
    declared = lakefeed.Pipeline.from_file(pipeline, overrides=overrides)
    declared = declared.of_topic(topic) if topic is not None else declared
    name = declared.config.name
    log_file = log_file or log_path(f"{name}-backfill")
    with ProgressView(f"{name} backfill") as view:
        view.note(f"starting; Spark's log is {log_file}")
        spark = declared.session(master=master, log_file=log_file)

        def show(commit: BackfillCommit) -> None:
            for note in commit.notes:
                view.note(note)
            dead_letters = commit.counts.dead_letters
            view.note(
                f"commit {commit.number} of {commit.of} · in {commit.counts.records:,} · out {commit.rows:,}"
                + (f" · dead letters {dead_letters:,}" if dead_letters else "")
                + f" · {commit.seconds:.1f} s"
            )

        with stop_on_signals(view.note) as stop:
            done = land(declared, request, spark=spark, dry_run=dry_run, stop=stop, on_commit=show)
    emit(done.as_dict(), _lines(name, done))


def _request(start: str, ranges: tuple[str, ...]) -> BackfillRequest:
    from lakefeed.clients.kafka.selection import moment
    from lakefeed_repair.backfill import BackfillRequest

    chosen = tuple(OffsetRange.parse(text) for text in ranges) or None
    if start == "earliest":
        return BackfillRequest(ranges=chosen)
    if start.isdecimal() and len(start) < 19:
        return BackfillRequest(ranges=chosen, start=int(start))
    return BackfillRequest(ranges=chosen, since=moment(start))


def _lines(feed: str, done: BackfillSummary) -> Iterator[str]:
    if done.settled:
        yield f"wrote {done.settled:,} dead letters of an interrupted backfill"
    if not done.planned.offsets:
        yield f"{feed}: the table lacks no record that the topics still have"
    elif done.dry_run:
        yield f"{feed}: would land {done.planned.offsets:,} missing offsets in {done.commits:,} commits"
        yield from first_lines(done.planned.ranges, most=MOST_RANGES_SHOWN)
    else:
        yield (
            f"{feed}: {done.commits:,} commits, {done.records:,} records of {done.planned.offsets:,} offsets, "
            f"{done.rows:,} rows, {done.dead_letters:,} dead letters, {done.skipped:,} skipped in {done.seconds:.1f} s"
            + ("; stopped before the end, the next backfill resumes" if done.stopped else "")
        )
    if done.planned.gone:
        gone = sum(lost.records for lost in done.planned.gone)
        yield f"neither the table nor the topics have these {gone:,} offsets:"
        yield from first_lines(done.planned.gone, most=MOST_RANGES_SHOWN)
