"""``lakefeed quickstart``: start servers, fill a topic, land it in a table and query the table."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import click

from lakefeed.cli.options import FOLDER, output_option
from lakefeed.cli.output import echo, emit, styled
from lakefeed.clients.environment import ENDPOINT_VARIABLES
from lakefeed.errors import MissingExtra
from lakefeed.messages.pages import page_command
from lakefeed.messages.text import duration
from lakefeed_local.demo_command import path_lines

PAGE = "quickstart"

STEPS = 5


@click.command()
@click.argument("folder", type=FOLDER, default="lakefeed-quickstart")
@click.option("--rows", type=click.IntRange(1), default=10_000, show_default=True, help="Trips in a new topic.")
@click.option("--keep/--stop", default=True, help="Leave the servers up afterwards, or stop them.  [default: keep]")
@output_option
def quickstart(folder: Path, rows: int, keep: bool) -> None:
    """Start servers, fill a topic, land it and query the table.

    The servers are the local stack: Kafka and a schema registry as processes of this machine. FOLDER gets
    pipeline.yaml, query.py and lake/ with the table, so that no S3 store is needed. A second run only does the missing
    steps.
    """
    for package, extra in (("pyspark", "spark"), ("pyiceberg", "read"), ("duckdb", "read")):
        if find_spec(package) is None:
            raise MissingExtra.of(package, extra, "lakefeed quickstart")
    from lakefeed_local.local_command import shown_steps
    from lakefeed_local.quickstart import PIPELINE, QUERY, TABLE, TOPIC, Quickstart, require_ready_machine
    from lakefeed_local.stack import Stack

    require_ready_machine()
    seconds: dict[str, float] = {}
    stack = Stack()
    began = time.monotonic()
    try:
        with (
            _step(seconds, 1, "servers", "Kafka and a schema registry, as processes of this machine"),
            shown_steps() as progress,
        ):
            endpoints = stack.up(progress=progress)
        work = Quickstart(folder, {**os.environ, **endpoints.as_environment()})
        with work.spark_ends():
            with _step(seconds, 2, "topic", f"{TOPIC}: taxi trips in Avro, their schema in the registry") as done:
                records, is_new = work.fill_topic(rows)
                done(f"{records:,} records" if is_new else _records_there(TOPIC, records, least=rows))
            with _step(seconds, 3, "file", f"{folder / PIPELINE}: which topic lands in which table") as done:
                done("written by lakefeed init" if work.write_files() else "it is there already, and kept")
            with _step(seconds, 4, "run", "each record lands in the table once, whatever is killed") as done:
                landed = work.land()
                done(f"{landed.rows:,} rows in {TABLE}" if landed.is_new else "the table has all records already")
        with _step(seconds, 5, "query", f"{folder / QUERY}: the table in DuckDB, without Spark"):
            answer = work.query()
    finally:
        if not keep:
            stack.down()
    document = {
        "folder": str(work.folder),
        "pipeline": str(work.file),
        "topic": TOPIC,
        "records": records,
        "table": TABLE,
        "rows": landed.rows,
        "seconds": {name: round(value, 3) for name, value in seconds.items()},
        "servers": "up" if keep else "down",
    }
    took = duration(time.monotonic() - began)
    emit(document, _lines(answer, folder=folder, topic=TOPIC, records=records, keep=keep, took=took))


@contextmanager
def _step(seconds: dict[str, float], number: int, name: str, text: str) -> Iterator[_Done]:
    """Print a step, and at the end of the block its result and duration; yield the function that sets the result."""
    echo(styled(f"{number}/{STEPS} ", bold=True) + text, err=True)
    done, began = _Done(), time.monotonic()
    yield done
    seconds[name] = time.monotonic() - began
    echo(styled(f"    {done.text} ({seconds[name]:.1f} s)", fg="green"), err=True)


class _Done:
    text = "done"

    def __call__(self, text: str) -> None:
        self.text = text


def _records_there(topic: str, records: int, *, least: int) -> str:
    """Return a phrase with the number of records; after an interrupted run, add the command that produces the rest."""
    there = f"it has {records:,} records already"
    if records >= least:
        return there
    more = f"lakefeed topics produce {topic} --generate taxi --rows {least - records} --start {records}"
    return f"{there}; for {least:,}: {more}"


def _lines(answer: str, *, folder: Path, topic: str, records: int, keep: bool, took: str) -> Iterator[str]:
    yield f"\n{answer}\n"
    yield f"From nothing to a query in {took}. The servers are {'up' if keep else 'down, their data kept'}. Next:\n"
    yield from (f"  {line}" for line in path_lines())
    # With these variables, the commands would use other servers than the local stack.
    if set_here := sorted(ENDPOINT_VARIABLES & os.environ.keys()):
        yield f"  unset {' '.join(set_here)}   # they name other servers"
    if not keep:
        yield "  lakefeed local up"
    yield f"  cd {shlex.quote(str(folder))}"
    yield f"  lakefeed topics produce {topic} --generate taxi --rows 5000 --start {records}   # more trips"
    yield "  lakefeed run --once && python query.py                                  # land them, look again"
    yield f"\nYour own topic: {page_command('quickstart')}. Stop the servers: lakefeed local down"
