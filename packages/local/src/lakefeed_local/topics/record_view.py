"""Decode records of a topic for display, with a feed's decode block or without one.

Without a decode block, the bytes of each record decide: if they begin with the id of a schema in the registry, they are
decoded with that schema; otherwise they are shown as JSON, text or bytes. ``RecordView.java`` decodes, and evaluates
conditions and columns. A JVM starts when the first record needs decoding.
"""

from __future__ import annotations

import json
import math
import re
import struct
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, Self

from lakefeed.clients.kafka.records import Record
from lakefeed.clients.spark import jvm
from lakefeed.config.decoding import Decode
from lakefeed.config.sources import KafkaSource
from lakefeed.errors import ConfigError, ResourceMissing
from lakefeed.lazy import SparkSession, py4j
from lakefeed.records import spec as specs
from lakefeed.records.decode.registry import SchemaRegistry
from lakefeed.records.decode.resolve import put_credentials, resolve_decoder
from lakefeed.records.schema.inference import infer_schema, newest_values
from lakefeed_local.topics.reading_plan import (
    HEADER,
    Format,
    IdHeader,
    ReadingPlan,
    id_header,
    message_indexes,
    plain_jvm,
    plan_of,
    prefix_of,
    protobuf_plan,
    schema_id,
    writers_plan,
)

AT_ONCE = 500
INFERRED_FROM = 1_000
_TEXT = {"format": "string"}
_NO_TIME = -(2**63)
# Matches the error class before Spark's sentence, and the SQLSTATE after it.
_MARKS = re.compile(r"^\[[A-Z_.]+\] |\.? SQLSTATE: \w{5}.*$", re.DOTALL)


