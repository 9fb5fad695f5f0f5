"""Measure how the cost of a batch grows with the dimensions of a feed: ``lakefeed-bench scale``.

One dimension grows, the others are constant. A dimension has its own JVM, which runs all its sizes in turns: upwards in
one round, downwards in the next. The figures leave out the first batches; a figure is the mean over a run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import click

from lakefeed.cli.options import FOLDER
from lakefeed.errors import ConfigError
from lakefeed_bench import harness, jobs
from lakefeed_bench.charts import Chart, Points, write_charts
from lakefeed_bench.growth import CostGrowth, growth_of
from lakefeed_bench.harness import Bench, Outcome, Run, in_turns, measurement, median_of, number, store_option, table
from lakefeed_bench.jobs import Work
from lakefeed_bench.processes import KEEP_COMPILERS
from lakefeed_bench.scale_jobs import ScaleFigures, ScaleRun, create_topic, fill_topic, produce_columns, run_scale

MEGABYTE = 1_000_000
HEAP_MB = 64
"""The most that the driver's heap, measured after a collection, may grow in a run whose memory is flat. The heap holds
topics, files and batches, not records."""
_FIRST_BATCHES = 2
_SPARE_BATCHES = 8
"""A run that stops after its first batch, only to create its table, may have begun this many further batches."""
_UPKEEP = {"every": "20 seconds", "only": ["expire"], "expire": {"older_than": "20 seconds", "keep": 100}}
"""The maintenance of a feed with several commits per second: after 60 to 100 commits, like an hourly one of a feed that
commits every minute. Manifests are not rewritten: that Spark job's memory would count as the driver's here."""


@dataclass(frozen=True)
class Dimension:
    """One size that grows while all others are constant.

    Attributes:
        title, label: of its chart and of the chart's axis.
        note: the sizes that are constant.
        sizes: the sizes to measure, in order.
        records: records of a batch, if they are not the growing size; records per topic, if there are many topics.
        steady: the number of batches to measure at a size, after the first ones.
        bound: the exponent that the cost of a batch must not exceed. It is 0 for sizes that only accumulate in a run:
            if the cost of a batch grew with them, the cost of the whole run would be super-linear.
    """

    name: str
    title: str
    label: str
    note: str
    sizes: tuple[int, ...]
    records: int = 0
    steady: int = 4
    bound: float = 1.0


_BATCHES = (20, 50, 100, 200, 300, 500, 700, 1_000, 1_500, *range(2_000, 7_001, 1_000), 8_500, 10_000)
_TRIPS, _TEXT = "taxi trips of 17 columns from 4 partitions", "100 records a batch, of text that does not compress"
_SPREAD, _EACH_TOPIC = "20,000 small records a batch, over all partitions", "100 small records of each topic a round"
_ALL = (
    Dimension("rows", "Rows of a batch", "rows per batch", _TRIPS, (1_000, 10_000, 100_000, 1_000_000, 10_000_000)),
    Dimension("partitions", "Partitions of the topic", "partitions", _SPREAD, (1, 10, 100, 1_000), 20_000),
    Dimension("columns", "Columns of a row", "columns", "10,000 rows a batch", (5, 50, 200, 500), 10_000),
    Dimension("bytes", "Size of a record", "bytes of a record", _TEXT, (100, 1_000, 10_000, 100_000, 1_000_000), 100),
    Dimension(
        *("files", "Files in the table", "data files before the run", "1,000 small records a batch"),
        *((10, 100, 1_000, 10_000, 100_000), 1_000, 8, 0.0),
    ),
    Dimension(
        *("batches", "Batches since the start", "batches since the start", "10 small records a batch, one run"),
        *(_BATCHES, 10, 1, 0.0),
    ),
    Dimension("topics", "Topics of a job", "topics, each with a table", _EACH_TOPIC, (1, 10, 50, 100, 200), 100, 3),
)
DIMENSIONS = {dimension.name: dimension for dimension in _ALL}


@dataclass(frozen=True, kw_only=True)
class CostPoint:
    """The cost of a batch at one size: the mean of one run, or the medians of all runs."""

    size: int
    cpu_seconds: float
    task_seconds: float
    seconds: float
    requests: float
    heap_mb: float
    peak_rss_mb: int


@dataclass(frozen=True, kw_only=True)
class DimensionResult:
    """All points of one dimension; complete if every record that was read became a row."""

    dimension: Dimension
    points: tuple[CostPoint, ...]
    is_complete: bool

    @cached_property
    def cpu(self) -> CostGrowth:
        return growth_of([(point.size, point.cpu_seconds) for point in self.points])

    @cached_property
    def requests(self) -> CostGrowth:
        return growth_of([(point.size, max(point.requests, 0.01)) for point in self.points])

    @property
    def medians(self) -> list[CostPoint]:
        """Medians over the runs of a size, ordered by size."""
        sizes = sorted({point.size for point in self.points})
        return [median_of([point for point in self.points if point.size == size]) for size in sizes]

    @property
    def heap_from(self) -> float:
        """The driver's heap at the smallest size, after a collection."""
        return self.medians[0].heap_mb

    @property
    def heap_to(self) -> float:
        """The largest heap at any size, after a collection."""
        return max(point.heap_mb for point in self.medians)

    @property
    def is_heap_flat(self) -> bool:
        return self.heap_to - self.heap_from <= HEAP_MB

    @property
    def holds(self) -> bool:
        bound = self.dimension.bound
        grows = self.cpu.is_above(bound) or self.requests.is_above(bound)
        return self.is_complete and self.is_heap_flat and not grows


