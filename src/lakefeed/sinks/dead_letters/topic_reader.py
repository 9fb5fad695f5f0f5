"""Reads a dead-letter topic: letters, and later records that say what became of them.

A letter is the record as it was, with ``LETTER`` behind its own headers. A note has no value and the headers ``NOTE``:
it says that a replay has ``marked`` or ``unmarked`` the letter, or that the letter is ``gone``. Replay ids are used
once, and ``failed-at`` distinguishes a letter from an earlier one of the same position, so what the notes say does not
depend on their order, and a letter or note that is there twice counts once.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from lakefeed.clients.kafka.scan import scan
from lakefeed.config.kafka_source import KafkaSource
from lakefeed.sinks.dead_letters.query import DeadLetterFilter, time_of

PREFIX = "lakefeed."
LETTER = ("feed", "batch-id", "topic", "partition", "offset", "timestamp", "reason", "schema-id", "failed-at")
NOTE = ("feed", "topic", "partition", "offset", "failed-at", "replay", "state")
CLOCKS_DIFFER_SECONDS = 300

State = Literal["marked", "unmarked", "gone"]
Position = tuple[str, int, int]
Headers = Sequence[tuple[str, bytes | None]]


@dataclass(frozen=True, kw_only=True, slots=True)
class DeadLetter:
    """A letter without what may be large.

    Attributes:
        place: partition and offset in the dead-letter topic.
        record: topic, partition and offset of the record.
        timestamp: the record's, in ms since 1970; None if it has none.
        failed_at: when the letter was written, in ms since 1970.
        replay: id of the replay that has marked it.
    """

    place: tuple[int, int]
    record: Position
    timestamp: int | None
    reason: str
    schema_id: int | None
    batch_id: int
    failed_at: int
    replay: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """The letter as a row of the dead-letter table."""
        topic, partition, offset = self.record
        return {
            "topic": topic,
            "partition": partition,
            "offset": offset,
            "timestamp": time_of(None if self.timestamp is None else self.timestamp * 1000),
            "reason": self.reason,
            "schema_id": self.schema_id,
            "batch_id": self.batch_id,
            "failed_at": time_of(self.failed_at * 1000),
            "replay": self.replay,
        }

    def is_chosen(self, choice: DeadLetterFilter) -> bool:
        topic, partition, offset = self.record
        return (
            choice.topic in (None, topic)
            and choice.partition in (None, partition)
            and choice.offset in (None, offset)
            and choice.schema_id in (None, self.schema_id)
            and choice.means(self.reason)
        )


@dataclass(slots=True)
class _Notes:
    """The notes on one letter."""

    marked: set[str] = field(default_factory=set)
    unmarked: set[str] = field(default_factory=set)
    gone: bool = False


class TopicReader:
    """Reads a dead-letter topic without Spark.

    Args:
        cluster: brokers and client settings.
    """

    kind = "topic"

    def __init__(self, name: str, *, cluster: KafkaSource) -> None:
        self.name = name
        self._cluster = cluster

    def letters(self, feed: str) -> list[DeadLetter]:
        """Return the letters of a feed that are not gone, by the position of their records.

        Reads the topic to its end. Memory: a ``DeadLetter`` for each letter that is in the topic, the gone ones too.

        Raises:
            ResourceMissing: there is no such topic.
            Unreachable: the broker does not answer.
        """
        latest: dict[Position, DeadLetter] = {}
        notes: dict[tuple[Position, int], _Notes] = {}
        for message in scan(self._cluster, self.name):
            headers = message.headers() or ()
            if (letter := _letter(message, headers, feed)) is not None:
                known = latest.get(letter.record)
                if known is None or known.failed_at < letter.failed_at:
                    latest[letter.record] = letter
            elif message.value() is None and (note := _ours(headers, NOTE, feed)) is not None:
                of_letter = notes.setdefault((_position(note), int(note["failed-at"])), _Notes())
                if note["state"] == "gone":
                    of_letter.gone = True
                else:
                    (of_letter.marked if note["state"] == "marked" else of_letter.unmarked).add(note["replay"])
        present = []
        for record in sorted(latest):
            letter = latest[record]
            of_letter = notes.get((record, letter.failed_at), _Notes())
            if not of_letter.gone:
                replay = min(of_letter.marked - of_letter.unmarked, default=None)
                present.append(replace(letter, replay=replay))
        return present

    def chosen(self, choice: DeadLetterFilter) -> list[DeadLetter]:
        """Return the chosen letters, marked ones too."""
        return [letter for letter in self.letters(choice.feed) if letter.is_chosen(choice)]

    def find(self, choice: DeadLetterFilter, *, whole: bool = False) -> list[dict[str, Any]]:
        """Return the chosen letters by position; ``whole`` with key, value and headers, which may be large."""
        found = self.chosen(choice)
        if not whole or not found:
            return [letter.as_dict() for letter in found]
        by_place = {letter.place: letter for letter in found}
        starts: dict[int, int] = {}
        for partition, offset in by_place:
            starts[partition] = min(offset, starts.get(partition, offset))
        rows = {}
        for message in scan(self._cluster, self.name, starts=starts):
            letter = by_place.pop((message.partition(), message.offset()), None)
            if letter is not None:
                own = (message.headers() or [])[: -len(LETTER)]
                rows[letter.record] = {
                    **letter.as_dict(),
                    "feed": choice.feed,
                    "key": message.key(),
                    "value": message.value(),
                    "headers": [{"key": key, "value": value} for key, value in own],
                }
            if not by_place:
                break
        return [rows[letter.record] for letter in found if letter.record in rows]

    def positions(
        self, feed: str, batch_id: int, *, starts: Mapping[int, int] | None = None, since: float | None = None
    ) -> set[Position]:
        """Return the records of one batch that have a letter, gone ones too, from an offset or a time on.

        Args:
            starts: first offset by partition of the topic.
            since: seconds since 1970.
        """
        since = None if since is None else since - CLOCKS_DIFFER_SECONDS
        messages = scan(self._cluster, self.name, starts=starts, since=since)
        letters = (_letter(message, message.headers() or (), feed) for message in messages)
        return {letter.record for letter in letters if letter is not None and letter.batch_id == batch_id}


def note_headers(
    feed: str, letter: DeadLetter, *, state: State, replay: str | None
) -> list[tuple[str, str | bytes | None]]:
    topic, partition, offset = letter.record
    values = (feed, topic, str(partition), str(offset), str(letter.failed_at), replay, state)
    return [
        (f"{PREFIX}{name}", None if value is None else value.encode()) for name, value in zip(NOTE, values, strict=True)
    ]


def _letter(message: Any, headers: Headers, feed: str) -> DeadLetter | None:
    """Read a letter; None if it is another feed's, or no letter."""
    ours = _ours(headers, LETTER, feed)
    if ours is None:
        return None
    return DeadLetter(
        place=(message.partition(), message.offset()),
        record=_position(ours),
        timestamp=int(ours["timestamp"]) if ours["timestamp"] else None,
        reason=sys.intern(ours["reason"]),
        schema_id=int(ours["schema-id"]) if ours["schema-id"] else None,
        batch_id=int(ours["batch-id"]),
        failed_at=int(ours["failed-at"]),
    )


def _ours(headers: Headers, names: Sequence[str], feed: str) -> dict[str, str] | None:
    """Read our headers, which are the last ones: a letter may come from a topic that holds letters itself."""
    last = headers[-len(names) :]
    if [key for key, _ in last] != [f"{PREFIX}{name}" for name in names]:
        return None
    read = {name: (value or b"").decode("utf-8", "replace") for (_, value), name in zip(last, names, strict=True)}
    return read if read["feed"] == feed else None


def _position(ours: Mapping[str, str]) -> Position:
    return sys.intern(ours["topic"]), int(ours["partition"]), int(ours["offset"])