class TopicView:
    """Decodes records of one source for display; a context manager, because it may start a JVM.

    Args:
        source: the topics, which are read to infer the columns of JSON for ``where`` and ``fields``.
        registry: the registry of the schema ids, if there is no decode block.
        decode: a feed's decode block; None to detect the format per record.
        where: an SQL condition over the fields of the value, ``kafka_partition`` and so on.
        fields: the columns to show, as in a SELECT.
        log_file: the file for the JVM's log.
    """

    def __init__(
        self,
        source: KafkaSource,
        *,
        log_file: Path,
        registry: SchemaRegistry | None = None,
        decode: Decode | None = None,
        where: str | None = None,
        fields: str | None = None,
    ) -> None:
        self._source, self._registry, self._decode = source, registry, decode
        self._where, self._fields = where, fields
        self._log_file = log_file
        self._open = ExitStack()
        self._jvm: SparkSession | None = None
        self._decoders: tuple[ReadingPlan, ReadingPlan] | None = None
        self._plans: dict[tuple[int, bytes], ReadingPlan | None] = {}
        self._prefixes: dict[IdHeader, bytes] = {}
        self._views: dict[tuple[str, str], Any] = {}
        self._json_options: dict[str, str] | None = None
        self._fitted = False
        self.unmatched: dict[str, int] = {}
        """The number of records that lack the columns of the expressions, by the reason."""
        self.unregistered: Counter[int] = Counter()
        """The number of values that begin with a schema id that the registry does not have, by this id."""
        self.in_headers: Counter[str] = Counter()
        """The number of values and keys for which a header has an unusable id, by the reason."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self._open.close()

    def show(self, records: Iterable[Record]) -> Iterator[ShownRecord]:
        """Yield the records that meet the condition, in the given order."""
        batch: list[Record] = []
        for record in records:
            batch.append(record)
            if len(batch) == AT_ONCE:
                yield from self._show(batch)
                batch = []
        yield from self._show(batch)

    def require_fitting(self, shown: int) -> None:
        """Raise a ConfigError if no record has the columns of the expressions; ``shown`` counts the shown records."""
        if self.unmatched and not shown and not self._fitted:
            why = max(self.unmatched, key=lambda each: self.unmatched[each])
            hint = "without --where and --fields the records show which columns they have"
            raise ConfigError(f"the condition or the columns fit no record: {why}", hint=hint)

    def notes(self) -> Iterator[str]:
        """Yield messages about records that lack columns of the expressions, and about schema ids that are unknown."""
        if self.unregistered:
            ids = ", ".join(map(str, sorted(self.unregistered)))
            what = "begin with the header of a schema id that the registry does not have"
            yield f"{self.unregistered.total():,} values {what}: {ids}"
        yield from (f"{count:,} values: {why}" for why, count in self.in_headers.items())
        if self.unmatched:
            kinds = ", ".join(why.partition(":")[0] for why in self.unmatched)
            yield f"{sum(self.unmatched.values()):,} records do not have these columns: {kinds}"

    def _show(self, batch: Sequence[Record]) -> list[ShownRecord]:
        groups: dict[tuple[ReadingPlan, ReadingPlan], list[int]] = {}
        for at, record in enumerate(batch):
            groups.setdefault((self._plan_of(record, "value"), self._plan_of(record, "key")), []).append(at)
        found: dict[int, ShownRecord] = {}
        for (value, key), places in groups.items():
            records = [batch[at] for at in places]
            for at, shown in zip(places, self._group(value, key, records), strict=True):
                if shown is not None:
                    found[at] = shown
        return [found[at] for at in sorted(found)]

    def _plan_of(self, record: Record, part: specs.Part) -> ReadingPlan:
        data = record.value if part == "value" else record.key
        header = id_header(record.headers, part) if self._decode is None and data is not None else None
        if header is not None and (plan := self._plan_by_header(header)) is not None:
            return plan
        return self._plan(data, of_key=part == "key")

    def _plan_by_header(self, header: IdHeader) -> ReadingPlan | None:
        """Return the plan for bytes whose schema id is in a record header; None if the registry lacks the schema."""
        why = f"the header {header.name} has their schema's id: name its registry"
        if self._registry is not None:
            try:
                if header not in self._prefixes:
                    self._prefixes[header] = prefix_of(header, self._registry)
                prefix = self._prefixes[header]
                # A Protobuf message without indexes is the schema's first one, whose indexes are a single 0.
                plan = self._registered(prefix if len(prefix) > HEADER else prefix + b"\0")
                if plan is not None:
                    return plan._replace(skip=0)
                why = f"the registry does not have the schema id {schema_id(prefix)} of the header {header.name}"
            except (ConfigError, ResourceMissing) as error:
                why = error.what
        self.in_headers[why] += 1
        return None

    def _group(self, value: ReadingPlan, key: ReadingPlan, records: Sequence[Record]) -> Iterable[ShownRecord | None]:
        expressions = self._where is not None or self._fields is not None
        if value.options is None and key.options is None and not expressions:
            return [shown_record(record, value, key, {}) for record in records]
        view = self._view(value, key)
        if isinstance(view, str):
            if value.format != "null":
                self.unmatched[view] = self.unmatched.get(view, 0) + len(records)
            if self._where is not None:
                return [None] * len(records)
            return [shown_record(record, value, key, {}, note=view) for record in records]
        lines = str(view.show(b"".join(_frame(record, value, key) for record in records))).split("\n")
        return [
            shown_record(record, value, key, json.loads(line, parse_float=exact), columns=self._fields is not None)
            if line
            else None
            for record, line in zip(records, lines[:-1], strict=True)
        ]

    def _view(self, value: ReadingPlan, key: ReadingPlan) -> Any:
        """Return the Java view for records with these plans, or why the expressions cannot be evaluated on them."""
        names = (value.name, key.name)
        if names not in self._views:
            spark = self._started()
            options = value.options(spark) if value.options else self._plain_options(value)
            key_options = key.options(spark) if key.options else _TEXT
            self._views[names] = self._new_view(spark, value, options, key_options)
        return self._views[names]

    def _new_view(self, spark: SparkSession, value: ReadingPlan, options: dict[str, str], key: dict[str, str]) -> Any:
        new = jvm.java(spark).local.RecordView
        try:
            view = new(options, key, self._where, self._fields)
            self._fitted = True
            return view
        except py4j.Py4JJavaError as refused:
            why = _MARKS.sub("", jvm.cause_of(refused)).strip()
        try:
            new(options, key, None, None)
        except py4j.Py4JJavaError as refused:
            return f"the schema cannot be used: {jvm.cause_of(refused)}"
        of = f"schema id {value.schema_id}" if value.schema_id is not None else value.format
        return f"{of}: {why}"

    def _plain_options(self, value: ReadingPlan) -> dict[str, str]:
        """Return the options for values without a schema; the columns of JSON are inferred from the newest records."""
        if value.format != "json":
            return _TEXT
        if self._json_options is None:
            guess = infer_schema(newest_values(self._source, records=INFERRED_FROM))
            self._json_options = _TEXT
            if guess.ddl:
                schema = json.dumps(guess.avro)
                self._json_options = {"format": "json", "reader-schema": schema, "lenient": "true"}
        return self._json_options

    def _started(self) -> SparkSession:
        if self._jvm is None:
            self._jvm = self._open.enter_context(plain_jvm(log_file=self._log_file))
        return self._jvm

    def _plan(self, data: bytes | None, *, of_key: bool = False) -> ReadingPlan:
        if self._decode is not None:
            return self._of_feed(data)[1 if of_key else 0]
        if data is None:
            return ReadingPlan("null", "null")
        if data[:1] == b"\0" and len(data) >= HEADER and (plan := self._registered(data)) is not None:
            return plan
        if not of_key and self._begins_with_unknown_id(data):
            self.unregistered[schema_id(data)] += 1
        try:
            text = data.decode()
        except UnicodeDecodeError:
            return ReadingPlan("bytes", "bytes")
        if not of_key and text.lstrip()[:1] in ("{", "[") and is_json(text):
            return ReadingPlan("json", "json")
        return ReadingPlan("text", "text")

    def _begins_with_unknown_id(self, data: bytes) -> bool:
        """Return True if a value begins with a schema id that the registry turned out not to have.

        An id of 0 does not count, because a small 8-byte number also begins with zeros.
        """
        known = (schema_id(data), b"")
        return data[:1] == b"\0" and known[0] > 0 and known in self._plans and self._plans[known] is None

    def _of_feed(self, data: bytes | None) -> tuple[ReadingPlan, ReadingPlan]:
        """Return the decode block's plans for values and keys."""
        assert self._decode is not None
        if self._decoders is None:
            spark = self._started()
            put_credentials(spark, self._decode)
            resolved = resolve_decoder(spark, self._decode, self._source)
            key = resolved.key or specs.String()
            self._decoders = plan_of(resolved.spec, "value"), plan_of(key, "key")
        return self._decoders

    def _registered(self, data: bytes) -> ReadingPlan | None:
        """Return the plan for bytes with a schema id; None if the registry does not have the schema."""
        if self._registry is None:
            return None
        number = schema_id(data)
        known = (number, b"")
        if known not in self._plans:
            try:
                self._plans[known] = writers_plan(number, self._registry.schema(number))
            except ResourceMissing:
                self._plans[known] = None
        plan = self._plans[known]
        if plan is None or plan.format != "protobuf":
            return plan
        indexes = message_indexes(data)
        if indexes is None:
            return None
        path, end = indexes
        known = (number, data[HEADER:end])
        if known not in self._plans:
            self._plans[known] = protobuf_plan(number, self._registry.schema(number), path, end)
        return self._plans[known]


