"""``lakefeed test``: run the cases of a pipeline, without broker, registry or store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.exceptions import Exit

from lakefeed.cli.options import output_option, pipeline_argument, set_option
from lakefeed.cli.output import emit, first_lines, styled
from lakefeed.messages.printable import counted

if TYPE_CHECKING:
    from lakefeed_testing.run import CaseResult, TestReport

MOST_DIFFERENCES_SHOWN = 50


@click.command()
@pipeline_argument
@click.option(
    "--cases",
    "paths",
    multiple=True,
    type=click.Path(path_type=Path, exists=True),
    help="A file with cases, or a folder of such files; repeatable.",
)
@click.option("--case", "names", multiple=True, metavar="NAME", help="Only this case; repeatable.")
@set_option
@output_option
def test(pipeline: Path, paths: tuple[Path, ...], names: tuple[str, ...], overrides: tuple[str, ...]) -> None:
    """Run the cases of PIPELINE, and compare their results.

    Compares rows, dead letters and skipped records. Records pass the feed's own decoder, expectations, transform and
    sink, on a local Spark, into tables in a temporary folder. Uses no broker, registry or store, and changes no data.

    Exit status: 0 if all cases pass, 1 if one fails, 2 if a case or the pipeline file is wrong.
    """
    from lakefeed_testing.load import load_cases
    from lakefeed_testing.run import run_files

    report = run_files(pipeline, load_cases(pipeline, paths, overrides=overrides), names=names)
    emit(report.as_dict(), _lines(report))
    raise Exit(1 if report.failed else 0)


def _lines(report: TestReport) -> Iterator[str]:
    for result in report.results:
        yield from _case_lines(result)
    yield ""
    yield styled(report.headline, fg="red" if report.failed else "green", bold=True)


def _case_lines(result: CaseResult) -> Iterator[str]:
    verdict, color = ("ok", "green") if result.has_passed else ("failed", "red")
    found = result.outcome
    made = ", ".join(
        (
            counted(result.records, "record"),
            counted(len(found.rows), "row"),
            *([counted(len(found.dead_letters), "dead letter")] if found.dead_letters else []),
            *([f"{found.skipped} skipped"] if found.skipped else []),
        )
    )
    yield styled(f"{verdict:<7} ", fg=color, bold=True) + f"{result.case}: {made} in {result.seconds:.1f} s"
    if not result.has_passed:
        yield f"  {result.where}"
        yield from first_lines([difference.what for difference in result.differences], most=MOST_DIFFERENCES_SHOWN)
