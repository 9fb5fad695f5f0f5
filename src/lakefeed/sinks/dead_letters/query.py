"""Looks at dead letters without Spark."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from lakefeed.clients.iceberg.reader import open_table
from lakefeed.config.connections import Connections
from lakefeed.errors import ConfigError, ResourceMissing
from lakefeed.sinks.dead_letters.filter import TIMES, DeadLetterFilter, kind_of, time_of

if TYPE_CHECKING:
    from pyarrow import Table
    from pyiceberg.expressions import BooleanExpression

    from lakefeed.sinks.dead_letters.store import DeadLetterReader

SMALL = ("topic", "partition", "offset", "timestamp", "reason", "schema_id", "batch_id", "failed_at", "replay")


@dataclass(frozen=True)
class Kind:
    """Dead letters whose reasons differ in their numbers only.

    Attributes:
        reason: with ``#`` for each number.
        count: how many there are.
        first: the earliest timestamp of their records; None if no record has one that is a date.
        last: the latest.
        sample: the position of one record.
    """

    reason: str
    count: int
    first: datetime | None
    last: datetime | None
    sample: str


def kinds(letters: Sequence[dict[str, Any]]) -> list[Kind]:
    """The letters by reason, the commonest first."""
    grouped: dict[str, list[dict[str, Any]]] = {}
    for each in letters:
        grouped.setdefault(kind_of(each["reason"]), []).append(each)
    found = []
    for reason, alike in grouped.items():
        times: list[datetime] = [each["timestamp"] for each in alike if isinstance(each["timestamp"], datetime)]
        first, last = min(times, default=None), max(times, default=None)
        found.append(Kind(reason, len(alike), first, last, position_of(alike[0])))
    return sorted(found, key=lambda kind: -kind.count)


def position_of(letter: dict[str, Any]) -> str:
    """``topic:partition:offset``"""
    return f"{letter['topic']}:{letter['partition']}:{letter['offset']}"


def find(
    table: str, choice: DeadLetterFilter, *, connections: Connections, whole: bool = False
) -> list[dict[str, Any]]:
    """The letters that are meant, by position.

    Args:
        table: the dead-letter table.
        choice: which.
        connections: store and catalogs.
        whole: with key, value and headers, which may be large.

    Raises:
        ResourceMissing: the table is not there.
    """
    from pyiceberg.expressions import And, EqualTo

    opened = open_table(table, connections=connections)
    equal: Any = EqualTo  # Its constructor is made by a plugin that mypy has not got.
    condition: BooleanExpression | None = None
    for name, value in choice.exact().items():
        one_of_them: BooleanExpression = equal(name, value)
        condition = one_of_them if condition is None else And(condition, one_of_them)
    assert condition is not None  # A feed is always named.
    fields = ("*",) if whole else SMALL
    read = opened.scan(row_filter=condition, selected_fields=fields).to_arrow()
    found: list[dict[str, Any]] = _with_numbers(read).to_pylist()
    for each in found:
        each.update({name: time_of(each[name]) for name in TIMES})
    found = [each for each in found if choice.means(each["reason"])]
    return sorted(found, key=lambda each: (each["topic"], each["partition"], each["offset"]))


def _with_numbers(letters: Table) -> Table:
    """The letters with microseconds for times: Arrow refuses to make a date of each."""
    import pyarrow as pa

    for name in TIMES:
        letters = letters.set_column(letters.column_names.index(name), name, letters[name].cast(pa.int64()))
    return letters


class TableReader:
    """Looks at a dead-letter table.

    Args:
        name: the table.
        connections: store and catalogs.
    """

    kind = "table"

    def __init__(self, name: str, *, connections: Connections) -> None:
        self.name = name
        self._connections = connections

    def find(self, choice: DeadLetterFilter, *, whole: bool = False) -> list[dict[str, Any]]:
        """The letters that are meant, by position: see ``find``."""
        return find(self.name, choice, connections=self._connections, whole=whole)


def one(reader: DeadLetterReader, choice: DeadLetterFilter) -> dict[str, Any]:
    """The one letter at a position.

    Raises:
        ResourceMissing: there is none.
        ConfigError: several topics have a letter at this position.
    """
    found = reader.find(choice, whole=True)
    if not found:
        raise ResourceMissing(
            f"feed '{choice.feed}' has no dead letter at partition {choice.partition}, offset {choice.offset}",
            where=f"{reader.kind} {reader.name}",
            hint="lakefeed dead-letters list shows those that it has",
        )
    if len({each["topic"] for each in found}) > 1:
        topics = ", ".join(sorted({each["topic"] for each in found}))
        raise ConfigError("several topics have a dead letter there", where=topics, hint="write TOPIC:PARTITION:OFFSET")
    return found[0]
