"""The progress of a running query: Spark's reports, and the requests to S3 of the JVM's meter."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self

from lakefeed.clients.spark.jvm import java
from lakefeed.lazy import SparkSession, StreamingQuery
from lakefeed.monitor.lag import per_second, seconds_left
from lakefeed.offsets.ranges import offset_number

if TYPE_CHECKING:
    from lakefeed.feed.batch_writer import BatchResult


class RequestCount(NamedTuple):
    """How often one operation was sent for one class of keys of one location.

    Attributes:
        key_class: data, metadata (an Iceberg table's), offsets, commits, sink_log, state, checkpoint (its owner,
            metadata file and sources), other (listings of directories, questions about buckets). A bulk delete
            has the class of its first key.
        location: ``bucket/path`` of the table or the checkpoint.
        requests: attempts, retries too.
        errors: answers with HTTP status 400 or above (404 too), and attempts without an answer.
    """

    operation: str
    key_class: str
    location: str
    requests: int
    bytes_out: int
    bytes_in: int
    errors: int


@dataclass(frozen=True)
class S3Requests:
    """Requests to S3 over some time, by operation, key class and location.

    Example:
        >>> progress.requests.total, progress.requests.by_key_class
        (15, {'commits': 1, 'data': 7, 'metadata': 6, 'offsets': 1})
    """

    counts: tuple[RequestCount, ...] = ()

    @classmethod
    def parse(cls, report: str) -> S3Requests:
        """Parse the lines of ``io.lakefeed.s3.RequestMeter``."""
        fields = (line.split("\t") for line in report.splitlines())
        return cls._sum(
            RequestCount(operation, key_class, location, *map(int, numbers))
            for operation, key_class, location, *numbers in fields
        )

    @classmethod
    def _sum(cls, counts: Iterable[RequestCount]) -> S3Requests:
        """Add up counts of one kind; a kind without a request is left out."""
        sums: dict[tuple[str, str, str], list[int]] = defaultdict(lambda: [0, 0, 0, 0])
        for count in counts:
            kind = count.key_class, count.operation, count.location
            sums[kind] = [before + number for before, number in zip(sums[kind], count[3:], strict=True)]
        return cls(
            tuple(
                RequestCount(operation, key_class, location, *numbers)
                for (key_class, operation, location), numbers in sorted(sums.items())
                if any(numbers)
            )
        )

    def __add__(self, other: S3Requests) -> S3Requests:
        return S3Requests._sum((*self.counts, *other.counts))

    def __sub__(self, before: S3Requests) -> S3Requests:
        subtracted = (RequestCount(*count[:3], *(-number for number in count[3:])) for count in before.counts)
        return S3Requests._sum((*self.counts, *subtracted))

    def below(self, locations: Iterable[str]) -> S3Requests:
        """Return the requests for these locations (``bucket/path``), and for all below them."""
        roots = tuple(f"{location}/" for location in locations)
        return S3Requests(tuple(count for count in self.counts if f"{count.location}/".startswith(roots)))

    @property
    def total(self) -> int:
        return sum(count.requests for count in self.counts)

    @property
    def bytes_out(self) -> int:
        return sum(count.bytes_out for count in self.counts)

    @property
    def bytes_in(self) -> int:
        return sum(count.bytes_in for count in self.counts)

    @property
    def errors(self) -> int:
        return sum(count.errors for count in self.counts)

    @property
    def by_operation(self) -> dict[str, int]:
        return self._sum_by("operation")

    @property
    def by_key_class(self) -> dict[str, int]:
        return self._sum_by("key_class")

    def _sum_by(self, attribute: Literal["operation", "key_class"]) -> dict[str, int]:
        sums: Counter[str] = Counter()
        for count in self.counts:
            sums[getattr(count, attribute)] += count.requests
        return dict(sorted(sums.items()))

    def as_dict(self) -> dict[str, Any]:
        """Return the sums for ``--output json``."""
        calls: dict[str, Counter[str]] = {}
        for count in self.counts:
            calls.setdefault(count.key_class, Counter())[count.operation] += count.requests
        return {
            "total": self.total,
            "bytes_out": self.bytes_out,
            "bytes_in": self.bytes_in,
            "errors": self.errors,
            "calls": {key_class: dict(operations) for key_class, operations in calls.items()},
        }


def s3_requests(spark: SparkSession) -> S3Requests:
    """Count all requests of driver and executors since the driver's JVM began."""
    return S3Requests.parse(java(spark).s3.RequestMeter.report())


