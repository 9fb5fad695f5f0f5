"""``lakefeed publish``: audits a table's branch, and publishes it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.exceptions import Exit

import lakefeed
from lakefeed.cli.options import (
    log_file_option,
    master_option,
    output_option,
    parts_of,
    pipeline_argument,
    set_option,
    topic_option,
    yes_option,
)
from lakefeed.cli.output import echo, emit
from lakefeed.clients.spark.session import log_path
from lakefeed.errors import AuditFailed

if TYPE_CHECKING:
    from lakefeed.ledger.publication import Publication


@click.command()
@pipeline_argument
@topic_option
@click.option("--dry-run", is_flag=True, help="Audit, and publish nothing.")
@click.option(
    "--discard", is_flag=True, help="Publish nothing: drop the rows that are not published, and read them again."
)
@set_option
@yes_option
@master_option
@log_file_option
@output_option
def publish(
    pipeline: Path,
    topic: str | None,
    dry_run: bool,
    discard: bool,
    overrides: tuple[str, ...],
    yes: bool,
    master: str | None,
    log_file: Path | None,
) -> None:
    """Audit the branch that PIPELINE lands in, and publish it if the table is as publish.expect says.

    Moves the table that readers see to the snapshot that was audited, and only forward: if another writer has committed
    to it, it is refused. May run beside the feed. Called again, it changes nothing.

    With --discard the branch goes back to the table that readers see: a feed that runs is stopped, and its next start
    reads the records of the dropped rows again.

    Exit status: 1 if the audit of a table has failed.
    """
    from lakefeed.clients.spark.errors import translating
    from lakefeed.operations.publish import discard_branch, publish_branch

    if discard and dry_run:
        raise click.UsageError("--discard and --dry-run exclude each other")
    declared = lakefeed.Pipeline.from_file(pipeline, overrides=overrides)
    parts = parts_of(declared, topic)
    names = ", ".join(part.config.sink.ledger_table for part in parts)
    if discard and not yes:
        click.confirm(f"Drop the rows of {names} that are not published, and stop the feed?", abort=True, err=True)
    spark = declared.session(master=master, log_file=log_file or log_path(f"{declared.config.name}-publish"))
    with translating():
        if discard:
            for part in parts:
                discard_branch(part.feed, spark)
            emit({"discarded": True}, lambda: echo(f"{names}: lakefeed run reads the records again"))
            return
        done = [publish_branch(part.feed, spark, dry_run=dry_run) for part in parts]
    emit({"tables": [each.as_dict() for each in done]}, lambda: _print(done))
    if any(each.state == "failed" for each in done):
        raise Exit(AuditFailed.exit_status)


def _print(done: list[Publication]) -> None:
    for each in done:
        echo(each.sentence, fg="red" if each.state == "failed" else None)