def chosen(texts: Sequence[str]) -> list[Dimension]:
    """Return the dimensions of these names, or all if there are none; a name may have an upper bound as ``=MOST``.

    Raises:
        ConfigError: there is no such dimension, or its bound leaves fewer than two sizes.
    """
    found = []
    for text in texts or DIMENSIONS:
        name, _, most = text.partition("=")
        if name not in DIMENSIONS or (most and not most.replace("_", "").isdecimal()) or text.endswith("="):
            hint = f"write NAME or NAME=NUMBER, with one of {', '.join(DIMENSIONS)}"
            raise ConfigError(f"'{text}' is no dimension", where="--dimension", hint=hint)
        dimension = DIMENSIONS[name]
        if most:
            # The bound itself becomes the largest size.
            sizes = (*(size for size in dimension.sizes if size < int(most)), int(most))
            dimension = replace(dimension, sizes=sizes)
            if len(sizes) < 2:
                first, second, *_ = DIMENSIONS[name].sizes
                hint = f"its smallest sizes are {first} and {second}"
                raise ConfigError(f"{text} leaves nothing that grows", where="--dimension", hint=hint)
        found.append(dimension)
    return found


@measurement(
    "scale",
    click.option(
        "--dimension",
        "names",
        multiple=True,
        metavar="NAME[=MOST]",
        help=f"Only this, up to a size; again for more: {', '.join(DIMENSIONS)}.",
    ),
    number("--rounds", 3, "Runs of each size."),
    click.option("--charts", type=FOLDER, help="Write scale-DIMENSION.svg there."),
    store_option(),
)
def scale(bench: Bench, names: Sequence[str], rounds: int, charts: Path | None) -> Outcome:
    """Measure how the cost of a batch grows with a feed's sizes.

    Sizes: rows, partitions, columns, bytes, files, batches and topics. One grows, the others are constant. Measures a
    batch's CPU time, memory and S3 requests, and their exponents. Status 1 if a cost grows faster than linear, or with
    what accumulates (files, batches), if memory is not flat, or a row is missing. All take hours; choose a --dimension.
    """
    results = [measure(bench, dimension, rounds=rounds) for dimension in chosen(names)]
    if charts is not None:
        charts.mkdir(parents=True, exist_ok=True)
        for result in results:
            draw(result, charts / f"scale-{result.dimension.name}.svg")
    return Outcome(results=results, text=report(results), holds=all(result.holds for result in results))


def measure(bench: Bench, dimension: Dimension, *, rounds: int) -> DimensionResult:
    """Fill the topics of all sizes, then measure them in turns."""
    name, largest = dimension.name, dimension.sizes[-1]
    with bench.processes(name, **KEEP_COMPILERS) as processes:
        run = processes[name]
        harness.say(f"{name}: filling topics")
        topics = _fill(bench, dimension, run)
        if name == "batches":
            document = _pipeline(bench, dimension, topics[largest], most=dimension.records, name="scale_batches")
            one = ScaleRun(pipeline=document, marks=dimension.sizes, heap_at=dimension.sizes)
            figures: list[tuple[int, ScaleFigures]] = [(0, run(run_scale, one))]
        else:

            def run_size(size: int, at: int) -> ScaleFigures:
                found: ScaleFigures = run(run_scale, _run_of(bench, dimension, size, topics[size], at))
                return found

            found = in_turns(dimension.sizes, run_size, rounds=rounds, title=f"{name}, ")
            figures = [(size, each) for size, runs in found.items() for each in runs]
    points = [
        _point(each, at, size=size or each.marks[at].batch)
        for size, each in figures
        for at in range(1, len(each.marks))
    ]
    is_complete = all(each.is_complete for _, each in figures)
    return DimensionResult(dimension=dimension, points=tuple(points), is_complete=is_complete)


def _fill(bench: Bench, dimension: Dimension, run: Run) -> dict[int, list[str]]:
    """Fill the topics of all sizes; return their names by size."""
    endpoints, sizes, largest = bench.endpoints, dimension.sizes, dimension.sizes[-1]
    batches = _FIRST_BATCHES + dimension.steady + _SPARE_BATCHES
    records = dimension.records * batches
    topics = {size: f"scale-{dimension.name}-{size}" for size in sizes}
    match dimension.name:
        case "rows":
            work = Work(name="scale-rows", rows=2 * largest, partitions=4)
            bench.topics.create(work.topic, partitions=work.partitions)
            run(jobs.produce_trips, work, endpoints)
            return {size: [work.topic] for size in sizes}
        case "partitions":
            for size in sizes:
                fill_topic(topics[size], endpoints, records=records, partitions=size)
        case "columns":
            for size in sizes:
                create_topic(topics[size], endpoints, partitions=2)
                run(produce_columns, size, records, topics[size], endpoints)
        case "bytes":
            for size in sizes:
                fill_topic(topics[size], endpoints, records=records, partitions=2, bytes_each=size)
        case "topics":
            names = [f"scale-topics-{number:04d}" for number in range(largest)]
            for each in names:
                fill_topic(each, endpoints, records=records, partitions=1)
            return {size: names[:size] for size in sizes}
        case name:
            if name == "batches":
                records += dimension.records * largest
            fill_topic(f"scale-{name}", endpoints, records=records, partitions=1)
            return {size: [f"scale-{name}"] for size in sizes}
    return {size: [topic] for size, topic in topics.items()}


