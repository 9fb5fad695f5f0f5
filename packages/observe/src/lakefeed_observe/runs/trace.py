"""Collects what a run does into one document: docs/runs.md lists its keys, which keep their names and their meaning."""

from __future__ import annotations

import secrets
from collections import Counter, deque
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from lakefeed.monitor.events import Event
from lakefeed.monitor.feed_monitor import FeedMonitor
from lakefeed.monitor.model import FinishedBatch, iso

VERSION = 1
EVENTS_A_KIND = 100
POINTS = 500
REASONS_A_BATCH = 10
MOST_PARTITIONS = 100
MOST_SAMPLES = 20

UPKEEP = "upkeep of "
_ACTIONS = ("paused", "resumed", "changed", "action", "sink_paused", "sink_resumed")


def new_run_id(began_at: float) -> str:
    """Return an id that sorts by the time at which runs began."""
    return f"{datetime.fromtimestamp(began_at, UTC):%Y%m%dT%H%M%SZ}-{secrets.token_hex(3)}"


class RunTrace:
    """Collects the trace of one run; ``take`` is called with new events, ``document`` when it is written."""

    def __init__(self, monitor: FeedMonitor) -> None:
        self._monitor = monitor
        self.run_id = new_run_id(monitor.snapshot().started_at)
        self._kept: dict[str, deque[Event]] = {}
        self._counts: Counter[str] = Counter()
        self._samples: dict[str, str] = {}

    def take(self, events: Iterable[Event]) -> bool:
        """Keep the newest events of each kind; returns whether one of them is worth a write at once."""
        is_worth = False
        for event in events:
            kind = "upkeep" if event.kind == "note" and event.message.startswith(UPKEEP) else event.kind
            self._counts[kind] += 1
            self._kept.setdefault(kind, deque(maxlen=EVENTS_A_KIND)).append(event)
            is_worth = is_worth or kind not in ("note", "dead_letters", "over_budget")
        return is_worth

    def document(self, *, is_over: bool) -> dict[str, Any]:
        """Return the trace as it is now."""
        progress, counters = self._monitor.counted()
        batches = self._monitor.batches()
        for reason in (reason for batch in batches for reason in batch.reasons):
            if reason.text in self._samples or len(self._samples) < MOST_SAMPLES:
                self._samples[reason.text] = reason.sample
        state = progress.as_dict()
        partitions = state.pop("partitions")
        return {
            "version": VERSION,
            "run": self.run_id,
            "feed": progress.feed,
            "sink": progress.sink,
            "driver": {**progress.driver.as_dict(), "started": progress.driver.started},
            "fence": progress.fence,
            "began_at": iso(progress.started_at),
            "written_at": iso(progress.taken_at),
            "ended_at": iso(progress.taken_at) if is_over else None,
            "end": (progress.state if progress.state in ("ended", "failed") else "cut") if is_over else None,
            "error": progress.last_error.as_dict() if progress.last_error else None,
            "start": next((dict(event.details.get("start") or {}) for event in self._of("started")), {}),
            "totals": counters.totals.as_dict(),
            "replayed": counters.replayed,
            "restarts": progress.restarts,
            "lag": progress.lag,
            "lag_seconds": state["lag_seconds"],
            "requests": {
                "total": counters.totals.requests,
                "errors": counters.request_errors,
                "by_class": dict(counters.requests),
                "batches_over_budget": counters.over_budget,
            },
            "files": counters.data_files,
            "bytes_out": counters.bytes_out,
            "phases": {name: round(seconds, 3) for name, seconds in counters.phases.items()},
            "dead_letters": [
                {"reason": reason, "count": count, "sample": self._samples.get(reason, "")}
                for reason, count in sorted(counters.reasons.items(), key=lambda entry: -entry[1])
            ],
            "schema_changes": [_event(event) for event in self._of("schema", "restarted")],
            "errors": [_event(event) for event in self._of("error", "failed")],
            "actions": [_event(event) for event in self._of(*_ACTIONS)],
            "upkeep": [_event(event) for event in self._of("upkeep")],
            "events": [_event(event) for event in self._of(*self._kept)],
            "event_counts": dict(self._counts),
            "partitions": partitions[:MOST_PARTITIONS],
            "points": [point.as_dict() for point in self._monitor.points(most=POINTS)],
            "batches": [_batch(batch) for batch in batches],
        }

    def _of(self, *kinds: str) -> list[Event]:
        found = [event for kind in kinds for event in self._kept.get(kind, ())]
        return sorted(found, key=lambda event: event.number)


def _event(event: Event) -> dict[str, Any]:
    details = {name: value for name, value in event.details.items() if name != "start"}
    return {"at": iso(event.at), "kind": event.kind, "message": event.message, "details": details}


def _batch(batch: FinishedBatch) -> dict[str, Any]:
    """Return a batch for JSON, bounded: a thousand partitions in a hundred batches are no news."""
    document = batch.as_dict()
    document["reasons"] = document["reasons"][:REASONS_A_BATCH]
    if len(batch.ranges) > MOST_PARTITIONS:
        document["ranges"] = None
    return document


def summary_of(trace: Mapping[str, Any]) -> dict[str, Any]:
    """Return a run in few words, as ``lakefeed runs list`` shows it."""
    totals = trace.get("totals") or {}
    return {
        "run": trace.get("run"),
        "feed": trace.get("feed"),
        "began_at": trace.get("began_at"),
        "ended_at": trace.get("ended_at"),
        "written_at": trace.get("written_at"),
        "end": trace.get("end"),
        "batches": totals.get("batches", 0),
        "records": totals.get("records", 0),
        "rows": totals.get("rows", 0),
        "dead_letters": totals.get("dead_letters", 0),
        "errors": sum((trace.get("event_counts") or {}).get(kind, 0) for kind in ("error", "failed")),
        "host": (trace.get("driver") or {}).get("host"),
    }
