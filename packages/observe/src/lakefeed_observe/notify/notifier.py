"""Send messages while a feed runs: one thread watches the feed's monitor, and a thread per target delivers messages.

The feed never calls this module, so no target can delay a batch. A run's end waits at most ten seconds for messages.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from lakefeed.clients.environment import read_own_file, write_own_file
from lakefeed.monitor.feed_monitor import FeedMonitor
from lakefeed.operations.followers import FollowedRun
from lakefeed.operations.live_status import own_path
from lakefeed_observe.notify.deliver import NotDelivered, deliver
from lakefeed_observe.notify.message import REPEAT_SECONDS, Message
from lakefeed_observe.notify.settings import Notify, NotifyTarget, settings_of
from lakefeed_observe.notify.watch import Watch

_log = logging.getLogger(__name__)

LOOK_SECONDS = 1.0
LEAST_PAUSE_SECONDS = 0.2
"""The least seconds between two reads of the monitor; a read gets all events since the previous read."""
END_SECONDS = 10.0
WATCH_END_SECONDS = 2.0


@contextmanager
def notifying(
    settings: Notify | None, monitor: FeedMonitor, *, memory: Path | None = None, seconds: float = END_SECONDS
) -> Iterator[None]:
    """Send messages while the block runs; when the block ends, send the remaining messages for at most ``seconds``.

    Args:
        memory: a file that lists sent messages, so that a feed that fails at every start sends only one message.
    """
    if settings is None:
        yield
        return
    notifier = Notifier(settings, monitor, memory=memory)
    try:
        yield
    finally:
        notifier.close(seconds=seconds)


def follow(run: FollowedRun) -> AbstractContextManager[None]:
    """Send messages about a run as configured in its pipeline file."""
    return notifying(settings_of(run.config), run.monitor, memory=own_path("notify", run.config))


class Notifier:
    """Watches a feed's monitor, and passes the messages that are due to the senders of all targets."""

    def __init__(self, settings: Notify, monitor: FeedMonitor, *, memory: Path | None = None) -> None:
        self._monitor = monitor
        self._memory = memory
        self._stored = _read(memory)
        self._watch = Watch(settings, memory=self._stored)
        self._senders = [
            Sender(name, target, report=self._report, most_per_hour=settings.most_per_hour)
            for name, target in settings.targets.items()
        ]
        self._last_number = 0
        self._repeat_at = 0.0
        self._stop = threading.Event()
        self._is_broken = False
        self._thread = threading.Thread(target=self._run, name="lakefeed-notify", daemon=True)
        self._thread.start()

    def close(self, *, seconds: float) -> None:
        """Send the remaining messages, for at most ``seconds``."""
        until = time.monotonic() + seconds
        self._stop.set()
        self._thread.join(min(WATCH_END_SECONDS, seconds))
        for sender in self._senders:
            sender.close(until)
        for sender in self._senders:
            sender.join()

    def _run(self) -> None:
        is_last = False
        while not is_last:
            # Read the flag first: if it is set, the read of the monitor below gets the run's last events.
            is_last = self._stop.is_set()
            try:
                self._look(wait=not is_last)
            except Exception:  # A bug here must not end the thread; only its first error is logged.
                if not self._is_broken:
                    _log.warning("notify: the feed's state cannot be read", exc_info=True)
                self._is_broken = True
                self._stop.wait(LOOK_SECONDS)

    def _look(self, *, wait: bool) -> None:
        if wait:
            self._stop.wait(LEAST_PAUSE_SECONDS)
        seconds = LOOK_SECONDS if wait and not self._stop.is_set() else 0.0
        events = self._monitor.events.wait(self._last_number, seconds=seconds)
        if events:
            self._last_number = events[-1].number
        progress = self._monitor.snapshot()
        messages = self._watch.look(progress, events, progress.taken_at)
        for message in messages:
            for sender in self._senders:
                sender.put(message)
        if not 0 <= progress.taken_at - self._repeat_at < REPEAT_SECONDS:
            self._repeat_at = progress.taken_at
            fresh = {(message.trigger, message.key) for message in messages}
            for message in self._watch.repeats(self._monitor.snapshot(), progress.taken_at):
                for sender in self._senders:
                    if sender.repeats and (message.trigger, message.key) not in fresh:
                        sender.put(message)
        memory = self._watch.memory
        if self._memory is None or memory == self._stored:
            return
        self._stored = memory
        try:
            write_own_file(self._memory, json.dumps(memory))
        except OSError as error:
            _log.debug("notify: %s cannot be written: %s", self._memory, error.strerror)

    def _report(self, what: str) -> None:
        self._monitor.note(what)
        _log.warning("%s", what)