def _frame(record: Record, value: ReadingPlan, key: ReadingPlan) -> bytes:
    """Encode a record for ``RecordView.show``."""
    time = _NO_TIME if record.timestamp is None else record.timestamp * 1000
    parts = [
        _sized(record.topic.encode()),
        struct.pack(">iqq", record.partition, record.offset, time),
        _sized(_content(record.key, key)),
        _sized(_content(record.value, value)),
        struct.pack(">i", len(record.headers)),
    ]
    for name, content in record.headers:
        parts += [_sized(name.encode()), _sized(content)]
    return b"".join(parts)


def _content(data: bytes | None, plan: ReadingPlan) -> bytes | None:
    """Return the bytes for the JVM to decode; None for bytes that are no text, which the JVM would refuse."""
    return None if data is None or plan.format == "bytes" else data[plan.skip :]


def _sized(data: bytes | None) -> bytes:
    return struct.pack(">i", -1) if data is None else struct.pack(">i", len(data)) + data


@dataclass(frozen=True, kw_only=True)
class ShownRecord:
    """A record with its decoded content.

    Attributes:
        format: the format of the value.
        key: the decoded key; bytes that are not text become ``0x…``.
        value: the decoded value, or the requested columns.
        schema_id: the id of the writer's schema, if the record has one.
        error: why the value or the key cannot be decoded; None if it can.
        size: the bytes of key, value and headers.
    """

    topic: str
    partition: int
    offset: int
    timestamp: datetime | None
    format: Format
    key: Any
    value: Any
    schema_id: int | None = None
    error: str | None = None
    headers: tuple[tuple[str, Any], ...] = ()
    size: int = 0
    raw: Record | None = field(default=None, repr=False, compare=False)

    def as_dict(self) -> dict[str, Any]:
        """Return the document of ``--output json``."""
        time = None if self.timestamp is None else self.timestamp.isoformat(timespec="milliseconds")
        fields = asdict(self)
        fields.pop("raw")
        headers = [{"name": name, "value": value} for name, value in self.headers]
        return {**fields, "timestamp": time, "headers": headers}


