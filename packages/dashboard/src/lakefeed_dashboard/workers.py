"""Run blocking calls in daemon threads, so that they delay neither the event loop nor the end of a run.

Python waits for the threads of ``ThreadPoolExecutor`` when the process exits, even after ``shutdown(wait=False)``.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, Future
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any, ParamSpec, Protocol, TypeVar

from lakefeed.errors import LakefeedError
from lakefeed.messages.redaction import redacted
from lakefeed.monitor.metrics.exposition import MetricsText
from lakefeed.operations.endpoint import Document, Refused

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
        self._calls.put(None)  # The None has ended this thread: put it back, to end the next one.


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


DETAILS = ("graph", "table", "schemas", "dead-letters", "costs", "panels")


class FeedView(Protocol):
    """One feed, as the dashboard reads it."""

    @property
    def name(self) -> str:
        """The feed's name, as used in URLs."""

    def progress(self) -> Document:
        """Return the feed's progress in the form of ``FeedProgress.as_dict``."""

    def history(self, *, since: float, most: int) -> Document:
        """Return points of the history, and at most ``most`` of the newest batches in full."""

    def events(self, *, after: int) -> Document:
        """Return the events with larger numbers than ``after``."""

    def detail(self, what: str) -> Document:
        """Return the document of ``FeedDetails`` with this name; raise Refused if the document does not exist."""

    def act(self, request: Mapping[str, Any], *, by: str) -> Document:
        """Begin an action; return the event that logs the action, or raise Refused."""


class Feeds(Protocol):
    """All feeds of a dashboard."""

    def rows(self) -> Sequence[Document]:
        """Return the rows of all feeds, one per feed."""

    def find(self, name: str) -> FeedView | None:
        """Return the feed of this name; None if there is none."""

    def metrics(self, *, accept: str) -> MetricsText:
        """Return the metrics of all feeds for Prometheus, in the format that the Accept header requests."""

    def health(self) -> tuple[bool, Document]:
        """Return whether all feeds are healthy, and the document for probes."""

    def note(self, message: str, **details: Any) -> None:
        """Add an event to the audit log."""


class CachedRead:
    """A document that is read on request, by one thread at a time.

    If the read takes longer than ``limit``, the caller gets the previous document, or an error, and the read continues.

    Args:
        read: returns the document.
        failed: returns the document that shows an error's text.
        seconds: how long a document is reused.
        limit: how many seconds a caller waits.
    """

    def __init__(
        self,
        read: Callable[[], Document],
        *,
        failed: Callable[[str], Document],
        seconds: float,
        limit: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._read = read
        self._failed = failed
        self._seconds = seconds
        self._limit = limit
        self._clock = clock
        self._lock = threading.Lock()
        self._document: Document | None = None
        self._read_at = 0.0
        self._ended: threading.Event | None = None

    def get(self) -> Document:
        """Return the cached document; read the document again if the cached one is too old."""
        with self._lock:
            previous, ended = self._document, self._ended
            if previous is not None and self._clock() - self._read_at < self._seconds:
                return previous
            if ended is None:
                ended = self._ended = threading.Event()
                threading.Thread(target=self._run, args=(ended,), name="lakefeed-details", daemon=True).start()
        document = self._document if ended.wait(self._limit) else previous
        return document or self._failed(f"the read takes longer than {self._limit:g} seconds; it continues")

    def _run(self, ended: threading.Event) -> None:
        try:
            document = self._read()
        except Exception as error:
            document = self._failed(explained(error))
        with self._lock:
            self._document, self._read_at, self._ended = document, self._clock(), None
        ended.set()


def explained(error: BaseException) -> str:
    """Return an error as a sentence without secrets; of an error that is not lakefeed's, name only the class."""
    if isinstance(error, LakefeedError):
        where = f" ({error.where})" if error.where else ""
        hint = f"; {error.hint}" if error.hint else ""
        return redacted(f"{error.what}{where}{hint}")
    return f"the read failed: {type(error).__name__}"
