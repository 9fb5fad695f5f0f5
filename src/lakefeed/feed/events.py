"""The events of a run besides its batches, for the feed's log and for notifications.

A reader of the log asks for the events after an event's number, or waits for new events. There are no callbacks, so a
slow reader delays no batch.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Literal

from pydantic import Field

from lakefeed.feed.progress import FinishedBatch
from lakefeed.json_model import JsonModel, Time
from lakefeed.messages.text import one_line

EventKind = Literal[
    "started",
    "note",
    "dead_letters",
    "schema",
    "over_budget",
    "published",
    "audit_failed",
    "restarted",
    "sink_paused",
    "sink_resumed",
    "paused",
    "resumed",
    "changed",
    "action",
    "error",
    "ended",
    "failed",
]
MOST_EVENTS = 1000


class Event(JsonModel):
    """One event of a run.

    Attributes:
        number: the event's number in the run, from 1, without gaps.
        message: one line for people, without control characters.
        details: values for programs; the keys depend on the kind.
    """

    number: int
    at: Time
    kind: EventKind
    message: str
    details: dict[str, Any] = Field({})


class EventLog:
    """The newest events of a run. All threads may add and read events."""

    def __init__(self, *, most: int = MOST_EVENTS, clock: Callable[[], float] = time.time) -> None:
        self._events: deque[Event] = deque(maxlen=most)
        self._added = threading.Condition()
        self._clock = clock
        self._number = 0

    def add(self, kind: EventKind, message: str, **details: Any) -> Event:
        with self._added:
            self._number += 1
            event = Event(number=self._number, at=self._clock(), kind=kind, message=one_line(message), details=details)
            self._events.append(event)
            self._added.notify_all()
        return event

    def add_batch(self, batch: FinishedBatch, before: FinishedBatch | None) -> None:
        """Add the events that follow from a finished batch and its difference from the batch ``before``."""
        of_batch = f"batch {batch.batch_id}"
        for message in batch.notes:
            self.add("note", message, batch=batch.batch_id)
        if batch.dead_letters:
            reason = f": {batch.reasons[0].reason}" if batch.reasons else ""
            message = f"{of_batch}: {batch.dead_letters:,} dead letters{reason}"
            self.add("dead_letters", message, batch=batch.batch_id, count=batch.dead_letters)
        if before is not None and batch.schema_id is not None and batch.schema_id != before.schema_id:
            message = f"{of_batch} is the first one with rows of schema {batch.schema_id}"
            self.add("schema", message, batch=batch.batch_id, schema_id=batch.schema_id)
        requests = batch.requests
        if requests is not None and requests.over_budget:
            message = f"{of_batch} made {requests.total} S3 requests, its budget is {requests.budget}"
            self.add("over_budget", message, batch=batch.batch_id, requests=requests.total, budget=requests.budget)

    def after(self, number: int = 0) -> tuple[Event, ...]:
        """Return the events that the log still has after this event number, the oldest first."""
        with self._added:
            return tuple(event for event in self._events if event.number > number)

    def wait(self, number: int, *, seconds: float) -> tuple[Event, ...]:
        """Return the events after this event number; if there is none yet, wait for one, at most ``seconds``."""
        with self._added:
            self._added.wait_for(lambda: self._number > number, timeout=seconds)
        return self.after(number)
