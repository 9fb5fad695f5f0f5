"""A query's batches, finished and at work, from Spark's reports and the writer's results.

The phases of a batch, of which Spark measures some, and lakefeed those within its ``foreachBatch``:

``plan``         ask the topics for their ends, and plan the query (``latestOffset``, ``getBatch``, ``queryPlanning``)
``log``          write the checkpoint's entries (``walCommit``, ``commitOffsets``, ``commitBatch``)
``check``        ask the ledger whether the sink has the batch
``write``        read, decode and write the rows, and commit them; with several sinks ``rows`` of it is reading and
                 decoding, ``write sink`` the feed's own sink and ``write NAME`` the one of that name
``commit``       of ``write``: from when the rows are computed and may land until the sink has them; before it tasks
                 read, decode and, for tables of files, write. ``commit NAME`` of a further sink
``dead_letters`` write the dead letters
``publish``      hand the position to the thread that sends it to the monitoring group
``add``          ``check``, ``write``, ``dead_letters`` and ``publish`` together, as Spark measures it (``addBatch``)
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field, PlainSerializer, PlainValidator, computed_field

from lakefeed.errors import ConfigError
from lakefeed.feed.s3_requests import BatchRequests, S3Requests
from lakefeed.json_model import JsonModel, Seconds, Time
from lakefeed.lazy import StreamingQuery
from lakefeed.ledger.outcomes import Reason
from lakefeed.messages.redaction import redacted
from lakefeed.messages.text import LONGEST, shortened
from lakefeed.offsets.ranges import OffsetRange, Partition, by_partition, by_topic, offset_number

if TYPE_CHECKING:
    from lakefeed.feed.batch_writer import BatchResult

_PHASES = {
    "plan": ("latestOffset", "getBatch", "queryPlanning"),
    "log": ("walCommit", "commitOffsets", "commitBatch"),
    "add": ("addBatch",),
}


class QueryState(JsonModel):
    """The state and the watermark of a query; all None for a query without state.

    Attributes:
        watermark: event time in ISO 8601 up to which the query takes no more records.
        rows: keys in the state stores, ``bytes`` the memory that they use.
        late_rows: rows that came after the watermark, and were dropped by this batch.
    """

    watermark: str | None = None
    rows: int | None = None
    bytes: int | None = None
    late_rows: int | None = None


def _read_ranges(value: Any) -> tuple[OffsetRange, ...]:
    if isinstance(value, tuple):
        return value
    try:
        return tuple(OffsetRange(*key, *bounds) for key, bounds in by_partition(value).items())
    except (AttributeError, TypeError, ConfigError):
        raise ValueError("these are no offset ranges") from None


Ranges = Annotated[
    tuple[OffsetRange, ...],
    PlainValidator(_read_ranges),
    PlainSerializer(lambda ranges: by_topic({span.key: [span.start, span.end] for span in ranges})),
]


class FinishedBatch(JsonModel):
    """One finished micro-batch.

    Attributes:
        seconds: from its trigger to its end; ``phases`` are parts of that.
        records: read from the source; ``rows`` written, None where the sink does not say.
        offsets: how many offsets it has advanced by, with those that hold no record; None if unknown.
        input_rate: records a second since the trigger before; None if unknown.
        lag: offsets in the topics, when the batch was planned, that no batch had read; None where it is unknown: of a
            batch that another driver has planned, or of a source whose offsets count no records.
        left_out: rows whose records have JSON fields that no column takes.
        requests: to S3, of driver and executors; None if they were not counted.
        schema_id: the newest writers' schema that the rows cover; None for formats without ids.
        replayed: the sink had it already, from before a restart.
        notes: messages for the user, such as a change of the schema.
    """

    batch_id: int = Field(alias="batch")
    finished_at: Time
    seconds: Seconds
    records: int
    rows: int | None = None
    offsets: int | None = None
    input_rate: Seconds | None = None
    lag: int | None = None
    lag_seconds: Seconds | None = None
    dead_letters: int = 0
    skipped: int = 0
    left_out: int = 0
    reasons: tuple[Reason, ...] = ()
    phases: dict[str, Seconds] = Field({})
    requests: BatchRequests | None = None
    state: QueryState = QueryState()
    schema_id: int | None = None
    replayed: bool = False
    ranges: Ranges = ()
    notes: tuple[str, ...] = ()

    @computed_field  # type: ignore[prop-decorator]
    @property
    def processing_rate(self) -> Seconds:
        """Records a second while the batch ran."""
        return per_second(self.records, self.seconds)

    @property
    def output_rate(self) -> float | None:
        """Rows a second; None where the sink does not say."""
        return None if self.rows is None else per_second(self.rows, self.seconds)

    @property
    def seconds_left(self) -> float | None:
        """How long the lag takes at this rate; None if that is unknown.

        In offsets, as the lag: of a compacted topic, or one with transactions, few of them may be records.
        """
        done = self.records if self.offsets is None else self.offsets
        if not self.lag:
            return None if self.lag is None else 0.0
        return self.lag * self.seconds / done if done > 0 and self.seconds > 0 else None

    @property
    def over_budget(self) -> bool:
        return self.requests is not None and self.requests.over_budget


class RunningBatch(JsonModel):
    """The batch that a feed is at.

    Attributes:
        seconds: since it began.
        offsets: how many the batch reads; None if unknown.
        records: read so far by the tasks that Spark has heard of; None until it has.
        tasks_done: of the ``tasks`` that are known now; a later stage adds to them.
        phase: see ``FinishedBatch.phases``.
    """

    batch_id: int = Field(alias="batch")
    began_at: Time
    seconds: Seconds = 0.0
    offsets: int | None = None
    records: int | None = None
    tasks_done: int = 0
    tasks: int = 0
    phase: str | None = None

    @computed_field  # type: ignore[prop-decorator]
    @property
    def rate(self) -> Seconds | None:
        """The records a second so far."""
        return self.records / self.seconds if self.records and self.seconds > 0 else None

    @computed_field  # type: ignore[prop-decorator]
    @property
    def seconds_left(self) -> Seconds | None:
        """How long the rest takes at the rate so far: by records, else by tasks; None if neither says."""
        done, all_ = self.records or 0, self.offsets or 0
        if not 0 < done <= all_:
            done, all_ = self.tasks_done, self.tasks
        return self.seconds * (all_ - done) / done if 0 < done <= all_ else None


def per_second(count: int, seconds: float) -> float:
    """Return a rate; 0 for what took no time."""
    return count / seconds if seconds > 0 else 0.0


def batch_of(
    report: Mapping[str, Any],
    result: BatchResult | None,
    *,
    requests: S3Requests | None = None,
    request_budget: int | None = None,
) -> FinishedBatch:
    """Return a finished batch by Spark's report, the JSON of its StreamingQueryProgress, and the writer's result."""
    return FinishedBatch(
        batch_id=int(report["batchId"]),
        finished_at=time.time(),
        # Spark's own number counts a batch twice that was decoded twice.
        records=result.counts.records if result and result.counts.records else int(report["numInputRows"]),
        seconds=int(report["durationMs"].get("triggerExecution", 0)) / 1000,
        offsets=_offsets_between(report, "startOffset", "endOffset"),
        lag=_offsets_between(report, "endOffset", "latestOffset"),
        requests=requests.of_one_batch(request_budget) if requests is not None else None,
        **({} if result is None else _result_of(result)),
    )


def _result_of(result: BatchResult) -> dict[str, Any]:
    """Return what the writer knows of a batch; the most frequent reasons of its dead letters first."""
    reasons = sorted(result.reasons, key=lambda reason: -reason.count)
    return {
        "rows": result.rows,
        "dead_letters": result.counts.dead_letters,
        "skipped": result.counts.skipped,
        "left_out": result.counts.left_out,
        "reasons": tuple(Reason(_safe(each.reason), each.count, _safe(each.sample)) for each in reasons),
        "schema_id": result.schema_id,
        "replayed": result.replayed,
        "notes": result.notes,
    }


def _safe(text: str) -> str:
    return shortened(redacted(text), most=LONGEST)


def phases_of(report: Mapping[str, Any], own: Mapping[str, float]) -> dict[str, float]:
    """Return the seconds of each phase, Spark's and ``own``, in the order of a batch."""
    durations = report.get("durationMs") or {}
    spark = {
        name: sum(int(durations.get(part, 0)) for part in parts) / 1000
        for name, parts in _PHASES.items()
        if any(part in durations for part in parts)
    }
    return {
        **{name: spark[name] for name in ("plan",) if name in spark},
        **own,
        **{name: spark[name] for name in ("add", "log") if name in spark},
    }


