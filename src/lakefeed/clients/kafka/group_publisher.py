"""Shows a feed's position to its monitoring group from a thread of its own, so that no batch waits for the broker.

A broker refuses offsets while it loads a new group's coordinator, or while another one takes the group over. The newest
position is then sent again until it is taken, at the latest at the end of the run.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Protocol

from lakefeed.offsets.ranges import OffsetRange, Partition

RETRY_SECONDS = 1.0
PATIENCE_SECONDS = 15.0
"""A failure that lasts for so long is worth a message: a coordinator loads in a few seconds."""
END_SECONDS = 10.0
"""The end of a run waits for so long for what was not taken yet."""


class PositionGroup(Protocol):
    """The part of ``MonitoringGroup`` that a publisher needs."""

    name: str

    def set_offsets(self, ranges: Iterable[OffsetRange]) -> str | None:
        """Set the group to the ends of these ranges; return why that failed."""


class GroupPublisher:
    """Sends the newest position of a feed to its monitoring group."""

    def __init__(
        self, group: PositionGroup, *, retry_seconds: float = RETRY_SECONDS, patience: float = PATIENCE_SECONDS
    ) -> None:
        self._group = group
        self._retry_seconds, self._patience = retry_seconds, patience
        self._changed = threading.Condition()
        self._pending: dict[Partition, OffsetRange] = {}
        self._failure: str | None = None
        self._failing_since: float | None = None
        self._reported: str | None = None
        self._until: float | None = None
        self._thread = threading.Thread(target=self._run, name="lakefeed-group", daemon=True)
        self._thread.start()

    def publish(self, ranges: Iterable[OffsetRange]) -> str | None:
        """Send the ends of these ranges soon; return a message once for each failure that lasts."""
        with self._changed:
            self._pending.update({span.key: span for span in ranges})
            self._changed.notify_all()
            since = self._failing_since
            if since is None or time.monotonic() - since < self._patience or self._failure == self._reported:
                return None
            self._reported = self._failure
            return self._message()

    def close(self, *, seconds: float = END_SECONDS) -> str | None:
        """Send what is left within this time, and end; return why it could not be sent."""
        with self._changed:
            self._until = time.monotonic() + seconds
            self._changed.notify_all()
        self._thread.join(seconds)
        with self._changed:
            return self._message() if self._pending and seconds > 0 else None

    def _message(self) -> str:
        return f"the monitoring group {self._group.name} could not be set: {self._failure or 'the broker is silent'}"

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._pending or self._until is not None)
                if self._until is not None and (not self._pending or time.monotonic() >= self._until):
                    return
                sent = dict(self._pending)
            failure = self._group.set_offsets(sent.values())
            with self._changed:
                self._note(sent, failure)
                if failure is not None:
                    self._changed.wait_for(lambda: self._until is not None, timeout=self._retry_seconds)
            if failure is not None and self._until is not None:
                # ``close`` waits for this thread, and for no more than its time.
                time.sleep(min(self._retry_seconds, max(0.0, self._until - time.monotonic())))

    def _note(self, sent: dict[Partition, OffsetRange], failure: str | None) -> None:
        self._failure = failure
        if failure is not None:
            self._failing_since = self._failing_since or time.monotonic()
            return
        self._failing_since = self._reported = None
        # A batch may have come in between, and be further.
        self._pending = {key: span for key, span in self._pending.items() if sent.get(key) != span}


@contextmanager
def publishing(publisher: GroupPublisher | None, on_note: Callable[[str], None]) -> Iterator[None]:
    """Send the last position at the end of this block, and say so if that fails.

    Not after an error: another driver may have taken the feed over, and be further.
    """
    try:
        yield
    except BaseException:
        if publisher is not None:
            publisher.close(seconds=0.0)
        raise
    if publisher is not None and (note := publisher.close()) is not None:
        on_note(note)
