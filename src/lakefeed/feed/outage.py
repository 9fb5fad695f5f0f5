"""Waits for a server that a run has had right answers from: a restart of it delays a batch, and ends no feed.

The batch is planned again then, and goes through the batch writer, which asks the ledger whether it has landed. So a
commit whose answer was lost is not written twice.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from lakefeed.clients.retry import PATIENCE_SECONDS
from lakefeed.errors import BrokerUnreachable, LakefeedError
from lakefeed.feed.observer import RunObserver

FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 1.0, 10.0


class Outage:
    """One patience for all servers of a run: brokers, registry, catalog and store.

    Attributes:
        since: when the first attempt failed; None while all servers answer.
    """

    def __init__(
        self,
        *,
        stop: threading.Event,
        monitor: RunObserver,
        say: Callable[[str], None],
        seconds: float = PATIENCE_SECONDS,
    ) -> None:
        self._stop, self._monitor, self._say, self._seconds = stop, monitor, say, seconds
        self._pause = FIRST_PAUSE_SECONDS
        self.has_landed = False
        """Whether a batch has landed in this run, so that each server has answered rightly."""
        self.since: float | None = None

    def wait(self, error: LakefeedError) -> bool:
        """Wait before the next attempt; return False if the error is none to wait for.

        Raises:
            LakefeedError: of the error's class, if the patience is over.
        """
        # The brokers have described the topics at the start; of credentials and other servers nothing is known then.
        if not error.passes or not (self.has_landed or isinstance(error, BrokerUnreachable)):
            return False
        now = time.monotonic()
        if self.since is None:
            self.since, self._pause = now, FIRST_PAUSE_SECONDS
            where = f" ({error.where})" if error.where else ""
            self._say(f"waiting for a server: {error.what}{where}; tried again for {self._seconds:g} s")
        elif now - self.since > self._seconds:
            raise type(error)(
                f"{error.what}, for {now - self.since:.0f} s now",
                where=error.where,
                hint=f"{error.hint}; start the feed again then: it resumes where it stopped",
            ) from error
        self._monitor.waits_for(error)
        self._stop.wait(self._pause)
        self._pause = min(2 * self._pause, LONGEST_PAUSE_SECONDS)
        return True

    def is_over(self) -> None:
        """Note that all servers have answered."""
        if self.since is not None:
            self._say(f"all servers answer again, after {time.monotonic() - self.since:.0f} s")
            self._monitor.waits_for(None)
        self.since = None
