"""Types of texts in a pipeline file: names, brokers, durations, triggers, partitions and sort columns."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field

from lakefeed.config.base import ParsedText, checked

Identifier = r"[A-Za-z_][A-Za-z0-9_]{0,199}"
COLUMN = r"([^\s.,()`'\"]{1,200}(?:\.[^\s.,()`'\"]{1,200})*)"
TOPIC_MARK = "{topic}"
FileFormat = Literal["parquet", "orc", "avro", "json", "csv"]

Count = Annotated[int, Field(gt=0, le=2**31 - 1)]
"""A number above 0 that fits Java's int."""

Bound = Annotated[int, Field(gt=0, le=2**63 - 1)]
"""A number above 0 that fits Java's long."""


# Tables and topics.


def _require_three_parts(table: str) -> None:
    if not re.fullmatch(rf"{Identifier}(\.{Identifier}){{2,}}", table):
        raise ValueError("write catalog.namespace.table; each name has up to 200 letters, digits and underscores")


TableName = Annotated[str, checked(_require_three_parts)]
TableTemplate = Annotated[str, checked(lambda table: _require_three_parts(table.replace(TOPIC_MARK, "t")))]
"""The name of a table; it may contain ``{topic}`` for the topic's name."""

_ROUTED = re.compile(
    r"(?P<before>[^{}]*\.[A-Za-z0-9_]{0,49})\{(?P<field>(?!topics?\})[^{}\s]{1,200})\}(?P<after>[A-Za-z0-9_]{0,49})"
)
HEADER = "header."
"""The prefix of a field in braces that is the name of a header."""


@dataclass(frozen=True)
class TableField:
    """The field in braces in a table's name: the field's value in a row names the table of that row."""

    before: str
    field: str
    after: str

    @classmethod
    def of(cls, table: str) -> Self | None:
        """Return the field in a table's name; None for one table, and for ``{topic}``."""
        found = None if TOPIC_MARK in table else _ROUTED.fullmatch(table)
        return None if found is None else cls(**found.groupdict())

    @property
    def header(self) -> str | None:
        """The name of the record header that names the table; None if a column names it."""
        return self.field.removeprefix(HEADER) if self.field.startswith(HEADER) else None

    def table(self, name: str) -> str:
        return f"{self.before}{name}{self.after}"


def _require_routed(table: str) -> None:
    found = TableField.of(table)
    _require_three_parts(table.replace(TOPIC_MARK, "t") if found is None else found.table("t"))


RoutedTable = Annotated[str, checked(_require_routed)]
"""The name of a table; it may contain ``{topic}``, or in its last part ``{column}`` or ``{header.name}``."""


def table_of(template: str, topic: str) -> str:
    """Replace ``{topic}`` by the topic's name, and characters that a table's name cannot have by ``_``."""
    return template.replace(TOPIC_MARK, re.sub(r"[^A-Za-z0-9_]", "_", topic))


def catalog_of(table: str) -> str:
    return table.split(".", 1)[0]


def is_topic_name(topic: str) -> bool:
    return re.fullmatch(r"[A-Za-z0-9._-]{1,249}", topic) is not None and topic not in (".", "..")


def _require_topic_name(topic: str) -> None:
    if not is_topic_name(topic):
        raise ValueError(f"'{topic}' cannot be a topic: use up to 249 letters, digits, '.', '_' and '-'")


TopicName = Annotated[str, checked(_require_topic_name)]

# Kafka's clients accept addresses with a protocol in front, such as SSL://host:9092.
_PROTOCOL = r"(?:(?i:PLAINTEXT|SSL|SASL_PLAINTEXT|SASL_SSL)://)?"
_BROKER = re.compile(_PROTOCOL + r"(?:\[[0-9A-Fa-f:.%]+\]|[A-Za-z0-9._%-]+):(\d{1,5})", re.ASCII)


def _require_hosts_and_ports(servers: str) -> None:
    for server in servers.split(","):
        found = _BROKER.fullmatch(server.strip())
        if found is None or not 1 <= int(found[1]) <= 65535:
            what = f"'{server.strip()}' is not a broker: write host:port, with a port from 1 to 65535"
            raise ValueError(f"{what}, and commas between several brokers")


Brokers = Annotated[str, checked(_require_hosts_and_ports)]
"""``host:port`` of one or more brokers."""


# Durations and triggers.

_DURATION = re.compile(r"\s*(\d{1,9})\s*([a-z]+?)s?\s*", re.ASCII)
_SECONDS = {"second": 1, "minute": 60, "hour": 3600, "day": 86_400}
_CENTURY = 100 * 366 * 86_400
"""The longest duration in seconds; a longer one would overflow the microseconds of Spark and Iceberg."""


def _parse_seconds(text: str, *, units: Collection[str] = tuple(_SECONDS)) -> int | None:
    match = _DURATION.fullmatch(text)
    return int(match[1]) * _SECONDS[match[2]] if match is not None and match[2] in units else None


