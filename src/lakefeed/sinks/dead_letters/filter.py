"""Selects dead letters: by feed, topic, partition, offset, reason or time."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from lakefeed.errors import ConfigError
from lakefeed.messages.printable import unescaped

POSITION = re.compile(r"(?:(?P<topic>[A-Za-z0-9._-]+):)?(?P<partition>\d+):(?P<offset>\d+)")


NUMBER = re.compile("[0-9]+")


EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


TIMES = ("timestamp", "failed_at")


@dataclass(frozen=True, kw_only=True)
class DeadLetterFilter:
    """Which dead letters of a feed are meant; what is None does not matter.

    Attributes:
        feed: the feed's name.
        reason: text that the reason holds, as it is or as it is printed: with escapes, and ``#`` for numbers.
        topic: the topic's name.
        partition: the partition.
        offset: the offset.
        schema_id: id of the writer's schema.
    """

    feed: str
    reason: str | None = None
    topic: str | None = None
    partition: int | None = None
    offset: int | None = None
    schema_id: int | None = None

    def exact(self) -> dict[str, str | int]:
        """The columns that have to equal something; the reason is apart, since it has to contain."""
        given = {
            "feed": self.feed,
            "topic": self.topic,
            "partition": self.partition,
            "offset": self.offset,
            "schema_id": self.schema_id,
        }
        return {name: value for name, value in given.items() if value is not None}

    def reasons(self) -> tuple[str, str]:
        """The text that the reason, or its kind, has to contain: as given, or without the escapes of a terminal."""
        part = self.reason or ""
        return part, unescaped(part)

    def means(self, reason: str) -> bool:
        """Whether a letter with this reason is meant. ``dead_letters.table.CHOSEN`` says the same in SQL."""
        kind = kind_of(reason)
        return any(part in reason or part in kind for part in self.reasons())

    @classmethod
    def at(cls, feed: str, position: str) -> DeadLetterFilter:
        """The letter at ``[TOPIC:]PARTITION:OFFSET``.

        Raises:
            ConfigError: if it is written otherwise.
        """
        match = POSITION.fullmatch(position)
        if match is None:
            raise ConfigError(
                f"'{position}' is no position of a record", hint="write [TOPIC:]PARTITION:OFFSET, such as 0:1234"
            )
        return cls(feed=feed, topic=match["topic"], partition=int(match["partition"]), offset=int(match["offset"]))


def time_of(microseconds: int | None) -> datetime | str | None:
    """A time since 1970; as text where Python has no date for it, since a record may have any timestamp."""
    if microseconds is None:
        return None
    try:
        return EPOCH + timedelta(microseconds=microseconds)
    except OverflowError:
        return f"{microseconds // 1000} ms since 1970"


def kind_of(reason: str) -> str:
    """A reason with ``#`` for each number."""
    return NUMBER.sub("#", reason)
