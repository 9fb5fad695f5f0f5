"""Compute the size of a feed for a rate of records, from measurements of ``lakefeed-bench throughput``.

The topic need not exist yet: no broker gets a request. Every figure has its reason; docs/size-a-feed.md explains them.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from lakefeed.clients.spark.session import RETAINED_TASKS
from lakefeed.config.models import PipelineConfig
from lakefeed.config.values import AVAILABLE_NOW, seconds_of, trigger_seconds
from lakefeed.errors import ConfigError, ResourceMissing
from lakefeed.ledger.snapshot_summary import Commit
from lakefeed.offsets.ranges import OffsetRange, OffsetRanges
from lakefeed.operations.plan.estimates import CHECKPOINT
from lakefeed.records.sources import task_count

UTILIZATION = 0.7
"""The share of the cores' time that the target rate may use; the rest is for catching up after a stop."""
BYTES_A_PARTITION = 10_000_000
"""Uncompressed bytes per second of one partition: the usual limit of a consumer and of a broker's disk."""
CORES_AN_EXECUTOR = 4
LONGEST_TRIGGER = 600
"""The longest trigger that is proposed, in seconds; users may choose a longer one for larger files."""
TARGET_FILE_BYTES = 128 * 1024**2
EXPIRED_AFTER = seconds_of("7 days")
"""The age at which snapshots expire without a block ``upkeep``: the default of ``lakefeed tables maintain``."""
MOST_PARTITIONS = 100_000
"""The most partitions of one feed: ten times as many as in lakefeed's tests."""
MOST_METADATA_BYTES = 64 * 1024**2
"""The size of a table's metadata file from which sizing warns, because every commit writes the whole file."""
TASK_BYTES = 10_000
"""The memory that Spark's driver needs for one finished task."""
DRIVER_MB = 1024

_RATE = re.compile(r"\s*([\d_,]+(?:\.\d+)?)\s*([kKmM]?)\s*/\s*(\d*)\s*(s|sec|min|h|hour|d|day)\s*", re.ASCII)
_TIMES = {"": 1, "k": 1_000, "m": 1_000_000}
_SECONDS = {"s": 1, "sec": 1, "min": 60, "h": 3600, "hour": 3600, "d": 86_400, "day": 86_400}


def parse_rate(text: str) -> float:
    """Parse a rate into records per second: ``1_000_000/s``, ``1M/s``, ``112M/10min``.

    Raises:
        ConfigError: the text is not a rate, or the rate is 0 or less.
    """
    match = _RATE.fullmatch(text)
    if match is not None:
        number = float(re.sub("[_,]", "", match[1]) or 0) * _TIMES[match[2].lower()]
        seconds = int(match[3] or 1) * _SECONDS[match[4]]
        if number > 0 and seconds > 0:
            return number / seconds
    raise ConfigError(
        f"'{text}' is not a rate", where="--target-rate", hint="write RECORDS/TIME: 1_000_000/s, 50k/s, 112M/10min"
    )


@dataclass(frozen=True, kw_only=True)
class MachineSpeed:
    """The throughput of one core of a machine, measured by ``lakefeed-bench throughput``.

    Attributes:
        rows_per_cpu_second: the client's rows per CPU second, for the pipeline's sink.
        record_bytes, stored_bytes: the bytes of a record in the topic, uncompressed, and of its row in the table.
        server_cpu: CPU seconds of a server per row, by server.
        batch_overhead: the seconds of a batch in which no task runs.
        peak_mb: the memory of driver and tasks together, with ``cores`` cores.
    """

    rows_per_cpu_second: float
    record_bytes: float
    stored_bytes: float
    server_cpu: dict[str, float]
    batch_overhead: float
    peak_mb: float
    cores: int
    records: int

    @classmethod
    def read(cls, path: Path, *, sink: str) -> MachineSpeed:
        """Read the JSON output of the bench; refuse a file without measurements of this sink."""
        hint = "in a checkout of lakefeed: make bench ARGS='throughput --case lakefeed-iceberg', or lakefeed-parquet"
        try:
            document = json.loads(path.read_text("utf-8"))
            way = next((way for way in document["ways"] if way["way"] == f"lakefeed-{sink}"), None)
            if way is None:
                raise ConfigError(f"lakefeed-bench has not measured feeds into {sink}", where=str(path), hint=hint)
            if not way["rows_equal"]:
                raise ConfigError(
                    "the rows that lakefeed-bench landed differed from its topic, so the measurement does not count",
                    where=str(path),
                    hint=hint,
                )
            rows = sum(run["rows"] for run in way["runs"])
            servers = {name for run in way["runs"] for name in run["server_cpu_seconds"]}
            return cls(
                rows_per_cpu_second=float(way["rows_per_cpu_second"]),
                record_bytes=float(document["record_bytes"]),
                stored_bytes=sum(run["stored_bytes"] for run in way["runs"]) / rows,
                server_cpu={
                    name: sum(run["server_cpu_seconds"].get(name, 0.0) for run in way["runs"]) / rows
                    for name in sorted(servers)
                },
                batch_overhead=max(0.0, sum(run["batch_overhead_seconds"] for run in way["runs"]) / len(way["runs"])),
                peak_mb=float(way["peak_rss_mb"]),
                cores=int(document["cores"]),
                records=int(document["records"]),
            )
        except FileNotFoundError:
            raise ResourceMissing("this machine has not been measured yet", where=str(path), hint=hint) from None
        except (OSError, ValueError, KeyError, TypeError, ZeroDivisionError):
            what = "this file is not the output of lakefeed-bench throughput --output json"
            raise ConfigError(what, where=str(path), hint=hint) from None


