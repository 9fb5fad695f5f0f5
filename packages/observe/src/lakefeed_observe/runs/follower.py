"""Write the trace of a run from a separate thread: every minute, soon after important events, and at the end.

If the folder is full or not writable, the trace is lost, and batches continue.
"""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime
from typing import Any

from lakefeed.config.addresses import is_local
from lakefeed.config.connections import Connections
from lakefeed.config.models import PipelineConfig
from lakefeed.feed.events import Event
from lakefeed.ledger.outcomes import Reason
from lakefeed.monitor.feed_monitor import FeedMonitor
from lakefeed.operations.followers import FollowedRun
from lakefeed_observe.runs.settings import runs_of_file
from lakefeed_observe.runs.store import (
    LocalRuns,
    StoredRuns,
    Trace,
    TraceDriver,
    TraceEvent,
    TraceRequests,
    local_runs,
    runs_beside,
)

_log = logging.getLogger(__name__)

EVERY_SECONDS = 60.0
SOON_SECONDS = 5.0
"""The seconds from an important event to the write of the trace."""
SHARE = 100
"""Writing takes at most 1/100 of a run's time: a longer history takes longer to write, so it is written less often."""
END_SECONDS = 5.0
TURN_SECONDS = 1.0

Upload = Callable[[Trace], None]


def follow(run: FollowedRun) -> AbstractContextManager[None]:
    """Write the trace of a run; if the run could not start, only on this machine."""
    upload = None if run.is_failed_start else upload_of(run.config, connections=run.connections)
    return tracing(local_runs(run.config), run.monitor, upload=upload)


def upload_of(config: PipelineConfig, *, connections: Connections) -> Upload | None:
    """Return a function that stores a run's trace beside the checkpoint, or None: see ``runs.keep``."""
    if runs_of_file(config).keep != "checkpoint" or not config.checkpoint:
        return None
    if is_local(config.checkpoint):
        return runs_beside(config).save
    return StoredRuns(config.checkpoint, s3=connections.s3).save


@contextmanager
def tracing(runs: LocalRuns | None, monitor: FeedMonitor, *, upload: Upload | None = None) -> Iterator[None]:
    """Write the trace of a run while the block runs, and when it ends.

    Args:
        runs: the traces on this machine; None to write no trace.
        upload: called with the whole trace at the end; an error of this call becomes a log line.
    """
    if runs is None:
        yield
        return
    follower = TraceFollower(runs, monitor, upload=upload)
    try:
        yield
    finally:
        follower.close()


