"""Shows records of a topic to people: decoded as a feed decodes them, or as their writers wrote them.

Without a decode block each record is looked at by itself: bytes that begin as the registry's wire format does, with the
id of a schema that the registry has, are read with it; others are JSON, text or bytes. Decoding, conditions and
columns are the matter of ``RecordView.java``; a JVM is started for the first record that requires it.
"""

from __future__ import annotations

import json
import math
import re
import struct
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self

from lakefeed.clients.kafka.records import Record
from lakefeed.clients.spark import jvm
from lakefeed.clients.spark.plain_jvm import plain_jvm
from lakefeed.config.decoding import Decode
from lakefeed.config.sources import KafkaSource
from lakefeed.errors import ConfigError, ResourceMissing
from lakefeed.records import spec as specs
from lakefeed.records.decode.avro_schema import avro_schema_of_schema
from lakefeed.records.decode.formats import decoder_options
from lakefeed.records.decode.registry import SchemaRegistry, SchemaText
from lakefeed.records.decode.resolve import put_credentials, resolve_decoder
from lakefeed.records.schema.inference import infer_schema, newest_values

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Format = Literal["avro", "protobuf", "json_schema", "json", "text", "bytes", "null"]

AT_ONCE = 500
INFERRED_FROM = 1_000
_HEADER = 5
_KINDS: dict[str, Format] = {"AVRO": "avro", "PROTOBUF": "protobuf", "JSON": "json_schema"}
_TEXT = {"format": "string"}
_NO_TIME = -(2**63)
# What Spark puts around the sentence of an error.
_MARKS = re.compile(r"^\[[A-Z_.]+\] |\.? SQLSTATE: \w{5}.*$", re.DOTALL)


