"""Threads for calls that may hang: the process ends without waiting for them.

It waits for those of ``ThreadPoolExecutor``, also after ``shutdown(wait=False)``: a server that does not answer would
hold up the end of a run.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
Result = TypeVar("Result")


class DaemonThreads(Executor):
    """A pool of daemon threads, which are started as they are needed.

    Args:
        most: threads.
        name: the beginning of theirs.
    """

    def __init__(self, most: int, *, name: str) -> None:
        self._most = most
        self._name = name
        self._calls: SimpleQueue[tuple[Future[Any], Callable[[], None]] | None] = SimpleQueue()
        self._idle = threading.Semaphore(0)
        self._lock = threading.Lock()
        self._started = 0
        self._is_closed = False

    def submit(self, fn: Callable[P, Result], /, *args: P.args, **kwargs: P.kwargs) -> Future[Result]:
        """Call a function in one of the threads; RuntimeError after the shutdown."""
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
                raise RuntimeError("the threads take no more calls")
            self._calls.put((future, call))
            if not self._idle.acquire(blocking=False) and self._started < self._most:
                self._started += 1
                name = f"{self._name}_{self._started}"
                threading.Thread(target=self._work, name=name, daemon=True).start()
        return future

    def shutdown(self, wait: bool = False, *, cancel_futures: bool = True) -> None:
        """Begin no more calls; one that runs is left behind."""
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
            found = None  # Else its result would be kept until the next call.
            self._idle.release()
        self._calls.put(None)  # For the next thread.