@dataclass(frozen=True)
class Figure:
    name: str
    value: float
    unit: str
    rests_on: str


@dataclass(frozen=True, kw_only=True)
class Sizing:
    rate: float
    figures: tuple[Figure, ...]
    assumptions: tuple[str, ...]
    warnings: tuple[str, ...]

    def __getitem__(self, name: str) -> float:
        return next(figure.value for figure in self.figures if figure.name == name)

    def as_dict(self) -> dict[str, Any]:
        """Return the document of ``--output json``."""
        figures = {figure.name: asdict(figure) for figure in self.figures}
        for figure in figures.values():
            del figure["name"]
        return {
            "records_per_second": self.rate,
            "figures": figures,
            "assumptions": self.assumptions,
            "warnings": self.warnings,
        }


@dataclass(frozen=True, kw_only=True)
class FeedLoad:
    """The load of a feed. ``rate`` is in records per second; ``partitions`` is the sum over all topics."""

    rate: float
    config: PipelineConfig
    topics: int
    partitions: int | None = None
    executor_cores: int = CORES_AN_EXECUTOR

    @classmethod
    def of(cls, rate: float, config: PipelineConfig, *, topics: int | None, partitions: int | None) -> FeedLoad:
        """Return the load, by default for the file's topics; refuse a sink or a source that cannot be sized."""
        written = config.sink.chosen.stored_files
        if config.source.kafka is None or written.elsewhere is not None or written.is_unknown or written.merges:
            what = f"a feed of source.{config.source.kind} into sink.{config.sink.kind} cannot be sized"
            hint = "only feeds can be sized that read Kafka and append rows to files"
            raise ConfigError(what, where=config.name, hint=hint)
        listed = config.source.kafka.topics
        if topics is None and listed is None:
            what, hint = (
                "topics_pattern does not show the number of topics",
                "give the number, for example --topics 1000",
            )
            raise ConfigError(what, where=config.name, hint=hint)
        topics = topics or len(listed or ())
        if partitions is not None and partitions < topics:
            what, hint = f"{topics:,} topics cannot have only {partitions:,} partitions", f"give {topics} or more"
            raise ConfigError(what, where="--partitions", hint=hint)
        return cls(rate=rate, config=config, topics=topics, partitions=partitions)

    @property
    def tables(self) -> int:
        return self.topics if self.config.has_many_tables else 1


def size(load: FeedLoad, measured: MachineSpeed) -> Sizing:
    return _Arithmetic(load, measured).sizing()


