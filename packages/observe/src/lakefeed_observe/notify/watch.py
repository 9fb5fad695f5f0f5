"""Decide which messages are due, from a feed's progress and events; callers pass the time."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, Field

from lakefeed.config.values import seconds_of
from lakefeed.feed.events import Event
from lakefeed.messages.pages import page_command
from lakefeed.messages.printable import counted
from lakefeed.messages.text import duration
from lakefeed.monitor.model import FeedProgress
from lakefeed_observe.notify.message import Message, Occurrence, Status
from lakefeed_observe.notify.settings import DeadLetterBound, LagBound, Notify

MOST_SAMPLES = 600
MOST_GATES = 200
BUDGET_ERROR = "ErrorBudgetExceeded"

_STATUS = "lakefeed status PIPELINE shows the batch at work, its phase and the newest error"
_HINTS = {
    "lag": "compare the rates in lakefeed status PIPELINE: more cores, or more records in a batch, may be needed",
    "no_data": "check that the producers write: lakefeed topics show shows the ends of the topics",
    "no_commit": _STATUS,
    "dead_letters": "lakefeed dead-letters list PIPELINE shows them by reason",
    "audit": f"{page_command('write-audit-publish')} says what to do with the rows in the branch",
    "hangs": f"{_STATUS}; if the driver does not continue, kill it: the next start resumes at the last commit",
    "request_budget": f"{page_command('s3-requests')} says what makes requests, and which settings lower them",
}


class Watch:
    """Watches one feed; the caller calls ``look`` about once per second."""

    def __init__(self, settings: Notify, *, memory: Mapping[str, Any] | None = None) -> None:
        self.settings = settings
        self._when = settings.when
        self._cool_down = float(seconds_of(settings.cool_down))
        self._gates = {key: Gate.of(state) for key, state in list((memory or {}).items())[:MOST_GATES]}
        self._records = -1
        self._data_at: float | None = None
        self._waits_since: float | None = None
        self._samples: deque[tuple[float, int, int]] = deque()
        self._showing: dict[str, tuple[str, Occurrence]] = {}

    @property
    def memory(self) -> dict[str, Any]:
        """The state of all gates, with which the feed's next run starts."""
        return {key: gate.model_dump() for key, gate in self._gates.items() if gate.sent_at is not None}

    def look(self, progress: FeedProgress, events: Sequence[Event], now: float) -> list[Message]:
        """Return the messages that are due now, oldest first."""
        due: list[tuple[str, str, Sending | None]] = []
        for event in events:
            self._take(event, progress)
        for name, gate in self._gates.items():
            trigger, _, key = name.partition(":")
            due.append((trigger, key, gate.due(now=now, cool_down=self._cool_down)))
        for trigger, key, gate in self._failures_over(progress, now):
            due.append((trigger, key, gate.resolve("the feed commits again")))
        if progress.state not in ("ended", "failed"):
            for trigger, key, finding, seconds in self._conditions(progress, now):
                if finding is None and progress.state == "starting":
                    continue  # Nothing was observed yet: a pause of an earlier run may still last.
                gate = self._gate(trigger, key)
                sending = gate.lasts(finding, now=now, seconds=seconds, cool_down=self._cool_down)
                if finding is not None and gate.fires:
                    self._showing[_name(trigger, key)] = trigger, finding
                due.append((trigger, key, sending))
        return [self._message(progress, trigger, key, sending, now) for trigger, key, sending in due if sending]

    def repeats(self, progress: FeedProgress, now: float) -> list[Message]:
        """Return the messages of states that still last, for receivers that forget a message if it is not repeated."""
        found = []
        for name, (trigger, finding) in self._showing.items():
            gate = self._gates.get(name)
            if gate is not None and gate.fires:
                sending = Sending(status="firing", finding=finding, since=gate.since)
                key = name.partition(":")[2]
                found.append(self._message(progress, trigger, key, sending, now, repeated=True))
        return found

    def _take(self, event: Event, progress: FeedProgress) -> None:
        """Record an event at the gate of its trigger, if this trigger exists and is enabled."""
        trigger = _trigger_of(event)
        if trigger is None or not getattr(self._when, "schema_" if trigger == "schema" else trigger):
            return
        finding = Occurrence(
            what=str(event.details.get("what") or event.message),
            where=event.details.get("where") or progress.sink or None,
            hint=event.details.get("hint") or _HINTS.get(trigger),
        )
        if trigger == "stopped":
            totals = progress.totals
            done = f"{counted(totals.batches, 'batch', 'batches')}, {counted(totals.records, 'record')}"
            what = f"the run has ended as requested: {done}"
            finding = Occurrence(what=what, where=progress.sink or None)
        # Each class of errors has its own cool-down, so that messages about one class do not suppress those of another.
        key = str(event.details.get("error") or "") if trigger in ("failed", "error") else ""
        self._gate(trigger, key).happened(finding, at=event.at)

    def _failures_over(self, progress: FeedProgress, now: float) -> Iterator[tuple[str, str, Gate]]:
        """Yield the failures of earlier runs, once this run has committed and has lasted longer than the cool-down."""
        if progress.last_commit_at is None or now - progress.started_at < self._cool_down:
            return
        for name, gate in self._gates.items():
            trigger, _, key = name.partition(":")
            is_over = gate.fires and gate.newest is None and (gate.sent_at or 0.0) <= progress.last_commit_at
            if is_over and trigger in ("failed", "error_budget"):
                yield trigger, key, gate

    def _conditions(self, progress: FeedProgress, now: float) -> Iterator[tuple[str, str, Occurrence | None, float]]:
        """Yield each watched state: trigger, key, finding (None if it is over), and how many seconds it must last."""
        when = self._when
        where = progress.sink or None
        if when.hangs:
            seconds = duration(max(0.0, now - progress.alive_at))
            what = f"the driver's loop has not turned for {seconds}" if progress.hangs else None
            yield "hangs", "", self._finding("hangs", what, where), 0.0
        if when.paused:
            pause = progress.paused
            yield "paused", "", None if pause is None else Occurrence(what=pause.text, where=where), 0.0
            known = {name.partition(":")[2] for name in self._gates if name.startswith("paused:")}
            for sink in sorted({*progress.paused_sinks, *known}):
                why = progress.paused_sinks.get(sink)
                waits = None if why is None else Occurrence(what=f"the sink '{sink}' waits: {why}", where=sink)
                yield "paused", sink, waits, 0.0
        if when.lag is not None and (progress.lag is not None or progress.lag_seconds is not None):
            what = _lag_text(progress, when.lag)
            yield "lag", "", self._finding("lag", what, where), float(seconds_of(when.lag.for_))
        if when.no_data is not None:
            yield "no_data", "", self._finding("no_data", self._no_data(progress, now), where), 0.0
        if when.no_commit is not None:
            yield "no_commit", "", self._finding("no_commit", self._no_commit(progress, now), where), 0.0
        if when.dead_letters is not None:
            what = self._dead_letters(progress, when.dead_letters, now)
            yield "dead_letters", "", self._finding("dead_letters", what, where), 0.0

    def _finding(self, trigger: str, what: str | None, where: str | None) -> Occurrence | None:
        return None if what is None else Occurrence(what=what, where=where, hint=_HINTS.get(trigger))

    def _no_data(self, progress: FeedProgress, now: float) -> str | None:
        bound = seconds_of(self._when.no_data or "0 seconds")
        has_come = progress.totals.records != self._records or progress.running is not None
        if has_come or progress.paused is not None or self._data_at is None:
            first = progress.started_at if self._records < 0 else now
            self._records, self._data_at = progress.totals.records, first
        silent = now - self._data_at
        return f"no record has come for {duration(silent)}" if silent >= bound else None

    def _no_commit(self, progress: FeedProgress, now: float) -> str | None:
        bound = seconds_of(self._when.no_commit or "0 seconds")
        waits = progress.running is not None or bool(progress.lag) or progress.state == "starting"
        if not waits or progress.paused is not None:
            self._waits_since = None
            return None
        if self._waits_since is None:
            self._waits_since = progress.started_at if progress.state == "starting" else now
        since = max(self._waits_since, progress.last_commit_at or 0.0)
        if now - since < bound:
            return None
        lag = f", {progress.lag:,} records wait" if progress.lag else ""
        return f"no commit for {duration(now - since)}{lag}"

    def _dead_letters(self, progress: FeedProgress, bound: DeadLetterBound, now: float) -> str | None:
        seconds = float(seconds_of(bound.within))
        totals, samples = progress.totals, self._samples
        if not samples:
            samples.append((progress.started_at, 0, 0))
        if samples[-1][1:] != (totals.dead_letters, totals.records):
            samples.append((now, totals.dead_letters, totals.records))
        while len(samples) > 1 and samples[1][0] <= now - seconds:
            samples.popleft()
        if len(samples) > MOST_SAMPLES:
            self._samples = samples = deque([samples[0], *list(samples)[1:-1:2], samples[-1]])
        letters, records = samples[-1][1] - samples[0][1], samples[-1][2] - samples[0][2]
        share = letters / records if records else 0.0
        is_many = bound.count is not None and letters > bound.count
        if not is_many and (bound.share is None or share <= bound.share):
            return None
        reason = f": {progress.last_dead_letters[0].reason}" if progress.last_dead_letters else ""
        return f"{letters:,} dead letters of {records:,} records within {bound.within}{reason}"

    def _gate(self, trigger: str, key: str = "") -> Gate:
        name = _name(trigger, key)
        if name not in self._gates and len(self._gates) >= MOST_GATES:
            name = trigger  # The number of gates is limited, so further keys share the trigger's gate.
        return self._gates.setdefault(name, Gate())

    def _message(
        self, progress: FeedProgress, trigger: str, key: str, sending: Sending, now: float, *, repeated: bool = False
    ) -> Message:
        return Message(
            trigger=trigger,
            status=sending.status,
            feed=progress.feed,
            finding=sending.finding,
            since=sending.since,
            at=now,
            driver=progress.driver,
            key=key if trigger == "paused" else "",
            more=sending.more,
            link=self.settings.link,
            repeated=repeated,
        )


