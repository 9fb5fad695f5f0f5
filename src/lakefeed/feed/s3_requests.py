"""Requests to S3, as the JVM's meter in the driver has counted them: of a query, batch by batch."""

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
"""How operations of S3 begin that stores charge as writes: PUT, COPY, POST and LIST."""
FREE = ("Delete", "Abort")


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


class BatchRequests(JsonModel):
    """Requests to S3 of one batch, as the meter in the driver has counted them.

    Attributes:
        data_files: data files that were written.
        writes: PUT, COPY, POST and LIST, which stores charge together; ``reads`` GET, HEAD and others; deletions are in
            neither, since they are free.
        by_class: requests by class of keys: data, metadata, offsets, commits, state and so on.
        counts: the figures that the others are sums of; in no document.
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
    """Requests to S3 over some time, by operation, key class and location.

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

    def of_one_batch(self, budget: int | None) -> BatchRequests:
        """Return these as the requests of a batch; its data files are those that were put."""
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
        """Requests by class of keys, and by operation."""
        found: dict[str, Counter[str]] = {}
        for count in self.counts:
            found.setdefault(count.key_class, Counter())[count.operation] += count.requests
        return {key_class: dict(operations) for key_class, operations in found.items()}

    def as_dict(self) -> dict[str, Any]:
        """Return the sums for ``--output json``."""
        return {
            "total": self.total,
            "bytes_out": self.bytes_out,
            "bytes_in": self.bytes_in,
            "errors": self.errors,
            "calls": self.calls,
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
