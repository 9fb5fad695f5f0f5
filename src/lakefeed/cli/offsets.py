"""``lakefeed offsets``: shows a feed's offsets, and moves the feed to other offsets."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.exceptions import Exit

import lakefeed
from lakefeed.cli.options import (
    CommandGroup,
    output_option,
    parts_of,
    pipeline_argument,
    topic_option,
)
from lakefeed.cli.output import column_lines, emit, figure, span, styled
from lakefeed.clients.spark.session import log_path

if TYPE_CHECKING:
    from lakefeed.operations.status import FeedStatus


@click.group(cls=CommandGroup)
def offsets() -> None:
    """Show or move a feed's offsets in its checkpoint, ledger and consumer group."""


@offsets.command()
@pipeline_argument
@topic_option
@output_option
def show(pipeline: Path, topic: str | None) -> None:
    """Show PIPELINE's offsets, and what a start would do now.

    Changes nothing, and may run beside the feed. Starts Spark only if the transform has changed since the last start,
    to find out which state the transform keeps.

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
