"""Messages of a dead-letter topic give the same letters in any order, and if they are repeated."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakefeed.config.sources import KafkaSource
from lakefeed.sinks.dead_letters import topic
from lakefeed.sinks.dead_letters.store import DeadLetterFilter
from lakefeed.sinks.dead_letters.topic import LETTER, PREFIX, DeadLetter, TopicReader, note_headers

FEED = "taxi"


@dataclass
class Message:
    """A stand-in for a Kafka record, with the methods that the reader calls."""

    of: Sequence[tuple[str, Any]]
    at: int = 0
    body: bytes | None = None

    def headers(self) -> Sequence[tuple[str, Any]]:
        return self.of

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return self.at

    def value(self) -> bytes | None:
        return self.body


def letter(offset: int, *, failed_at: int = 1, feed: str = FEED, own: Sequence[tuple[str, Any]] = ()) -> Message:
    values = (feed, "0", "trips", "2", str(offset), "7", "wrong magic byte", None, str(failed_at))
    ours = [
        (f"{PREFIX}{name}", None if value is None else value.encode())
        for name, value in zip(LETTER, values, strict=True)
    ]
    return Message([*own, *ours], body=b"x")


def note(offset: int, state: Any, replay: str | None, *, failed_at: int = 1, feed: str = FEED) -> Message:
    about = DeadLetter(
        place=(0, 0),
        record=("trips", 2, offset),
        timestamp=7,
        reason="",
        schema_id=None,
        batch_id=0,
        failed_at=failed_at,
    )
    return Message(note_headers(feed, about, state=state, replay=replay))


def read(messages: Sequence[Message]) -> dict[int, str | None]:
    """Return the offsets of the letters, and for each letter the replay that has marked it."""
    for at, message in enumerate(messages):
        message.at = at
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(topic, "scan", lambda *_, **__: iter(messages))
        reader = TopicReader("dead", cluster=KafkaSource(bootstrap_servers="127.0.0.1:1", topics=["trips"]))
        return {each.record[2]: each.replay for each in reader.chosen(DeadLetterFilter(feed=FEED))}


HISTORY = [
    letter(1),
    letter(2),
    note(2, "marked", "a"),
    letter(3),
    note(3, "marked", "a"),
    note(3, "unmarked", "a"),
    letter(4),
    note(4, "marked", "a"),
    note(4, "unmarked", "a"),
    note(4, "marked", "b"),
    letter(5),
    note(5, "marked", "a"),
    note(5, "gone", "a"),
    letter(6),
    note(6, "gone", None),
    letter(7, failed_at=1),
    note(7, "gone", None, failed_at=1),
    letter(7, failed_at=2),
]


@given(st.permutations(HISTORY), st.sets(st.sampled_from(range(len(HISTORY)))))
def test_order_and_repetition_of_messages_do_not_change_the_letters(history: list[Message], twice: set[int]) -> None:
    repeated = history + [Message(HISTORY[number].of, body=HISTORY[number].body) for number in twice]
    assert read(repeated) == {1: None, 2: "a", 3: None, 4: "b", 7: None}


def test_messages_of_other_feeds_and_programs_are_ignored() -> None:
    foreign = [Message([]), Message([("lakefeed.feed", FEED.encode())]), letter(8, feed="other")]
    noted = note(1, "gone", None, feed="other")
    assert read([*foreign, letter(1), noted]) == {1: None}


def test_the_source_record_may_already_have_the_headers_of_a_letter() -> None:
    own = letter(9, feed="other").of
    assert read([letter(1, own=own)]) == {1: None}
