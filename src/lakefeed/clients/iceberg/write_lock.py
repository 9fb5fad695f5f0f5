"""Coordinates, for one table, writers that rewrite rows with maintenance that rewrites files.

Appends and rewrites of files do not conflict. A MERGE and a rewrite of the same files do: Iceberg refuses the second.
If both ran concurrently in one driver, either every MERGE would run twice or maintenance would never finish, so they
take turns. Separate processes cannot take turns: there Iceberg refuses one of them, and the writer requests a pause
of maintenance (``Ledger.ask_for_quiet``).
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
"""Iceberg's messages for a MERGE, UPDATE or DELETE that was refused as the second: the table has nothing of it."""


class Turns:
    """The turns at one table. A waiting writer goes before maintenance."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._writers = 0
        self._maintaining = False

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Take a writer's turn; wait for the current piece of maintenance."""
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
        """Take the turn of maintenance, for one piece; wait until no writer works or waits."""
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
    """Return this process's turns at the table ``catalog.namespace.table``."""
    with _lock:
        return _turns.setdefault(table, Turns())


def run_in_turn(table: str, statement: Callable[[], Result], *, ask_for_quiet: Callable[[], None]) -> Result:
    """Run a statement while other writers and maintenance may run.

    Within this process, maintenance waits for the statement, and the statement for the current piece of maintenance.
    Against maintenance in another process, which may commit one piece after the other, it requests a pause after the
    first conflict. It raises any other error at once, and a conflict only at the last of ``TRIES`` attempts.
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
