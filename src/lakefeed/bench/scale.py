"""Measure how the cost of a batch grows with each size of a feed: ``lakefeed bench scale``.

One size grows and the others stay. Each dimension has a JVM of its own, which runs all its sizes in turns: up in one
round, down in the next. The figures are those of the batches after the first ones, each the mean of a run.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from lakefeed.bench import jobs
from lakefeed.bench.cases import Workload
from lakefeed.bench.charts import Chart
from lakefeed.bench.charts import write_charts as write_figure
from lakefeed.bench.growth import CostGrowth, growth_of
from lakefeed.bench.monitor_cost import KEEP_COMPILERS
from lakefeed.bench.scale_dimensions import Dimension
from lakefeed.bench.scale_jobs import ScaleFigures, ScaleRun, produce_columns, run_scale
from lakefeed.bench.scale_topics import TopicFiller
from lakefeed.clients.kafka.topics import Topics
from lakefeed.local import Endpoints
from lakefeed.messages.printable import aligned

MEGABYTE = 1_000_000
HEAP_MB = 64
"""The driver's memory is flat if its heap after a collection grows by no more than this: what the driver knows of its
topics, files and batches, and not the records."""
_FIRST_BATCHES = 2
_SPARE_BATCHES = 8
"""A run that is stopped after its first batch, to create its table, may have begun a few more."""
_RECORDS = {"partitions": 20_000, "columns": 10_000, "bytes": 100, "files": 1_000, "batches": 10, "topics": 100}
"""The records of a batch, where they are not what grows; of each topic, where there are many."""
_UPKEEP = {"every": "20 seconds", "only": ["expire"], "expire": {"older_than": "20 seconds", "keep": 100}}
"""The maintenance of a feed that commits several times a second: after 60 to 100 commits, as once an hour for one that
commits each minute. A rewrite of manifests is a Spark job, whose memory would count as the driver's here."""


@dataclass(frozen=True, kw_only=True)
class CostPoint:
    """The cost of a batch at one size, in one run."""

    size: int
    cpu_seconds: float
    cpu: Mapping[str, float]
    seconds: float
    requests: float
    heap_mb: float | None
    peak_rss_mb: int


@dataclass(frozen=True, kw_only=True)
class DimensionResult:
    """All points of one dimension."""

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
    def sizes(self) -> tuple[int, ...]:
        return tuple(sorted({point.size for point in self.points}))

    @property
    def heap_mb(self) -> tuple[float, float]:
        """The driver's heap after a collection at the smallest size, and the highest at any size."""
        heaps = [self._heap_at(size) for size in self.sizes]
        return heaps[0], max(heaps)

    @property
    def is_heap_flat(self) -> bool:
        smallest, highest = self.heap_mb
        return highest - smallest <= HEAP_MB

    @property
    def holds(self) -> bool:
        bound = self.dimension.bound
        grows = self.cpu.is_above(bound) or self.requests.is_above(bound)
        return self.is_complete and self.is_heap_flat and not grows

    def median(self, size: int, figure: Callable[[CostPoint], float]) -> float:
        """Return the median over the runs of one size."""
        return statistics.median(figure(point) for point in self.points if point.size == size)

    def _heap_at(self, size: int) -> float:
        return self.median(size, lambda point: point.heap_mb or 0.0)

    def as_dict(self) -> dict[str, Any]:
        return {
            "dimension": self.dimension.name,
            "what_stays": self.dimension.note,
            "bound": self.dimension.bound,
            "cpu": _rounded({**asdict(self.cpu), "verdict": self.cpu.verdict}),
            "requests": _rounded({**asdict(self.requests), "verdict": self.requests.verdict}),
            "heap_mb": [round(heap, 1) for heap in self.heap_mb],
            "is_heap_flat": self.is_heap_flat,
            "is_complete": self.is_complete,
            "holds": self.holds,
            "points": [_rounded(asdict(point)) for point in self.points],
        }


