"""Stores dead letters in a topic of the source's cluster: complete records that did not become rows.

Guarantee: no letter of a committed batch is lost. If Spark repeats a task that has already sent a letter, the letter is
in the topic twice, with the same position. The writer sends a batch's letters right after the commit of its rows, which
has the number of letters. After a crash the next start sends the missing letters. The writer reads only the letters'
records from Kafka once more, so a batch without dead letters costs nothing.

A letter is the original record, with the headers ``LETTER`` after its own headers. A note is a message without a value,
with the headers ``NOTE``. The note says that a replay has ``marked`` or ``unmarked`` a letter or found another
``reason``, or that the letter is ``gone``. Letters and notes that are sent twice count once: a replay id is used once,
and ``failed-at`` distinguishes a letter from an earlier letter of the same position. Order matters only among notes
with a reason: the last note counts, and all notes on a letter are in the letter's partition.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any, Literal

from confluent_kafka import KafkaException, Producer

from lakefeed.clients.kafka.librdkafka import librdkafka_settings
from lakefeed.clients.kafka.scan import scan
from lakefeed.clients.kafka.topics import Topics
from lakefeed.config.kafka_client import PRODUCER_DEFAULTS
from lakefeed.config.keyed import POSITION
from lakefeed.config.sources import KafkaSource
from lakefeed.errors import CheckpointMismatch, Unreachable
from lakefeed.lazy import DataFrame, SparkSession, sf
from lakefeed.offsets.ranges import OffsetRange, OffsetRanges
from lakefeed.records.decode import RECORD
from lakefeed.records.sources import HEADERS_TYPE, header, read_batch
from lakefeed.sinks.dead_letters.store import (
    Content,
    DeadLetterFilter,
    DeadLetterStore,
    Judge,
    RecentLetters,
    SourceCommit,
    TopicCreation,
    group_recent,
    time_of,
    with_bad_timestamp,
)

PREFIX = "lakefeed."
LETTER = ("feed", "batch-id", "topic", "partition", "offset", "timestamp", "reason", "schema-id", "failed-at")
NOTE = ("feed", "topic", "partition", "offset", "failed-at", "replay", "reason", "state")
CLOCKS_DIFFER_SECONDS = 300
State = Literal["marked", "unmarked", "reason", "gone"]
Position = tuple[str, int, int]
Headers = Sequence[tuple[str, bytes | None]]
MOST_PARTITIONS = 3
ROOM_FOR_HEADERS = 64 * 1024
LARGEST_LETTER = 128 * 1024 * 1024
FLUSH_SECONDS = 60.0
RECORD_TYPES = (
    "topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, key BINARY, value BINARY, "
    "headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
)
_silence = logging.getLogger("lakefeed.clients.kafka.librdkafka")


@dataclass(frozen=True, kw_only=True, slots=True)
class DeadLetter:
    """A letter without key, value and headers, which may be large; times are in ms since 1970.

    ``place`` is the letter's own partition and offset in the dead-letter topic, ``replay`` the id of the replay that
    has marked it.
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
        return {
            **dict(zip(POSITION, self.record, strict=True)),
            "timestamp": time_of(None if self.timestamp is None else self.timestamp * 1000),
            "reason": self.reason,
            "schema_id": self.schema_id,
            "batch_id": self.batch_id,
            "failed_at": time_of(self.failed_at * 1000),
            "replay": self.replay,
        }

    def is_chosen(self, choice: DeadLetterFilter) -> bool:
        own = {**dict(zip(POSITION, self.record, strict=True)), "schema_id": self.schema_id, "feed": choice.feed}
        return all(own[name] == value for name, value in choice.exact().items()) and choice.means(self.reason)


