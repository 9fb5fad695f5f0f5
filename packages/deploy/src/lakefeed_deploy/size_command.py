"""``lakefeed deploy size``: the partitions, executors, memory, batches and files that a rate of records needs."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

import lakefeed
from lakefeed.cli.options import FILE, output_option, pipeline_argument, set_option
from lakefeed.cli.output import emit, field_lines, size_text, styled, terminal_width
from lakefeed.clients.environment import measured_throughput

if TYPE_CHECKING:
    from lakefeed_deploy.sizing import Sizing


@click.command()
@pipeline_argument
@click.option("--target-rate", metavar="RATE", required=True, help="Records/time: 1_000_000/s, 112M/10min.")
@click.option("--measured", type=FILE, help="JSON of lakefeed-bench throughput.  [default: the last]")
@click.option("--topics", type=click.IntRange(1), help="How many topics.  [default: the file's]")
@click.option("--partitions", type=click.IntRange(1), help="Partitions of all topics.  [default: as needed]")
@set_option
@output_option
def size(
    pipeline: Path,
    target_rate: str,
    measured: Path | None,
    topics: int | None,
    partitions: int | None,
    overrides: tuple[str, ...],
) -> None:
    """Size the feed of PIPELINE for a rate: partitions, executors, memory, batches, files and S3 requests.

    Asks no server: the figures follow from what lakefeed-bench throughput has measured on this machine.
    """
    from lakefeed_deploy.sizing import FeedLoad, MachineSpeed, parse_rate, size

    rate = parse_rate(target_rate)
    config = lakefeed.Pipeline.from_file(pipeline, overrides=overrides).config
    load = FeedLoad.of(rate, config, topics=topics, partitions=partitions)
    found = size(load, MachineSpeed.read(measured or measured_throughput(), sink=config.sink.kind))
    emit(found.as_dict(), _lines(config.name, found))


def _lines(name: str, found: Sizing) -> Iterator[str]:
    yield styled(f"{name}: {found.rate:,.0f} records/s\n", bold=True)
    for figure in found.figures:
        number = f"{figure.value:,}" if figure.value == int(figure.value) else f"{figure.value:,.2f}"
        value = size_text(figure.value) if figure.unit == "B" else f"{number} {figure.unit}".rstrip()
        basis = textwrap.wrap(figure.rests_on, terminal_width(40, 140, less=40)) or [""]
        yield f"  {figure.name:<22}{value:>14}  {basis[0]}"
        for more in basis[1:]:
            yield " " * 40 + more
    yield ""
    for assumption in found.assumptions:
        yield from field_lines("assumes", assumption)
    for warning in found.warnings:
        yield from field_lines("warning", warning, colour="yellow")
