"""Measure how the cost of a batch grows with the dimensions of a feed: ``lakefeed-bench scale``.

One dimension grows while the others are constant. Each dimension has its own JVM, which runs the sizes in ascending
order in one round, and in descending order in the next. A figure is the mean over a run's batches, except the first
ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, cast

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
"""If the driver's heap grows by at most this many MB after a garbage collection, it counts as flat."""
_FIRST_BATCHES = 2
_SPARE_BATCHES = 8
"""The topics have records for this many extra batches, because a run may begin some batches before it stops."""
_UPKEEP = {"every": "20 seconds", "only": ["expire"], "expire": {"older_than": "20 seconds", "keep": 100}}
"""An upkeep that expires snapshots after 60 to 100 commits, like an hourly upkeep if a feed commits every minute. It
rewrites no manifests: the memory of that Spark job would count as the driver's."""


@dataclass(frozen=True)
class Dimension:
    """A size that grows while all other sizes of a feed are constant.

    Attributes:
        title, label: the title of its chart, and the label of the chart's x-axis.
        note: the constant sizes.
        sizes: the sizes to measure, in ascending order.
        records: the number of records per batch and topic; 0 if the records themselves grow.
        steady: the number of measured batches per run, after the first ones.
        bound: the exponent that the cost of a batch must not exceed. It is 0 for a size that grows during a run:
            otherwise the cost of the run would grow faster than its length.
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
_TRIPS, _TEXT = "taxi trips of 17 columns from 4 partitions", "100 records of incompressible text per batch"
_SPREAD, _EACH_TOPIC = "20,000 small records per batch, over all partitions", "100 small records per topic and round"
_ALL = (
    Dimension("rows", "Rows of a batch", "rows per batch", _TRIPS, (1_000, 10_000, 100_000, 1_000_000, 10_000_000)),
    Dimension("partitions", "Partitions of the topic", "partitions", _SPREAD, (1, 10, 100, 1_000), 20_000),
    Dimension("columns", "Columns of a row", "columns", "10,000 rows per batch", (5, 50, 200, 500), 10_000),
    Dimension("bytes", "Size of a record", "bytes of a record", _TEXT, (100, 1_000, 10_000, 100_000, 1_000_000), 100),
    Dimension(
        *("files", "Files in the table", "data files before the run", "1,000 small records per batch"),
        *((10, 100, 1_000, 10_000, 100_000), 1_000, 8, 0.0),
    ),
    Dimension(
        *("batches", "Batches since the start", "batches since the start", "10 small records per batch, one run"),
        *(_BATCHES, 10, 1, 0.0),
    ),
    Dimension("topics", "Topics of a job", "topics, each with a table", _EACH_TOPIC, (1, 10, 50, 100, 200), 100, 3),
)
DIMENSIONS = {dimension.name: dimension for dimension in _ALL}


@dataclass(frozen=True, kw_only=True)
class CostPoint:
    """A batch's cost at one size: the means over one run's batches, or the medians of these means over all runs."""

    size: int
    cpu_seconds: float
    task_seconds: float
    seconds: float
    requests: float
    heap_mb: float
    peak_rss_mb: int


@dataclass(frozen=True, kw_only=True)
class DimensionResult:
    """All points of one dimension; ``is_complete`` if every record became a row."""

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
        """One point per size, with the medians over the runs of that size."""
        sizes = sorted({point.size for point in self.points})
        return [median_of([point for point in self.points if point.size == size]) for size in sizes]

    @property
    def heap_from(self) -> float:
        """The driver's heap at the smallest size, after a garbage collection."""
        return self.medians[0].heap_mb

    @property
    def heap_to(self) -> float:
        """The largest heap of the driver at any size, after a garbage collection."""
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
    """Return the dimensions that ``--dimension`` names, as ``NAME`` or ``NAME=MOST``; all dimensions by default."""
    dimensions = []
    for text in texts or DIMENSIONS:
        name, _, most = text.partition("=")
        if name not in DIMENSIONS or (most and not most.replace("_", "").isdecimal()) or text.endswith("="):
            hint = f"write NAME or NAME=NUMBER, with one of {', '.join(DIMENSIONS)}"
            raise ConfigError(f"'{text}' is not a dimension", where="--dimension", hint=hint)
        dimension = DIMENSIONS[name]
        if most:
            sizes = (*(size for size in dimension.sizes if size < int(most)), int(most))
            dimension = replace(dimension, sizes=sizes)
            if len(sizes) < 2:
                first, second, *_ = DIMENSIONS[name].sizes
                hint = f"write a number above {first}: the smallest sizes are {first} and {second}"
                raise ConfigError(f"{text} leaves only one size to measure", where="--dimension", hint=hint)
        dimensions.append(dimension)
    return dimensions


