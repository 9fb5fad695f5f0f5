"""Accepts requests to a running feed from other threads; the driver carries them out between two batches.

``FeedControl`` checks, queues and logs a request immediately, and logs another event when the driver has carried it
out. This module does not touch the query: ``lakefeed.feed.steering`` takes the requests from the queue.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from lakefeed.config.values import AVAILABLE_NOW, interval_of, require_trigger
from lakefeed.errors import ConfigError, LakefeedError
from lakefeed.feed.events import Event, EventLog
from lakefeed.ledger.pauses import Pause
from lakefeed.messages.text import one_line

Action = Literal["pause", "resume", "stop", "upkeep", "replay", "change"]
ACTIONS: tuple[Action, ...] = get_args(Action)
Beside = Literal["upkeep", "replay"]
BESIDE: tuple[Beside, ...] = get_args(Beside)
"""The actions that run beside the batches, in a thread of their own."""
LONGEST_REASON = 500
LONGEST_NAME = 100
MOST_RECORDS = 2**63 - 1
STARTS = "the feed is still starting: send the request again when it has started"
ENDED = "the run has ended"


@dataclass(frozen=True, kw_only=True)
class ActionRequest:
    """A valid request to a running feed."""

    action: Action
    by: str
    at: float
    reason: str = ""
    trigger: str | None = None
    max_records_per_batch: int | None = None

    @property
    def pause(self) -> Pause:
        return Pause(reason=self.reason, by=self.by, at=self.at)

    @property
    def changes(self) -> dict[str, Any]:
        """The new values of the settings that the request changes."""
        given = {"trigger": self.trigger, "max_records_per_batch": self.max_records_per_batch}
        return {name: value for name, value in given.items() if value is not None}

    @property
    def settings(self) -> str:
        return ", ".join(f"{name} = {value}" for name, value in self.changes.items())


class FeedControl:
    """The requests to one running feed. Any thread may add requests; the driver's loop carries them out.

    Example:
        >>> monitor.control.request("pause", by="anna", reason="the table is repaired").kind
        'action'
    """

    def __init__(
        self,
        events: EventLog,
        *,
        show: Callable[[Pause | None], None] = lambda pause: None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._events, self._show, self._clock = events, show, clock
        self._changed = threading.Condition()
        self._queue: deque[ActionRequest] = deque()
        self._pause: Pause | None = None
        self._stop: threading.Event | None = None
        self._stops = self._ended = False
        self._refusals: Mapping[Action, str] = {}
        self._check: Callable[[ActionRequest], None] = lambda request: None
        self._beside: dict[Beside, Callable[[ActionRequest], str]] = {}
        self._at_work: set[Beside] = set()

    @property
    def pause(self) -> Pause | None:
        with self._changed:
            return self._pause

    def request(
        self,
        action: str,
        *,
        by: str,
        reason: str | None = None,
        trigger: str | None = None,
        max_records_per_batch: int | None = None,
    ) -> Event:
        """Add a request, and return its event in the log; ``by`` names the person or program that requests it.

        Raises:
            ConfigError: the action does not fit the feed or its state, or a value is wrong.
        """
        request = ActionRequest(
            action=_action(action),
            by=_text(by, "by", most=LONGEST_NAME),
            at=self._clock(),
            reason=_text(reason or "", "reason", most=LONGEST_REASON),
            trigger=trigger,
            max_records_per_batch=max_records_per_batch,
        )
        _require_values(request)
        with self._changed:
            self._require_fit(request)
            details = {"action": request.action, "by": request.by, "reason": request.reason, **request.changes}
            text = f"{request.by} requests: {request.action} {request.settings}".rstrip()
            event = self._events.add(
                "action", text + (f", reason: {request.reason}" if request.reason else ""), **details
            )
            self._accept(request)
            self._changed.notify_all()
        return event

    def refusal(self, action: Action) -> str | None:
        """Return why the feed refuses the action; None if it accepts the action."""
        with self._changed:
            return self._refusal(action)

    # The driver calls the methods below.

    def open(
        self,
        stop: threading.Event,
        *,
        refusals: Mapping[Action, str] | None = None,
        check: Callable[[ActionRequest], None] = lambda request: None,
    ) -> None:
        """Start to accept requests.

        Args:
            stop: set by a request to stop; ends the run.
            refusals: the actions that this feed refuses, with the reasons.
            check: raises a ConfigError for a change that does not fit the feed.
        """
        with self._changed:
            self._stop, self._refusals, self._check = stop, dict(refusals or {}), check
            if self._stops:
                stop.set()

    def offer(self, action: Beside, perform: Callable[[ActionRequest], str]) -> None:
        """Set the function that performs this action in its own thread and returns the result as text."""
        with self._changed:
            self._beside[action] = perform

    def close(self) -> None:
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    @property
    def is_pending(self) -> bool:
        """Return whether the queue has a request, which waits for the end of the current batch."""
        return bool(self._queue)

    @property
    def next_pause(self) -> ActionRequest | None:
        """The newest request to pause or resume that is still in the queue; None if there is none."""
        with self._changed:
            return next((each for each in reversed(self._queue) if each.action in ("pause", "resume")), None)

    def take(self) -> ActionRequest | None:
        """Remove the oldest request from the queue and return it; None if the queue is empty."""
        with self._changed:
            return self._queue.popleft() if self._queue else None

    def is_at_work(self, action: Beside) -> bool:
        """Return whether an action of ``BESIDE`` currently runs."""
        with self._changed:
            return action in self._at_work

    def wait(self, seconds: float) -> None:
        """Wait for a request, for at most ``seconds``."""
        with self._changed:
            self._changed.wait_for(lambda: bool(self._queue), timeout=seconds)

    def paused(self, pause: Pause, *, note: str = "") -> str:
        """Record that the feed is paused, and return the event's message, which ends with ``note``."""
        with self._changed:
            self._pause = pause
        self._show(pause)
        text = pause.text + (f"; {note}" if note else "")
        return self._events.add("paused", text, reason=pause.reason, by=pause.by).message

    def resumed(self, by: str, *, reason: str = "", note: str = "") -> str:
        """Record that the feed is not paused any more, and return the event's message."""
        with self._changed:
            self._pause = None
        self._show(None)
        text = f"resumed by {by}" + (f": {reason}" if reason else "") + (f"; {note}" if note else "")
        return self._events.add("resumed", text, by=by, reason=reason).message

    def changed(self, request: ActionRequest) -> None:
        """Record that a change has taken effect."""
        self._events.add("changed", f"{request.settings}, until the run ends", by=request.by, **request.changes)

    def _accept(self, request: ActionRequest) -> None:
        if request.action == "stop":
            self._stops = True
            if self._stop is not None:
                self._stop.set()
        elif request.action in BESIDE:
            self._at_work.add(request.action)
            name = f"lakefeed-{request.action}-now"
            threading.Thread(target=self._perform, args=(request.action, request), name=name, daemon=True).start()
        else:
            self._queue.append(request)

    def _perform(self, action: Beside, request: ActionRequest) -> None:
        try:
            message = self._beside[action](request)
            self._events.add("note", f"{action}: {message}", action=action, by=request.by)
        except LakefeedError as error:
            message = f"{action} failed, the feed continues: {error.what}"
            self._events.add("error", message, action=action, **error.as_dict())
        except Exception as error:
            # Omit the error's text: it may contain values of records.
            self._events.add("error", f"{action} failed, the feed continues: {type(error).__name__}", action=action)
        finally:
            with self._changed:
                self._at_work.discard(action)

    def _refusal(self, action: Action) -> str | None:
        if self._ended:
            return ENDED
        if action != "stop" and (self._stops or (self._stop is not None and self._stop.is_set())):
            return "the run is stopping"
        if (refusal := self._refusals.get(action)) is not None:
            return refusal
        if action in ("pause", "resume", "stop"):
            return None
        if self._stop is None:
            return STARTS
        return f"this feed has no {action}" if action in BESIDE and action not in self._beside else None

    def _require_fit(self, request: ActionRequest) -> None:
        if (refusal := self._refusal(request.action)) is not None:
            hint = "lakefeed status pipeline.yaml shows the feed's state"
            raise ConfigError(refusal, where=request.action, hint=hint)
        newest = next((each for each in reversed(self._queue) if each.action in ("pause", "resume")), None)
        pause = self._pause if newest is None else newest.pause if newest.action == "pause" else None
        if request.action == "pause" and pause is not None:
            raise ConfigError(f"the feed is already {pause.text}", where="pause", hint="resume the feed first")
        if request.action == "resume" and pause is None:
            raise ConfigError("the feed is not paused", where="resume", hint="the feed runs and needs no resume")
        if request.action in self._at_work:
            raise ConfigError(
                f"{request.action} already runs", where=request.action, hint=f"wait until {request.action} has ended"
            )
        if request.action == "change":
            self._check(request)