def _read(path: Path | None) -> dict[str, Any]:
    text = None if path is None else read_own_file(path)
    try:
        found = json.loads(text or "{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


MOST_WAITING = 100
GIVE_UP_SECONDS = 600.0
FIRST_PAUSE_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 60.0
HOUR = 3600.0
NEWEST_SECONDS = 5.0
"""At a run's end, a running program is killed this many seconds before the deadline if a newer message waits."""
MARGIN = 0.5
ALWAYS = ("failed", "stopped", "error_budget")
"""The triggers that report a run's end, to which the limit of messages per hour does not apply."""


class Sender:
    """Sends messages to one target, in a separate thread.

    Args:
        report: called with a sentence when the target stops answering, refuses a message, or answers again.
        most_per_hour: the most messages in an hour; further messages are dropped, and the next message counts them.
    """

    def __init__(
        self,
        name: str,
        target: NotifyTarget,
        *,
        report: Callable[[str], None],
        most_per_hour: int = 60,
        deliver: Callable[..., str] = deliver,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = name
        self.target = target
        self._report, self._deliver, self._clock = report, deliver, clock
        self._most_per_hour = most_per_hour
        self._changed = threading.Condition()
        self._queue: deque[tuple[float, Message]] = deque()
        self._sent_at: deque[float] = deque(maxlen=most_per_hour)
        self._left_out = 0
        self._is_at_work = False
        self._until: float | None = None
        self._trouble: str | None = None
        self._thread = threading.Thread(target=self._run, name=f"lakefeed-notify-{name}", daemon=True)
        self._thread.start()

    @property
    def repeats(self) -> bool:
        """Return True if the receiver forgets messages that are not repeated."""
        return self.target.webhook is not None and self.target.webhook.format == "alertmanager"

    def put(self, message: Message) -> None:
        """Add a message to the queue without waiting; if the queue is full, drop its oldest message."""
        if not self.target.takes(message.trigger):
            return
        with self._changed:
            if message.repeated and self._queue:
                return
            if not message.repeated and not self._is_allowed(message):
                self._left_out += 1
                return
            self._queue.append((self._clock(), message))
            if len(self._queue) > MOST_WAITING:
                self._queue.popleft()
                self._left_out += 1
            self._changed.notify_all()

    def close(self, until: float) -> None:
        """End the thread when the queue is empty, or at the time ``until``; until then, send newer messages first."""
        with self._changed:
            self._until = until
            self._changed.notify_all()

    def join(self) -> None:
        """Wait until the thread ends, at most until the time given to ``close``."""
        self._thread.join(max(0.0, (self._until or 0.0) - self._clock()))
        with self._changed:
            waiting = len(self._queue) + self._left_out + self._is_at_work
        if waiting:
            _log.warning("notify: %d messages were not sent to the target '%s'", waiting, self.name)

    def _is_allowed(self, message: Message) -> bool:
        now = self._clock()
        while self._sent_at and self._sent_at[0] <= now - HOUR:
            self._sent_at.popleft()
        if len(self._sent_at) >= self._most_per_hour and message.trigger not in ALWAYS:
            return False
        self._sent_at.append(now)
        return True

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: bool(self._queue) or self._until is not None)
                if not self._queue:
                    return
                is_closing = self._until is not None
                began, message = self._queue.pop() if is_closing else self._queue.popleft()
                left_out, self._left_out = self._left_out, 0
                self._is_at_work = True
            try:
                is_sent = self._send(replace(message, left_out=left_out), began)
            except Exception as error:  # The thread must still send the message about the run's end.
                self._note(f"gets no messages because of a bug: {type(error).__name__}")
                is_sent = False
            with self._changed:
                self._is_at_work = False
                if not is_sent:
                    self._left_out += left_out + (not message.repeated)

    def _send(self, message: Message, began: float) -> bool:
        """Deliver a message, with retries; return False after the last failure."""
        pause = FIRST_PAUSE_SECONDS
        while True:
            left = None if self._until is None else self._until - self._clock()
            if left is not None and left <= 0:
                return False
            try:
                self._deliver(self.target, message, seconds=left, is_cancelled=self._is_cancelled)
            except NotDelivered as error:
                self._note(f"{'does not take messages' if error.is_transient else 'refuses a message'}: {error.reason}")
                if not error.is_transient or message.repeated or self._clock() - began > GIVE_UP_SECONDS:
                    return False
            else:
                self._note(None)
                return True
            if self._waits_for_the_newest(pause):
                with self._changed:
                    self._queue.appendleft((began, message))
                    self._left_out += message.left_out
                return True
            pause = min(LONGEST_PAUSE_SECONDS, pause * 2)

    def _waits_for_the_newest(self, pause: float) -> bool:
        """Wait before the next attempt; return True if the run ends meanwhile and newer messages have to go first."""
        with self._changed:
            if self._until is None:
                return self._changed.wait_for(lambda: self._until is not None, timeout=pause) and bool(self._queue)
            self._changed.wait(min(pause, max(0.0, self._until - self._clock())))
            return False

    def _is_cancelled(self) -> bool:
        return self._until is not None and self._clock() >= self._until - (NEWEST_SECONDS if self._queue else MARGIN)

    def _note(self, trouble: str | None) -> None:
        """Report when a problem with the target begins, and when it ends (``trouble`` is None), but not in between."""
        before, self._trouble = self._trouble, trouble
        if trouble is not None and (before is None or before.partition(":")[0] != trouble.partition(":")[0]):
            self._report(f"notify: the target '{self.name}' {trouble}")
        elif trouble is None and before is not None:
            self._report(f"notify: the target '{self.name}' takes messages again")
