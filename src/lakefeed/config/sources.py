"""The blocks of a pipeline file for sources: topics of Kafka, and those whose rows come decoded."""

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


def _require_java_pattern(pattern: str) -> None:
    try:
        re.compile(pattern)
    except re.error as error:
        raise ValueError(f"not a regular expression: {error}") from None
    if not pattern:
        raise ValueError("not a regular expression: it is empty")
    if "(?P" in pattern:
        raise ValueError("not a regular expression: (?P is Python's way, and Java reads it: (?<name>…)")


Kind = Literal["earliest", "latest", "time", "last", "group", "offsets"]

GROUP, LAST = "group:", "last "
_OFFSET = re.compile(r"([A-Za-z0-9._-]{1,249}):(\d{1,9}):(\d{1,18})")
FORMS = "write earliest, latest, a time as 2026-11-20T06:30, 'last 24 hours', group:NAME or topic:partition:offset"


@dataclass(frozen=True)
class StartingOffsets:
    """The place at which a new feed begins: see ``parse``. Only the brokers know its offsets.

    Attributes:
        time: of ``time``, with its zone.
        seconds: of ``last``.
        group: of ``group``.
        offsets: of ``offsets``.
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
                raise ValueError("group: is followed by the name of a consumer group")
            return cls("group", text, group=group)
        if ":" in text and not text[:4].isdigit():
            return cls("offsets", text, offsets=_parse_offsets(text))
        try:
            time = datetime.fromisoformat(text)
        except ValueError:
            near = nearest(text, ("earliest", "latest"))
            hint = f"did you mean '{near}'?" if near else None
            raise ConfigProblems(ConfigProblem(f"'{text}' is no place to begin: {FORMS}", hint=hint)) from None
        return cls("time", text, time=time if time.tzinfo else time.replace(tzinfo=UTC))

    @property
    def described(self) -> str:
        """Say in words where that is, for 'begins at …'."""
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
        """Check that it is ``earliest`` or ``latest``, which Spark knows too."""
        return self.kind in ("earliest", "latest")

    def begins_at(self, now: datetime) -> datetime | None:
        """Return the time of the first record to read; None where it is not said by a time."""
        return now - timedelta(seconds=self.seconds) if self.kind == "last" else self.time


def _parse_offsets(text: str) -> dict[Partition, int]:
    found: dict[Partition, int] = {}
    for part in text.split(","):
        match = _OFFSET.fullmatch(part.strip())
        if match is None or not is_topic_name(match[1]):
            raise ValueError(f"'{part.strip()}' is no offset: write topic:partition:offset, several with commas")
        key = match[1], int(match[2])
        if key in found:
            raise ValueError(f"the partition {key[0]}-{key[1]} is there twice")
        found[key] = int(match[3])
    return found


def _as_text(value: Any) -> Any:
    # YAML reads a time without quotes as one.
    return value.isoformat() if isinstance(value, date) else value


def _require_known_before_topics(text: str) -> None:
    """Refuse a place that names topics or partitions: those of a topic to come are not known."""
    if (kind := StartingOffsets.parse(text).kind) in ("group", "offsets"):
        named = "a consumer group has" if kind == "group" else "these offsets have"
        what = f"{named} no place in topics that come later"
        raise ValueError(f"{what}: write earliest, latest, a time or 'last 24 hours'")


StartText = Annotated[str, BeforeValidator(_as_text), checked(StartingOffsets.parse)]
NewTopicsText = Annotated[StartText, checked(_require_known_before_topics)]


class KafkaSource(KafkaClient):
    """Topics of one Kafka cluster."""

    bootstrap_servers: Brokers = Field(description="host:port of one or more brokers, separated by commas.")
    topics: list[str] | None = Field(None, description="Topics to read.", min_length=1)
    topics_pattern: Annotated[str, checked(_require_java_pattern)] | None = None
    """Or a regular expression of topic names."""
    start: StartText = "earliest"
    """Where a new feed begins: earliest, latest, a time in ISO 8601 (UTC by default), 'last 24 hours', group:NAME (as
    that consumer group has committed), or topic:partition:offset,… Partitions without a place there begin at their
    first record. Afterwards the feed resumes where its last commit ended."""
    new_topics: NewTopicsText = "earliest"
    """Where topics begin that the feed reads later, once it has begun: as start, without groups and offsets. Another
    place than earliest is for a table for each topic."""
    max_records_per_batch: Bound = 1_000_000
    """Upper bound on the records of one micro-batch, over all partitions."""
    min_records_per_batch: Bound | None = None
    """Wait until so many records are there, or max_wait is over: larger batches write larger files. Default: whatever
    is there when the trigger says."""
    max_wait: Period = "10 minutes"
    """No record waits longer than this for min_records_per_batch to come together."""
    deduplicate: bool = False
    """Leave out the copies that lakefeed's Kafka sink wrote when it resent a batch, recognized by the records' headers.
    Makes the feed one with state."""
    monitoring_group: str | None = Field(None, min_length=1)
    """Consumer group that is set to the feed's position after each batch, for tools that watch lag. Nothing reads it
    back."""
    options: dict[str, Scalar] = Field(default_factory=dict)
    """Kafka client settings with the prefix kafka., for instance kafka.max.poll.records."""

    @field_validator("topics", mode="before")
    @classmethod
    def _topic_names(cls, topics: Any) -> Any:
        topics = [topics] if isinstance(topics, str) else topics
        if not isinstance(topics, list):
            return topics
        hint = "write several as a list: [orders, payments]; for a regular expression use topics_pattern"
        raise_problems(
            ConfigProblem(f"'{topic}' can be no topic's name", key=index, hint=hint)
            for index, topic in enumerate(topics)
            if isinstance(topic, str) and not is_topic_name(topic)
        )
        hint = "remove it: each topic is read once"
        raise_problems(
            ConfigProblem(f"the topic '{topic}' is there twice", key=index, hint=hint)
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
            yield "max_wait is for min_records_per_batch, which is not set"
        if least is not None and least > self.max_records_per_batch:
            yield "min_records_per_batch is more than max_records_per_batch"

    @property
    def starting(self) -> StartingOffsets:
        """``start``, parsed."""
        return StartingOffsets.parse(self.start)

    @property
    def max_wait_seconds(self) -> int:
        """``max_wait`` as a number."""
        return seconds_of(self.max_wait)

    def reads(self, topic: str) -> bool:
        """Return whether a topic of this name is among those to read."""
        if self.topics is not None:
            return topic in self.topics
        return re.fullmatch(self.topics_pattern or "", topic) is not None


class FilesSource(Model):
    """Files that come to a directory; each is read once, when it is there."""

    path: str = Field(description="s3a://bucket/path, or a path with * in it.")
    format: FileFormat | Literal["text"] = Field(description="What the files are.")
    schema_ddl: Ddl | None = None
    """The columns, as 'id BIGINT, name STRING'. text has one column, value; other formats require it."""
    max_files_per_batch: Count = Field(1000, description="Upper bound on the files of one micro-batch.")
    done: Literal["keep", "archive", "delete"] = Field("keep", description="What becomes of files that were read.")
    archive: str | None = Field(None, description="With done: archive, where they go: a path outside of `path`.")
    options: dict[str, Text] = Field(default_factory=dict, description="Spark's options of the format.")

    def _contradictions(self) -> Iterator[ConfigProblem]:
        if (self.schema_ddl is None) != (self.format == "text"):
            what = "text has one column, value" if self.schema_ddl else f"files of {self.format} require their columns"
            yield ConfigProblem(what, key="schema_ddl", hint="schema_ddl: 'id BIGINT, name STRING'")
        if (self.archive is None) == (self.done == "archive"):
            yield ConfigProblem("archive is where files go with done: archive", key="archive")


class RateSource(Model):
    """Rows with a timestamp and a number, so many a second: for trying things out."""

    rows_per_second: Count = Field(1, description="How many.")


class SocketSource(Model):
    """Lines of text from a TCP server: for trying things out. What was not landed at a crash is gone."""

    host: str = Field(description="Where it listens.")
    port: Count = Field(description="Its port.", le=65535)


class FormatSource(Model):
    """Any format that Spark can read as a stream, by its name."""

    name: str = Field(description="The format: delta, rate-micro-batch, …; its jar has to be there.")
    schema_ddl: Ddl | None = Field(None, description="The columns, where the format does not know them.")
    path: str | None = Field(None, description="For formats that take one.")
    options: dict[str, Text] = Field(default_factory=dict, description="Options of the format.")


class IcebergSource(Model):
    """The rows that are appended to an Iceberg table, snapshot by snapshot."""

    table: TableName = Field(description="catalog.namespace.table")
    since: str | None = None
    """From the snapshots of this time on, in ISO 8601. Default: from the table's first."""
    max_files_per_batch: Count = Field(1000, description="Upper bound on the data files of one micro-batch.")
    skip_overwrites: bool = False
    """Pass over snapshots that have changed or deleted rows, instead of stopping at them."""
