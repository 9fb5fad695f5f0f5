"""Statements that rewrite rows, run again when another writer has changed what they read."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from lakefeed.clients.iceberg.write_lock import turns_at

Result = TypeVar("Result")

TRIES = 5
CONFLICTS = (
    "Found conflicting files",
    "Found new conflicting delete",
    "Missing required files",
    "missing data files",
    "Cannot determine history between starting snapshot",
)
"""What Iceberg says of a MERGE, UPDATE or DELETE that came second: nothing of it is in the table."""


def run_in_turn(table: str, statement: Callable[[], Result], *, ask_for_quiet: Callable[[], None]) -> Result:
    """Runs a statement beside other writers and upkeep.

    In this process upkeep waits for it, and it for the piece of upkeep at hand. Against an upkeep job of its own,
    which may have one piece after the other to commit, it asks for quiet when it has lost once.

    Args:
        table: catalog.namespace.table
        statement: runs it.
        ask_for_quiet: ``Ledger.ask_for_quiet`` of that table.

    Raises:
        Exception: whatever it raises that is no conflict, or the last conflict of ``TRIES``.
    """
    for _ in range(TRIES - 1):
        try:
            with turns_at(table).writing():
                return statement()
        except Exception as error:
            if not any(each in str(error) for each in CONFLICTS):
                raise
            ask_for_quiet()
    with turns_at(table).writing():
        return statement()
