"""A dead-letter topic as it is to be read: letters, and later records that say what became of them.

A letter is the record as it was, with ``LETTER`` behind its own headers. A note has no value and the headers ``NOTE``:
it says that a replay has ``marked`` or ``unmarked`` the letter, or that the letter is ``gone``. Replay ids are used
once, and ``failed-at`` distinguishes a letter from an earlier one of the same position, so what the notes say does not
depend on their order, and a letter or note that is there twice counts once.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from lakefeed.clients.kafka.scan import scan
from lakefeed.config.kafka_source import KafkaSource
from lakefeed.sinks.dead_letters.filter import DeadLetterFilter, time_of

PREFIX = "lakefeed."
LETTER = ("feed", "batch-id", "topic", "partition", "offset", "timestamp", "reason", "schema-id", "failed-at")
NOTE = ("feed", "topic", "partition", "offset", "failed-at", "replay", "state")
CLOCKS_DIFFER_SECONDS = 300

State = Literal["marked", "unmarked", "gone"]
Position = tuple[str, int, int]


@dataclass(frozen=True, kw_only=True, slots=True)
class DeadLetter:
    """A letter without what may be large.

    Attributes:
        place: partition and offset in the dead-letter topic.
        record: topic, partition and offset of the record.
        timestamp: the record's, in ms since 1970; None if it has none.
        failed_at: when it was written, in ms since 1970.
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
        """As a row of the dead-letter table."""
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


@dataclass(slots=True)
class _Notes:
    """What the notes say of one letter."""

    marked: set[str] = field(default_factory=set)
    unmarked: set[str] = field(default_factory=set)
    gone: bool = False


class TopicReader:
    """Looks at a dead-letter topic.

    Args:
        name: the topic.
        cluster: brokers and client settings.
    """

    kind = "topic"

    def __init__(self, name: str, *, cluster: KafkaSource) -> None:
        self.name = name
        self._cluster = cluster

    def letters(self, feed: str) -> list[DeadLetter]:
        """The letters of a feed that are not gone, by the position of their records.

        Reads the topic to its end. Memory: what a ``DeadLetter`` holds, for each that was ever written and still is in
        the topic.

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
        return sorted(_folded(latest, notes), key=lambda each: each.record)

    def chosen(self, choice: DeadLetterFilter) -> list[DeadLetter]:
        """The letters that are meant, marked ones too."""
        return [each for each in self.letters(choice.feed) if _is_meant(each, choice)]

    def find(self, choice: DeadLetterFilter, *, whole: bool = False) -> list[dict[str, Any]]:
        """The letters that are meant, by position; ``whole`` with key, value and headers, which may be large."""
        found = self.chosen(choice)
        if not whole or not found:
            return [each.as_dict() for each in found]
        by_place = {each.place: each for each in found}
        starts = {partition: min(offset for each, offset in by_place if each == partition) for partition, _ in by_place}
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
        return [rows[each.record] for each in found if each.record in rows]

    def positions(
        self, feed: str, batch_id: int, *, starts: Mapping[int, int] | None = None, since: float | None = None
    ) -> set[Position]:
        """The records of one batch that have a letter among those from an offset or a time on, gone ones too.

        Args:
            feed: its name.
            batch_id: the batch.
            starts: first offset by partition of the topic.
            since: seconds since 1970.
        """
        found = set()
        for message in scan(
            self._cluster, self.name, starts=starts, since=None if since is None else since - CLOCKS_DIFFER_SECONDS
        ):
            letter = _letter(message, message.headers() or (), feed)
            if letter is not None and letter.batch_id == batch_id:
                found.add(letter.record)
        return found


def note_headers(
    feed: str, letter: DeadLetter, *, state: State, replay: str | None
) -> list[tuple[str, str | bytes | None]]:
    """The headers of a note on a letter."""
    topic, partition, offset = letter.record
    values = (feed, topic, str(partition), str(offset), str(letter.failed_at), replay, state)
    return [
        (f"{PREFIX}{name}", None if value is None else value.encode()) for name, value in zip(NOTE, values, strict=True)
    ]


def _letter(message: Any, headers: Sequence[tuple[str, bytes | None]], feed: str) -> DeadLetter | None:
    """None if it is another feed's, or no letter."""
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


def _ours(headers: Sequence[tuple[str, bytes | None]], names: Sequence[str], feed: str) -> dict[str, str] | None:
    """Our headers are the last ones: a letter may come from a topic that holds letters itself."""
    last = headers[-len(names) :]
    if len(last) < len(names) or any(key != f"{PREFIX}{name}" for (key, _), name in zip(last, names, strict=True)):
        return None
    read = {name: (value or b"").decode("utf-8", "replace") for (_, value), name in zip(last, names, strict=True)}
    return read if read["feed"] == feed else None


def _position(ours: Mapping[str, str]) -> Position:
    return sys.intern(ours["topic"]), int(ours["partition"]), int(ours["offset"])


def _folded(
    latest: Mapping[Position, DeadLetter], notes: Mapping[tuple[Position, int], _Notes]
) -> Iterator[DeadLetter]:
    for letter in latest.values():
        said = notes.get((letter.record, letter.failed_at))
        if said is None:
            yield letter
        elif not said.gone:
            open_ = said.marked - said.unmarked
            yield replace(letter, replay=min(open_)) if open_ else letter


def _is_meant(letter: DeadLetter, choice: DeadLetterFilter) -> bool:
    topic, partition, offset = letter.record
    return (
        choice.topic in (None, topic)
        and choice.partition in (None, partition)
        and choice.offset in (None, offset)
        and choice.schema_id in (None, letter.schema_id)
        and choice.means(letter.reason)
    )