@dataclass(frozen=True, kw_only=True)
class ShownRecord:
    """A record with what its bytes say.

    Attributes:
        format: how the value was read.
        key: the key, decoded; bytes that are no text are ``0x…``.
        value: the value, decoded, or the columns that were asked for.
        schema_id: of the writer's schema, where the record names one.
        error: why the value or the key cannot be read; None if it can.
        size: bytes of key, value and headers.
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


class _Plan(NamedTuple):
    """How the bytes of a value or a key are read: ``name`` is unique among the plans of a topic."""

    format: Format
    name: str
    skip: int = 0
    schema_id: int | None = None
    options: Callable[[SparkSession], dict[str, str]] | None = None


class TopicView:
    """Decodes records of one source for people; a context manager, since it may have started a JVM.

    Args:
        source: the topics; its records are only read to infer the columns of JSON, for ``where`` and ``fields``.
        registry: where schema ids are looked up, without a decode block.
        decode: how a feed reads the records; None to find out for each.
        where: a condition in SQL over the fields of the value, and ``kafka_partition`` and the like.
        fields: the columns to show, as after SELECT.
        log_file: where the JVM's log goes.
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
        self._decoders: tuple[_Plan, _Plan] | None = None
        self._plans: dict[tuple[int, bytes], _Plan | None] = {}
        self._views: dict[tuple[str, str], Any] = {}
        self._json_options: dict[str, str] | None = None
        self._fitted = False
        self.unmatched: dict[str, int] = {}
        """Records that no condition could be asked of, since they have not the columns, by the reason."""
        self.unregistered: Counter[int] = Counter()
        """Values that begin as the wire format does, by the schema id, which the registry does not have."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self._open.close()

    def show(self, records: Iterable[Record]) -> Iterator[ShownRecord]:
        """Yield the records that meet the condition, in their order.

        Raises:
            ConfigError: the condition or the columns do not fit any record.
        """
        batch: list[Record] = []
        for record in records:
            batch.append(record)
            if len(batch) == AT_ONCE:
                yield from self._show(batch)
                batch = []
        yield from self._show(batch)

    def require_fitting(self, shown: int) -> None:
        """Refuse expressions that fit none of the records that were read."""
        if self.unmatched and not shown and not self._fitted:
            why = max(self.unmatched, key=lambda each: self.unmatched[each])
            hint = "without --where and --fields the records show which columns they have"
            raise ConfigError(f"the condition or the columns fit no record: {why}", hint=hint)

    def notes(self) -> Iterator[str]:
        """Say which records the expressions do not fit, and which schemas the registry does not have."""
        if self.unregistered:
            ids = ", ".join(map(str, sorted(self.unregistered)))
            what = "begin with the header of a schema id that the registry does not have"
            yield f"{self.unregistered.total():,} values {what}: {ids}"
        if self.unmatched:
            kinds = ", ".join(why.partition(":")[0] for why in self.unmatched)
            yield f"{sum(self.unmatched.values()):,} records do not have these columns: {kinds}"

    def _show(self, batch: Sequence[Record]) -> list[ShownRecord]:
        groups: dict[tuple[_Plan, _Plan], list[int]] = {}
        for at, record in enumerate(batch):
            groups.setdefault((self._plan(record.value), self._plan(record.key, of_key=True)), []).append(at)
        found: dict[int, ShownRecord] = {}
        for (value, key), places in groups.items():
            records = [batch[at] for at in places]
            for at, shown in zip(places, self._group(value, key, records), strict=True):
                if shown is not None:
                    found[at] = shown
        return [found[at] for at in sorted(found)]

    def _group(self, value: _Plan, key: _Plan, records: Sequence[Record]) -> Iterable[ShownRecord | None]:
        expressions = self._where is not None or self._fields is not None
        if value.options is None and key.options is None and not expressions:
            return [_shown(record, value, key, {}) for record in records]
        view = self._view(value, key)
        if isinstance(view, str):
            if value.format != "null":
                self.unmatched[view] = self.unmatched.get(view, 0) + len(records)
            if self._where is not None:
                return [None] * len(records)
            return [_shown(record, value, key, {}, note=view) for record in records]
        lines = str(view.show(b"".join(_frame(record, value, key) for record in records))).split("\n")
        return [
            _shown(record, value, key, json.loads(line, parse_float=exact), columns=self._fields is not None)
            if line
            else None
            for record, line in zip(records, lines[:-1], strict=True)
        ]

    def _view(self, value: _Plan, key: _Plan) -> Any:
        """Return the view of such records, or why the expressions cannot be asked of them."""
        names = (value.name, key.name)
        if names not in self._views:
            spark = self._started()
            options = value.options(spark) if value.options else self._plain_options(value)
            key_options = key.options(spark) if key.options else _TEXT
            self._views[names] = self._new_view(spark, value, options, key_options)
        return self._views[names]

    def _new_view(self, spark: SparkSession, value: _Plan, options: dict[str, str], key: dict[str, str]) -> Any:
        from py4j.protocol import Py4JJavaError

        new = jvm.java(spark).decode.RecordView
        try:
            view = new(options, key, self._where, self._fields)
            self._fitted = True
            return view
        except Py4JJavaError as refused:
            why = _MARKS.sub("", jvm.cause_of(refused)).strip()
        try:
            new(options, key, None, None)
        except Py4JJavaError as refused:
            return f"the schema cannot be used: {jvm.cause_of(refused)}"
        of = f"schema id {value.schema_id}" if value.schema_id is not None else value.format
        return f"{of}: {why}"

    def _plain_options(self, value: _Plan) -> dict[str, str]:
        """Return the options for values without a schema: JSON has the columns that its newest records show."""
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

    def _plan(self, data: bytes | None, *, of_key: bool = False) -> _Plan:
        if self._decode is not None:
            return self._of_feed(data)[1 if of_key else 0]
        if data is None:
            return _Plan("null", "null")
        if data[:1] == b"\0" and len(data) >= _HEADER and (plan := self._registered(data)) is not None:
            return plan
        if not of_key and self._begins_with_unknown_id(data):
            self.unregistered[_schema_id(data)] += 1
        try:
            text = data.decode()
        except UnicodeDecodeError:
            return _Plan("bytes", "bytes")
        if not of_key and text.lstrip()[:1] in ("{", "[") and is_json(text):
            return _Plan("json", "json")
        return _Plan("text", "text")

    def _begins_with_unknown_id(self, data: bytes) -> bool:
        """Tell whether the registry was asked for the id in a header, and does not have it.

        An id of 0 is none: a small number of eight bytes begins with as many zeros.
        """
        known = (_schema_id(data), b"")
        return data[:1] == b"\0" and known[0] > 0 and known in self._plans and self._plans[known] is None

    def _of_feed(self, data: bytes | None) -> tuple[_Plan, _Plan]:
        """Return the plans for values and keys by the decode block, resolved once."""
        assert self._decode is not None
        if self._decoders is None:
            spark = self._started()
            put_credentials(spark, self._decode)
            resolved = resolve_decoder(spark, self._decode, self._source)
            key = resolved.key or specs.String()
            self._decoders = _plan_of(resolved.spec, "value"), _plan_of(key, "key")
        return self._decoders

    def _registered(self, data: bytes) -> _Plan | None:
        """Return how the registry's schema reads these bytes; None if it has no such schema."""
        if self._registry is None:
            return None
        number = _schema_id(data)
        known = (number, b"")
        if known not in self._plans:
            try:
                self._plans[known] = _writers_plan(number, self._registry.schema(number))
            except ResourceMissing:
                self._plans[known] = None
        plan = self._plans[known]
        if plan is None or plan.format != "protobuf":
            return plan
        indexes = message_indexes(data)
        if indexes is None:
            return None
        path, end = indexes
        known = (number, data[_HEADER:end])
        if known not in self._plans:
            self._plans[known] = _protobuf_plan(number, self._registry.schema(number), path, end)
        return self._plans[known]


