"""``lakefeed bench``: measurements that can be repeated."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.exceptions import Exit

from lakefeed.bench.cases import (
    LIMIT,
    MANAGERS,
    SHORT_COMMANDS,
    SINKS,
    USUAL_WAYS,
    WAYS,
    Manager,
    ShortCommand,
    Sink,
    Workload,
    matrix,
    workload,
)
from lakefeed.bench.scale_dimensions import DIMENSION_NAMES, DimensionName, bounds_of, chosen
from lakefeed.cli.options import FILE, output_option, own_home_option
from lakefeed.cli.output import echo, emit, is_json
from lakefeed.clients.environment import default_home, measured_throughput
from lakefeed.clients.spark.session import log_path, session
from lakefeed.errors import ResourceMissing

if TYPE_CHECKING:
    from lakefeed.bench.latency import Target
    from lakefeed.bench.produce_jobs import Input

STORES = ("minio", "s3proxy", "versitygw")
INPUTS: tuple[Input, ...] = ("csv", "parquet", "generated")
SCHEMAS = ("taxi", "nested", "logical")  # Of lakefeed.bench.decode.CASES.


@click.group()
def bench() -> None:
    """Measure against real servers on this machine, and repeat what others have published."""


@bench.command("s3-requests")
@click.option(
    "--workload",
    "name",
    type=click.Choice(["six", "steady"]),
    default="six",
    show_default=True,
    help="six: 6 batches of 10 files. steady: 200 small ones, with log compaction and purging.",
)
@click.option("--rows", type=click.IntRange(1), help="Trips in the topic.  [default: six 6000000, steady 20000]")
@click.option("--batches", type=click.IntRange(2), help="Micro-batches.  [default: six 6, steady 200]")
@click.option("--partitions", type=click.IntRange(1), help="Files a batch.  [default: six 10, steady 1]")
@click.option("--manager", "managers", type=click.Choice(MANAGERS), multiple=True, help="Only this; again for more.")
@click.option("--sink", "sinks", type=click.Choice(SINKS), multiple=True, help="Only this; again for more.")
@click.option("--versioned/--plain", default=None, help="Only buckets with, or without, versions.")
@own_home_option("bench", folder="bench")
@output_option
def s3_requests(
    name: str,
    managers: tuple[Manager, ...],
    sinks: tuple[Sink, ...],
    versioned: bool | None,
    home: Path | None,
    **sizes: int | None,
) -> None:
    """Count the requests that a stream makes to S3, by checkpoint manager, sink and kind of bucket.

    The referee is MinIO's own trace. The JVM's meter must agree with it exactly, API by API, and the table must
    have every row of the topic; if either fails the status is 1. MinIO and its client are built from source at
    the first use, which takes minutes and needs Go.
    """
    from lakefeed.bench.s3_requests import Bench, case_report, comparison
    from lakefeed.cli.local import fresh_stack

    work = workload(name, **sizes)
    versions = (False, True) if versioned is None else (versioned,)
    home = home or default_home() / "bench"
    measured = []
    with fresh_stack(home, store="minio") as endpoints:
        running = Bench(endpoints, home=home / "logs", say=_say)
        expected = running.fill_topic(work)
        for case in matrix(managers=managers or MANAGERS, sinks=sinks or SINKS, versioned=versions):
            measured.append(running.measure(case, work, expected=expected))
            if not is_json():
                echo(f"\n{case_report(measured[-1])}\n")
    emit([result.as_dict() for result in measured], comparison(measured, work))
    raise Exit(0 if all(result.meter_agrees and result.complete for result in measured) else 1)


@bench.command("monitor")
@click.option("--rows", type=click.IntRange(1), default=6_000_000, show_default=True, help="Trips in the topic.")
@click.option("--batches", type=click.IntRange(2), default=10, show_default=True, help="Micro-batches of a run.")
@click.option("--partitions", type=click.IntRange(1), default=2, show_default=True, help="Of the topic.")
@click.option("--pairs", type=click.IntRange(1), default=12, show_default=True, help="Paired runs that count.")
@own_home_option("bench", folder="monitor")
@output_option
def monitor(rows: int, batches: int, partitions: int, pairs: int, home: Path | None) -> None:
    """Measure what being watched costs a feed: throughput and S3 requests, with everything on and off.

    On: endpoint, an open dashboard with its stream of events, progress, metrics and health read every few seconds,
    monitoring group, lineage, notifications, the run's trace. The status is 1 if a loss above 2 % is shown, or if
    requests were added. MinIO is built from source at the first use, which needs Go.
    """
    from lakefeed.bench.monitor_cost import measure, table
    from lakefeed.bench.s3_requests import Bench
    from lakefeed.cli.local import fresh_stack

    work = Workload(name="monitor", rows=rows, batches=batches, partitions=partitions)
    home = home or default_home() / "monitor"
    with fresh_stack(home, store="minio") as endpoints:
        Bench(endpoints, home=home / "logs", say=_say).fill_topic(work)
        cost = measure(work, endpoints, pairs=pairs, home=home / "logs", say=_say)
    emit(cost.as_dict(), table(cost, work))
    raise Exit(0 if cost.holds else 1)


@bench.command("decode")
@click.option("--rows", type=click.IntRange(1), default=1_000_000, show_default=True, help="Records in memory.")
@click.option("--rounds", type=click.IntRange(1), default=9, show_default=True, help="Turns of each decoder.")
@click.option("--schema", "names", type=click.Choice(SCHEMAS), multiple=True, help="Only this; again for more.")
@output_option
def decode(rows: int, rounds: int, names: tuple[str, ...]) -> None:
    """Measure the Avro decoder beside Spark's from_avro, in turns, on the same records in memory.

    The figure is the CPU time of the tasks, which other programs on the machine disturb least. It needs no server.
    """
    from lakefeed.bench.decode import CASES, compare, table
    from lakefeed.config.connections import Connections

    name, log_file = "bench-decode", log_path("bench-decode")
    with session(name, connections=Connections(), master="local[1]", log_file=log_file) as spark:
        compared = [compare(spark, CASES[name], rows=rows, rounds=rounds, say=_say) for name in names or CASES]
    emit([result.as_dict() for result in compared], table(compared))


@bench.command("latency")
@click.option(
    "--sink",
    "target",
    type=click.Choice(["table", "topic"]),
    default="table",
    show_default=True,
    help="Into an Iceberg table, or from topic to topic.",
)
@click.option("--rate", type=click.IntRange(1), default=1_000, show_default=True, help="Records a second.")
@click.option(
    "--seconds", type=click.IntRange(1), default=60, show_default=True, help="How long; 5 times the trigger at least."
)
@click.option("--warm-up", type=click.IntRange(0), default=30, show_default=True, help="Seconds that do not count.")
@click.option("--partitions", type=click.IntRange(1), default=1, show_default=True, help="Of the topic that is read.")
@click.option(
    "--trigger",
    "triggers",
    multiple=True,
    help="Only this, as in a pipeline file; again for more.  [default: into a table 100 milliseconds, 1 second, 10 "
    "seconds and 1 minute; into a topic 1 second and real-time]",
)
@click.option(
    "--checkpoint/--no-checkpoint",
    "keeps_checkpoint",
    default=True,
    show_default=True,
    help="Keep a checkpoint beside the table's ledger, or none.",
)
@click.option("--chart", type=FILE, help="Draw latency and cost of the triggers into an SVG file.")
@click.option("--store", type=click.Choice(STORES), default="minio", show_default=True)
@own_home_option("bench", folder="latency")
@output_option
def latency(
    target: Target,
    triggers: tuple[str, ...],
    keeps_checkpoint: bool,
    chart: Path | None,
    store: str,
    home: Path | None,
    **options: int,
) -> None:
    """Measure how long a record takes from its producer to a reader of the table, for each trigger in turn.

    p50, p99 and the slowest; data files and S3 requests an hour; and what a batch takes beside its tasks. With --sink
    topic to a reader of the topic that a pipeline writes to. If a record is missing, or is twice in the table, the
    status is 1. MinIO is built from source at the first use, which needs Go.
    """
    from lakefeed.bench.latency import TRIGGERS, LatencyBench, table, write_latency_chart
    from lakefeed.bench.latency_load import Load
    from lakefeed.cli.local import fresh_stack
    from lakefeed.config.connections import Connections
    from lakefeed.config.values import require_trigger

    chosen, load = triggers or TRIGGERS[target], Load(**options)
    for trigger in chosen:
        try:
            require_trigger(trigger)
        except ValueError as error:
            raise click.BadParameter(str(error), param_hint="--trigger") from None
    if chart is not None and not chart.absolute().parent.is_dir():
        raise ResourceMissing(
            "there is no such folder", where=str(chart.parent), hint="--chart FILE in one that exists"
        )
    home = home or default_home() / "latency"
    with fresh_stack(home, store=store if target == "table" else None) as endpoints:
        connections, log_file = Connections.from_environment(endpoints.as_environment()), log_path("bench-latency")
        master = f"local[{load.partitions + 1}]"
        with session("bench-latency", connections=connections, master=master, log_file=log_file) as spark:
            running = LatencyBench(
                spark=spark, endpoints=endpoints, home=home / "logs", say=_say, keeps_checkpoint=keeps_checkpoint
            )
            measured = [running.measure(trigger, target, load) for trigger in chosen]
    if chart is not None:
        write_latency_chart(chart, measured)
    emit([asdict(result) for result in measured], table(measured, load))
    raise Exit(0 if all(result.holds for result in measured) else 1)


@bench.command("first-seconds")
@click.option("--records", type=click.IntRange(1), default=1_000, show_default=True, help="New ones for each run.")
@click.option("--partitions", type=click.IntRange(1), default=1, show_default=True, help="Of the topic.")
@click.option("--runs", type=click.IntRange(1), default=3, show_default=True, help="Timed runs of each command.")
@click.option(
    "--command", "commands", type=click.Choice(SHORT_COMMANDS), multiple=True, help="Only this; again for more."
)
@click.option("--class-archive", is_flag=True, help="Write an archive of classes in the first round: see docs jars.")
@own_home_option("bench", folder="first-seconds")
@output_option
def first_seconds(
    records: int,
    partitions: int,
    runs: int,
    commands: tuple[ShortCommand, ...],
    class_archive: bool,
    home: Path | None,
) -> None:
    """Time short commands from start to end: --version, check, plan, and run --once on an existing table.

    Each is a process of its own, in turns, with warm caches: seconds, CPU seconds of all its processes, and its
    requests to S3 by the store's own trace. If a run has not landed exactly the new records the status is 1. MinIO is
    built from source at the first use, which needs Go.
    """
    from lakefeed.bench.first_seconds import FirstSecondsBench, table
    from lakefeed.cli.local import fresh_stack

    work = Workload(name="first-seconds", rows=records, batches=1, partitions=partitions)
    home = home or default_home() / "first-seconds"
    with fresh_stack(home, store="minio") as endpoints:
        running = FirstSecondsBench(endpoints=endpoints, home=home / "logs", say=_say, class_archive=class_archive)
        found = running.measure(work, commands or SHORT_COMMANDS, runs=runs)
    emit([result.as_dict() for result in found], table(found, work))
    raise Exit(0 if all(result.complete for result in found) else 1)


@bench.command("produce")
@click.option("--rows", type=click.IntRange(1), default=2_000_000, show_default=True, help="Trips to produce.")
@click.option("--partitions", type=click.IntRange(1), default=10, show_default=True, help="Of each topic.")
@click.option("--runs", type=click.IntRange(1), default=3, show_default=True, help="Timed runs of each producer.")
@click.option(
    "--input", "inputs", type=click.Choice(INPUTS), multiple=True, help="Only rows from there; again for more."
)
@own_home_option("bench", folder="produce")
@output_option
def produce(rows: int, partitions: int, runs: int, inputs: tuple[Input, ...], home: Path | None) -> None:
    """Measure lakefeed's producer beside the one that the seeds publish, on the same rows and in turns.

    Rows are read from CSV or Parquet files, or generated. The figure is rows for each second of the client's CPU time.
    Each topic is read and its rows are added up; if they differ from what was to be sent the status is 1.
    """
    from lakefeed.bench.produce import ProduceBench, as_dicts, table
    from lakefeed.cli.local import fresh_stack

    home = home or default_home() / "produce"
    with fresh_stack(home, store=None) as endpoints:
        running = ProduceBench(endpoints=endpoints, home=home / "logs", say=_say, partitions=partitions)
        found = running.measure(rows, inputs or INPUTS, runs=runs)
    emit(as_dicts(found), table(found))
    raise Exit(0 if all(result.rows_equal for result in found) else 1)


@bench.command("throughput")
@click.option("--rows", type=click.IntRange(1), default=10_000_000, show_default=True, help="Trips to generate.")
@click.option("--file", "csv", type=FILE, help="Produce the trips of a CSV file instead, with the seeds' 17 columns.")
@click.option("--batches", type=click.IntRange(2), default=6, show_default=True, help="Micro-batches of a run.")
@click.option("--partitions", type=click.IntRange(1), default=10, show_default=True, help="Of the topic.")
@click.option("--runs", type=click.IntRange(1), default=3, show_default=True, help="Timed runs of each case.")
@click.option(
    "--case",
    "cases",
    type=click.Choice([*WAYS, LIMIT]),
    multiple=True,
    help=f"Only this; again for more.  [default: {', '.join((*USUAL_WAYS, LIMIT))}]",
)
@click.option("--profile/--no-profile", default=True, show_default=True, help="A further run: CPU by stage.")
@click.option("--store", type=click.Choice(STORES), default="minio", show_default=True)
@own_home_option("bench", folder="throughput")
@output_option
def throughput(
    rows: int,
    csv: Path | None,
    batches: int,
    partitions: int,
    runs: int,
    cases: tuple[str, ...],
    profile: bool,
    store: str,
    home: Path | None,
) -> None:
    """Measure how fast a topic lands in Iceberg and Parquet, beside plain Spark, the seeds' way and the limits.

    The cases take turns, each in a warm JVM of its own, into new tables; a first round does not count. The figure is
    rows for each second of the client's CPU time. Each run's rows, their sums and the offsets of each partition are
    compared with the topic's; if they differ the status is 1. ``lakefeed plan --target-rate`` reads the newest result.
    """
    from lakefeed.bench.throughput import ThroughputBench, table
    from lakefeed.cli.local import fresh_stack
    from lakefeed.local.stack import Stack

    home = home or default_home() / "throughput"
    work = Workload(name="throughput", rows=rows, batches=batches, partitions=partitions)
    with fresh_stack(home, store=store) as endpoints:
        servers = {part.part: part.pid for part in Stack(home).status() if part.pid is not None}
        running = ThroughputBench(endpoints=endpoints, servers=servers, home=home / "logs", say=_say)
        chosen = cases or (*USUAL_WAYS, LIMIT)
        ways = [way for way in WAYS if way in chosen]
        found = running.measure(work, ways=ways, limit=LIMIT in chosen, runs=runs, profile=profile, csv=csv)
    if found.holds and ways:
        measured_throughput().parent.mkdir(parents=True, exist_ok=True)
        measured_throughput().write_text(json.dumps(found.as_dict(), indent=2) + "\n", "utf-8")
    emit(found.as_dict(), table(found))
    raise Exit(0 if found.holds else 1)


@bench.command("upserts")
@click.option("--rows", type=click.IntRange(1), default=300_000, show_default=True, help="Inserts, in a first batch.")
@click.option("--changes", type=click.IntRange(1), default=300_000, show_default=True, help="Random updates after it.")
@click.option("--columns", type=click.IntRange(1), default=10, show_default=True, help="Beside the key.")
@click.option("--rounds", type=click.IntRange(1), default=3, show_default=True, help="Pairs that count.")
@click.option("--store", type=click.Choice(STORES), default="s3proxy", show_default=True)
@own_home_option("bench", folder="upserts")
@output_option
def upserts(rows: int, changes: int, columns: int, rounds: int, store: str, home: Path | None) -> None:
    """Time upserts beside a foreachBatch of plain Spark that merges the newest change of each key, in turns.

    Each table is compared with the topic. The status is 1 if one differs, or if lakefeed takes longer.
    """
    from lakefeed.bench.upserts import UpsertWork, compare
    from lakefeed.cli.local import fresh_stack

    home, work = home or default_home() / "upserts", UpsertWork(rows=rows, changes=changes, columns=columns)
    with fresh_stack(home, store=store) as endpoints:
        found = compare(work, endpoints, rounds=rounds, home=home / "logs", say=_say)
    emit(
        found, f"lakefeed / plain, medians of the pairs: {found['ratio']} of the time, {found['cpu_ratio']} of the CPU"
    )
    raise Exit(0 if found["rows_equal"] and found["ratio"] <= 1 else 1)


@bench.command("scale")
@click.option(
    "--dimension", "names", type=click.Choice(DIMENSION_NAMES), multiple=True, help="Only this; again for more."
)
@click.option("--most", multiple=True, metavar="DIMENSION=NUMBER", help="Measure it up to here; again for more.")
@click.option("--rounds", type=click.IntRange(1), default=3, show_default=True, help="Runs of each size.")
@click.option("--charts", type=click.Path(file_okay=False, path_type=Path), help="Write scale-DIMENSION.svg there.")
@click.option("--store", type=click.Choice(STORES), default="minio", show_default=True)
@own_home_option("bench", folder="scale")
@output_option
def scale(
    names: tuple[DimensionName, ...],
    most: tuple[str, ...],
    rounds: int,
    charts: Path | None,
    store: str,
    home: Path | None,
) -> None:
    """Measure how the cost of a batch grows: with rows, partitions, columns, bytes, files, batches and topics.

    One of them grows, the others stay: CPU time, memory and S3 requests of a batch, and the exponent of each. The
    status is 1 if a cost surely grows faster than linear, if one grows with what only adds up (files, batches), if the
    driver's memory is not flat, or if a row is missing. All of it takes hours; --dimension and --most choose.
    """
    from lakefeed.bench.scale import ScaleBench, table, write_charts
    from lakefeed.cli.local import fresh_stack

    dimensions = chosen(names, bounds_of(most))
    home = home or default_home() / "scale"
    with fresh_stack(home, store=store) as endpoints:
        running = ScaleBench(endpoints=endpoints, home=home / "logs", say=_say)
        results = [running.measure(dimension, rounds=rounds) for dimension in dimensions]
    if charts is not None:
        for file in write_charts(results, charts):
            _say(f"{file} written")
    emit([result.as_dict() for result in results], table(results))
    raise Exit(0 if all(result.holds for result in results) else 1)


def _say(text: str) -> None:
    echo(f"bench: {text}", err=True)