@dataclass(frozen=True, kw_only=True)
class ScaleBench:
    """Dimensions on one running stack."""

    endpoints: Endpoints
    home: Path
    say: Callable[[str], None]

    def measure(self, dimension: Dimension, *, rounds: int) -> DimensionResult:
        """Fill the topics of all sizes, then measure them in turns."""
        environment = {**self.endpoints.as_environment(), **KEEP_COMPILERS}
        with jobs.job_process(environment=environment, log=self.home / f"{dimension.name}.log") as run:
            self.say(f"{dimension.name}: filling topics")
            topics = self._fill(dimension, run)
            if dimension.name == "batches":
                result = self._measure_batches(dimension, topics[dimension.sizes[-1]], run)
            else:
                result = self._measure_sizes(dimension, topics, run, rounds=rounds)
        return result

    def _measure_sizes(
        self, dimension: Dimension, topics: Mapping[int, list[str]], run: Callable[..., Any], *, rounds: int
    ) -> DimensionResult:
        points, is_complete = [], True
        # A first run at the smallest size compiles what all have in common, and does not count.
        run(run_scale, self._run_of(dimension, dimension.sizes[0], topics[dimension.sizes[0]], number=0))
        for number in range(1, rounds + 1):
            for size in dimension.sizes if number % 2 else reversed(dimension.sizes):
                figures: ScaleFigures = run(run_scale, self._run_of(dimension, size, topics[size], number=number))
                is_complete &= figures.is_complete
                if len(figures.marks) == 2:
                    points.append(_point(figures, 0, size=size))
                    self.say(f"{dimension.name} {size:,}, run {number} of {rounds}: {_line(points[-1])}")
        return DimensionResult(dimension=dimension, points=tuple(points), is_complete=is_complete)

    def _measure_batches(self, dimension: Dimension, topics: list[str], run: Callable[..., Any]) -> DimensionResult:
        marks = dimension.sizes
        pipeline = self._pipeline(dimension, topics, most=_RECORDS["batches"], number=1)
        figures: ScaleFigures = run(run_scale, ScaleRun(pipeline=pipeline, marks=marks, heap_at=marks))
        points = tuple(_point(figures, at, size=mark.batch) for at, mark in enumerate(figures.marks[1:]))
        for point in points:
            self.say(f"batches up to {point.size:,}: {_line(point)}")
        return DimensionResult(dimension=dimension, points=points, is_complete=figures.is_complete)

    def _fill(self, dimension: Dimension, run: Callable[..., Any]) -> dict[int, list[str]]:
        """Fill the topics that each size is measured with."""
        filler, name, largest = TopicFiller(self.endpoints), f"scale-{dimension.name}", dimension.sizes[-1]
        batches = _FIRST_BATCHES + dimension.steady + _SPARE_BATCHES
        records = _RECORDS.get(dimension.name, 0) * batches
        match dimension.name:
            case "rows":
                work = Workload(name=name, rows=2 * largest, batches=1, partitions=4)
                Topics(self.endpoints.bootstrap_servers).create(work.topic, partitions=work.partitions)
                run(jobs.produce_trips, work, self.endpoints)
                return {size: [work.topic] for size in dimension.sizes}
            case "partitions":
                for size in dimension.sizes:
                    filler.fill(f"{name}-{size}", records=records, partitions=size)
            case "columns":
                for size in dimension.sizes:
                    filler.create(f"{name}-{size}", partitions=2)
                    run(produce_columns, size, records, f"{name}-{size}", self.endpoints)
            case "bytes":
                for size in dimension.sizes:
                    filler.fill(f"{name}-{size}", records=records, partitions=2, bytes_each=size)
            case "topics":
                names = [f"{name}-{number:04d}" for number in range(largest)]
                for each in names:
                    filler.fill(each, records=records, partitions=1)
                return {size: names[:size] for size in dimension.sizes}
            case "files":
                filler.fill(name, records=records, partitions=1)
                return {size: [name] for size in dimension.sizes}
            case "batches":
                filler.fill(name, records=_RECORDS["batches"] * (largest + batches), partitions=1)
                return {largest: [name]}
        return {size: [f"{name}-{size}"] for size in dimension.sizes}

    def _run_of(self, dimension: Dimension, size: int, topics: list[str], *, number: int) -> ScaleRun:
        first, steady = _FIRST_BATCHES, dimension.steady
        if dimension.name == "rows":
            most = size
            # The topic has twice the records of the largest batch.
            first, steady = 1, min(steady, 2 * dimension.sizes[-1] // size - 1)
        else:
            most = _RECORDS[dimension.name]
        return ScaleRun(
            pipeline=self._pipeline(dimension, topics, most=most, number=number, size=size),
            marks=(first, first + steady),
            heap_at=(first + steady,),
            files=size if dimension.name == "files" else 0,
            has_tables=dimension.name == "topics",
        )

    def _pipeline(
        self, dimension: Dimension, topics: list[str], *, most: int, number: int, size: int = 0
    ) -> dict[str, Any]:
        name = f"scale_{dimension.name}_{size}_{number}"
        kafka = {"bootstrap_servers": self.endpoints.bootstrap_servers, "topics": topics}
        has_tables = dimension.name == "topics"
        is_long = dimension.name == "batches"
        return {
            "name": name,
            "source": {"kafka": {**kafka, "max_records_per_batch": most}},
            "decode": {"avro": {"registry": self.endpoints.schema_registry_url}},
            "sink": {"iceberg": {"table": f"lake.{name}.{{topic}}" if has_tables else f"lake.scale.{name}"}},
            # Each commit of Iceberg writes the summaries of all snapshots: docs/how-it-grows.md.
            **({"upkeep": _UPKEEP} if is_long else {}),
            # Tables of their own resume by their ledgers.
            **({} if has_tables else {"checkpoint": f"s3a://{self.endpoints.bucket}/checkpoints/{name}"}),
        }


def _point(figures: ScaleFigures, at: int, *, size: int) -> CostPoint:
    """Return what a batch cost between two marks, in the mean."""
    before, after = figures.marks[at], figures.marks[at + 1]
    batches = after.batch - before.batch
    return CostPoint(
        size=size,
        cpu_seconds=(after.cpu_seconds - before.cpu_seconds) / batches,
        cpu={kind: (after.cpu[kind] - before.cpu[kind]) / batches for kind in after.cpu},
        seconds=(after.seconds - before.seconds) / batches,
        requests=(after.requests - before.requests) / batches,
        heap_mb=None if after.heap is None else after.heap / MEGABYTE,
        peak_rss_mb=figures.peak_rss_mb,
    )


def table(results: Sequence[DimensionResult]) -> str:
    """Show each dimension in a line, and its sizes below."""
    return "\n\n".join([_summary(results), *map(_details, results), _note()])


def _summary(results: Sequence[DimensionResult]) -> str:
    lines: list[tuple[str, ...]] = [
        ("dimension", "CPU exponent", "95 %", "fixed CPU s", "times", "requests exponent", "times", "heap MB", "")
    ]
    for result in results:
        cpu, requests = result.cpu, result.requests
        smallest, highest = result.heap_mb
        lines.append(
            (
                result.dimension.name,
                *(_exponent(cpu), _interval(cpu), f"{cpu.fixed:.2f}", f"{cpu.ratio:.1f}"),
                *(_exponent(requests), f"{requests.ratio:.1f}", f"{smallest:.0f} to {highest:.0f}"),
                "holds" if result.holds else "DOES NOT HOLD",
            )
        )
    return "\n".join(aligned(lines, left=1))


def _details(result: DimensionResult) -> str:
    lines: list[tuple[str, ...]] = [
        (result.dimension.label, "CPU s", "of tasks", "wall s", "S3 requests", "heap MB", "peak RSS MB")
    ]
    for size in result.sizes:
        figures: tuple[Callable[[CostPoint], float], ...] = (
            lambda point: point.cpu_seconds,
            lambda point: point.cpu["tasks"],
            lambda point: point.seconds,
        )
        lines.append(
            (
                f"{size:,}",
                *(f"{result.median(size, figure):.3f}" for figure in figures),
                f"{result.median(size, lambda point: point.requests):,.1f}",
                f"{result.median(size, lambda point: point.heap_mb or 0):,.0f}",
                f"{result.median(size, lambda point: point.peak_rss_mb):,.0f}",
            )
        )
    complete = "" if result.is_complete else "; ROWS ARE MISSING"
    return "\n".join([f"{result.dimension.title}: {result.dimension.note}{complete}", *aligned(lines, left=1)])


def _note() -> str:
    return (
        "Figures of a batch, medians over the runs; CPU of the driver's JVM, without its compilers, and of Python. "
        "Exponent: of the part that grows, the fixed cost taken out; times: the largest size's cost by the smallest's. "
        "Heap: the driver's, after a collection."
    )


def draw(result: DimensionResult, file: Path) -> None:
    """Draw the charts of one dimension: time, memory, requests."""
    dimension, sizes = result.dimension, result.sizes

    def line(figure: Callable[[CostPoint], float]) -> list[tuple[float, float]]:
        return [(size, result.median(size, figure)) for size in sizes]

    time = {"CPU time": line(lambda point: point.cpu_seconds), "wall time": line(lambda point: point.seconds)}
    memory = {
        "heap after a collection": line(lambda point: point.heap_mb or 0.0),
        "peak of the process": line(lambda point: point.peak_rss_mb),
    }
    requests = line(lambda point: point.requests)
    charts = [
        Chart(
            title=f"{dimension.title}: time of a batch ({_sentence(result.cpu)})",
            x=dimension.label,
            y="seconds",
            y_unit="s",
            lines=time,
            dashed={"fitted CPU time": [(size, result.cpu.at(size)) for size in sizes]},
        ),
        Chart(title="Memory of the driver", x=dimension.label, y="MB", is_log=False, lines=memory),
        Chart(
            title="S3 requests of a batch",
            x=dimension.label,
            y="requests",
            lines={"S3 requests": requests},
            is_log=max(y for _, y in requests) > 20 * min(y for _, y in requests),
        ),
    ]
    write_figure(file, charts, title=f"How a feed grows with the {dimension.label}")


def write_charts(results: Sequence[DimensionResult], folder: Path) -> Iterator[Path]:
    """Write ``scale-<dimension>.svg`` for each dimension."""
    folder.mkdir(parents=True, exist_ok=True)
    for result in results:
        file = folder / f"scale-{result.dimension.name}.svg"
        draw(result, file)
        yield file


def _exponent(growth: CostGrowth) -> str:
    return "flat" if growth.exponent is None else f"{growth.exponent:.2f}"


def _interval(growth: CostGrowth) -> str:
    return "-" if growth.exponent is None else f"{growth.low:.2f} to {growth.high:.2f}"


def _sentence(growth: CostGrowth) -> str:
    return "flat" if growth.exponent is None else f"exponent {growth.exponent:.2f}"


def _line(point: CostPoint) -> str:
    heap = "" if point.heap_mb is None else f", heap {point.heap_mb:.0f} MB"
    return (
        f"{point.cpu_seconds:.3f} CPU s and {point.seconds:.3f} s a batch, {point.requests:.1f} S3 requests{heap}, "
        f"peak {point.peak_rss_mb:,} MB"
    )


def _rounded(document: Mapping[str, Any]) -> dict[str, Any]:
    """Round the figures of a document to five digits."""

    def short(value: Any) -> Any:
        if isinstance(value, Mapping):
            return _rounded(value)
        return float(f"{value:.5g}") if isinstance(value, float) else value

    return {name: short(value) for name, value in document.items()}
