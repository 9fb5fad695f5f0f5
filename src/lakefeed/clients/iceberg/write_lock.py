"""Coordinates writers that rewrite rows with maintenance that rewrites files, at one table.

An append and a rewrite of files do not meet. A MERGE and a rewrite of the same files do: the second one is refused.
Side by side in one driver, batch after batch, either the MERGE would be run twice or maintenance would never come to an
end; one after the other both do. Processes do not see each other: there Iceberg refuses one, and the writer asks
for quiet (``Ledger.ask_for_quiet``).
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
"""Iceberg's messages for a MERGE, UPDATE or DELETE that came second: nothing of it is in the table."""


class Turns:
    """The turns at one table. A writer that waits goes first."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._writers = 0
        self._maintaining = False

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Take a writer's turn; waits for the current piece of maintenance."""
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
        """Take the turn of maintenance, for one piece; waits until no writer is at work or waits."""
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
    """Return this process's turns at ``catalog.namespace.table``."""
    with _lock:
        return _turns.setdefault(table, Turns())


def run_in_turn(table: str, statement: Callable[[], Result], *, ask_for_quiet: Callable[[], None]) -> Result:
    """Run a statement beside other writers and maintenance.

    In this process maintenance waits for it, and it for the current piece of maintenance. Against a maintenance job in
    another process, which may have one piece after the other to commit, it asks for quiet when it has lost once. Raises
    any other error than a conflict, and the last conflict of ``TRIES``.
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