class TopicReader:
    """Reads a dead-letter topic without Spark."""

    kind = "topic"

    def __init__(self, name: str, *, cluster: KafkaSource) -> None:
        self.name = name
        self._cluster = cluster

    def letters(
        self,
        feed: str,
        *,
        starts: Mapping[int, int] | None = None,
        on_letter: Callable[[DeadLetter, Any], None] = lambda letter, message: None,
    ) -> list[DeadLetter]:
        """Read the topic to its end; return the feed's letters that still exist, sorted by their records' positions.

        Reading begins at the offsets ``starts``, by partition of the topic. ``on_letter`` is called with every
        letter and its message. Memory: a ``DeadLetter`` for every letter in the topic, even a dropped one.
        """
        latest: dict[Position, DeadLetter] = {}
        notes: dict[tuple[Position, int], set[tuple[str, str]]] = {}
        reasons: dict[tuple[Position, int], str] = {}
        for message in scan(self._cluster, self.name, starts=starts):
            headers = message.headers() or ()
            if (letter := _letter(message, headers, feed)) is not None:
                on_letter(letter, message)
                known = latest.get(letter.record)
                if known is None or known.failed_at < letter.failed_at:
                    latest[letter.record] = letter
            elif message.value() is None and (note := _ours(headers, NOTE, feed)) is not None:
                about = (_position(note), int(note["failed-at"]))
                notes.setdefault(about, set()).add((note["state"], note["replay"]))
                if note["state"] == "reason":
                    reasons[about] = sys.intern(note["reason"])
        present = []
        for record in sorted(latest):
            letter = latest[record]
            states = notes.get((record, letter.failed_at), set())
            if any(state == "gone" for state, _ in states):
                continue
            marked = {replay for state, replay in states if state == "marked" and ("unmarked", replay) not in states}
            reason = reasons.get((record, letter.failed_at), letter.reason)
            present.append(replace(letter, reason=reason, replay=min(marked, default=None)))
        return present

    def chosen(self, choice: DeadLetterFilter) -> list[DeadLetter]:
        return [letter for letter in self.letters(choice.feed) if letter.is_chosen(choice)]

    def find(self, choice: DeadLetterFilter, *, whole: bool = False) -> list[dict[str, Any]]:
        letters = self.chosen(choice)
        if not whole or not letters:
            return [letter.as_dict() for letter in letters]
        by_place = {letter.place: letter for letter in letters}
        # Sort so that a partition's lowest offset comes last: dict() keeps the last value of a key.
        starts = dict(sorted(by_place, reverse=True))
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
        return [rows[letter.record] for letter in letters if letter.record in rows]

    def recent(self, feed: str, *, most: int, samples: int, longest: int) -> RecentLetters:
        # To read the newest messages is enough, because a note about a letter follows it in its partition.
        topics = Topics(self._cluster.bootstrap_servers, options=self._cluster.client_options)
        parts = topics.describe(self.name).partitions
        starts = {part.id: max(part.start_offset, part.end_offset - most) for part in parts}
        records: dict[tuple[int, int], tuple[Content, Content]] = {}

        def store(letter: DeadLetter, message: Any) -> None:
            records[letter.place] = Content.of(message.key(), longest), Content.of(message.value(), longest)

        letters = self.letters(feed, starts=starts, on_letter=store)
        newest = sorted(letters, key=lambda letter: (letter.failed_at, letter.record), reverse=True)[:most]
        content = {letter.record: records[letter.place] for letter in newest}
        rows = [{**letter.as_dict(), "content": content[letter.record]} for letter in newest]
        is_whole = len(newest) == len(letters) and all(starts[part.id] == part.start_offset for part in parts)
        return group_recent(rows, samples=samples, is_whole=is_whole)

    def positions(
        self, feed: str, batch_id: int, *, starts: Mapping[int, int] | None = None, since: float | None = None
    ) -> set[Position]:
        """Return the positions of one batch's records that have or had a letter.

        Reading begins at the offsets ``starts``, by partition of the topic, or at the time ``since``.
        """
        since = None if since is None else since - CLOCKS_DIFFER_SECONDS
        messages = scan(self._cluster, self.name, starts=starts, since=since)
        letters = (_letter(message, message.headers() or (), feed) for message in messages)
        return {letter.record for letter in letters if letter is not None and letter.batch_id == batch_id}


