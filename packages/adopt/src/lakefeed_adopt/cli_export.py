"""``lakefeed offsets export``: hands a feed's position to another tool."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

import lakefeed
from lakefeed.cli.options import dry_run_option, one_part_of, output_option, pipeline_argument, yes_option
from lakefeed.cli.output import column_lines, emit, say

if TYPE_CHECKING:
    from lakefeed_adopt.export import ExportPlan


@click.command()
@pipeline_argument
@click.option(
    "--to",
    "target",
    required=True,
    metavar="TOOL:PLACE",
    help="Who gets the position: group:NAME, a consumer group without members; or spark-checkpoint:PATH, an empty "
    "checkpoint location for a plain job of Structured Streaming.",
)
@click.option("--topic", help="Only this topic. To be said where each topic has a table of its own.")
@click.option("--stopped", is_flag=True, help="The feed is stopped, although it has just committed.")
@dry_run_option
@yes_option
@output_option
def export(pipeline: Path, target: str, topic: str | None, stopped: bool, dry_run: bool, yes: bool) -> None:
    """Hand the position of PIPELINE to another tool, which begins exactly where the feed has ended.

    The feed has to be stopped, and must not be started again. Starts no Spark. Called again, it changes nothing.
    """
    from lakefeed_adopt.export import ExportTarget, execute_export, plan_export

    declared = lakefeed.Pipeline.from_file(pipeline, to_run=False)
    if declared.config.has_many_tables:
        declared = one_part_of(declared, topic)
    agreed = plan_export(declared.feed, ExportTarget.parse(target), is_stopped=stopped)
    if dry_run:
        emit({**agreed.as_dict(), "done": False}, _plan_lines(agreed))
        return
    if not yes:
        say(_plan_lines(agreed))
        click.confirm("Export the position?", abort=True, err=True)
    execute_export(declared.feed, agreed)

    def text() -> Iterator[str]:
        yield from _plan_lines(agreed)
        yield "done; the other tool resumes there, and the feed must not be started again"

    emit({**agreed.as_dict(), "done": True}, text())


def _plan_lines(agreed: ExportPlan) -> Iterator[str]:
    yield f"the position of {agreed.feed} in {agreed.sink} goes to {agreed.target}:"
    lines = [("partition", "begins at", "before")]
    for (topic, partition), at in sorted(agreed.offsets.items()):
        before = agreed.before.get((topic, partition))
        lines.append((f"{topic}-{partition}", f"{at}", "-" if before is None else f"{before}"))
    yield from column_lines(lines, left=1)
