"""A query's progress as numbers, taken from Spark's own reports."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lakefeed.feed.progress.requests import S3Requests

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

    from lakefeed.feed.batch_writer import BatchResult


@dataclass(frozen=True)
class BatchProgress:
    """One finished micro-batch.

    Attributes:
        batch_id: Spark's number of it.
        records: records read.
        rows: rows landed; None where the sink does not say.
        seconds: how long the whole batch took.
        lag: offsets in the topics, when the batch was planned, that no batch has read yet; None where it is unknown: of
            a batch that another driver has planned, or of a source whose offsets count no records.
        requests: requests to S3, of driver and executors; None if they were not counted.
        request_budget: how many there should be at most; None for no budget.
        dead_letters: records that became dead letters.
        skipped: records left out because the pipeline says so.
        notes: what the user should hear of, such as a change of the schema.
        offsets: that the batch moved on by, with those that hold no record; None if that is not known.
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
    notes: tuple[str, ...] = ()
    offsets: int | None = None

    @property
    def over_budget(self) -> bool:
        """Whether the batch made more requests than its budget."""
        return self.requests is not None and self.requests.total > (self.request_budget or self.requests.total)

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
        """How long the lag takes at this rate; None if that cannot be said.

        In offsets, as the lag: of a compacted topic, or one with transactions, few of them may be records.
        """
        if not self.lag:
            return None if self.lag is None else 0.0
        done = self.records if self.offsets is None else self.offsets
        return self.lag * self.seconds / done if done > 0 and self.seconds > 0 else None

    @classmethod
    def of(
        cls,
        report: Mapping[str, Any],
        *,
        landed: BatchResult | None,
        requests: S3Requests | None = None,
        request_budget: int | None = None,
    ) -> BatchProgress:
        """Reads the JSON of Spark's StreamingQueryProgress."""
        return cls(
            batch_id=int(report["batchId"]),
            # Spark's own number counts a batch twice that was decoded twice.
            records=landed.counts.records if landed and landed.counts.records else int(report["numInputRows"]),
            rows=landed.rows if landed else None,
            seconds=int(report["durationMs"].get("triggerExecution", 0)) / 1000,
            lag=_sum([_lag(source) for source in report["sources"]]),
            requests=requests,
            request_budget=request_budget,
            dead_letters=landed.counts.dead_letters if landed else 0,
            skipped=landed.counts.skipped if landed else 0,
            notes=landed.notes if landed else (),
            offsets=_sum(
                [_between(source.get("startOffset"), source.get("endOffset")) for source in report["sources"]]
            ),
        )


def _sum(lags: Sequence[int | None]) -> int | None:
    known = [each for each in lags if each is not None]
    return sum(known) if len(known) == len(lags) else None


def _lag(source: Mapping[str, Any]) -> int | None:
    return _between(source.get("endOffset"), source.get("latestOffset"))


def _between(start: object, end: object) -> int | None:
    """How many offsets lie between two places of a source; None if one is unknown, or its offsets count no records."""
    if not isinstance(start, dict) or not isinstance(end, dict):
        return None
    if not all(isinstance(offsets, dict) for offsets in end.values()):
        return None
    pairs = [
        (start.get(topic, {}).get(partition), offset)
        for topic, offsets in end.items()
        for partition, offset in offsets.items()
    ]
    if any(before is None for before, _ in pairs):
        # A new partition begins wherever it begins, which need not be 0.
        return None
    return sum(max(0, _at(offset) - _at(before)) for before, offset in pairs)


def _at(offset: Any) -> int:
    """A source with names of its own for places has them beside the number."""
    return int(offset["at"] if isinstance(offset, dict) else offset)


class ProgressReports:
    """Hands out each of a query's progress reports once."""

    def __init__(self, query: StreamingQuery) -> None:
        self._query = query
        self._seen = -1

    def new(self) -> Iterator[Mapping[str, Any]]:
        """The reports of batches that have finished since the last call."""
        last = self._query.lastProgress
        if last is None or last["batchId"] <= self._seen:
            return
        for report in self._query.recentProgress:
            # A trigger without data is reported too, under the id of the batch to come.
            if report["batchId"] > self._seen and report["durationMs"].get("addBatch") is not None:
                self._seen = report["batchId"]
                yield json.loads(report.json)