def state_of(report: Mapping[str, Any]) -> QueryState:
    """Return watermark and state of the query; a query without state has neither."""
    operators = report.get("stateOperators") or ()
    watermark = (report.get("eventTime") or {}).get("watermark")
    if not operators:
        return QueryState(watermark=watermark)

    def sum_of(key: str) -> int:
        return sum(max(0, int(operator.get(key) or 0)) for operator in operators)

    return QueryState(
        watermark=watermark,
        rows=sum_of("numRowsTotal"),
        bytes=sum_of("memoryUsedBytes"),
        late_rows=sum_of("numRowsDroppedByWatermark"),
    )


def ends_of(report: Mapping[str, Any], key: str) -> dict[Partition, int]:
    """Return offsets of the sources by partition: ``latestOffset`` or ``endOffset``; empty if they are not numbers."""
    found: dict[Partition, int] = {}
    for source in report.get("sources") or ():
        topics = source.get(key)
        if not isinstance(topics, Mapping):
            continue
        for topic, offsets in topics.items():
            if not isinstance(offsets, Mapping):
                continue
            for partition, offset in offsets.items():
                number = offset.get("at") if isinstance(offset, Mapping) else offset
                if isinstance(number, int) and 0 <= number < 2**63 and str(partition).isdecimal():
                    found[str(topic), int(partition)] = number
    return found


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
