"""``lakefeed export-offsets``: hands a feed's position to another tool."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

import lakefeed
from lakefeed.cli.options import output_option, pipeline_argument, yes_option
from lakefeed.cli.output import echo, echo_columns, emit

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
@click.option("--dry-run", is_flag=True, help="Only say what would be done.")
@yes_option
@output_option
def export_offsets(pipeline: Path, target: str, topic: str | None, stopped: bool, dry_run: bool, yes: bool) -> None:
    """Hand the position of PIPELINE to another tool, which begins exactly where the feed has ended.

    The feed has to be stopped, and must not be started again. Starts no Spark. Called again, it changes nothing.
    """
    from lakefeed_adopt.export import ExportTarget, execute_export, plan_export

    declared = lakefeed.Pipeline.from_file(pipeline, to_run=False)
    if declared.config.has_many_tables:
        if topic is None:
            raise click.UsageError("each topic has a table of its own: --topic says whose position is exported")
        declared = declared.of_topic(topic)
    agreed = plan_export(declared.feed, ExportTarget.parse(target), is_stopped=stopped)
    if dry_run:
        emit({**agreed.as_dict(), "done": False}, lambda: _print_plan(agreed))
        return
    if not yes:
        _print_plan(agreed, err=True)
        click.confirm("Export the position?", abort=True, err=True)
    execute_export(declared.feed, agreed)

    def text() -> None:
        _print_plan(agreed)
        echo("done; the other tool resumes there, and the feed must not be started again")

    emit({**agreed.as_dict(), "done": True}, text)


def _print_plan(agreed: ExportPlan, *, err: bool = False) -> None:
    echo(f"the position of {agreed.feed} in {agreed.sink} goes to {agreed.target}:", err=err)
    lines = [("partition", "begins at", "before")]
    for (topic, partition), at in sorted(agreed.offsets.items()):
        before = agreed.before.get((topic, partition))
        lines.append((f"{topic}-{partition}", f"{at}", "-" if before is None else f"{before}"))
    echo_columns(lines, left=1, err=err)