class DeadLetterTopic(DeadLetterStore):
    """The dead letters of one feed, in a topic of the source's cluster that several feeds may share."""

    def __init__(self, spark: SparkSession, topic: str, *, feed: str, source: KafkaSource) -> None:
        self._spark = spark
        self._topic = topic
        self._feed = feed
        self._source = source
        self._topics = Topics(source.bootstrap_servers, options=source.client_options)
        self._reader = TopicReader(topic, cluster=source)

    def ensure(self) -> None:
        """Create the topic if it is missing, with unlimited retention and room for the source's largest messages."""
        if (new := self.change()) is not None:
            self._topics.create(new.topic, partitions=new.partitions, config=new.config, exist_ok=True)

    def change(self) -> TopicCreation | None:
        existing = self._topics.list()
        if self._topic in existing:
            return None
        sources = [topic for topic in existing if self._source.reads(topic)]
        partitions = max((len(self._topics.describe(topic).partitions) for topic in sources), default=1)
        largest = [int(self._topics.setting(topic, "max.message.bytes") or 0) for topic in sources]
        config = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
        if largest:
            config["max.message.bytes"] = str(max(largest) + ROOM_FOR_HEADERS)
        return TopicCreation(topic=self._topic, partitions=min(MOST_PARTITIONS, partitions), config=config)

    def complete(self, judge: Judge, commit: SourceCommit, *, spans: Sequence[OffsetRange], expected: int) -> bool:
        written = self._reader.positions(self._feed, commit.batch_id, since=commit.committed_at)
        present = {
            (topic, partition, offset)
            for topic, partition, offset in written
            if any((topic, partition) == s.key and s.start <= offset < s.end for s in spans)
        }
        if len(present) >= expected:
            return False
        self.write(judge, commit, spans=spans, expected=expected, present=present)
        return True

    def write(
        self,
        judge: Judge,
        commit: SourceCommit,
        *,
        spans: Sequence[OffsetRange],
        expected: int,
        present: Set[Position] = frozenset(),
    ) -> None:
        """Send a commit's dead letters, except those whose positions are in ``present``."""
        records = read_batch(self._spark, self._source, ranges=spans, headers=True)
        letters = judge(records).filter(sf.col(f"{RECORD}.reason").isNotNull())
        if present:
            known = self._spark.createDataFrame(sorted(present), "t STRING, p INT, o BIGINT")
            record = sf.col(f"{RECORD}.record")
            same = (record["topic"] == sf.col("t")) & (record["partition"] == sf.col("p"))
            letters = letters.join(sf.broadcast(known), same & (record["offset"] == sf.col("o")), "left_anti")
        producer = {
            **PRODUCER_DEFAULTS,
            # Raise the client's limit, so that it refuses no letter as too large.
            "kafka.max.request.size": str(LARGEST_LETTER),
            "kafka.buffer.memory": str(LARGEST_LETTER),
            **self._source.producer_options,
            "kafka.bootstrap.servers": self._source.bootstrap_servers,
        }
        before = self._topics.end_offsets(self._topic)
        _messages(letters, commit).write.format("kafka").options(**producer).option("topic", self._topic).save()
        positions = present | self._reader.positions(self._feed, commit.batch_id, starts=before)
        if len(positions) != expected:
            raise CheckpointMismatch(
                f"batch {commit.batch_id} of feed '{self._feed}' had {expected:,} dead letters, but a second reading "
                f"of its records finds {len(positions):,}",
                where=f"topic {self._topic}",
                hint="look for a rule in expect whose result changes, such as one with the current time, or for a "
                "schema that was changed meanwhile",
            )

    def check(self, position: OffsetRanges | None, *, moved: bool) -> None: ...

    def follow(self, position: OffsetRanges | None, *, moved: bool) -> int:
        """Do nothing: a topic has no ledger, and may have a second letter of a record that the feed reads again."""
        return 0

    def records(self, choice: DeadLetterFilter) -> DataFrame:
        return self._read(self._unmarked(choice))

    def marked(self, replay_id: str) -> DataFrame:
        return self._read(self._of_replay(replay_id))

    def drop(self, choice: DeadLetterFilter) -> int:
        letters = self._unmarked(choice)
        self._send_notes(letters, state="gone")
        return len(letters)

    def mark(self, positions: DataFrame, replay_id: str) -> None:
        requested = {(row.topic, row.partition, row.offset) for row in positions.collect()}
        unmarked = self._unmarked(DeadLetterFilter(feed=self._feed))
        letters = [letter for letter in unmarked if letter.record in requested]
        self._send_notes(letters, state="marked", replay=replay_id)

    def judge_again(self, reasons: DataFrame) -> None:
        new = {(row.topic, row.partition, row.offset): row.reason for row in reasons.collect()}
        letters = [
            replace(letter, reason=new[letter.record])
            for letter in self._unmarked(DeadLetterFilter(feed=self._feed))
            if new.get(letter.record, letter.reason) != letter.reason and letter.timestamp is not None
        ]
        self._send_notes(letters, state="reason")

    def unmark(self, replay_id: str) -> None:
        self._send_notes(self._of_replay(replay_id), state="unmarked", replay=replay_id)

    def delete_marked(self, replay_id: str) -> None:
        self._send_notes(self._of_replay(replay_id), state="gone", replay=replay_id)

    def open_replays(self) -> list[str]:
        return sorted({letter.replay for letter in self._reader.letters(self._feed) if letter.replay is not None})

    def _unmarked(self, choice: DeadLetterFilter) -> list[DeadLetter]:
        return [letter for letter in self._reader.chosen(choice) if letter.replay is None]

    def _of_replay(self, replay_id: str) -> list[DeadLetter]:
        return [letter for letter in self._reader.letters(self._feed) if letter.replay == replay_id]

    def _read(self, letters: Sequence[DeadLetter]) -> DataFrame:
        """Read these letters from the dead-letter topic, and return their records."""
        if not letters:
            return self._spark.createDataFrame([], RECORD_TYPES)
        spans: dict[int, OffsetRange] = {}
        for partition, offset in sorted(letter.place for letter in letters):
            start = spans[partition].start if partition in spans else offset
            spans[partition] = OffsetRange(self._topic, partition, start, offset + 1)
        requested = self._spark.createDataFrame(
            [(*letter.place, *letter.record, letter.timestamp, letter.reason) for letter in letters],
            "at_partition INT, at_offset BIGINT, topic STRING, partition INT, offset BIGINT, ms BIGINT, reason STRING",
        )
        stored = read_batch(self._spark, self._source, ranges=list(spans.values()), headers=True).select(
            sf.col("partition").alias("at_partition"), sf.col("offset").alias("at_offset"),
            "key", "value", sf.col("headers").alias("stored_headers"),
        )  # fmt: skip
        # A span also contains notes, which have fewer headers than ``LETTER``.
        own = sf.slice("stored_headers", 1, sf.greatest(sf.size("stored_headers") - len(LETTER), sf.lit(0)))
        return with_bad_timestamp(
            stored.join(sf.broadcast(requested), ["at_partition", "at_offset"])
            .withColumn("timestamp", sf.timestamp_millis("ms"))
            .withColumn("headers", sf.when(sf.size(own) > 0, own))
        )

    def _send_notes(self, letters: Iterable[DeadLetter], *, state: State, replay: str | None = None) -> None:
        """Send a note on each letter to the letter's partition, so that the note is retained as long as the letter."""
        failed: list[Any] = []
        producer = Producer(
            {
                **librdkafka_settings(self._source.client_options),
                "bootstrap.servers": self._source.bootstrap_servers,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 20,
                "error_cb": lambda error: None,
            },
            logger=_silence,
        )
        try:
            for letter in letters:
                headers = note_headers(self._feed, letter, state=state, replay=replay)
                while True:
                    try:
                        producer.produce(
                            self._topic,
                            partition=letter.place[0],
                            headers=headers,
                            on_delivery=lambda error, _: failed.append(error) if error else None,
                        )
                        break
                    except BufferError:
                        producer.poll(1.0)
                producer.poll(0)
            left = producer.flush(FLUSH_SECONDS)
        except KafkaException as error:
            failed.append(error.args[0])
            left = 0
        if failed or left:
            what = f"the broker did not accept all notes on dead letters{f': {failed[0].str()}' if failed else ''}"
            hint = "run the command again: notes that the broker has accepted count once"
            raise Unreachable(what, where=f"topic {self._topic}", hint=hint)