def _name(trigger: str, key: str) -> str:
    return f"{trigger}:{key}" if key else trigger


def _trigger_of(event: Event) -> str | None:
    if event.kind in ("failed", "error") and event.details.get("error") == BUDGET_ERROR:
        return "error_budget"
    return {
        "failed": "failed",
        "error": "error",
        "ended": "stopped",
        "over_budget": "request_budget",
        "audit_failed": "audit",
        "schema": "schema",
    }.get(event.kind)


def _lag_text(progress: FeedProgress, bound: LagBound) -> str | None:
    found = []
    if bound.records is not None and (progress.lag or 0) > bound.records:
        found.append(f"{progress.lag:,} records are not committed, more than {bound.records:,}")
    if bound.seconds is not None and (progress.lag_seconds or 0.0) > bound.seconds:
        age = duration(progress.lag_seconds or 0.0)
        found.append(f"the oldest record that is not committed is {age} old, more than {duration(bound.seconds)}")
    return "; ".join(found) or None


@dataclass(frozen=True, kw_only=True)
class Sending:
    """A message that passes a gate, with its figures."""

    status: Status
    finding: Occurrence
    since: float
    more: int = 0


class Gate(BaseModel):
    """Limits the messages of one cause: holds events back during the cool-down. Times are seconds since 1970.

    Attributes:
        fires: a message was sent without its resolution yet; ``since`` is when the state of the message began.
        sent_at: when the last message was sent, resolutions excluded.
        held: the number of events since ``sent_at``, which were not sent.
        newest: the newest event since ``sent_at``.
        true_at: when the state began; ``clear_at`` is when it ended.
    """

    fires: bool = False
    since: float = 0.0
    sent_at: float | None = None
    held: int = 0
    newest: Occurrence | None = Field(None, exclude=True)
    newest_at: float = Field(0.0, exclude=True)
    true_at: float | None = Field(None, exclude=True)
    clear_at: float | None = Field(None, exclude=True)

    @classmethod
    def of(cls, stored: Any) -> Gate:
        """Return the gate that the previous run has stored; a new gate if the stored gate cannot be read."""
        try:
            return cls.model_validate(stored)
        except ValueError:
            return cls()

    def happened(self, finding: Occurrence, *, at: float) -> None:
        """Record an event; ``due`` returns its message."""
        self.held += 1
        self.newest, self.newest_at = finding, at

    def due(self, *, now: float, cool_down: float) -> Sending | None:
        """Return a message about the newest event; None without a new event, or during the cool-down."""
        if self.newest is None or not self._has_cooled(now, cool_down):
            return None
        found = Sending(status="happened", finding=self.newest, since=self.newest_at, more=self.held - 1)
        self.newest, self.held, self.sent_at, self.fires, self.since = None, 0, now, True, found.since
        return found

    def lasts(self, finding: Occurrence | None, *, now: float, seconds: float, cool_down: float) -> Sending | None:
        """Record whether a state exists now; return a message if it has begun or ended.

        Args:
            finding: None if the state does not exist now.
            seconds: how long the state must last before the message, and be over before the resolution.
        """
        if finding is None:
            return self._is_clear(now=now, seconds=seconds)
        self.clear_at = None
        self.true_at = now if self.true_at is None else min(self.true_at, now)
        if self.fires or now - self.true_at < seconds or not self._has_cooled(now, cool_down):
            return None
        self.fires, self.since, self.sent_at = True, self.true_at, now
        more, self.held = self.held, 0
        return Sending(status="firing", finding=finding, since=self.since, more=more)

    def resolve(self, what: str) -> Sending | None:
        """Return the resolution; None if no message is unresolved."""
        if not self.fires:
            return None
        self.fires, self.true_at, self.clear_at = False, None, None
        return Sending(status="resolved", finding=Occurrence(what=what), since=self.since)

    def _is_clear(self, *, now: float, seconds: float) -> Sending | None:
        if not self.fires:
            if self.true_at is not None and now - self.true_at >= seconds:
                self.held += 1  # The cool-down still lasts, so only the next message counts this state.
            self.true_at = None
            return None
        self.clear_at = now if self.clear_at is None else min(self.clear_at, now)
        return self.resolve("it is over") if now - self.clear_at >= seconds else None

    def _has_cooled(self, now: float, cool_down: float) -> bool:
        # After the clock was set back, sent_at is in the future. Ignore it then, so that messages are not held back.
        return self.sent_at is None or not 0 <= now - self.sent_at < cool_down