class TraceFollower:
    """Writes the trace of one run."""

    def __init__(self, runs: LocalRuns, monitor: FeedMonitor, *, upload: Upload | None = None) -> None:
        self._runs, self._monitor, self._upload = runs, monitor, upload
        self._trace = RunTrace(monitor)
        self._last_number = 0
        self._stop = threading.Event()
        self._written_at = 0.0
        self._pause = 0.0
        self._is_reported = False
        self._thread = threading.Thread(target=self._run, name="lakefeed-trace", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Write the final trace; return within a limited time."""
        self._stop.set()
        self._thread.join(END_SECONDS + (END_SECONDS if self._upload is not None else 0.0))

    def _run(self) -> None:
        self._attempt(self._runs.prune)
        is_due = True
        while not self._stop.is_set():
            is_due = self._take(seconds=TURN_SECONDS) or is_due
            waited = time.monotonic() - self._written_at
            if waited >= max(self._pause, SOON_SECONDS if is_due else EVERY_SECONDS):
                is_due = not self._attempt(self._write)
            self._stop.wait(0.1)
        self._take(seconds=0.0)
        self._attempt(lambda: self._write(is_over=True))
        if (upload := self._upload) is not None:
            self._attempt(lambda: upload(self._trace.trace(is_over=True)))
        self._attempt(self._runs.prune)

    def _take(self, *, seconds: float) -> bool:
        events = self._monitor.events.wait(self._last_number, seconds=seconds)
        if events:
            self._last_number = events[-1].number
        return self._trace.take(events)

    def _write(self, *, is_over: bool = False) -> None:
        began = time.monotonic()
        trace = self._trace.trace(is_over=is_over)
        try:
            self._runs.save(trace)
        finally:
            self._written_at = time.monotonic()
            self._pause = SHARE * (self._written_at - began)

    def _attempt(self, work: Callable[[], object]) -> bool:
        """Call a function; return True if it succeeds. Report the first failure as an event of the feed."""
        try:
            work()
        except Exception as error:
            if not self._is_reported:
                why = getattr(error, "strerror", None) or getattr(error, "what", None) or type(error).__name__
                self._monitor.note(f"the trace of this run cannot be written: {why}")
                _log.debug("the trace of this run cannot be written", exc_info=True)
            self._is_reported = True
            return False
        return True


EVENTS_A_KIND = 100
POINTS = 500
REASONS_A_BATCH = 10
MOST_PARTITIONS = 100
MOST_SAMPLES = 20

UPKEEP = "upkeep of "
_ACTIONS = ("paused", "resumed", "changed", "action", "sink_paused", "sink_resumed")


def new_run_id(began_at: float) -> str:
    """Return the id of a new run; the ids of runs sort by their start times."""
    return f"{datetime.fromtimestamp(began_at, UTC):%Y%m%dT%H%M%SZ}-{secrets.token_hex(3)}"


class RunTrace:
    """Collects the events of a run for its trace."""

    def __init__(self, monitor: FeedMonitor) -> None:
        self._monitor = monitor
        self.run_id = new_run_id(monitor.snapshot().started_at)
        self._events: dict[str, deque[Event]] = {}
        self._counts: Counter[str] = Counter()
        self._samples: dict[str, str] = {}

    def take(self, events: Iterable[Event]) -> bool:
        """Add events; the trace keeps the newest of every type. Return True if the trace should be written soon."""
        is_important = False
        for event in events:
            kind = "upkeep" if event.kind == "note" and event.message.startswith(UPKEEP) else event.kind
            self._counts[kind] += 1
            self._events.setdefault(kind, deque(maxlen=EVENTS_A_KIND)).append(event)
            is_important = is_important or kind not in ("note", "dead_letters", "over_budget")
        return is_important

    def trace(self, *, is_over: bool) -> Trace:
        progress, counters = self._monitor.counted()
        batches = self._monitor.batches()
        for reason in (reason for batch in batches for reason in batch.reasons):
            if reason.reason in self._samples or len(self._samples) < MOST_SAMPLES:
                self._samples[reason.reason] = reason.sample
        reasons = sorted(counters.reasons.items(), key=lambda entry: -entry[1])
        end = progress.state if progress.state in ("ended", "failed") else "cut"
        return Trace(
            run=self.run_id,
            feed=progress.feed,
            sink=progress.sink,
            driver=TraceDriver(**dict(progress.driver)),
            fence=progress.fence,
            began_at=progress.started_at,
            written_at=progress.taken_at,
            ended_at=progress.taken_at if is_over else None,
            end=end if is_over else None,
            error=progress.last_error,
            start=next((dict(event.details.get("start") or {}) for event in self._events.get("started", ())), {}),
            totals=counters.totals,
            replayed=counters.replayed,
            restarts=progress.restarts,
            lag=progress.lag,
            lag_seconds=progress.lag_seconds,
            requests=TraceRequests(
                total=counters.totals.requests,
                errors=counters.request_errors,
                by_class=dict(counters.requests),
                batches_over_budget=counters.over_budget,
            ),
            files=counters.data_files,
            bytes_out=counters.bytes_out,
            phases=dict(counters.phases),
            dead_letters=tuple(Reason(reason, count, self._samples.get(reason, "")) for reason, count in reasons),
            schema_changes=self._of("schema", "restarted"),
            errors=self._of("error", "failed"),
            actions=self._of(*_ACTIONS),
            upkeep=self._of("upkeep"),
            events=self._of(*self._events),
            event_counts=dict(self._counts),
            partitions=progress.partitions[:MOST_PARTITIONS],
            points=tuple(self._monitor.points(most=POINTS)),
            # Without these limits, batches of a thousand partitions would make the trace too large.
            batches=tuple(
                batch.model_copy(
                    update={
                        "reasons": batch.reasons[:REASONS_A_BATCH],
                        "ranges": batch.ranges if len(batch.ranges) <= MOST_PARTITIONS else (),
                    }
                )
                for batch in batches
            ),
        )

    def _of(self, *kinds: str) -> tuple[TraceEvent, ...]:
        events = (event for kind in kinds for event in self._events.get(kind, ()))
        return tuple(
            TraceEvent(
                at=event.at,
                kind=event.kind,
                message=event.message,
                details={name: value for name, value in event.details.items() if name != "start"},
            )
            for event in sorted(events, key=lambda event: event.number)
        )


def summary_of(trace: Trace) -> dict[str, Any]:
    """Return a run's line of ``lakefeed runs list`` as a document."""
    document = trace.as_dict()
    totals = {name: document["totals"][name] for name in ("batches", "records", "rows", "dead_letters")}
    return {
        **{name: document[name] for name in ("run", "feed", "began_at", "ended_at", "written_at", "end")},
        **totals,
        "errors": sum(trace.event_counts.get(kind, 0) for kind in ("error", "failed")),
        "host": trace.driver.host,
    }
