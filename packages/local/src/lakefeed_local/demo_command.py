"""``lakefeed local demo``: produce, land and verify taxi trips on the local stack."""

from __future__ import annotations

import shlex
import shutil
import sys
from collections.abc import Iterator
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.exceptions import Exit

from lakefeed.cli.options import output_option, own_home_option
from lakefeed.cli.output import echo, emit, is_json
from lakefeed.clients.environment import default_home
from lakefeed.errors import MissingExtra

if TYPE_CHECKING:
    from lakefeed_local.demo import DemoReport


@click.command()
@click.option("--rows", type=click.IntRange(1), default=1_000_000, show_default=True, help="Trips to generate.")
@click.option(
    "--csv",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Use these trips instead: a CSV file with the 17 columns of New York's taxi data.",
)
@click.option("--keep", is_flag=True, help="Leave the stack running afterwards.")
@own_home_option("demo", folder="demo", earlier="demo")
@click.option("--store", help="Object store: s3proxy, minio or versitygw.  [default: s3proxy]")
@output_option
def demo(rows: int, csv: Path | None, keep: bool, home: Path | None, store: str | None) -> None:
    """Run the taxi pipeline on the embedded stack, and verify it.

    Starts Kafka, Schema Registry and an S3 store, produces taxi trips into a topic of 10 partitions, lands them
    in an Iceberg table with the pipeline of examples/taxi, reads the table without Spark, and compares count,
    distinct keys and sums with the produced trips. The status is 1 if they differ.

    Ctrl-C, SIGTERM and SIGHUP stop the stack, unless --keep is given; the status is 130, 143 or 129.
    """
    for package, extra in (("pyspark", "spark"), ("pyiceberg", "read"), ("duckdb", "read")):
        if find_spec(package) is None:
            raise MissingExtra.of(package, extra, "lakefeed local demo")
    from lakefeed_local.demo import run_demo
    from lakefeed_local.local_command import fresh_stack

    home = home or default_home() / "demo"
    with fresh_stack(home, store=store, keep=keep) as endpoints:
        report = run_demo(endpoints, rows=rows, csv=csv, say=lambda text: echo(f"demo: {text}", err=True))
    if is_json():
        emit(asdict(report), "")
    else:
        _print(report, home=home, keep=keep)
    raise Exit(0 if report.verified else 1)


def _print(report: DemoReport, *, home: Path, keep: bool) -> None:
    from rich.console import Console
    from rich.table import Table

    from lakefeed.messages.text import duration

    console = Console(highlight=False)
    table = Table(show_header=False, box=None, padding=(0, 2))
    verdict = "[green]yes[/]: count, distinct keys and sums equal" if report.verified else "[red]NO[/]"
    table.add_row("produced", f"{report.produced:,} records ({report.produce_rows_per_second:,}/s)")
    table.add_row("landed", f"{report.rows:,} rows ({report.rows_per_second:,}/s, the cold start included)")
    table.add_row("dead letters", f"{report.dead_letters:,}")
    table.add_row("batches", f"{report.batches} in {duration(report.seconds)}")
    table.add_row("files", f"{report.files}")
    table.add_row("S3 requests", f"{report.s3_requests:,}")
    table.add_row("table", report.table)
    table.add_row("warehouse", report.warehouse)
    table.add_row("verified", verdict)
    console.print(table)
    if not report.verified:
        console.print(f"\nproduced: {report.expected}\nin the table: {report.found}", markup=False)
    console.print(_look_around(report.table, home=home, keep=keep), markup=False, soft_wrap=True)


def _look_around(table: str, *, home: Path, keep: bool) -> str:
    """Return the text with commands that explore the result; they also work in a shell without lakefeed's variables."""
    from lakefeed_local.examples import packaged_example

    commands = [f"export LAKEFEED_HOME={shlex.quote(str(home.absolute()))}", *path_lines()]
    if not keep:
        commands.append("lakefeed local up")
    commands += [
        'eval "$(lakefeed local env)"',
        f"lakefeed verify {shlex.quote(str(packaged_example('taxi').main))}",
        f"python -c \"import lakefeed; print(lakefeed.open_table('{table}').scan(limit=5).to_arrow())\"",
    ]
    lines = "".join(f"  {command}\n" for command in commands)
    return (
        f"\nLook around; the stack is {'still up' if keep else 'down, its data are kept'}:\n{lines}"
        "Next: lakefeed init --topic nyc-avro-topic, lakefeed check pipeline.yaml, lakefeed run pipeline.yaml"
    )


def path_lines() -> Iterator[str]:
    """Yield the command that adds lakefeed to the shell's PATH, unless the PATH has it already."""
    own = Path(sys.executable).parent
    if shutil.which("lakefeed") != str(own / "lakefeed"):
        yield f'export PATH={shlex.quote(str(own))}:"$PATH"'
