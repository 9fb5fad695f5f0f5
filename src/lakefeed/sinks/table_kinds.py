"""Distinguishes tables of dead letters from tables of rows, so that neither is written into the other."""

from __future__ import annotations

from collections.abc import Iterable

from lakefeed.errors import ConfigError

DEAD_LETTER_COLUMNS = frozenset(("feed", "batch_id", "topic", "partition", "offset", "reason", "failed_at", "replay"))


def is_dead_letters(columns: Iterable[str]) -> bool:
    """Whether a table with these columns holds dead letters."""
    return set(columns) >= DEAD_LETTER_COLUMNS


def require_dead_letters(table: str, columns: Iterable[str]) -> None:
    """Refuses a place for dead letters that is a table of something else.

    Raises:
        ConfigError: naming the columns that it lacks.
    """
    if missing := sorted(DEAD_LETTER_COLUMNS - set(columns)):
        raise ConfigError(
            f"{table} is no table of dead letters: it lacks the columns {', '.join(missing)}",
            where=table,
            hint="name another table in dead_letters.table; lakefeed creates it",
        )


def require_rows(table: str, columns: Iterable[str]) -> None:
    """Refuses a place for rows that is a table of dead letters.

    Raises:
        ConfigError: it is one.
    """
    if is_dead_letters(columns):
        raise ConfigError(
            f"{table} is a table of dead letters, which rows would mix with",
            where=table,
            hint="name another table for the rows",
        )