def _run_of(bench: Bench, dimension: Dimension, size: int, topics: list[str], at: int) -> ScaleRun:
    first, steady, most = _FIRST_BATCHES, dimension.steady, dimension.records
    if dimension.name == "rows":
        # The topic has twice the records of the largest batch, which limits the number of batches.
        first, steady, most = 1, min(steady, 2 * dimension.sizes[-1] // size - 1), size
    return ScaleRun(
        pipeline=_pipeline(bench, dimension, topics, most=most, name=f"scale_{dimension.name}_{size}_{at}"),
        marks=(first, first + steady),
        heap_at=(first + steady,),
        files=size if dimension.name == "files" else 0,
        has_tables=dimension.name == "topics",
    )


def _pipeline(bench: Bench, dimension: Dimension, topics: list[str], *, most: int, name: str) -> dict[str, Any]:
    has_tables = dimension.name == "topics"
    return jobs.pipeline_document(
        name,
        topics,
        bench.endpoints,
        sink={"iceberg": {"table": f"lake.{name}.{{topic}}" if has_tables else f"lake.scale.{name}"}},
        most=most,
        # Feeds with Iceberg tables resume by their ledgers.
        checkpoint=None if has_tables else f"s3a://{bench.endpoints.bucket}/checkpoints/{name}",
        # A commit of Iceberg writes the summaries of all snapshots: docs/size-a-feed.md.
        upkeep=_UPKEEP if dimension.name == "batches" else None,
    )


def _point(figures: ScaleFigures, at: int, *, size: int) -> CostPoint:
    """Return the mean cost of a batch between the previous mark and this one."""
    before, after = figures.marks[at - 1], figures.marks[at]
    batches = after.batch - before.batch
    return CostPoint(
        size=size,
        cpu_seconds=(after.cpu_seconds - before.cpu_seconds) / batches,
        task_seconds=(after.cpu["tasks"] - before.cpu["tasks"]) / batches,
        seconds=(after.seconds - before.seconds) / batches,
        requests=(after.requests - before.requests) / batches,
        heap_mb=(after.heap or 0) / MEGABYTE,
        peak_rss_mb=figures.peak_rss_mb,
    )


def report(results: Sequence[DimensionResult]) -> str:
    """Return a text with a line per dimension, and lines of its sizes below."""
    growth = "cpu.exponent cpu.low cpu.high cpu.fixed cpu.ratio requests.exponent requests.ratio"
    summary = table(results, f"dimension.name {growth} heap_from heap_to is_complete holds")
    sizes = "size cpu_seconds task_seconds seconds requests heap_mb peak_rss_mb"
    note = (
        "Figures of a batch, medians over the runs; CPU of the driver's JVM, without its compilers, and of Python. "
        "Exponent: of the part that grows, the fixed cost taken out, with its interval of 95 %; - if flat. Ratio: the "
        "largest size's cost by the smallest's. Heap: the driver's in MB, after a collection."
    )
    details = [
        f"{result.dimension.title}: {result.dimension.note}\n{table(result.medians, sizes)}" for result in results
    ]
    return "\n\n".join([summary, *details, note])


def draw(result: DimensionResult, file: Path) -> None:
    """Draw the charts of one dimension: time, memory, requests."""
    medians, label, exponent = result.medians, result.dimension.label, result.cpu.exponent

    def lines(**names: str) -> dict[str, Points]:
        return {name: [(point.size, getattr(point, figure)) for point in medians] for figure, name in names.items()}

    growth = "flat" if exponent is None else f"exponent {exponent:.2f}"
    fitted = {"fitted CPU time": [(point.size, result.cpu.at(point.size)) for point in medians]}
    time = lines(cpu_seconds="CPU time", seconds="wall time")
    memory = lines(heap_mb="heap after a collection", peak_rss_mb="peak of the process")
    is_log = max(point.requests for point in medians) > 20 * min(point.requests for point in medians)
    title = f"{result.dimension.title}: time of a batch ({growth})"
    charts = [
        Chart(title=title, x=label, y="seconds", y_unit="s", lines=time, dashed=fitted),
        Chart(title="Memory of the driver", x=label, y="MB", is_log=False, lines=memory),
        Chart(title="S3 requests of a batch", x=label, y="requests", is_log=is_log, lines=lines(requests="requests")),
    ]
    write_charts(file, charts, title=f"How a feed grows with the {label}")