def _schema_id(data: bytes) -> int:
    return int.from_bytes(data[1:_HEADER], "big")


def _plan_of(spec: specs.DecodeSpec, part: str) -> _Plan:
    name = f"feed's {part}"
    match spec:
        case specs.Raw():
            return _Plan("bytes", name)
        case specs.String():
            return _Plan("text", name)
        case specs.ConfluentAvro() | specs.PlainAvro():
            found: Format = "avro"
        case specs.ConfluentProtobuf() | specs.PlainProtobuf():
            found = "protobuf"
        case specs.ConfluentJson():
            found = "json_schema"
        case specs.Json():
            found = "json"
        case _:
            found = "text"
    return _Plan(found, name, options=lambda spark: decoder_options(spark, spec))


def _writers_plan(number: int, schema: SchemaText) -> _Plan:
    kind = _KINDS[schema.kind]

    def options(spark: SparkSession) -> dict[str, str]:
        text = avro_schema_of_schema(spark, schema)
        if kind == "avro":
            return decoder_options(spark, specs.PlainAvro(writer_schema=text))
        return {"format": "json", "reader-schema": text, "lenient": "true"}

    return _Plan(kind, f"{kind} {number}", _HEADER, number, options)


def _protobuf_plan(number: int, schema: SchemaText, path: Sequence[int], end: int) -> _Plan:
    def options(spark: SparkSession) -> dict[str, str]:
        references = tuple(reference.text for reference in schema.references)
        types = jvm.java(spark).decode.ProtobufSchemas.types(schema.text, list(references))
        message = str(types.message(list(path)).fullName())
        spec = specs.PlainProtobuf(schema=schema.text, message=message, references=references)
        return decoder_options(spark, spec)

    return _Plan("protobuf", f"protobuf {number} {path}", end, number, options)


def message_indexes(data: bytes) -> tuple[list[int], int] | None:
    """Read the message indexes behind a Protobuf header; return them and where the message begins."""
    at = _HEADER

    def zigzag() -> int:
        nonlocal at
        number = shift = 0
        while True:
            byte = data[at]
            at += 1
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return (number >> 1) ^ -(number & 1)
            shift += 7

    try:
        count = zigzag()
        if not 0 <= count <= len(data):
            return None
        path = [zigzag() for _ in range(count)] or [0]
    except IndexError:
        return None
    return path, at


def _frame(record: Record, value: _Plan, key: _Plan) -> bytes:
    """Write a record as ``RecordView.show`` reads it."""
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


def _content(data: bytes | None, plan: _Plan) -> bytes | None:
    """Return what the JVM decodes; bytes that are no text would only be an error of its own there."""
    return None if data is None or plan.format == "bytes" else data[plan.skip :]


def _sized(data: bytes | None) -> bytes:
    return struct.pack(">i", -1) if data is None else struct.pack(">i", len(data)) + data


def _shown(
    record: Record, value: _Plan, key: _Plan, decoded: dict[str, Any], *, columns: bool = False, note: str | None = None
) -> ShownRecord:
    """Put a record together with what the JVM has said of it, if it was asked."""
    error = decoded.get("error") if value.options or key.options else None
    shown = decoded.get("value") if columns or (value.options and "value" in decoded) else _plain(record.value, value)
    schema_id = decoded.get("schema_id")
    return ShownRecord(
        topic=record.topic,
        partition=record.partition,
        offset=record.offset,
        timestamp=None if record.timestamp is None else datetime.fromtimestamp(record.timestamp / 1000, UTC),
        format=value.format if record.value is not None else "null",
        key=decoded.get("key") if key.options else _plain(record.key, key),
        value=shown,
        schema_id=value.schema_id if schema_id is None else schema_id,
        error=error or (note if value.options else None),
        headers=tuple((name, _plain(content, None)) for name, content in record.headers),
        size=record.size,
        raw=record,
    )


def _plain(data: bytes | None, plan: _Plan | None) -> Any:
    """Return bytes as JSON, text or hexadecimal digits."""
    if data is None:
        return None
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return f"0x{data.hex()}"
    return _parsed(text) if plan is not None and plan.format == "json" and not plan.options else text


def is_json(text: str) -> bool:
    """Check that a text is JSON that could be written again."""
    try:
        _parsed(text)
    except (ValueError, RecursionError):
        return False
    return True


def _parsed(text: str) -> Any:
    """Parse JSON; what Python takes for it but could not write again as JSON is a ValueError."""
    return json.loads(text, parse_constant=_finite, parse_float=_finite)


def exact(text: str) -> float | str:
    """Read a number; a decimal with more digits than a float keeps stays text."""
    number = float(text)
    return number if Decimal(repr(number)) == Decimal(text) else text


def _finite(text: str) -> float:
    if not math.isfinite(number := float(text)):
        raise ValueError(f"{text} is not JSON")
    return number
