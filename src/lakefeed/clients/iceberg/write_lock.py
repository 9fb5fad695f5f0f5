"""Let writers that rewrite a table's rows take turns with maintenance that rewrites its files.

An append and a rewrite of files do not conflict. A MERGE and a rewrite of the same files do: Iceberg refuses the second
commit. If one driver ran both concurrently, either every MERGE would run twice or maintenance would never finish. So
writers and maintenance take turns within a process. Separate processes cannot take turns: Iceberg refuses one of the
commits, and the writer requests a pause of maintenance (``Ledger.ask_for_quiet``).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

Result = TypeVar("Result")

TRIES = 5
CONFLICTS = (
    "Found conflicting files",
    "Found new conflicting delete",
    "Missing required files",
    "missing data files",
    "Cannot determine history between starting snapshot",
)
"""Iceberg's messages when it refuses a MERGE, UPDATE or DELETE, changing nothing, because of a concurrent commit."""


class Turns:
    """Lets writers and maintenance of one table take turns; a waiting writer goes before waiting maintenance."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._writers = 0
        self._maintaining = False

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Wait until no maintenance runs, then keep maintenance waiting until the block ends."""
        with self._changed:
            self._writers += 1
            self._changed.wait_for(lambda: not self._maintaining)
        try:
            yield
        finally:
            with self._changed:
                self._writers -= 1
                self._changed.notify_all()

    @contextmanager
    def maintaining(self) -> Iterator[None]:
        """Wait until no writer works or waits, then keep writers waiting until the block ends."""
        with self._changed:
            self._changed.wait_for(lambda: not self._writers and not self._maintaining)
            self._maintaining = True
        try:
            yield
        finally:
            with self._changed:
                self._maintaining = False
                self._changed.notify_all()


_turns: dict[str, Turns] = {}
_lock = threading.Lock()


def turns_at(table: str) -> Turns:
    """Return the ``Turns`` for ``catalog.namespace.table`` that all threads of this process share."""
    with _lock:
        return _turns.setdefault(table, Turns())


def run_in_turn(table: str, statement: Callable[[], Result], *, ask_for_quiet: Callable[[], None]) -> Result:
    """Run a statement that may conflict with maintenance; repeat it after a conflict.

    Within this process the statement takes a turn as a writer. Maintenance in another process may commit many times in
    a row, so ``ask_for_quiet`` is called after the first conflict, to request a pause. After ``TRIES`` attempts the
    conflict is raised, any other error at once.
    """
    for _ in range(TRIES - 1):
        try:
            with turns_at(table).writing():
                return statement()
        except Exception as error:
            if not any(conflict in str(error) for conflict in CONFLICTS):
                raise
            ask_for_quiet()
    with turns_at(table).writing():
        return statement()