def _action(name: str) -> Action:
    action = next((known for known in ACTIONS if known == name), None)
    if action is None:
        hint = f"choose from: {', '.join(ACTIONS)}"
        raise ConfigError(f"there is no action '{one_line(str(name))}'", where="action", hint=hint)
    return action


def _text(value: str, name: str, *, most: int) -> str:
    if not isinstance(value, str):
        raise ConfigError(f"{name} must be a text", where=name, hint="put the value in quotes")
    if len(value) > most:
        raise ConfigError(f"{name} has {len(value):,} characters", where=name, hint=f"use {most} characters at most")
    return one_line(value, most=most * 2)


def _require_values(request: ActionRequest) -> None:
    """Raise an error for a setting that the action does not have, or for an invalid value."""
    if request.action != "change":
        if request.changes:
            what = f"{request.action} has no {', '.join(request.changes)}"
            raise ConfigError(what, where=request.action, hint="only the action change takes settings")
        return
    if not request.changes:
        what, hint = "a change needs a new value", "give trigger, max_records_per_batch, or both"
        raise ConfigError(what, where="change", hint=hint)
    trigger, most = request.trigger, request.max_records_per_batch
    if trigger is not None:
        _text(trigger, "trigger", most=LONGEST_NAME)
        try:
            require_trigger(trigger)
        except ValueError as error:
            raise ConfigError(str(error), where="trigger", hint="give a time such as '10 seconds'") from None
        if trigger == AVAILABLE_NOW or interval_of(trigger) is not None:
            raise ConfigError(
                f"a running query cannot change to '{trigger}', which is another kind of run",
                where="trigger",
                hint="give a time such as '10 seconds'; or stop the feed, and start it with this trigger",
            )
    if most is not None and (isinstance(most, bool) or not isinstance(most, int) or not 0 < most <= MOST_RECORDS):
        where = "max_records_per_batch"
        raise ConfigError(f"{where} must be a whole number above 0", where=where, hint="give a number such as 100000")
