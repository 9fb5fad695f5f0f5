"""A schema guessed from JSON records, with everything that speaks against it."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lakefeed.clients.iceberg.sql import quoted
from lakefeed.clients.kafka.topics import Topics
from lakefeed.config.connections import Connections
from lakefeed.config.kafka_source import KafkaSource
from lakefeed.config.models import PipelineConfig
from lakefeed.errors import ConfigError, ResourceMissing
from lakefeed.offsets.ranges import OffsetRange
from lakefeed.records.schema.avro import DEEPEST, MOST_COLUMNS
from lakefeed.records.sources.kafka import read_batch

_LONG = range(-(2**63), 2**63)
_DECIMAL = range(-(10**38) + 1, 10**38)
_LONGEST_NAME = 200
# The record itself and the text are levels too.
_DEEPEST = DEEPEST - 2
_AVRO_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SQL = {"boolean": "BOOLEAN", "long": "BIGINT", "double": "DOUBLE", "string": "STRING", "decimal": "DECIMAL(38,0)"}
_AVRO: dict[str, Any] = {
    **{name: name for name in ("boolean", "long", "double", "string")},
    "decimal": {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 0},
}


@dataclass(frozen=True)
class TypeConflict:
    """What the guess does not hold for."""

    path: str
    what: str

    def __str__(self) -> str:
        return f"{self.path}: {self.what}" if self.path else self.what


@dataclass(frozen=True, kw_only=True)
class Inference:
    """A guess.

    Attributes:
        records: how many were looked at.
        ddl: the columns as Spark DDL, all of them optional; a sample cannot prove that none is ever missing.
        avro: the same as an Avro record schema; Avro's own tools refuse it where a name is none in Avro.
        conflicts: what the guess does not hold for, and what it could not know.
    """

    records: int
    ddl: str
    avro: dict[str, Any]
    conflicts: tuple[TypeConflict, ...]


@dataclass
class _Seen:
    """What was seen at one place."""

    kinds: Counter[str] = field(default_factory=Counter)
    fields: dict[str, _Seen] = field(default_factory=dict)
    items: _Seen | None = None


def infer_schema(values: Iterable[bytes], *, name: str = "Value") -> Inference:
    """Guesses the schema of JSON objects: of each field the type that most values have.

    Whole numbers beside others are doubles. Anything else that differs is a conflict: such records cannot be
    decoded with the guess, and would be dead letters.

    Args:
        values: the records' values.
        name: of the Avro record.

    Raises:
        ConfigError: the records have more than 10,000 different fields.
    """
    root, records = _Seen(), 0
    places = _Places()
    broken: Counter[str] = Counter()
    for value in values:
        records += 1
        try:
            # Of bytes json would take UTF-16 too.
            document = json.loads(value.decode("utf-8-sig"), object_pairs_hook=_once, parse_constant=_no_constant)
        except (ValueError, RecursionError) as error:
            broken[f"twice the field {error.name}" if isinstance(error, _Twice) else "no JSON in UTF-8"] += 1
            continue
        if isinstance(document, dict):
            places.see(root, document, 0, "")
        else:
            broken["not an object"] += 1
    conflicts = [TypeConflict("", f"{count} of {records} records: {why}") for why, count in broken.items()]
    if places.nameless:
        conflicts.append(TypeConflict("", "a field with the empty name is left out: no column can have it"))
    guess = _Guess(conflicts)
    ddl = guess.columns(root, "", colon=False)
    guess.check_names(root)
    return Inference(
        records=records,
        ddl=ddl,
        avro=guess.record(root, name, ""),
        conflicts=tuple(conflicts),
    )


class _Twice(ValueError):
    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(name)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        name.encode()  # Half of a surrogate pair is no character of a name: a ValueError.
        if name in found:
            raise _Twice(name)
        found[name] = value
    return found


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


class _Places:
    """Sees values, at a bounded number of places."""

    def __init__(self) -> None:
        self._count = 0
        self.nameless = False

    def see(self, seen: _Seen, value: Any, depth: int, path: str) -> None:
        # What is deeper than a table can be is text, as a column of STRING takes it.
        seen.kinds["string" if depth > _DEEPEST else _kind(value)] += 1
        if depth > _DEEPEST:
            return
        if isinstance(value, dict):
            for name, each in value.items():
                if not name:
                    self.nameless = True
                    continue
                if name not in seen.fields:
                    self._add(path)
                    seen.fields[name] = _Seen()
                self.see(seen.fields[name], each, depth + 1, _below(path, name))
        elif isinstance(value, list):
            seen.items = seen.items or _Seen()
            for each in value:
                self.see(seen.items, each, depth + 1, _below(path, "element"))

    def _add(self, path: str) -> None:
        self._count += 1
        if self._count > MOST_COLUMNS:
            raise ConfigError(
                f"the records have more than {MOST_COLUMNS:,} different fields, too many for columns",
                where=path or None,
                hint="if names of fields are data, give schema_ddl with a MAP<STRING, …> there",
            )


def _kind(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            # A column of STRING takes what is longer, as text.
            return "long" if value in _LONG else "decimal" if value in _DECIMAL else "string"
        case float():
            return "double"
        case str():
            return "string"
        case list():
            return "array"
    return "object"


class _Guess:
    def __init__(self, conflicts: list[TypeConflict]) -> None:
        self._conflicts = conflicts
        self._said: set[str] = set()
        self._records: Counter[str] = Counter()

    def columns(self, seen: _Seen, path: str, *, colon: bool) -> str:
        self._check_case(seen, path)
        between = ": " if colon else " "
        return ", ".join(
            f"{quoted((name,))}{between}{self._sql(each, _below(path, name))}" for name, each in seen.fields.items()
        )

    def record(self, seen: _Seen, name: str, path: str) -> dict[str, Any]:
        fields = [
            {"name": each, "type": ["null", self._avro(below, _below(path, each))], "default": None}
            for each, below in seen.fields.items()
        ]
        return {"type": "record", "name": name, "fields": fields}

    def check_names(self, seen: _Seen) -> None:
        odd = sorted({name for name in _names(seen) if not _AVRO_NAME.fullmatch(name)})
        if odd:
            shown = ", ".join(name[:50] for name in odd[:5])
            self._conflicts.append(
                TypeConflict("", f"no names in Avro, so its own tools refuse the Avro schema: {shown}")
            )

    def _sql(self, seen: _Seen, path: str) -> str:
        kind = self._kind(seen, path)
        if kind == "object":
            return f"STRUCT<{self.columns(seen, path, colon=True)}>"
        if kind == "array":
            return f"ARRAY<{self._sql(seen.items or _Seen(), _below(path, 'element'))}>"
        return _SQL[kind]

    def _avro(self, seen: _Seen, path: str) -> Any:
        kind = self._kind(seen, path)
        if kind == "object":
            return self.record(seen, self._unused(re.sub(r"\W", "_", path, flags=re.ASCII)[-_LONGEST_NAME:]), path)
        if kind == "array":
            return {"type": "array", "items": ["null", self._avro(seen.items or _Seen(), _below(path, "element"))]}
        return _AVRO[kind]

    def _kind(self, seen: _Seen, path: str) -> str:
        kinds = +seen.kinds
        kinds.pop("null", None)
        if "double" in kinds and "decimal" not in kinds:
            kinds["double"] += kinds.pop("long", 0)
        if "decimal" in kinds and "double" not in kinds:
            kinds["decimal"] += kinds.pop("long", 0)
        if not kinds:
            self._say(path, "only null or nothing was seen: STRING is a guess")
            return "string"
        (most, count), *others = kinds.most_common()
        if others:
            rest = ", ".join(f"{number} times {kind}" for kind, number in others)
            self._say(path, f"{count} times {most}, but {rest}: such records cannot be decoded with this schema")
        if most == "object" and not seen.fields:
            self._say(path, "only empty objects were seen: STRING, with the JSON, is a guess")
            return "string"
        return most

    def _unused(self, name: str) -> str:
        """A name in Avro that no other record has: paths that differ in odd characters alone become one name."""
        name = f"_{name}" if name[:1].isdigit() else name
        self._records[name] += 1
        return name if self._records[name] == 1 else f"{name}__{self._records[name]}"

    def _say(self, path: str, what: str) -> None:
        if path not in self._said:
            self._said.add(path)
            self._conflicts.append(TypeConflict(path, what))

    def _check_case(self, seen: _Seen, path: str) -> None:
        first: dict[str, str] = {}
        for name in seen.fields:
            if (other := first.setdefault(name.lower(), name)) != name:
                what = f"differs from {other} in case only: Spark takes both for one column"
                self._conflicts.append(TypeConflict(_below(path, name), what))


def _names(seen: _Seen) -> Iterable[str]:
    for name, each in seen.fields.items():
        yield name
        yield from _names(each)
    if seen.items is not None:
        yield from _names(seen.items)


def _below(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def newest_values(
    config: PipelineConfig, *, records: int, connections: Connections, log_file: Path | None = None
) -> list[bytes]:
    """The values of the newest records, about as many of each partition; null values are left out.

    Starts Spark, in this process and on one thread.

    Args:
        config: the pipeline.
        records: at most so many.
        connections: store and catalogs for the session.
        log_file: where the JVM writes its log, instead of this process's stderr.

    Raises:
        ResourceMissing: no such topic, or no records in it.
        Unreachable: no broker answers.
    """
    from lakefeed.clients.spark.session import session

    source = config.kafka
    ranges = list(newest_ranges(source, records))
    if not any(each.records for each in ranges):
        topics = ", ".join(sorted({each.topic for each in ranges})) or source.topics_pattern
        raise ResourceMissing(f"there are no records to look at in {topics}", where=source.bootstrap_servers)
    spark = session(f"{config.name}-infer", connections=connections, master="local[1]", log_file=log_file)
    rows = read_batch(spark, source, ranges=ranges).select("value").where("value IS NOT NULL").collect()
    return [bytes(row.value) for row in rows]


def newest_ranges(source: KafkaSource, records: int) -> Iterator[OffsetRange]:
    """The ends of the topics' partitions: at most so many records in all, about as many of each."""
    options = {key.removeprefix("kafka."): value for key, value in source.options.items()}
    cluster = Topics(source.bootstrap_servers, options=options)
    names = source.topics or [name for name in cluster.list() if re.fullmatch(source.topics_pattern or "", name)]
    found = [(name, each) for name in names for each in cluster.describe(name).partitions]
    filled = sum(each.end_offset > each.start_offset for _, each in found)
    share = max(1, records // max(1, filled))
    left = records
    for name, each in found:
        take = min(share, left, each.end_offset - each.start_offset)
        left -= take
        yield OffsetRange(name, each.id, each.end_offset - take, each.end_offset)