class _Arithmetic:
    def __init__(self, load: FeedLoad, measured: MachineSpeed) -> None:
        self.load, self.measured = load, measured
        self.cores = math.ceil(load.rate / (measured.rows_per_cpu_second * UTILIZATION))
        self.executors = math.ceil(self.cores / load.executor_cores)
        self.slots = self.executors * load.executor_cores if self.executors > 1 else self.cores
        self.partitions = load.partitions or self._partitions()
        if self.partitions > MOST_PARTITIONS:
            what = f"{self.partitions:,} partitions are more than one feed can have"
            hint = "split the load over several feeds, and size one feed"
            raise ConfigError(what, where=load.config.name, hint=hint)
        # A batch has at most one task per partition, so further slots stay idle.
        self.working = min(self.slots, self.partitions)
        self.capacity = self.working * measured.rows_per_cpu_second
        # ``commits`` is the time in which no task runs: per batch or, with a table per topic, per batch of all tables.
        at_once = load.config.table_rules.at_once if load.tables > 1 else 1
        self.commits = measured.batch_overhead * math.ceil(load.tables / at_once)
        self.trigger, self.trigger_why = self._trigger()
        self.batch = math.ceil(round(load.rate * self.trigger, 3))
        self.files = self._files()

    def _partitions(self) -> int:
        """Return the least sufficient number of partitions, a multiple of the topics; for one topic, of the slots."""
        by_bytes = math.ceil(self.load.rate * self.measured.record_bytes / BYTES_A_PARTITION)
        needed = max(self.slots, by_bytes)
        if self.load.topics > 1:
            return self.load.topics * math.ceil(needed / self.load.topics)
        return self.slots * math.ceil(needed / self.slots)

    def _trigger(self) -> tuple[int, str]:
        busy = self.load.rate / self.capacity if self.capacity else math.inf
        least = max(1, math.ceil(self.commits / (1 - busy))) if busy < 1 else LONGEST_TRIGGER
        given = self.load.config.trigger
        if given != AVAILABLE_NOW and "real-time" not in given:
            seconds = trigger_seconds(given)
            if seconds >= least:
                return math.ceil(seconds), "the file's"
            return least, f"the file's {given} is shorter than a batch"
        filled = self.partitions * TARGET_FILE_BYTES / (self.load.rate * self.measured.stored_bytes)
        seconds = min(LONGEST_TRIGGER, max(least, math.ceil(filled)))
        return seconds, f"for files of {TARGET_FILE_BYTES // 1024**2} MiB, but at most {LONGEST_TRIGGER} s"

    def _files(self) -> int:
        """Return a batch's number of files as a run computes it; with a table per topic, the sum over all tables."""
        each = -(-self.partitions // self.load.tables)
        records = math.ceil(self.batch / self.load.tables / each)
        ranges = OffsetRanges(tuple(OffsetRange("t", number, 0, records) for number in range(each)))
        return task_count(ranges, most=ranges.records) * self.load.tables

    def _ledger_bytes(self) -> int:
        """Return the bytes of a commit's properties in a snapshot summary, for offsets with many digits."""
        each = -(-self.partitions // self.load.tables)
        start = 10**12
        step = math.ceil(self.batch / self.partitions)
        ranges = OffsetRanges(
            tuple(OffsetRange("a-topic-of-usual-length", number, start, start + step) for number in range(each)),
            {"a-topic-of-usual-length": "x" * 22},
        )
        written = Commit(feed=self.load.config.name, batch_id=10**6, ranges=ranges, fence="x" * 36).properties()
        return sum(len(key) + len(value) for key, value in written.items())

    def _snapshots(self) -> tuple[int, str]:
        # The block belongs to another plug-in, which may not be installed.
        expire: Any = getattr(self.load.config.added_blocks.get("upkeep"), "expire", None)
        kept = seconds_of(expire.older_than) if expire is not None else EXPIRED_AFTER
        least = expire.keep if expire is not None else 100
        return max(least, math.ceil(kept / self.trigger)), f"expiry keeps {kept / 86_400:g} days of batches"

    def figures(self) -> Iterator[Figure]:
        load, measured = self.load, self.measured
        rate, written = load.rate, load.config.sink.chosen.stored_files
        speed = f"{measured.rows_per_cpu_second:,.0f} rows/CPU s measured"
        yield Figure("cores", self.cores, "", f"{speed}, at {UTILIZATION:.0%} of their time")
        yield Figure("executors", self.executors, "", f"up to {load.executor_cores} cores each")
        why = "given" if load.partitions else f"a multiple of the slots; {BYTES_A_PARTITION // 10**6} MB/s each"
        if load.topics > 1 and not load.partitions:
            why = f"as many as slots, and at least one for each of {load.topics:,} topics"
        yield Figure("partitions", self.partitions, "", why)
        yield Figure("trigger", self.trigger, "s", self.trigger_why)
        yield Figure("records a batch", self.batch, "", "the rate times the trigger")
        most = math.ceil(max(self.capacity * self.trigger, self.batch))
        yield Figure("max_records_per_batch", most, "", "the cores' limit for that time: a batch that catches up")
        executor = math.ceil(measured.peak_mb / measured.cores * load.executor_cores)
        why = f"{measured.peak_mb:,.0f} MB measured on {measured.cores} cores"
        yield Figure("executor memory", executor, "MB", why)
        ledger = self._ledger_bytes()
        yield Figure("ledger", ledger, "B", "offset ranges in the summary of each commit")
        snapshots, kept = self._snapshots()
        metadata = snapshots * (ledger + 1000) if load.config.sink.chosen.snapshot_table is not None else 0
        if metadata:
            yield Figure("metadata file", metadata, "B", f"{snapshots:,} snapshots: {kept}; each commit writes it all")
        tasks = min(RETAINED_TASKS, self.files * snapshots) * TASK_BYTES
        # In memory, a metadata file takes about three times its size. The driver writes one metadata file at a time.
        driver = DRIVER_MB + math.ceil((tasks + 3 * metadata) / 10**6)
        why = f"{DRIVER_MB:,} MB, Spark's list of finished tasks, three times the metadata file"
        yield Figure("driver memory", driver, "MB", why)
        batches = 3600 / self.trigger
        yield Figure("files an hour", math.ceil(self.files * batches), "", f"{self.files:,} of a batch")
        size_ = rate * self.trigger * measured.stored_bytes / self.files
        yield Figure("file size", round(size_), "B", f"{measured.stored_bytes:.1f} B a row measured")
        checkpoint = ", the checkpoint" if load.config.checkpoint else ""
        others = (written.commit_puts + 1) * load.tables + (CHECKPOINT if load.config.checkpoint else 0)
        yield Figure(
            "S3 requests an hour",
            math.ceil((self.files + others) * batches),
            "",
            f"files and {others:,} in each batch: {written.commit_name}, a delete of old metadata{checkpoint}",
        )
        yield Figure("from Kafka", rate * measured.record_bytes / 10**6, "MB/s", "not compressed")
        yield Figure("to the store", rate * measured.stored_bytes / 10**6, "MB/s", "as stored")
        for name, seconds in measured.server_cpu.items():
            yield Figure(f"cores of {name}", round(rate * seconds, 2), "", "CPU time of the server in the bench")
        left = self.capacity - rate
        if left > 0:
            why = "time to catch up after an hour's stop, beside new records"
            yield Figure("an hour's backlog", math.ceil(3600 * rate / left), "s", why)

    def warnings(self, figures: tuple[Figure, ...]) -> Iterator[str]:
        values = {figure.name: figure.value for figure in figures}
        if self.capacity <= self.load.rate:
            yield (
                f"{self.partitions:,} partitions are too few: {self.working:,} concurrent tasks reach "
                f"{self.capacity:,.0f} records/s, and the rate is {self.load.rate:,.0f} records/s"
            )
        if values.get("metadata file", 0) > MOST_METADATA_BYTES:
            most = MOST_METADATA_BYTES // (values["ledger"] + 1000) * self.trigger
            yield (
                f"the metadata file is above {MOST_METADATA_BYTES // 1024**2} MiB: keep snapshots for at most "
                f"{most / 3600:.1f} hours (upkeep.expire), set a longer trigger, or split the topics over several feeds"
            )
        if values["file size"] < TARGET_FILE_BYTES / 16:
            yield "files are small: set a longer trigger or fewer partitions, or compact the table (upkeep.compact)"
        if self.trigger_why.endswith("shorter than a batch"):
            yield f"trigger: set {self.trigger} seconds or more"

    def sizing(self) -> Sizing:
        figures = tuple(self.figures())
        measured = self.measured
        return Sizing(
            rate=self.load.rate,
            figures=figures,
            assumptions=(
                f"the bench's {measured.records:,} records of {measured.record_bytes:.0f} B cost as much as yours",
                "the cluster's cores are as fast as those of the measured machine",
                "throughput grows in proportion to cores, because partitions share only the commit",
                "records are spread evenly over the partitions",
                f"a batch needs {measured.batch_overhead:.2f} s besides its tasks, with any number of cores",
            ),
            warnings=tuple(self.warnings(figures)),
        )
