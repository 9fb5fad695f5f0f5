"""A query's finished and running batches, from Spark's reports and the writer's results.

A batch has these phases. Spark measures ``plan``, ``log`` and ``add``; lakefeed measures the other phases:

``plan``         ask the topics for their ends, and plan the query (``latestOffset``, ``getBatch``, ``queryPlanning``)
``log``          write the checkpoint's entries (``walCommit``, ``commitOffsets``, ``commitBatch``)
``check``        ask the ledger whether the sink has the batch
``write``        read, decode and write the rows, and commit them. With several sinks, ``rows`` is the part that reads
                 and decodes, ``write sink`` the part of the feed's own sink, and ``write NAME`` the part of another
                 sink
``commit``       the end of ``write``, after the tasks have read and decoded the records and written a table's files;
                 ``commit NAME`` is the commit of an additional sink
``dead_letters`` write the dead letters
``publish``      pass the position to the thread that sends it to the monitoring group
``add``          ``check``, ``write``, ``dead_letters`` and ``publish`` together (Spark's ``addBatch``)
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
    """The state and the watermark of a query; all fields are None for a query without state.

    Attributes:
        watermark: an event time in ISO 8601; the query drops older records.
        rows: the number of keys in the state stores; ``bytes`` is the memory of these stores.
        late_rows: the number of rows that this batch dropped because they were older than the watermark.
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
        raise ValueError("these are not offset ranges") from None


Ranges = Annotated[
    tuple[OffsetRange, ...],
    PlainValidator(_read_ranges),
    PlainSerializer(lambda ranges: by_topic({span.key: [span.start, span.end] for span in ranges})),
]


class FinishedBatch(JsonModel):
    """One finished micro-batch.

    Attributes:
        seconds: the time from the batch's trigger to its end; ``phases`` has the seconds of its phases.
        records: the number of records read; ``rows`` is the number of rows written, None if the sink does not say.
        offsets: the number of offsets in the batch, including offsets without a record; None if unknown.
        input_rate: records per second since the previous trigger; None if unknown.
        lag: the number of unread offsets in the topics when Spark planned the batch; None if unknown, for example if
            another driver planned the batch, or if the source's offsets do not count records.
        left_out: the number of records with a JSON field that has no column; ``left_out_field`` is such a field's path.
        requests: the S3 requests of driver and executors; None if they were not counted.
        schema_id: the id of the newest writers' schema that the rows cover; None for formats without ids.
        replayed: whether the sink already had the batch, from before a restart.
        notes: messages for the user, for example about a change of the schema.
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
    left_out_field: str | None = None
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
        """Records per second during the batch."""
        return per_second(self.records, self.seconds)

    @property
    def output_rate(self) -> float | None:
        """Rows per second; None if the sink does not report its rows."""
        return None if self.rows is None else per_second(self.rows, self.seconds)

    @property
    def seconds_left(self) -> float | None:
        """The seconds until the lag is read, at the offsets per second of this batch; None if unknown.

        Offsets are counted, not records: after compaction or with transactions, few offsets have records.
        """
        done = self.records if self.offsets is None else self.offsets
        if not self.lag:
            return None if self.lag is None else 0.0
        return self.lag * self.seconds / done if done > 0 and self.seconds > 0 else None

    @property
    def over_budget(self) -> bool:
        return self.requests is not None and self.requests.over_budget


class RunningBatch(JsonModel):
    """The feed's running batch.

    Attributes:
        seconds: the time since the batch began.
        offsets: the number of offsets that the batch reads; None if unknown.
        records: the number of records that tasks have read so far; None before their first report.
        tasks_done: the number of finished tasks; ``tasks`` is the number of all tasks of the stages begun so far.
        phase: the current phase: see ``FinishedBatch.phases``.
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
        """Records per second so far."""
        return self.records / self.seconds if self.records and self.seconds > 0 else None

    @computed_field  # type: ignore[prop-decorator]
    @property
    def seconds_left(self) -> Seconds | None:
        """The seconds until the batch's end, by its rate of records or else of tasks; None without a rate."""
        done, all_ = self.records or 0, self.offsets or 0
        if not 0 < done <= all_:
            done, all_ = self.tasks_done, self.tasks
        return self.seconds * (all_ - done) / done if 0 < done <= all_ else None


