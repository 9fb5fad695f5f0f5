"""Run blocking calls in daemon threads, so that they delay neither the event loop nor the end of a run.

Python waits for the threads of ``ThreadPoolExecutor`` when the process exits, even after ``shutdown(wait=False)``.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any, ParamSpec, TypeVar

from lakefeed.operations.endpoint import Refused

P = ParamSpec("P")
Result = TypeVar("Result")


class DaemonThreads(Executor):
    """A pool of at most ``most`` daemon threads, which start on demand."""

    def __init__(self, most: int, *, name: str) -> None:
        self._most = most
        self._name = name
        self._calls: SimpleQueue[tuple[Future[Any], Callable[[], None]] | None] = SimpleQueue()
        self._idle = threading.Semaphore(0)
        self._lock = threading.Lock()
        self._started = 0
        self._is_closed = False

    def submit(self, fn: Callable[P, Result], /, *args: P.args, **kwargs: P.kwargs) -> Future[Result]:
        future: Future[Result] = Future()

        def call() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                result = fn(*args, **kwargs)
            except BaseException as error:
                future.set_exception(error)
            else:
                future.set_result(result)

        with self._lock:
            if self._is_closed:
                raise RuntimeError("the threads accept no more calls")
            self._calls.put((future, call))
            if not self._idle.acquire(blocking=False) and self._started < self._most:
                self._started += 1
                name = f"{self._name}_{self._started}"
                threading.Thread(target=self._work, name=name, daemon=True).start()
        return future

    def shutdown(self, wait: bool = False, *, cancel_futures: bool = True) -> None:
        """Begin no more calls; a running call is abandoned."""
        with self._lock:
            self._is_closed = True
        with suppress(Empty):
            while True:
                if (waiting := self._calls.get_nowait()) is not None:
                    waiting[0].cancel()
        self._calls.put(None)

    def _work(self) -> None:
        while (found := self._calls.get()) is not None:
            found[1]()
            found = None  # Otherwise the call's result would stay in memory until the next call.
            self._idle.release()
        self._calls.put(None)  # The None ends the next thread, which passes it on.


READERS = 16
SLOW = 4
MOST_WAITING = 64
READ_SECONDS = 5.0
SLOW_SECONDS = 20.0


class Workers:
    """Two pools of threads: one for reads of memory, and one for requests to servers, which may hang."""

    def __init__(self) -> None:
        self._readers = _Pool("lakefeed-dashboard", READERS, READ_SECONDS)
        self._slow = _Pool("lakefeed-details", SLOW, SLOW_SECONDS)

    async def read(self, call: Callable[P, Result], *args: P.args, **kwargs: P.kwargs) -> Result:
        """Run a call that reads memory or sends a short request; raise Refused if the call takes too long."""
        return await self._readers.run(lambda: call(*args, **kwargs))

    async def slow(self, call: Callable[P, Result], *args: P.args, **kwargs: P.kwargs) -> Result:
        """Run a call that may wait for servers; raise Refused if the call takes too long."""
        return await self._slow.run(lambda: call(*args, **kwargs))

    def close(self) -> None:
        """Accept no more calls, and abandon the calls that run."""
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
