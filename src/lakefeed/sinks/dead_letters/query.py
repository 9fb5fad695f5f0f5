"""Selects dead letters by feed, topic, partition, offset or reason, and groups those that a reader has found."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

from lakefeed.errors import ConfigError, ResourceMissing
from lakefeed.messages.printable import unescaped

POSITION = re.compile(r"(?:(?P<topic>[A-Za-z0-9._-]+):)?(?P<partition>\d+):(?P<offset>\d+)")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, kw_only=True)
class DeadLetterFilter:
    """Chooses dead letters of a feed; a field that is None does not matter.

    Attributes:
        reason: text that the reason contains, as it is or as it is printed: with escapes, and ``#`` for numbers.
        schema_id: id of the writer's schema.
    """

    feed: str
    reason: str | None = None
    topic: str | None = None
    partition: int | None = None
    offset: int | None = None
    schema_id: int | None = None

    @classmethod
    def at(cls, feed: str, position: str) -> DeadLetterFilter:
        """Choose the letter at ``[TOPIC:]PARTITION:OFFSET``.

        Raises:
            ConfigError: the position is written otherwise.
        """
        match = POSITION.fullmatch(position)
        if match is None:
            raise ConfigError(
                f"'{position}' is no position of a record", hint="write [TOPIC:]PARTITION:OFFSET, such as 0:1234"
            )
        return cls(feed=feed, topic=match["topic"], partition=int(match["partition"]), offset=int(match["offset"]))

    def exact(self) -> dict[str, str | int]:
        """Return the values that columns have to equal; the reason is apart, since it has to contain."""
        return {name: value for name, value in vars(self).items() if value is not None and name != "reason"}

    def reasons(self) -> tuple[str, str]:
        """Return the text that the reason has to contain: as given, or without the escapes of a terminal."""
        part = self.reason or ""
        return part, unescaped(part)

    def means(self, reason: str) -> bool:
        """Whether a letter with this reason is chosen. ``dead_letters.table.CHOSEN`` says the same in SQL."""
        kind = kind_of(reason)
        return any(part in reason or part in kind for part in self.reasons())


class DeadLetterReader(Protocol):
    """Reads the dead letters of feeds, without Spark."""

    kind: str
    """``table`` or ``topic``, as a pipeline file calls it."""

    name: str

    def find(self, choice: DeadLetterFilter, *, whole: bool = False) -> list[dict[str, Any]]:
        """Return the chosen letters by position; ``whole`` with key, value and headers, which may be large."""


@dataclass(frozen=True)
class Kind:
    """Dead letters whose reasons differ in their numbers only.

    Attributes:
        reason: with ``#`` for each number.
        first: the earliest timestamp of their records; None if no record has one that is a date.
        sample: the position of one record.
    """

    reason: str
    count: int
    first: datetime | None
    last: datetime | None
    sample: str


def kinds(letters: Sequence[dict[str, Any]]) -> list[Kind]:
    """Group letters by reason, the commonest first."""
    grouped: dict[str, list[dict[str, Any]]] = {}
    for letter in letters:
        grouped.setdefault(kind_of(letter["reason"]), []).append(letter)
    found = []
    for reason, alike in grouped.items():
        times: list[datetime] = [each["timestamp"] for each in alike if isinstance(each["timestamp"], datetime)]
        first, last = min(times, default=None), max(times, default=None)
        found.append(Kind(reason, len(alike), first, last, position_of(alike[0])))
    return sorted(found, key=lambda kind: -kind.count)


def find_one(reader: DeadLetterReader, choice: DeadLetterFilter) -> dict[str, Any]:
    """Return the one letter at a position, with key, value and headers.

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
    topics = sorted({letter["topic"] for letter in found})
    if len(topics) > 1:
        where = ", ".join(topics)
        raise ConfigError("several topics have a dead letter there", where=where, hint="write TOPIC:PARTITION:OFFSET")
    return found[0]


def position_of(letter: dict[str, Any]) -> str:
    return f"{letter['topic']}:{letter['partition']}:{letter['offset']}"


def kind_of(reason: str) -> str:
    """A reason with ``#`` for each number."""
    return re.sub("[0-9]+", "#", reason)


def time_of(microseconds: int | None) -> datetime | str | None:
    """A time since 1970; as text where Python has no date for it, since a record may have any timestamp."""
    if microseconds is None:
        return None
    try:
        return EPOCH + timedelta(microseconds=microseconds)
    except OverflowError:
        return f"{microseconds // 1000} ms since 1970"
