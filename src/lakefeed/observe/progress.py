"""A query's progress as numbers, taken from Spark's own reports."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lakefeed.commit.ranges import spark_offsets

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery


@dataclass(frozen=True)
class BatchProgress:
    """One finished micro-batch.

    Attributes:
        batch_id: Spark's number of it.
        records: records read.
        rows: rows landed; None where the sink does not say.
        seconds: how long the whole batch took.
        lag: records in the topics, when the batch was planned, that no batch has read yet.
    """

    batch_id: int
    records: int
    rows: int | None
    seconds: float
    lag: int

    @property
    def input_rate(self) -> float:
        """Records a second."""
        return self.records / self.seconds if self.seconds > 0 else 0.0

    @property
    def output_rate(self) -> float | None:
        """Rows a second."""
        if self.rows is None:
            return None
        return self.rows / self.seconds if self.seconds > 0 else 0.0

    @property
    def seconds_left(self) -> float | None:
        """How long the lag takes at this rate; None if that cannot be said."""
        if self.lag == 0:
            return 0.0
        return self.lag / self.input_rate if self.input_rate > 0 else None

    @classmethod
    def of(cls, report: Any, *, rows: int | None) -> BatchProgress:
        """Reads Spark's StreamingQueryProgress."""
        return cls(
            batch_id=int(report["batchId"]),
            records=int(report["numInputRows"]),
            rows=rows,
            seconds=int(report["durationMs"].get("triggerExecution", 0)) / 1000,
            lag=sum(_lag(source) for source in report["sources"]),
        )


def _lag(source: Any) -> int:
    latest, end = source["latestOffset"], source["endOffset"]
    if not isinstance(latest, str) or not isinstance(end, str):
        return 0
    ends = spark_offsets(end)
    return sum(
        max(0, offset - ends.get(topic, {}).get(partition, 0))
        for topic, offsets in spark_offsets(latest).items()
        for partition, offset in offsets.items()
    )


class ProgressReports:
    """Hands out each of a query's progress reports once."""

    def __init__(self, query: StreamingQuery) -> None:
        self._query = query
        self._seen = -1

    def new(self) -> Iterator[Any]:
        """The reports of batches that have finished since the last call."""
        last = self._query.lastProgress
        if last is None or last["batchId"] <= self._seen:
            return
        for report in self._query.recentProgress:
            # A trigger without data is reported too, under the id of the batch to come.
            if report["batchId"] > self._seen and report["durationMs"].get("addBatch") is not None:
                self._seen = report["batchId"]
                yield report