class FeedRequests:
    """The requests of one running query, batch by batch. Use it as a context manager around the query.

    A batch begins where the one before it ended, the first one where its offsets are written; it ends when the
    store has confirmed its entry in the log of commits, or when the feed says so with ``end_batch``. The meter sees
    these moments themselves, so with a local master a batch's count is exact. On a cluster an executor's last requests
    can be counted in the next batch.
    ``written`` yields the places of rows and dead letters that are known by now; it is asked again after each batch.
    ``since`` are the counts before the first batch.
    """

    def __init__(
        self, spark: SparkSession, *, checkpoint: str, written: Callable[[], Iterable[str]], since: S3Requests
    ) -> None:
        self._meter = java(spark).s3.RequestMeter
        self._checkpoint = location_of(checkpoint)
        self._written, self._since = written, since
        self._locations = (self._checkpoint, *map(location_of, written()))
        self._before = self._query_began = since.below(self._locations)
        self._startup: S3Requests | None = None
        self._last: S3Requests | None = None

    def __enter__(self) -> Self:
        self._watch()
        return self

    def __exit__(self, *error: object) -> None:
        self._meter.unwatch(self._checkpoint)

    def next_query(self) -> None:
        """Begin again before the run's next query: what is requested between two queries belongs to no batch."""
        self._startup = self.of_startup()
        self._last, self._query_began = None, self._now()
        self._watch()

    def end_batch(self, batch_id: int) -> None:
        """End a batch here, on the query's thread: for a query that has no log of commits in the store."""
        self._meter.batchEnded(self._checkpoint, batch_id)

    def of_batch(self, batch_id: int) -> S3Requests:
        """Return the requests of a finished batch; called once for each batch, in their order."""
        begin = self._last or self._start() or self._query_began
        text = self._meter.atCommit(self._checkpoint, batch_id)
        self._last = self._now() if text is None else S3Requests.parse(text)
        found = self._last - begin
        self._add_places()
        return found

    def of_startup(self) -> S3Requests:
        """Return the requests before the first batch; all of them if there was none."""
        return self._startup or (self._start() or self._now()) - self._before

    def total(self) -> S3Requests:
        """Return all requests of this query so far, those before its first batch included."""
        return self._now() - self._before

    def _add_places(self) -> None:
        """Count the places that are new, too: what they have had in this run comes with the next batch."""
        new = [place for place in map(location_of, self._written()) if place not in self._locations]
        if new and self._last is not None:
            earlier = self._since.below(new)
            self._before, self._last = self._before + earlier, self._last + earlier
            self._locations = (*self._locations, *new)
            self._watch()

    def _watch(self) -> None:
        self._meter.watch(self._checkpoint, "\n".join(self._locations))

    def _start(self) -> S3Requests | None:
        text = self._meter.atFirstBatch(self._checkpoint)
        return None if text is None else S3Requests.parse(text)

    def _now(self) -> S3Requests:
        return S3Requests.parse(self._meter.report()).below(self._locations)


def location_of(uri: str) -> str:
    """Return ``s3a://bucket/path/`` as ``bucket/path``."""
    return uri.partition("://")[2].rstrip("/")


@dataclass(frozen=True)
class BatchProgress:
    """One finished micro-batch.

    Attributes:
        rows: rows written; None where the sink does not say.
        lag: offsets in the topics, when the batch was planned, that no batch has read yet; None where it is unknown: of
            a batch that another driver has planned, or of a source whose offsets count no records.
        requests: requests to S3, of driver and executors; None if they were not counted.
        notes: messages for the user, such as a change of the schema.
        offsets: how many offsets the batch has advanced by, with those that hold no record; None if unknown.
    """

    batch_id: int
    records: int
    rows: int | None
    seconds: float
    lag: int | None
    requests: S3Requests | None = None
    request_budget: int | None = None
    dead_letters: int = 0
    skipped: int = 0
    left_out: int = 0
    notes: tuple[str, ...] = ()
    offsets: int | None = None

    @property
    def over_budget(self) -> bool:
        return self.requests is not None and self.requests.total > (self.request_budget or self.requests.total)

    @property
    def input_rate(self) -> float:
        """Records a second."""
        return per_second(self.records, self.seconds)

    @property
    def output_rate(self) -> float | None:
        """Rows a second."""
        return None if self.rows is None else per_second(self.rows, self.seconds)

    @property
    def seconds_left(self) -> float | None:
        """How long the lag takes at this rate; None if that is unknown.

        In offsets, as the lag: of a compacted topic, or one with transactions, few of them may be records.
        """
        return seconds_left(self.lag, self.records if self.offsets is None else self.offsets, self.seconds)

    @classmethod
    def of(
        cls,
        report: Mapping[str, Any],
        *,
        landed: BatchResult | None,
        requests: S3Requests | None = None,
        request_budget: int | None = None,
    ) -> BatchProgress:
        """Read the JSON of Spark's StreamingQueryProgress."""
        return cls(
            batch_id=int(report["batchId"]),
            # Spark's own number counts a batch twice that was decoded twice.
            records=landed.counts.records if landed and landed.counts.records else int(report["numInputRows"]),
            rows=landed.rows if landed else None,
            seconds=int(report["durationMs"].get("triggerExecution", 0)) / 1000,
            lag=_offsets_between(report, "endOffset", "latestOffset"),
            requests=requests,
            request_budget=request_budget,
            dead_letters=landed.counts.dead_letters if landed else 0,
            skipped=landed.counts.skipped if landed else 0,
            left_out=landed.counts.left_out if landed else 0,
            notes=landed.notes if landed else (),
            offsets=_offsets_between(report, "startOffset", "endOffset"),
        )


def _offsets_between(report: Mapping[str, Any], start: str, end: str) -> int | None:
    """Count the offsets between two positions of the sources; None if one is unknown or counts no records."""
    total = 0
    for source in report["sources"]:
        try:
            # The names of a Python source's offsets need not be numbers, as partitions are.
            before, after = (
                {(topic, name): at for topic, offsets in source.get(place).items() for name, at in offsets.items()}
                for place in (start, end)
            )
        except AttributeError:  # Not by topic and partition.
            return None
        if not after.keys() <= before.keys():
            # A new partition begins wherever it begins, which need not be 0.
            return None
        total += sum(max(0, offset_number(at) - offset_number(before[key])) for key, at in after.items())
    return total


def new_reports(query: StreamingQuery, *, after: int) -> Iterator[Mapping[str, Any]]:
    """Read Spark's reports of the query's batches that have finished after this one."""
    last = query.lastProgress
    if last is None or last["batchId"] <= after:
        return
    for report in query.recentProgress:
        # A trigger without data is reported too, under the id of the batch to come.
        if report["batchId"] > after and report["durationMs"].get("addBatch") is not None:
            after = report["batchId"]
            yield json.loads(report.json)
