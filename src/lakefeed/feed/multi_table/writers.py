"""Threads that write tables at the same time, each in its own session.

A batch sets and names things in its session: a temporary view for the transform, another for the MERGE, ANSI mode while
rules are resolved. In one session the batches of two topics would see each other's. A session for each table would have
a catalog with connections of its own for each, too: so there are as many as are at work at the same time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from lakefeed.clients.spark.session import activate

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Item = TypeVar("Item")
Result = TypeVar("Result")


class Writers:
    """Threads with sessions. Use it as a context manager.

    Args:
        spark: the session that theirs are copies of, with what is set in it now.
        count: how many.
    """

    def __init__(self, spark: SparkSession, count: int) -> None:
        self._sessions = [_copy(spark) for _ in range(count)]
        self._threads: list[ThreadPoolExecutor] = []
        self._open = ExitStack()

    def __enter__(self) -> Self:
        for number, session in enumerate(self._sessions):
            name = f"tables-{number}"
            thread = ThreadPoolExecutor(1, thread_name_prefix=name, initializer=activate, initargs=(session,))
            self._threads.append(self._open.enter_context(thread))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.close()

    def session(self, number: int) -> SparkSession:
        """Return the session for this number; numbers beyond the count start over."""
        return self._sessions[number % len(self._sessions)]

    def each(self, work: Callable[[Item], Result], items: Iterable[tuple[int, Item]]) -> list[Result]:
        """Call ``work`` for all items; items of one session one after the other.

        Args:
            work: what to do.
            items: each with its number.

        Returns:
            What it gave, in the order of the items.
        """
        begun = [self._threads[number % len(self._threads)].submit(work, item) for number, item in items]
        try:
            return [each.result() for each in begun]
        finally:
            # Where one has failed for all, what has not begun does not begin.
            for each in begun:
                each.cancel()


def _copy(spark: SparkSession) -> SparkSession:
    # Not newSession(): that has neither the catalogs nor the credentials that were set on the running session.
    original: Any = spark
    return type(spark)(spark.sparkContext, original._jsparkSession.cloneSession())