def _messages(letters: DataFrame, commit: SourceCommit) -> DataFrame:
    """Return the letters as messages: key, value and headers."""
    record = sf.col(f"{RECORD}.record")
    values = (
        sf.lit(commit.feed),
        sf.lit(commit.batch_id),
        record["topic"],
        record["partition"],
        record["offset"],
        sf.unix_millis(record["timestamp"]),
        sf.col(f"{RECORD}.reason"),
        sf.col(f"{RECORD}.schema_id"),
        sf.unix_millis(sf.current_timestamp()),
    )
    ours = sf.array(*(header(f"{PREFIX}{name}", value) for name, value in zip(LETTER, values, strict=True)))
    own = sf.coalesce(record["headers"].cast(HEADERS_TYPE), sf.array().cast(HEADERS_TYPE))
    headers = sf.concat(own, ours.cast(HEADERS_TYPE)).alias("headers")
    return letters.select(record["key"].alias("key"), record["value"].alias("value"), headers)


def note_headers(
    feed: str, letter: DeadLetter, *, state: State, replay: str | None
) -> list[tuple[str, str | bytes | None]]:
    values = (feed, *letter.record, letter.failed_at, replay, letter.reason if state == "reason" else None, state)
    return [
        (f"{PREFIX}{name}", None if value is None else str(value).encode())
        for name, value in zip(NOTE, values, strict=True)
    ]


def _letter(message: Any, headers: Headers, feed: str) -> DeadLetter | None:
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
    """Return lakefeed's headers of a message, by name without prefix; None if it is not a letter or note of this feed.

    lakefeed's headers come last: a record that was read from a dead-letter topic itself has such headers in front.
    """
    last = headers[-len(names) :]
    if [key for key, _ in last] != [f"{PREFIX}{name}" for name in names]:
        return None
    read = {name: (value or b"").decode("utf-8", "replace") for (_, value), name in zip(last, names, strict=True)}
    return read if read["feed"] == feed else None


def _position(ours: Mapping[str, str]) -> Position:
    return sys.intern(ours["topic"]), int(ours["partition"]), int(ours["offset"])
