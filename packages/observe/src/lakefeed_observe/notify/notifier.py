"""Notifies while a feed runs: watches its monitor in a thread of its own, and hands messages to a sender a target.

Nothing here is called by the feed. At the end of a run the last messages have ten seconds.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from lakefeed.monitor.feed_monitor import FeedMonitor
from lakefeed.monitor.own_files import read_own_file, write_own_file
from lakefeed.operations.followers import FollowedRun
from lakefeed.operations.live_status import own_path
from lakefeed_observe.notify.formats import REPEAT_SECONDS
from lakefeed_observe.notify.message import Message
from lakefeed_observe.notify.sender import Sender
from lakefeed_observe.notify.settings import Notify, settings_of
from lakefeed_observe.notify.watch import Watch

_log = logging.getLogger(__name__)

LOOK_SECONDS = 1.0
LEAST_PAUSE_SECONDS = 0.2
"""Events that come in a stream are taken together."""
END_SECONDS = 10.0
WATCH_END_SECONDS = 2.0


@contextmanager
def notifying(
    settings: Notify | None, monitor: FeedMonitor, *, memory: Path | None = None, seconds: float = END_SECONDS
) -> Iterator[None]:
    """Send messages about a run within this block, and the last ones within so many seconds after it.

    Args:
        memory: a file that keeps what was sent, so that a feed that fails at each start sends one message.
    """
    if settings is None:
        yield
        return
    notifier = Notifier(settings, monitor, memory=memory)
    notifier.start()
    try:
        yield
    finally:
        notifier.close(seconds=seconds)


def follow(run: FollowedRun) -> AbstractContextManager[None]:
    """Notify of a run as its pipeline file says."""
    return notifying(settings_of(run.config), run.monitor, memory=own_path("notify", run.config))


class Notifier:
    """Watches one monitor for all targets."""

    def __init__(self, settings: Notify, monitor: FeedMonitor, *, memory: Path | None = None) -> None:
        self._monitor = monitor
        self._memory = memory
        self._kept = _read(memory)
        self._watch = Watch(settings, memory=self._kept)
        self._senders = [
            Sender(name, target, report=self._report, most_per_hour=settings.most_per_hour)
            for name, target in settings.targets.items()
        ]
        self._seen = 0
        self._repeat_at = 0.0
        self._stop = threading.Event()
        self._is_broken = False
        self._thread = threading.Thread(target=self._run, name="lakefeed-notify", daemon=True)

    def start(self) -> None:
        for sender in self._senders:
            sender.start()
        self._thread.start()

    def close(self, *, seconds: float) -> None:
        """Send what is left, for so many seconds at most."""
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
            # Read first: after the end of the run there is one more look, which sees all of it.
            is_last = self._stop.is_set()
            try:
                self._look(wait=not is_last)
            except Exception:  # A defect here must not end the thread, and is reported once.
                if not self._is_broken:
                    _log.warning("notify: a look at the feed has failed", exc_info=True)
                self._is_broken = True
                self._stop.wait(LOOK_SECONDS)

    def _look(self, *, wait: bool) -> None:
        if wait:
            self._stop.wait(LEAST_PAUSE_SECONDS)
        seconds = LOOK_SECONDS if wait and not self._stop.is_set() else 0.0
        events = self._monitor.events.wait(self._seen, seconds=seconds)
        if events:
            self._seen = events[-1].number
        progress = self._monitor.snapshot()
        messages = self._watch.look(progress, events, progress.taken_at)
        for message in messages:
            for sender in self._senders:
                sender.put(message)
        self._repeat(progress.taken_at, repeated=messages)
        self._keep()

    def _repeat(self, now: float, *, repeated: list[Message]) -> None:
        if 0 <= now - self._repeat_at < REPEAT_SECONDS:
            return
        self._repeat_at = now
        fresh = {(message.trigger, message.key) for message in repeated}
        for message in self._watch.repeats(self._monitor.snapshot(), now):
            for sender in self._senders:
                if sender.repeats and (message.trigger, message.key) not in fresh:
                    sender.put(message)

    def _keep(self) -> None:
        memory = self._watch.memory
        if self._memory is None or memory == self._kept:
            return
        self._kept = memory
        try:
            write_own_file(self._memory, json.dumps(memory))
        except OSError as error:
            _log.debug("notify: what was sent cannot be noted: %s", error.strerror)

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
