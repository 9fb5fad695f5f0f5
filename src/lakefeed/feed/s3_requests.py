"""Counts the S3 requests of a query and its batches with ``io.lakefeed.s3.RequestMeter`` in the driver's JVM."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Self

from pydantic import Field, SkipValidation

from lakefeed.clients.spark.jvm import java
from lakefeed.json_model import JsonModel
from lakefeed.lazy import SparkSession

DATA = "data"
FILES_BY = ("PutObject", "CompleteMultipartUpload")
WRITES = ("Put", "Copy", "Post", "List", "Create", "Upload", "Complete")
"""The prefixes of S3 operations that stores charge as writes: PUT, COPY, POST and LIST."""
FREE = ("Delete", "Abort")


class RequestCount(NamedTuple):
    """The number of requests of one operation for one class of keys in one location.

    Attributes:
        key_class: data, metadata (of an Iceberg table), offsets, commits, sink_log, state, checkpoint (its owner,
            metadata file and sources), or other (listings of directories, requests about buckets). A bulk delete
            has the class of its first key.
        location: ``bucket/path`` of the table or the checkpoint.
        requests: the number of attempts, including retries.
        errors: the number of attempts with HTTP status 400 or above (404 too), or without an answer.
    """

    operation: str
    key_class: str
    location: str
    requests: int
    bytes_out: int
    bytes_in: int
    errors: int


class BatchRequests(JsonModel):
    """The S3 requests of one batch.

    Attributes:
        data_files: the number of data files written.
        writes: the number of PUT, COPY, POST and LIST, which cost the same. ``reads``: that of GET, HEAD and other
            requests. ``writes`` and ``reads`` exclude deletions, because deletions are free.
        by_class: the number of requests by class of keys: data, metadata, offsets, commits, state and so on.
        counts: the single counts from which the sums are made; JSON documents omit them.
    """

    total: int
    errors: int = 0
    bytes_out: int = 0
    bytes_in: int = 0
    data_files: int = 0
    writes: int = 0
    reads: int = 0
    by_class: dict[str, int] = Field({})
    counts: SkipValidation[tuple[RequestCount, ...]] = Field((), exclude=True, repr=False)
    budget: int | None = None

    @property
    def over_budget(self) -> bool:
        return self.budget is not None and self.total > self.budget


@dataclass(frozen=True)
class S3Requests:
    """The S3 requests of a period, by operation, key class and location.

    Example:
        >>> summary.requests.total, summary.requests.by_key_class
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
        """Return counts summed by operation, key class and location; sums of 0 are left out."""
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
        """Return the requests for these locations (``bucket/path``), and for all locations below them."""
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

    def of_one_batch(self, budget: int | None) -> BatchRequests:
        """Return these counts as the requests of one batch; an upload to a key of class data counts as a data file."""
        return BatchRequests(
            total=self.total,
            errors=self.errors,
            bytes_out=self.bytes_out,
            bytes_in=self.bytes_in,
            data_files=sum(
                count.requests for count in self.counts if count.key_class == DATA and count.operation in FILES_BY
            ),
            writes=sum(count.requests for count in self.counts if count.operation.startswith(WRITES)),
            reads=sum(count.requests for count in self.counts if not count.operation.startswith((*WRITES, *FREE))),
            by_class=self.by_key_class,
            counts=self.counts,
            budget=budget,
        )

    @property
    def calls(self) -> dict[str, dict[str, int]]:
        """The number of requests by class of keys and operation."""
        calls: dict[str, Counter[str]] = defaultdict(Counter)
        for count in self.counts:
            calls[count.key_class][count.operation] += count.requests
        return {key_class: dict(operations) for key_class, operations in calls.items()}

    def as_dict(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("total", "bytes_out", "bytes_in", "errors", "calls")}


def s3_requests(spark: SparkSession) -> S3Requests:
    """Return all S3 requests of driver and executors since the start of the driver's JVM."""
    return S3Requests.parse(java(spark).s3.RequestMeter.report())


class FeedRequests:
    """The S3 requests of one running query by batch. Use it as a context manager around the query.

    The first batch begins when Spark writes its offsets; other batches begin at the end of the previous batch. A batch
    ends when the store has confirmed its entry in the log of commits, or when the feed calls ``end_batch``. The meter
    observes both events itself, so a batch's count is exact with a local master. On a cluster, an executor's last
    requests may be counted in the next batch.

    Args:
        written: yields the known locations of rows and dead letters; called after every batch.
        since: the counts when the run began.
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
        """From now on, count for the run's next query; requests between two queries belong to no batch."""
        self._startup = self.of_startup()
        self._last, self._query_began = None, self._now()
        self._watch()

    def end_batch(self, batch_id: int) -> None:
        """End a batch of a query without a log of commits in the store; call this on the query's thread."""
        self._meter.batchEnded(self._checkpoint, batch_id)

    def of_batch(self, batch_id: int) -> S3Requests:
        """Return the requests of a finished batch; call this once per batch, in the order of the batches."""
        begin = self._last or self._start() or self._query_began
        text = self._meter.atCommit(self._checkpoint, batch_id)
        self._last = self._now() if text is None else S3Requests.parse(text)
        requests = self._last - begin
        self._add_places()
        return requests

    def of_startup(self) -> S3Requests:
        """Return the requests before the first batch, or all requests if there is no batch yet."""
        return self._startup or (self._start() or self._now()) - self._before

    def total(self) -> S3Requests:
        """Return all requests of this run so far, including the requests before the first batch."""
        return self._now() - self._before

    def _add_places(self) -> None:
        """Add new locations, and count their earlier requests of this run in the next batch."""
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
