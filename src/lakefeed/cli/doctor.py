"""``lakefeed doctor``: whether this machine has what a run needs."""

from __future__ import annotations

import click
from click.exceptions import Exit

from lakefeed.cli.options import output_option
from lakefeed.cli.output import echo, emit
from lakefeed.operations.doctor import Diagnosis, examine

COLOURS = {"ok": "green", "warning": "yellow", "error": "red"}


@click.command()
@output_option
def doctor() -> None:
    """Examine this machine: Java, Python, versions, jars, memory, disk, ports, clock, and what the store can do.

    Exit status: 1 if a run cannot work here, 0 otherwise. What a pipeline file points at: lakefeed check --connect.
    """
    findings = examine()
    emit({"findings": [finding.as_dict() for finding in findings]}, lambda: _print(findings))
    raise Exit(1 if any(finding.verdict == "error" for finding in findings) else 0)


def _print(findings: list[Diagnosis]) -> None:
    for finding in findings:
        echo(f"{finding.verdict:<8}", nl=False, fg=COLOURS[finding.verdict])
        echo(f"{finding.name:<16} {finding.what}")
        if finding.hint:
            echo(f"{'next:':>24} {finding.hint}")