def per_second(count: int, seconds: float) -> float:
    return count / seconds if seconds > 0 else 0.0


def batch_of(
    report: Mapping[str, Any],
    result: BatchResult | None,
    *,
    requests: S3Requests | None = None,
    request_budget: int | None = None,
) -> FinishedBatch:
    """Return a finished batch from Spark's report (StreamingQueryProgress as JSON) and the writer's result."""
    return FinishedBatch(
        batch_id=int(report["batchId"]),
        finished_at=time.time(),
        # Prefer the writer's count: if a batch was decoded twice, Spark counts its records twice.
        records=result.counts.records if result and result.counts.records else int(report["numInputRows"]),
        seconds=int(report["durationMs"].get("triggerExecution", 0)) / 1000,
        offsets=_offsets_between(report, "startOffset", "endOffset"),
        lag=_offsets_between(report, "endOffset", "latestOffset"),
        requests=requests.of_one_batch(request_budget) if requests is not None else None,
        **({} if result is None else _result_of(result)),
    )


def _result_of(result: BatchResult) -> dict[str, Any]:
    """Return the fields that come from the writer; the most frequent reasons of dead letters come first."""
    reasons = sorted(result.reasons, key=lambda reason: -reason.count)
    return {
        "rows": result.rows,
        "dead_letters": result.counts.dead_letters,
        "skipped": result.counts.skipped,
        "left_out": result.counts.left_out,
        "left_out_field": result.left_out_field and _safe(result.left_out_field),
        "reasons": tuple(Reason(_safe(each.reason), each.count, _safe(each.sample)) for each in reasons),
        "schema_id": result.schema_id,
        "replayed": result.replayed,
        "notes": result.notes,
    }


def _safe(text: str) -> str:
    return shortened(redacted(text), most=LONGEST)


def phases_of(report: Mapping[str, Any], own: Mapping[str, float]) -> dict[str, float]:
    """Return the seconds of Spark's phases and of lakefeed's ``own`` phases, in the order of a batch."""
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
    """Return the query's watermark and state from Spark's report."""
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
    """Return the sources' ``latestOffset`` or ``endOffset`` by partition; offsets that are not numbers are left out."""
    ends: dict[Partition, int] = {}
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
                    ends[str(topic), int(partition)] = number
    return ends


def _offsets_between(report: Mapping[str, Any], start: str, end: str) -> int | None:
    """Return the number of offsets between two positions; None if unknown, or if the offsets are not numbers."""
    total = 0
    for source in report["sources"]:
        try:
            # In a Python data source, the names of partitions may be texts instead of numbers.
            before, after = (
                {(topic, name): at for topic, offsets in source.get(place).items() for name, at in offsets.items()}
                for place in (start, end)
            )
        except AttributeError:  # The offsets are not grouped by topic and partition.
            return None
        if not after.keys() <= before.keys():
            # The first offset of a new partition is unknown, and may not be 0.
            return None
        total += sum(max(0, offset_number(at) - offset_number(before[key])) for key, at in after.items())
    return total


def new_reports(query: StreamingQuery, *, after: int) -> Iterator[Mapping[str, Any]]:
    """Yield Spark's reports of the query's batches that finished after batch ``after``."""
    last = query.lastProgress
    if last is None or last["batchId"] <= after:
        return
    for report in query.recentProgress:
        # Spark also reports a trigger without new records, under the next batch's id.
        if report["batchId"] > after and report["durationMs"].get("addBatch") is not None:
            after = report["batchId"]
            yield json.loads(report.json)