def shown_record(
    record: Record,
    value: ReadingPlan,
    key: ReadingPlan,
    decoded: dict[str, Any],
    *,
    columns: bool = False,
    note: str | None = None,
) -> ShownRecord:
    """Return a record with its decoded content; ``decoded`` is the JVM's result, or empty if no decoding was needed."""
    error = decoded.get("error") if value.options or key.options else None
    shown = decoded.get("value") if columns or (value.options and "value" in decoded) else plain(record.value, value)
    schema_id = decoded.get("schema_id")
    return ShownRecord(
        topic=record.topic,
        partition=record.partition,
        offset=record.offset,
        timestamp=None if record.timestamp is None else datetime.fromtimestamp(record.timestamp / 1000, UTC),
        format=value.format if record.value is not None else "null",
        key=decoded.get("key") if key.options else plain(record.key, key),
        value=shown,
        schema_id=value.schema_id if schema_id is None else schema_id,
        error=error or (note if value.options else None),
        headers=tuple((name, plain(content, None)) for name, content in record.headers),
        size=record.size,
        raw=record,
    )


def plain(data: bytes | None, plan: ReadingPlan | None) -> Any:
    """Return UTF-8 as text, or parsed if the plan is plain JSON; return other bytes as hexadecimal digits."""
    if data is None:
        return None
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return f"0x{data.hex()}"
    return _parsed(text) if plan is not None and plan.format == "json" and not plan.options else text


def is_json(text: str) -> bool:
    """Return True if a text is JSON: Python also reads values such as NaN, which JSON does not have."""
    try:
        _parsed(text)
    except (ValueError, RecursionError):
        return False
    return True


def _parsed(text: str) -> Any:
    return json.loads(text, parse_constant=_finite, parse_float=_finite)


def exact(text: str) -> float | str:
    """Return a number as a float, or as its text if a float would lose digits."""
    number = float(text)
    return number if Decimal(repr(number)) == Decimal(text) else text


def _finite(text: str) -> float:
    if not math.isfinite(number := float(text)):
        raise ValueError(f"{text} is not JSON")
    return number
