"""Reads the documents of a driver's endpoint back into the model; another version or a stranger may have written them.

Nothing here fails: what is not there, or not of its kind, is unknown.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, cast, get_args

from lakefeed.monitor.events import Event, EventKind
from lakefeed.monitor.lag import PartitionLag
from lakefeed.monitor.model import (
    BatchRequests,
    DeadLetterReason,
    Driver,
    Failure,
    FeedProgress,
    FinishedBatch,
    Pause,
    QueryState,
    RunningBatch,
    RunTotals,
    State,
)

LARGEST = 2**63


class JsonObject:
    """One JSON object, of which each value is asked for with its kind."""

    def __init__(self, value: Any) -> None:
        self._values: Mapping[str, Any] = value if isinstance(value, Mapping) else {}

    def __bool__(self) -> bool:
        return bool(self._values)

    def text(self, key: str) -> str:
        found = self._values.get(key)
        return found if isinstance(found, str) else ""

    def text_or_none(self, key: str) -> str | None:
        return self.text(key) or None

    def number(self, key: str) -> float | None:
        found = self._values.get(key)
        if isinstance(found, bool) or not isinstance(found, int | float):
            return None
        return float(found) if abs(found) < LARGEST and math.isfinite(found) else None

    def whole(self, key: str) -> int | None:
        found = self.number(key)
        return None if found is None else int(self._values[key])

    def time(self, key: str) -> float | None:
        """Return a time in ISO 8601 as seconds since 1970."""
        try:
            return datetime.fromisoformat(self.text(key)).timestamp()
        except (ValueError, OverflowError, OSError):
            return None

    def part(self, key: str) -> JsonObject:
        return JsonObject(self._values.get(key))

    def parts(self, key: str) -> Iterator[JsonObject]:
        found = self._values.get(key)
        yield from (JsonObject(entry) for entry in (found if isinstance(found, list) else ()))

    def texts(self, key: str) -> tuple[str, ...]:
        found = self._values.get(key)
        return tuple(entry for entry in (found if isinstance(found, list) else ()) if isinstance(entry, str))

    def mapping(self, key: str) -> dict[str, str]:
        found = self._values.get(key)
        pairs = found.items() if isinstance(found, Mapping) else ()
        return {str(name): value for name, value in pairs if isinstance(value, str)}

    def numbers(self, key: str) -> dict[str, float]:
        part = self.part(key)
        found = {str(name): part.number(name) for name in part._values}
        return {name: number for name, number in found.items() if number is not None}


def progress_of(document: Any) -> FeedProgress:
    """Return the feed of ``FeedProgress.as_dict``."""
    found = JsonObject(document)
    driver, totals, error, running = (found.part(key) for key in ("driver", "totals", "last_error", "running"))
    state = found.text("state")
    taken_at = found.time("taken_at") or 0.0
    return FeedProgress(
        feed=found.text("feed"),
        sink=found.text("sink"),
        state=cast("State", state) if state in get_args(State) else "waiting",
        driver=Driver(host=driver.text("host"), pid=driver.whole("pid") or 0, version=driver.text("version")),
        taken_at=taken_at,
        started_at=found.time("started_at") or taken_at,
        alive_at=found.time("alive_at") or taken_at,
        progress_at=found.time("progress_at") or taken_at,
        fence=found.text_or_none("fence"),
        restarts=found.whole("restarts") or 0,
        last_commit_at=found.time("last_commit_at"),
        last_error=_failure(error) if error else None,
        last_batch=batch_of(found.part("last_batch")),
        running=_running(running) if running else None,
        rate=found.number("rate"),
        partitions=tuple(_partition(part) for part in found.parts("partitions")),
        last_dead_letters=_reasons(found, "last_dead_letters"),
        paused=_pause(found.part("paused")),
        waits_for=found.text_or_none("waits_for"),
        paused_sinks=found.mapping("paused_sinks"),
        failed_tables=found.mapping("failed_tables"),
        totals=RunTotals(**{name: totals.whole(name) or 0 for name in RunTotals().as_dict()}),
    )


def batch_of(found: JsonObject) -> FinishedBatch | None:
    """Return the batch of ``FinishedBatch.as_dict``, without its ranges; None of a document that is none."""
    batch_id, finished_at = found.whole("batch"), found.time("finished_at")
    if batch_id is None or finished_at is None:
        return None
    requests, state = found.part("requests"), found.part("state")
    return FinishedBatch(
        batch_id=batch_id,
        finished_at=finished_at,
        seconds=found.number("seconds") or 0.0,
        records=found.whole("records") or 0,
        rows=found.whole("rows"),
        offsets=found.whole("offsets"),
        input_rate=found.number("input_rate"),
        lag=found.whole("lag"),
        lag_seconds=found.number("lag_seconds"),
        dead_letters=found.whole("dead_letters") or 0,
        skipped=found.whole("skipped") or 0,
        left_out=found.whole("left_out") or 0,
        reasons=_reasons(found, "reasons"),
        phases=found.numbers("phases"),
        requests=_requests(requests) if requests else None,
        state=QueryState(
            watermark=state.text_or_none("watermark"),
            rows=state.whole("rows"),
            bytes=state.whole("bytes"),
            late_rows=state.whole("late_rows"),
        ),
        schema_id=found.whole("schema_id"),
        notes=found.texts("notes"),
    )


def event_of(found: JsonObject) -> Event | None:
    """Return one of the answer of ``events``, without its details; None of a document that is none."""
    number, at, kind = found.whole("number"), found.time("at"), found.text("kind")
    if number is None or at is None or kind not in get_args(EventKind):
        return None
    return Event(number=number, at=at, kind=cast("EventKind", kind), message=found.text("message"))


def _requests(found: JsonObject) -> BatchRequests:
    return BatchRequests(
        total=found.whole("total") or 0,
        errors=found.whole("errors") or 0,
        bytes_out=found.whole("bytes_out") or 0,
        bytes_in=found.whole("bytes_in") or 0,
        data_files=found.whole("data_files") or 0,
        budget=found.whole("budget"),
    )


def _running(found: JsonObject) -> RunningBatch:
    return RunningBatch(
        batch_id=found.whole("batch") or 0,
        began_at=found.time("began_at") or 0.0,
        offsets=found.whole("offsets"),
        records=found.whole("records"),
        tasks_done=found.whole("tasks_done") or 0,
        tasks=found.whole("tasks") or 0,
        phase=found.text_or_none("phase"),
    )


def _pause(found: JsonObject) -> Pause | None:
    if not found:
        return None
    return Pause(reason=found.text("reason"), by=found.text("by"), at=found.time("at") or 0.0)


def _failure(found: JsonObject) -> Failure:
    return Failure(
        error=found.text("error"),
        what=found.text("what"),
        where=found.text_or_none("where"),
        hint=found.text_or_none("hint"),
        at=found.time("at") or 0.0,
    )


def _partition(found: JsonObject) -> PartitionLag:
    return PartitionLag(
        topic=found.text("topic"),
        partition=found.whole("partition") or 0,
        end=found.whole("end"),
        read=found.whole("read"),
        committed=found.whole("committed"),
        unread_seconds=found.number("unread_seconds"),
        uncommitted_seconds=found.number("uncommitted_seconds"),
    )


def _reasons(found: JsonObject, key: str) -> tuple[DeadLetterReason, ...]:
    return tuple(
        DeadLetterReason(reason.text("reason"), reason.whole("count") or 0, reason.text("sample"))
        for reason in found.parts(key)
    )
