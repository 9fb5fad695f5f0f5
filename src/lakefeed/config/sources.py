"""The blocks of a pipeline file for sources: Kafka's topics, and sources with decoded rows."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, field_validator

from lakefeed.config.base import ConfigProblem, ConfigProblems, Model, checked, nearest, raise_problems
from lakefeed.config.kafka_client import KafkaClient, consumer_problems
from lakefeed.config.secrets import Scalar, Text
from lakefeed.config.sql import Ddl
from lakefeed.config.values import Bound, Brokers, Count, FileFormat, Period, TableName, is_topic_name, seconds_of
from lakefeed.offsets.ranges import Partition


def require_java_pattern(pattern: str) -> None:
    try:
        re.compile(pattern)
    except re.error as error:
        raise ValueError(f"not a regular expression: {error}") from None
    if not pattern:
        raise ValueError("not a regular expression: it is empty")
    if "(?P" in pattern:
        raise ValueError("not a regular expression of Java: write (?<name>…) instead of (?P<name>…)")


Kind = Literal["earliest", "latest", "time", "last", "group", "offsets"]

GROUP, LAST = "group:", "last "
_OFFSET = re.compile(r"([A-Za-z0-9._-]{1,249}):(\d{1,9}):(\d{1,18})")
FORMS = "write earliest, latest, a time as 2026-11-20T06:30, 'last 24 hours', group:NAME or topic:partition:offset"


@dataclass(frozen=True)
class StartingOffsets:
    """The start of a new feed, as parsed from the file; for most kinds, only the brokers know the offsets.

    Attributes:
        time: the time with its zone, for the kind ``time``.
        seconds: the duration, for the kind ``last``.
        group: the consumer group, for the kind ``group``.
        offsets: the offsets by partition, for the kind ``offsets``.
    """

    kind: Kind
    text: str
    time: datetime | None = None
    seconds: int = 0
    group: str = ""
    offsets: Mapping[Partition, int] = field(default_factory=dict, hash=False)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read ``earliest``, ``latest``, a time, ``last 24 hours``, ``group:NAME`` or ``topic:partition:offset,…``."""
        text = text.strip()
        if text == "earliest":
            return cls("earliest", text)
        if text == "latest":
            return cls("latest", text)
        if text.startswith(LAST):
            return cls("last", text, seconds=seconds_of(text.removeprefix(LAST)))
        if text.startswith(GROUP):
            if not (group := text.removeprefix(GROUP)):
                raise ValueError("write the name of a consumer group after group:")
            return cls("group", text, group=group)
        if ":" in text and not text[:4].isdigit():
            return cls("offsets", text, offsets=_parse_offsets(text))
        try:
            time = datetime.fromisoformat(text)
        except ValueError:
            near = nearest(text, ("earliest", "latest"))
            hint = f"did you mean '{near}'?" if near else None
            raise ConfigProblems(ConfigProblem(f"'{text}' is not a position to start at: {FORMS}", hint=hint)) from None
        return cls("time", text, time=time if time.tzinfo else time.replace(tzinfo=UTC))

    @property
    def described(self) -> str:
        """The start in words that follow 'begins at'."""
        match self.kind:
            case "time":
                return f"the records from {self.text}"
            case "last":
                return f"the records of the {self.text}"
            case "group":
                return f"the offsets of the consumer group {self.group}"
            case "offsets":
                return "the offsets that source.kafka.start names"
            case _:
                return f"the {self.text} records"

    @property
    def is_word(self) -> bool:
        """Return whether the start is ``earliest`` or ``latest``, which Spark accepts."""
        return self.kind in ("earliest", "latest")

    def begins_at(self, now: datetime) -> datetime | None:
        """Return the time from which records are read; None for a start without a time."""
        return now - timedelta(seconds=self.seconds) if self.kind == "last" else self.time


def _parse_offsets(text: str) -> dict[Partition, int]:
    offsets: dict[Partition, int] = {}
    for part in text.split(","):
        match = _OFFSET.fullmatch(part.strip())
        if match is None or not is_topic_name(match[1]):
            what = f"'{part.strip()}' is not an offset: write topic:partition:offset"
            raise ValueError(f"{what}, and commas between several")
        key = match[1], int(match[2])
        if key in offsets:
            raise ValueError(f"the partition {key[0]}-{key[1]} has two offsets: remove one")
        offsets[key] = int(match[3])
    return offsets


def _as_text(value: Any) -> Any:
    # YAML reads an unquoted time as a date or datetime.
    return value.isoformat() if isinstance(value, date) else value


def _require_known_before_topics(text: str) -> None:
    """Refuse a consumer group or offsets: they have no start for topics that do not exist yet."""
    if (kind := StartingOffsets.parse(text).kind) in ("group", "offsets"):
        named = "a consumer group names" if kind == "group" else "offsets name"
        what = f"{named} no start for topics that do not exist yet"
        raise ValueError(f"{what}: write earliest, latest, a time or 'last 24 hours'")


StartText = Annotated[str, BeforeValidator(_as_text), checked(StartingOffsets.parse)]
NewTopicsText = Annotated[StartText, checked(_require_known_before_topics)]


