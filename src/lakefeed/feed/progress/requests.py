"""S3 requests by operation, by what the key is for, and by batch, as the JVM's request meter counts them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from lakefeed.clients.spark.jvm import java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class RequestCount:
    """How often one operation was sent for one class of keys of one location.

    Attributes:
        operation: S3's name for it, such as PutObject.
        key_class: data, metadata (an Iceberg table's), offsets, commits, sink_log, state, checkpoint (its owner,
            metadata file and sources), other (listings of directories, questions about buckets). A bulk delete
            has the class of its first key.
        location: ``bucket/path`` of the table or the checkpoint.
        requests: attempts, retries too.
        bytes_out: bytes of the requests' bodies.
        bytes_in: bytes of the answers' bodies, as their headers tell.
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
        """Reads the lines of ``io.lakefeed.s3.RequestMeter``."""
        return cls.of(
            RequestCount(operation, key_class, location, *(int(number) for number in numbers))
            for operation, key_class, location, *numbers in (line.split("\t") for line in report.splitlines())
        )

    @classmethod
    def of(cls, counts: Iterable[RequestCount]) -> S3Requests:
        """Adds up counts of one kind; nothing remains of those that come to no request."""
        sums: dict[tuple[str, str, str], list[int]] = {}
        for each in counts:
            known = sums.setdefault((each.key_class, each.operation, each.location), [0, 0, 0, 0])
            for index, number in enumerate((each.requests, each.bytes_out, each.bytes_in, each.errors)):
                known[index] += number
        return cls(
            tuple(
                RequestCount(operation, key_class, location, *numbers)
                for (key_class, operation, location), numbers in sorted(sums.items())
                if any(numbers)
            )
        )

    def __sub__(self, before: S3Requests) -> S3Requests:
        """What came after ``before``."""
        return S3Requests.of(
            (
                *self.counts,
                *(
                    RequestCount(
                        each.operation,
                        each.key_class,
                        each.location,
                        -each.requests,
                        -each.bytes_out,
                        -each.bytes_in,
                        -each.errors,
                    )
                    for each in before.counts
                ),
            )
        )

    def below(self, locations: Iterable[str]) -> S3Requests:
        """Those of these locations (``bucket/path``), and of all that is below them."""
        roots = tuple(locations)
        return S3Requests(
            tuple(each for each in self.counts if any(f"{each.location}/".startswith(f"{root}/") for root in roots))
        )

    @property
    def total(self) -> int:
        """All requests."""
        return sum(each.requests for each in self.counts)

    @property
    def bytes_out(self) -> int:
        """Bytes sent."""
        return sum(each.bytes_out for each in self.counts)

    @property
    def bytes_in(self) -> int:
        """Bytes received."""
        return sum(each.bytes_in for each in self.counts)

    @property
    def errors(self) -> int:
        """Answers of 400 and above, and attempts without an answer."""
        return sum(each.errors for each in self.counts)

    @property
    def by_operation(self) -> dict[str, int]:
        """Requests by S3 operation."""
        return self._by(lambda each: each.operation)

    @property
    def by_key_class(self) -> dict[str, int]:
        """Requests by what the key is for."""
        return self._by(lambda each: each.key_class)

    def as_dict(self) -> dict[str, Any]:
        """For ``--output json``."""
        calls: dict[str, dict[str, int]] = {}
        for each in self.counts:
            of_class = calls.setdefault(each.key_class, {})
            of_class[each.operation] = of_class.get(each.operation, 0) + each.requests
        return {
            "total": self.total,
            "bytes_out": self.bytes_out,
            "bytes_in": self.bytes_in,
            "errors": self.errors,
            "calls": calls,
        }

    def _by(self, kind: Callable[[RequestCount], str]) -> dict[str, int]:
        sums: Counter[str] = Counter()
        for each in self.counts:
            sums[kind(each)] += each.requests
        return dict(sorted(sums.items()))


def s3_requests(spark: SparkSession) -> S3Requests:
    """All requests of driver and executors since the driver's JVM began."""
    return S3Requests.parse(java(spark).s3.RequestMeter.report())


class FeedRequests:
    """The requests of one running query, batch by batch. Use it as a context manager around the query.

    A batch begins where the one before it ended, the first one where its offsets are written; it ends when the
    store has confirmed its entry in the log of commits. The meter itself sees these two requests, so with a local
    master a batch's count is exact. On a cluster an executor's last requests can be counted in the next batch.

    Args:
        spark: the session that the query runs in.
        checkpoint: its checkpoint location.
        sink: where its table or files are.
        since: the counts before the first batch.
    """

    def __init__(self, spark: SparkSession, *, checkpoint: str, sink: str, since: S3Requests) -> None:
        self._meter = java(spark).s3.RequestMeter
        self._checkpoint = location_of(checkpoint)
        self._locations = (self._checkpoint, location_of(sink))
        self._before = since.below(self._locations)
        self._last: S3Requests | None = None

    def __enter__(self) -> Self:
        self._meter.watch(self._checkpoint, "\n".join(self._locations))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._meter.unwatch(self._checkpoint)

    def of_batch(self, batch_id: int) -> S3Requests:
        """The requests of a finished batch; to be asked once for each batch, in their order."""
        begin = self._last or self._start() or self._before
        text = self._meter.atCommit(self._checkpoint, batch_id)
        self._last = self._now() if text is None else S3Requests.parse(text)
        return self._last - begin

    def of_startup(self) -> S3Requests:
        """The requests before the first batch; all of them if there was none."""
        return (self._start() or self._now()) - self._before

    def total(self) -> S3Requests:
        """All requests of this query so far, those before its first batch included."""
        return self._now() - self._before

    def _start(self) -> S3Requests | None:
        text = self._meter.atFirstBatch(self._checkpoint)
        return None if text is None else S3Requests.parse(text)

    def _now(self) -> S3Requests:
        return S3Requests.parse(self._meter.report()).below(self._locations)


def location_of(uri: str) -> str:
    """``s3a://bucket/path/`` as ``bucket/path``."""
    return uri.partition("://")[2].rstrip("/")
