"""Turns at a table between a writer that rewrites rows and upkeep that rewrites files, within one process.

An append and a rewrite of files do not meet. A MERGE and a rewrite of the same files do: the second one is refused.
Side by side in one driver, batch after batch, either the MERGE would be run twice or upkeep would never come to an
end; one after the other both do. Processes do not see each other: there Iceberg refuses one, and the writer asks
for quiet (``Ledger.ask_for_quiet``).
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Turns:
    """The turns at one table. A writer that waits goes first."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._writers = 0
        self._tidying = False

    @contextmanager
    def writing(self) -> Iterator[None]:
        """A writer's turn; waits for the piece of upkeep at hand."""
        with self._changed:
            self._writers += 1
            self._changed.wait_for(lambda: not self._tidying)
        try:
            yield
        finally:
            with self._changed:
                self._writers -= 1
                self._changed.notify_all()

    @contextmanager
    def tidying(self) -> Iterator[None]:
        """Upkeep's turn, for one piece; waits until no writer is at work or waits."""
        with self._changed:
            self._changed.wait_for(lambda: not self._writers and not self._tidying)
            self._tidying = True
        try:
            yield
        finally:
            with self._changed:
                self._tidying = False
                self._changed.notify_all()


_turns: dict[str, Turns] = {}
_lock = threading.Lock()


def turns_at(table: str) -> Turns:
    """The turns at a table of this process.

    Args:
        table: catalog.namespace.table
    """
    with _lock:
        return _turns.setdefault(table, Turns())