def seconds_of(duration: str) -> int:
    """Convert a duration such as ``1 hour`` to seconds."""
    seconds = _parse_seconds(duration)
    if seconds is None:
        raise ValueError("a duration is '<n> seconds|minutes|hours|days'")
    if seconds > _CENTURY:
        raise ValueError("a duration may be at most 100 years")
    return seconds


def _require_period(text: str) -> None:
    if seconds_of(text) == 0:
        raise ValueError("a duration of at least 1 second is required")


Duration = Annotated[str, checked(seconds_of)]
"""A duration, which may be 0."""
Period = Annotated[str, checked(_require_period)]
"""A duration of at least 1 second."""

AVAILABLE_NOW = "available-now"
REAL_TIME = "real-time"
INTERVAL = "1 minute"
"""The default interval at which a real-time query stores its position."""
_LEAST_INTERVAL = 5
"""The least interval in seconds: Spark's ``spark.sql.streaming.realTimeMode.minBatchDuration``."""


def require_trigger(trigger: str) -> str:
    """Return the trigger unchanged if it is valid; else raise a ValueError."""
    interval = interval_of(trigger)
    if trigger == AVAILABLE_NOW:
        return trigger
    match = _DURATION.fullmatch(trigger)
    if match is not None and match[2] == "millisecond":
        return trigger
    seconds = _parse_seconds(trigger if interval is None else interval, units=("second", "minute", "hour"))
    if seconds is None:
        raise ValueError(
            f"a trigger is '<n> milliseconds|seconds|minutes|hours', '{AVAILABLE_NOW}', '{REAL_TIME}' or "
            f"'{REAL_TIME}, <n> seconds'"
        )
    if seconds > 366 * _SECONDS["day"]:
        raise ValueError("a trigger may be at most a year")
    if interval is not None and seconds < _LEAST_INTERVAL:
        raise ValueError(f"{REAL_TIME} cannot store its position more often than every {_LEAST_INTERVAL} seconds")
    return trigger


Trigger = Annotated[str, AfterValidator(require_trigger)]


def trigger_seconds(trigger: str) -> float:
    """Return the seconds between two batches; raise a ValueError for a trigger without a time."""
    match = _DURATION.fullmatch(trigger)
    if match is not None and match[2] == "millisecond":
        return int(match[1]) / 1000
    return float(seconds_of(trigger))


def interval_of(trigger: str) -> str | None:
    """Return the interval at which a real-time query stores its position; None for other triggers."""
    name, _, interval = trigger.partition(",")
    return (interval.strip() or INTERVAL) if name.strip() == REAL_TIME else None


# The layout of a table.


@dataclass(frozen=True, kw_only=True)
class PartitionTransform(ParsedText):
    """One of Iceberg's partition transforms (https://iceberg.apache.org/spec/#partition-transforms).

    Attributes:
        name: identity, years, months, days, hours, bucket or truncate.
        column: the column, as a dotted path if it is nested.
        width: the number of ``bucket`` or ``truncate``.
    """

    name: str
    column: str
    width: int | None = None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse a text such as ``days(at)`` or ``bucket(16, id)``, or the name of a column."""
        if match := re.fullmatch(rf"\s*{COLUMN}\s*", text):
            return cls(name="identity", column=match[1])
        if match := re.fullmatch(rf"\s*(year|month|day|hour)s?\(\s*{COLUMN}\s*\)\s*", text):
            return cls(name=f"{match[1]}s", column=match[2])
        if match := re.fullmatch(rf"\s*(bucket|truncate)\(\s*([1-9]\d*)\s*,\s*{COLUMN}\s*\)\s*", text):
            return cls(name=match[1], width=int(match[2]), column=match[3])
        raise ValueError(f"'{text}' is not a partition transform: write column, days(column), bucket(16, column), …")

    def __str__(self) -> str:
        if self.name == "identity":
            return self.column
        return f"{self.name}({'' if self.width is None else f'{self.width}, '}{self.column})"


@dataclass(frozen=True, kw_only=True)
class SortColumn(ParsedText):
    """A column by which the rows of a file are sorted, so that readers can skip more files."""

    column: str
    descending: bool = False
    nulls_first: bool = True

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse ``at``, ``at desc`` or ``at desc nulls first``; by default, nulls sort as the smallest values."""
        match = re.fullmatch(rf"\s*{COLUMN}(?:\s+(asc|desc))?(?:\s+nulls\s+(first|last))?\s*", text, re.IGNORECASE)
        if not match:
            raise ValueError(f"'{text}' is not a sort column: write column, column desc or column desc nulls last")
        descending = (match[2] or "asc").lower() == "desc"
        nulls_first = match[3].lower() == "first" if match[3] else not descending
        return cls(column=match[1], descending=descending, nulls_first=nulls_first)

    def __str__(self) -> str:
        return f"{self.column} {'desc' if self.descending else 'asc'} nulls {'first' if self.nulls_first else 'last'}"
