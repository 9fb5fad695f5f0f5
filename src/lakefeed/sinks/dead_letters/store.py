"""Defines the interfaces of tables and topics with dead letters (letters), and the filter that selects letters."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol, TypeAlias

from lakefeed.clients.spark.errors import BAD_TIMESTAMP_PATTERN
from lakefeed.errors import ConfigError
from lakefeed.lazy import DataFrame, sf
from lakefeed.ledger.snapshot_summary import BATCH_ID, FEED, RANGES, Commit
from lakefeed.messages.printable import unescaped
from lakefeed.offsets.ranges import OffsetRange, OffsetRanges
from lakefeed.records.sources import BAD_TIMESTAMP
from lakefeed.sinks.definition import TableChange

Judge: TypeAlias = "Callable[[DataFrame], DataFrame]"
"""A function that decodes records and adds ``RECORD``, with the verdicts that the records got in their commit."""

RECORD_COLUMNS = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")
"""The columns of a record that its letter has; a replay decodes them again."""

BACKFILLS = ".backfills"
"""The suffix of a feed's name in the fence of backfills and in the ledger of their dead letters (``Ledger.java``)."""

POSITION = re.compile(r"(?:(?P<topic>[A-Za-z0-9._-]+):)?(?P<partition>\d+):(?P<offset>\d+)")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, kw_only=True)
class DeadLetterFilter:
    """Selects dead letters of a feed; a field that is None accepts every letter.

    A letter's reason has to contain the text ``reason``, either literally or as commands print it: with escapes, and
    ``#`` for numbers.
    """

    feed: str
    reason: str | None = None
    topic: str | None = None
    partition: int | None = None
    offset: int | None = None
    schema_id: int | None = None

    @classmethod
    def at(cls, feed: str, position: str) -> DeadLetterFilter:
        """Return the filter for the letter at ``[TOPIC:]PARTITION:OFFSET``."""
        match = POSITION.fullmatch(position)
        if match is None:
            raise ConfigError(
                f"'{position}' is not the position of a record", hint="write [TOPIC:]PARTITION:OFFSET, such as 0:1234"
            )
        return cls(feed=feed, topic=match["topic"], partition=int(match["partition"]), offset=int(match["offset"]))

    def exact(self) -> dict[str, str | int]:
        """Return by column the value that a letter must have. ``reason`` is left out, because a letter's reason only
        has to contain it.
        """
        return {name: value for name, value in vars(self).items() if value is not None and name != "reason"}

    def reasons(self) -> tuple[str, str]:
        """Return the requested text unchanged, and without escapes: a letter's reason has to contain one of the two."""
        part = self.reason or ""
        return part, unescaped(part)

    def means(self, reason: str) -> bool:
        """Return whether a reason contains the requested text; ``CHOSEN`` in ``table.py`` does the same in SQL."""
        kind = kind_of(reason)
        return any(part in reason or part in kind for part in self.reasons())


class DeadLetterReader(Protocol):
    """Reads the dead letters of feeds, without Spark; ``kind`` is ``table`` or ``topic``."""

    kind: str
    name: str

    def find(self, choice: DeadLetterFilter, *, whole: bool = False) -> list[dict[str, Any]]:
        """Return the chosen letters in order of position; ``whole`` adds key, value and headers, which may be large."""

    def recent(self, feed: str, *, most: int, samples: int, longest: int) -> RecentLetters:
        """Return at most ``most`` newest letters of a feed, by reason; values are cut after ``longest`` bytes."""


@dataclass(frozen=True)
class Content:
    """The beginning of a record's key or value; ``data`` is None for null, ``size`` is the full length in bytes."""

    data: bytes | None
    size: int

    @classmethod
    def of(cls, data: bytes | None, longest: int) -> Content:
        return cls(None, 0) if data is None else cls(bytes(data[:longest]), len(data))


@dataclass(frozen=True)
class RecentLetters:
    """The newest dead letters by reason, the most frequent reason first.

    Attributes:
        reasons: tuples of a reason, the number of its letters, and its newest letters. A letter is a row of the table
            with ``content``: key and value as ``Content``.
        is_whole: whether there are no older letters.
    """

    reasons: tuple[tuple[str, int, tuple[dict[str, Any], ...]], ...] = ()
    is_whole: bool = True


def group_recent(letters: Sequence[dict[str, Any]], *, samples: int, is_whole: bool) -> RecentLetters:
    """Group letters by reason; ``letters`` have to be sorted by time, newest first."""
    reasons = tuple((reason, len(alike), tuple(alike[:samples])) for reason, alike in _by_reason(letters))
    return RecentLetters(reasons, is_whole)


def _by_reason(letters: Sequence[dict[str, Any]]) -> list[tuple[str, list[dict[str, Any]]]]:
    grouped: dict[str, list[dict[str, Any]]] = {}
    for letter in letters:
        grouped.setdefault(kind_of(letter["reason"]), []).append(letter)
    return sorted(grouped.items(), key=lambda item: -len(item[1]))