class KafkaSource(KafkaClient):
    """Topics of a Kafka cluster."""

    bootstrap_servers: Brokers = Field(description="host:port of one or more brokers, separated by commas.")
    topics: list[str] | None = Field(None, description="Topics to read.", min_length=1)
    topics_pattern: Annotated[str, checked(require_java_pattern)] | None = None
    """Instead of topics: a Java regular expression for the topics' names."""
    start: StartText = "earliest"
    """Where a new feed begins: earliest, latest, a time in ISO 8601 (UTC by default), 'last 24 hours', group:NAME (the
    offsets that this consumer group has committed), or topic:partition:offset,… A partition without such an offset
    begins at its first record. Later starts ignore this setting and resume where the last commit ended."""
    new_topics: NewTopicsText = "earliest"
    """Where the feed begins in topics that appear after its first start: as in start, but without groups and offsets.
    Values other than earliest require a table for each topic."""
    max_records_per_batch: Bound = 1_000_000
    """The most records in one micro-batch, over all partitions."""
    min_records_per_batch: Bound | None = None
    """The least number of records in a batch, for larger files; after max_wait, a batch may have fewer. Default: a
    batch begins at each trigger, with any number of records."""
    max_wait: Period = "10 minutes"
    """The longest time that a record waits for min_records_per_batch."""
    deduplicate: bool = False
    """Skip copies of records that lakefeed's Kafka sink wrote when it repeated a batch. The copies are found by their
    headers. The query then keeps state."""
    monitoring_group: str | None = Field(None, min_length=1)
    """A consumer group for tools that watch lag. After each batch the feed commits its offsets to this group; it never
    reads them."""
    options: dict[str, Scalar] = Field(default_factory=dict)
    """Kafka client settings with the prefix kafka., such as kafka.max.poll.records."""

    @field_validator("topics", mode="before")
    @classmethod
    def _topic_names(cls, topics: Any) -> Any:
        topics = [topics] if isinstance(topics, str) else topics
        if not isinstance(topics, list):
            return topics
        hint = "write several as a list: [orders, payments]; for a regular expression use topics_pattern"
        raise_problems(
            ConfigProblem(f"'{topic}' cannot be a topic", key=index, hint=hint)
            for index, topic in enumerate(topics)
            if isinstance(topic, str) and not is_topic_name(topic)
        )
        hint = "remove one of the two: each topic is read once"
        raise_problems(
            ConfigProblem(f"topics has '{topic}' twice", key=index, hint=hint)
            for index, topic in enumerate(topics)
            if topic in topics[:index]
        )
        return topics

    @field_validator("options", mode="before")
    @classmethod
    def _client_options(cls, options: Any) -> Any:
        raise_problems(consumer_problems(options) if isinstance(options, dict) else ())
        return options

    def _contradictions(self) -> Iterator[str | ConfigProblem]:
        yield from super()._contradictions()
        if (self.topics is None) == (self.topics_pattern is None):
            yield "give either topics or topics_pattern"
        least = self.min_records_per_batch
        if least is None and "max_wait" in self.model_fields_set:
            yield "max_wait requires min_records_per_batch, which is not set"
        if least is not None and least > self.max_records_per_batch:
            yield "min_records_per_batch is more than max_records_per_batch"

    @property
    def starting(self) -> StartingOffsets:
        return StartingOffsets.parse(self.start)

    @property
    def max_wait_seconds(self) -> int:
        return seconds_of(self.max_wait)

    def reads(self, topic: str) -> bool:
        if self.topics is not None:
            return topic in self.topics
        return re.fullmatch(self.topics_pattern or "", topic) is not None


class FilesSource(Model):
    """Files that arrive in a directory; each file is read once."""

    path: str = Field(description="s3a://bucket/path, or /path on this machine; it may contain *.")
    format: FileFormat | Literal["text"] = Field(description="The files' format.")
    schema_ddl: Ddl | None = None
    """The columns, such as 'id BIGINT, name STRING'. Required, except for text, which has one column: value."""
    max_files_per_batch: Count = Field(1000, description="The most files in one micro-batch.")
    done: Literal["keep", "archive", "delete"] = Field("keep", description="What happens to files after reading.")
    archive: str | None = Field(None, description="With done: archive, the path to move files to, outside of `path`.")
    options: dict[str, Text] = Field(default_factory=dict, description="Spark's options of the format.")

    def _contradictions(self) -> Iterator[ConfigProblem]:
        if (self.schema_ddl is None) != (self.format == "text"):
            what = f"format: {self.format} requires schema_ddl", "schema_ddl: 'id BIGINT, name STRING'"
            if self.schema_ddl is not None:
                what = "format: text has the one column value, and schema_ddl names others", "remove schema_ddl"
            yield ConfigProblem(what[0], key="schema_ddl", hint=what[1])
        if (self.archive is None) == (self.done == "archive"):
            yield ConfigProblem("done: archive and archive belong together", key="archive", hint="give both or none")


class RateSource(Model):
    """Rows with a timestamp and a number at a fixed rate, for experiments."""

    rows_per_second: Count = Field(1, description="The number of rows per second.")


class SocketSource(Model):
    """Lines of text from a TCP server, for experiments. A crash loses lines that are not written yet."""

    host: str = Field(description="The server's host.")
    port: Count = Field(description="The server's port.", le=65535)


class FormatSource(Model):
    """Any format that Spark can read as a stream, by its name."""

    name: str = Field(description="The format: delta, rate-micro-batch, …; Spark must have its jar.")
    schema_ddl: Ddl | None = Field(None, description="The columns, for formats that do not store them.")
    path: str | None = Field(None, description="The path, for formats that need one.")
    options: dict[str, Text] = Field(default_factory=dict, description="Options of the format.")


class IcebergSource(Model):
    """The rows that other writers append to an Iceberg table, snapshot by snapshot."""

    table: TableName = Field(description="catalog.namespace.table")
    since: str | None = None
    """A time in ISO 8601: read the snapshots from this time on. Default: from the table's first snapshot on."""
    max_files_per_batch: Count = Field(1000, description="The most data files in one micro-batch.")
    skip_overwrites: bool = False
    """true: skip snapshots that changed or deleted rows. false: such a snapshot stops the feed."""