@measurement(
    "scale",
    click.option(
        "--dimension",
        "names",
        multiple=True,
        metavar="NAME[=MOST]",
        help=f"Measure only this dimension, up to a size; repeatable: {', '.join(DIMENSIONS)}.",
    ),
    number("--rounds", 3, "Runs of each size."),
    click.option("--charts", type=FOLDER, help="Write a scale-DIMENSION.svg for each dimension into this folder."),
    store_option(),
)
def scale(bench: Bench, names: Sequence[str], rounds: int, charts: Path | None) -> Outcome:
    """Measure how the cost of a batch grows with a feed's sizes.

    Measures a batch's CPU time, memory and S3 requests while one size grows, and fits the exponents of the growth.
    Status 1 if a cost grows faster than linearly, or at all with the table's files or the batches so far; if memory
    grows; or if a row is missing. All dimensions take hours; choose a --dimension.
    """
    results = [measure(bench, dimension, rounds=rounds) for dimension in chosen(names)]
    if charts is not None:
        charts.mkdir(parents=True, exist_ok=True)
        for result in results:
            draw(result, charts / f"scale-{result.dimension.name}.svg")
    return Outcome(results=results, text=report(results), holds=all(result.holds for result in results))


def measure(bench: Bench, dimension: Dimension, *, rounds: int) -> DimensionResult:
    name, largest = dimension.name, dimension.sizes[-1]
    with bench.processes(name, **KEEP_COMPILERS) as processes:
        run = processes[name]
        harness.say(f"{name}: producing the records of all sizes")
        topics = _fill(bench, dimension, run)
        if name == "batches":
            document = _pipeline(bench, dimension, topics[largest], most=dimension.records, name="scale_batches")
            one = ScaleRun(pipeline=document, marks=dimension.sizes, heap_at=dimension.sizes)
            figures: list[tuple[int, ScaleFigures]] = [(0, run(run_scale, one))]
        else:

            def run_size(size: int, at: int) -> ScaleFigures:
                return cast(ScaleFigures, run(run_scale, _run_of(bench, dimension, size, topics[size], at)))

            by_size = in_turns(dimension.sizes, run_size, rounds=rounds, title=f"{name}, ")
            figures = [(size, each) for size, runs in by_size.items() for each in runs]
    points = [
        _point(each, at, size=size or each.marks[at].batch)
        for size, each in figures
        for at in range(1, len(each.marks))
    ]
    is_complete = all(each.is_complete for _, each in figures)
    return DimensionResult(dimension=dimension, points=tuple(points), is_complete=is_complete)


def _fill(bench: Bench, dimension: Dimension, run: Run) -> dict[int, list[str]]:
    """Create and fill the topics of all sizes; return the topics' names by size."""
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
        # All sizes share one topic with twice the records of the largest batch, so a run of larger batches has fewer
        # batches.
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
        checkpoint=None if has_tables else f"s3a://{bench.endpoints.bucket}/checkpoints/{name}",
        # Expire snapshots: a commit writes the summaries of all snapshots, so commits would become slower.
        upkeep=_UPKEEP if dimension.name == "batches" else None,
    )


def _point(figures: ScaleFigures, at: int, *, size: int) -> CostPoint:
    """Return the cost of a batch: the mean over the batches between two measurements."""
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
    growth = "cpu.exponent cpu.low cpu.high cpu.fixed cpu.ratio requests.exponent requests.ratio"
    summary = table(results, f"dimension.name {growth} heap_from heap_to is_complete holds")
    sizes = "size cpu_seconds task_seconds seconds requests heap_mb peak_rss_mb"
    note = (
        "Medians per batch; the CPU time is that of Python and of the driver's JVM without its compilers. Exponent: of "
        "the growing part of the cost, without the fixed part, with its 95 % interval; - if flat. Ratio: the cost at "
        "the largest size, divided by the cost at the smallest. Heap: the driver's in MB, after a garbage collection."
    )
    details = [
        f"{result.dimension.title}: {result.dimension.note}\n{table(result.medians, sizes)}" for result in results
    ]
    return "\n\n".join([summary, *details, note])


def draw(result: DimensionResult, file: Path) -> None:
    medians, label, exponent = result.medians, result.dimension.label, result.cpu.exponent

    def lines(**names: str) -> dict[str, Points]:
        return {name: [(point.size, getattr(point, figure)) for point in medians] for figure, name in names.items()}

    growth = "flat" if exponent is None else f"exponent {exponent:.2f}"
    fitted = {"fitted CPU time": [(point.size, result.cpu.at(point.size)) for point in medians]}
    time = lines(cpu_seconds="CPU time", seconds="wall time")
    memory = lines(heap_mb="heap after a collection", peak_rss_mb="peak resident memory")
    is_log = max(point.requests for point in medians) > 20 * min(point.requests for point in medians)
    title = f"{result.dimension.title}: time per batch ({growth})"
    charts = [
        Chart(title=title, x=label, y="seconds", y_unit="s", lines=time, dashed=fitted),
        Chart(title="Memory of the driver", x=label, y="MB", is_log=False, lines=memory),
        Chart(title="S3 requests per batch", x=label, y="requests", is_log=is_log, lines=lines(requests="requests")),
    ]
    write_charts(file, charts, title=f"How a feed grows with the {label}")
