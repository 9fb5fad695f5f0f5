"""Runs what may block in threads, so that the event loop never does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from lakefeed.operations.endpoint import Refused
from lakefeed_dashboard.daemon_threads import DaemonThreads

P = ParamSpec("P")
Result = TypeVar("Result")

READERS = 16
SLOW = 4
MOST_WAITING = 64
READ_SECONDS = 5.0
SLOW_SECONDS = 20.0


class Workers:
    """Two pools of threads: for reads of memory, and for what asks servers, which may hang."""

    def __init__(self) -> None:
        self._readers = _Pool("lakefeed-dashboard", READERS, READ_SECONDS)
        self._slow = _Pool("lakefeed-details", SLOW, SLOW_SECONDS)

    async def read(self, call: Callable[P, Result], *args: P.args, **kwargs: P.kwargs) -> Result:
        """Run a call that takes microseconds, or a short request; Refused if it takes long."""
        return await self._readers.run(lambda: call(*args, **kwargs))

    async def slow(self, call: Callable[P, Result], *args: P.args, **kwargs: P.kwargs) -> Result:
        """Run a call that may ask servers; Refused if it takes too long."""
        return await self._slow.run(lambda: call(*args, **kwargs))

    def close(self) -> None:
        """Take no more calls; one that hangs is left behind."""
        self._readers.close()
        self._slow.close()


class _Pool:
    def __init__(self, name: str, threads: int, seconds: float) -> None:
        self._threads = DaemonThreads(threads, name=name)
        self._seconds = seconds
        self._waiting = 0

    async def run(self, call: Callable[[], Result]) -> Result:
        if self._waiting >= MOST_WAITING:
            raise Refused(503, "too many requests wait", "try again in some seconds", retry_after=1)
        self._waiting += 1
        try:
            async with asyncio.timeout(self._seconds):
                return await asyncio.get_running_loop().run_in_executor(self._threads, call)
        except TimeoutError:
            raise Refused(503, "the answer takes too long", "try again in some seconds") from None
        finally:
            self._waiting -= 1

    def close(self) -> None:
        self._threads.shutdown()