@dataclass(frozen=True)
class Kind:
    """The dead letters whose reasons differ only in numbers.

    ``first`` and ``last`` are their earliest and latest timestamps that Python can represent; ``sample`` is the
    position of one letter.
    """

    reason: str
    count: int
    first: datetime | None
    last: datetime | None
    sample: str


def kinds(letters: Sequence[dict[str, Any]]) -> list[Kind]:
    """Group letters by reason, the most frequent reason first."""
    kinds = []
    for reason, alike in _by_reason(letters):
        times: list[datetime] = [each["timestamp"] for each in alike if isinstance(each["timestamp"], datetime)]
        first, last = min(times, default=None), max(times, default=None)
        kinds.append(Kind(reason, len(alike), first, last, position_of(alike[0])))
    return kinds


def position_of(letter: dict[str, Any]) -> str:
    return f"{letter['topic']}:{letter['partition']}:{letter['offset']}"


def kind_of(reason: str) -> str:
    """Return a reason with ``#`` in place of numbers."""
    return re.sub("[0-9]+", "#", reason)


def time_of(microseconds: int | None) -> datetime | str | None:
    """Return microseconds since 1970 as a datetime, or as text if Python has no such time: records may have any."""
    if microseconds is None:
        return None
    try:
        return EPOCH + timedelta(microseconds=microseconds)
    except OverflowError:
        return f"{microseconds // 1000} ms since 1970"


def with_bad_timestamp(letters: DataFrame) -> DataFrame:
    """Return letters as their original records; a timestamp that Spark cannot represent is taken from the reason."""
    number = sf.regexp_extract("reason", BAD_TIMESTAMP_PATTERN, 1)
    bad = sf.when(sf.col("timestamp").isNull() & (number != ""), number.cast("bigint"))
    return letters.select(*RECORD_COLUMNS, bad.alias(BAD_TIMESTAMP))


@dataclass(frozen=True, kw_only=True)
class TopicCreation:
    """The dead-letter topic that the first start creates."""

    topic: str
    partitions: int
    config: Mapping[str, str]


@dataclass(frozen=True)
class BackfillOrigin:
    """A backfill's commit with records that became dead letters; ``committed_at`` is 0 if it was made just now.

    Backfills add offsets in any order, so their dead letters have a separate ledger. Instead of offsets, this ledger
    has the numbers of the backfills' commits, ``Backfill.number``, in ascending order.
    """

    feed: str
    number: int
    committed_at: float = 0.0

    @property
    def batch_id(self) -> int:
        """A negative number, so that it differs from the id of every batch."""
        return -self.number

    @property
    def ranges(self) -> OffsetRanges:
        return OffsetRanges((OffsetRange("backfills", 0, self.number, self.number + 1),))

    def properties(self) -> dict[str, str]:
        return {FEED: f"{self.feed}{BACKFILLS}", BATCH_ID: str(self.number), RANGES: self.ranges.to_json()}


SourceCommit: TypeAlias = Commit | BackfillOrigin
"""The commit whose records the dead letters are."""


class DeadLetterStore(Protocol):
    """Stores the dead letters of one feed.

    A letter exists from ``write`` until it is dropped, or until a replay has written its record as a row. While a
    replay runs, its letters are marked with the replay's id, and no filter selects marked letters.
    """

    def ensure(self) -> None:
        """Create the table or topic if it is missing."""

    def change(self) -> TableChange | TopicCreation | None:
        """Return the change that ``ensure`` would make; None if the table or topic exists."""

    def write(self, judge: Judge, commit: SourceCommit, *, spans: Sequence[OffsetRange], expected: int) -> None:
        """Write a commit's ``expected`` dead letters, whose records are in ``spans``."""

    def complete(self, judge: Judge, commit: SourceCommit, *, spans: Sequence[OffsetRange], expected: int) -> bool:
        """Write dead letters of the last commit that are missing after a crash; return False if none is."""

    def check(self, position: OffsetRanges | None, *, moved: bool) -> None:
        """Raise the error that ``follow`` would raise, without changing anything."""

    def follow(self, position: OffsetRanges | None, *, moved: bool) -> int:
        """Remove letters after the feed's position, because the feed reads them again; return their number.

        Raises:
            CheckpointMismatch: there are such letters, but the feed was not ``moved`` back by an operator.
        """

    def records(self, choice: DeadLetterFilter) -> DataFrame:
        """Return the original records of the chosen unmarked letters."""

    def drop(self, choice: DeadLetterFilter) -> int:
        """Remove the chosen unmarked letters; return their number."""

    def mark(self, positions: DataFrame, replay_id: str) -> None:
        """Mark the letters at these positions (topic, partition, offset)."""

    def judge_again(self, reasons: DataFrame) -> None:
        """Give letters new reasons (``reasons`` by position), but keep reasons that have a timestamp."""

    def marked(self, replay_id: str) -> DataFrame:
        """Return the original records of the letters that one replay has marked."""

    def unmark(self, replay_id: str) -> None:
        """Remove the marks of a replay from the letters."""

    def delete_marked(self, replay_id: str) -> None:
        """Remove the letters that one replay has marked."""

    def open_replays(self) -> list[str]:
        """Return the ids of the replays that still have marked letters."""
