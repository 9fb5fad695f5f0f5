"""The ``decode`` block of ``pipeline.yaml``: how the bytes of a record become columns."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from lakefeed import plugins
from lakefeed.config.base import ConfigProblem, Model, OneOf
from lakefeed.config.connections import Registry
from lakefeed.config.installed import OneOfInstalled
from lakefeed.config.sql import Ddl, Sql
from lakefeed.config.values import Count, Period, TableTemplate, TopicName
from lakefeed.lazy import Column

_LENIENT = (
    "Read what other writers take for JSON: numbers and booleans as text, NaN and Infinity, whole numbers with more "
    "digits than a double keeps, half surrogate pairs (replaced by U+FFFD). Default: such a value is an error."
)

_SUBJECT = "Subject whose latest version is the table's schema. Default: <topic>-value, for keys <topic>-key."
SCHEMA_FILE = "Or a file: an .avsc, or a Spark schema as .json."

AFTER_IS_TEXT = "envelope: debezium requires the columns of a row in after, and here it is a text, as of MongoDB"
UNWRAP_DOCUMENTS = "let the connector unwrap its events (ExtractNewDocumentState), and leave decode.envelope out"
UNAVAILABLE = "__debezium_unavailable_value"
"""Debezium's default of unavailable.value.placeholder."""
RecordMetadata = Literal["topic", "partition", "offset", "timestamp", "key", "headers", "sequence_number"]


class AvroDecode(Model):
    """Avro values: Confluent-framed with a registry, or without a header with a given schema."""

    registry: Registry | None = None
    """Schema Registry: values then carry Confluent's 5-byte header with the schema id."""
    subject: str | None = Field(None, description=_SUBJECT)
    subjects: list[Annotated[str, Field(min_length=1)]] = Field(default_factory=list)
    """Records whose schema id is registered under none of these subjects are unreadable: dead letters, or they stop the
    feed. {topic} stands for each topic. Default: ids of any subject."""
    schema_file: Path | None = None
    """An .avsc file: the reader's schema with a registry, the writer's without."""

    def _contradictions(self) -> Iterator[str]:
        if self.registry is None and self.schema_file is None:
            yield "avro requires a registry (framed values) or a schema_file (values without header)"
        if self.registry is None and self.subject is not None:
            yield "subject requires a registry"
        if self.registry is None and self.subjects:
            yield "subjects requires a registry"


class ProtobufDecode(Model):
    """Protobuf values: Confluent-framed with a registry, or without a header with a given schema."""

    registry: Registry | None = None
    """Schema Registry: values then carry Confluent's header with schema id and message indexes."""
    subject: str | None = Field(None, description=_SUBJECT)
    schema_file: Path | None = None
    """Without a registry: a .proto file, its imports beside it; or a descriptor set (protoc --descriptor_set_out
    --include_imports)."""
    message: str | None = None
    """The message, with the package or without. Default: the schema's only or first one."""

    def _contradictions(self) -> Iterator[str | ConfigProblem]:
        if (self.registry is None) == (self.schema_file is None):
            yield "protobuf requires either a registry (framed values) or a schema_file (values without header)"
        if self.registry is None and self.subject is not None:
            yield "subject requires a registry"
        if self.schema_file is not None and self.schema_file.suffix == ".proto":
            yield from _message_problems(self.schema_file, self.message)


class JsonSchemaDecode(Model):
    """JSON values described by a JSON Schema in a registry, with Confluent's 5-byte header."""

    registry: Registry = Field(description="Schema Registry that the values' schema ids belong to.")
    subject: str | None = Field(None, description=_SUBJECT)
    lenient: bool = Field(False, description=_LENIENT)


class JsonDecode(Model):
    """JSON values with a given schema, or one that is guessed from records."""

    schema_ddl: Ddl | None = Field(None, description="Columns as Spark DDL: 'id BIGINT, name STRING'.")
    schema_file: Path | None = Field(None, description=SCHEMA_FILE)
    schema_: Literal["sample"] | None = Field(None, alias="schema")
    """Or sample: guessed from the newest records when the feed first runs, then kept with the table."""
    sample_records: Count = Field(1_000, description="How many records schema: sample looks at, at most.")
    lenient: bool = Field(False, description=_LENIENT)

    def _contradictions(self) -> Iterator[str]:
        if [self.schema_ddl, self.schema_file, self.schema_].count(None) != 2:
            yield "json requires one of schema_ddl, schema_file and schema: sample"


class StringDecode(Model):
    """Values that are text in UTF-8: one column ``value``."""


class RawDecode(Model):
    """Values as they are: one column ``value`` of bytes."""


@dataclass(frozen=True, kw_only=True)
class JavaFormat:
    """A format that a class of an installed package's jar reads.

    Attributes:
        name: of the format, in messages: ``CSV``.
        reader: the class, which derives from ``io.lakefeed.decode.RecordReader``.
        schema: of the result: Spark DDL, an Avro record schema (JSON), or the JSON of a Spark ``StructType``.
        options: of the class, by names in lower case.
    """

    name: str
    reader: str
    schema: str
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class ExpressionFormat:
    """A format that an expression of Spark reads, without Python in the tasks.

    Attributes:
        decode: called with the column of bytes; returns a column ``struct<value: struct<…>, error: string>``, where
            ``value`` is null for a record that cannot be read, and ``error`` says why. The expression is not to raise
            errors: ``try_cast``, not ``cast``. Specs are equal if their functions are.
    """

    decode: Callable[[Column], Column]


class InstalledFormat(Model):
    """The settings of a format that another package adds.

    A field ``schema_ddl`` or ``schema_file`` names the columns before a run: ``check`` compares them with the file.
    """

    jars: ClassVar[tuple[str, ...]] = ()
    """Jars of the format's package, as ``package/name.jar``; they are on the class path of every session."""

    def decoder(self) -> JavaFormat | ExpressionFormat:
        """Return what reads the values; called as a run starts, and by commands that decode."""
        raise NotImplementedError


class Encoded(OneOfInstalled):
    """The encoding of bytes: exactly one of the formats."""

    group: ClassVar[str] = plugins.FORMATS_GROUP
    noun: ClassVar[str] = "format"
    base: ClassVar[type[InstalledFormat]] = InstalledFormat

    avro: AvroDecode | None = None
    protobuf: ProtobufDecode | None = None
    json_schema: JsonSchemaDecode | None = None
    json_: JsonDecode | None = Field(None, alias="json")
    string: StringDecode | None = None
    raw: RawDecode | None = None

    @property
    def installed(self) -> InstalledFormat | None:
        """The format, if another package has added it."""
        return next((each for each in vars(self).values() if isinstance(each, InstalledFormat)), None)

    @property
    def declaring(self) -> JsonDecode | InstalledFormat | None:
        """The block of a format whose columns the file may declare: ``schema_ddl`` or ``schema_file``."""
        return self.json_ or self.installed

    @property
    def registered(self) -> AvroDecode | ProtobufDecode | JsonSchemaDecode | None:
        """The block of a format that can use a registry; None for the others."""
        return self.avro or self.protobuf or self.json_schema

    @property
    def registry(self) -> Registry | None:
        """The registry that the format asks, if it asks one."""
        return self.registered.registry if self.registered is not None else None

    @property
    def subject(self) -> str | None:
        """The subject that is named for it."""
        return self.registered.subject if self.registered is not None else None

    @property
    def is_sampled(self) -> bool:
        """Check that the schema is to be guessed from records."""
        return self.json_ is not None and self.json_.schema_ is not None

    @property
    def reads_headers(self) -> bool:
        """Check that decoding needs the records' headers: a serializer may have put the schema's id there."""
        return self.registry is not None


class KeyDecode(Encoded):
    """The encoding of records' keys, which become the column ``kafka_key``; null keys stay null."""

    def _contradictions(self) -> Iterator[str | ConfigProblem]:
        yield from super()._contradictions()
        if self.is_sampled:
            yield "keys are not sampled: give schema_ddl or schema_file"


class Decode(Encoded):
    """The encoding of records' values, which become columns."""

    key: KeyDecode | None = None
    """How keys are encoded, as the value: the column kafka_key then holds what they say, not bytes."""
    envelope: Literal["debezium"] | None = None
    """debezium: values are change events with before, after and op; the row is what is in after, in before for a
    delete."""
    unavailable_value: str | None = Field(None, min_length=1)
    """The text that stands for a value which the database did not log: the connector's unavailable.value.placeholder.
    Default: __debezium_unavailable_value with an envelope, else none. In an upsert the stored value stays."""
    on_unavailable: Literal["set_null", "keep"] | None = None
    """What such a value becomes where none is stored: in an append, a history or the row of a new key. Default:
    set_null; in an upsert of documents, which are replaced as a whole, an error of the record."""
    metadata: list[RecordMetadata] = Field(default_factory=list)
    """Record metadata kept as columns: kafka_topic, kafka_partition, kafka_offset and so on. sequence_number is
    for Kinesis."""
    on_null: Literal["fail", "skip", "keep", "dead_letter"] = "fail"
    """Null values (tombstones): stop, skip and count them, keep a row of nulls, or make dead letters."""
    on_bad_timestamp: Literal["error", "keep"] | None = None
    """A record's timestamp that Spark cannot hold, such as nanoseconds sent as milliseconds: an error of the record (a
    dead letter, or a stop), or keep the row with a null time. Default: error if the rows have the column
    kafka_timestamp, else keep."""

    @property
    def reads_headers(self) -> bool:
        return "headers" in self.metadata or super().reads_headers or (self.key is not None and self.key.reads_headers)

    @property
    def placeholder(self) -> str | None:
        """The text that stands for a value which the database did not log."""
        return self.unavailable_value or (UNAVAILABLE if self.envelope else None)

    def _contradictions(self) -> Iterator[str | ConfigProblem]:
        yield from super()._contradictions()
        ddl = self.json_.schema_ddl if self.json_ is not None and self.envelope else None
        if ddl and re.search(r"(?i)(?<![\w`])`?after`?\s*:?\s*string\b", ddl):
            yield ConfigProblem(AFTER_IS_TEXT, key="envelope", hint=UNWRAP_DOCUMENTS)
        if self.on_unavailable is not None and self.placeholder is None:
            yield "on_unavailable requires unavailable_value, or envelope: debezium"


def _message_problems(file: Path, message: str | None) -> Iterator[ConfigProblem]:
    """Yield that the lines of a .proto file do not define the message; nothing is compiled."""
    try:
        text = re.sub(r"//[^\n]*|/\*.*?\*/", " ", file.read_text("utf-8"), flags=re.DOTALL)
    except (OSError, UnicodeDecodeError):
        return  # A missing file is reported where the document is read.
    names: dict[str, int] = {}
    depth = 0
    for found in re.finditer(r"[{}]|\bmessage\s+([A-Za-z_]\w*)\s*(?=\{)", text):
        if found[1]:
            names.setdefault(found[1], depth)
        else:
            depth += 1 if found[0] == "{" else -1
    top_level = [name for name, level in names.items() if level == 0]
    known = f"it has {', '.join(top_level[:10])}"
    if not names:
        yield ConfigProblem(f"{file.name} defines no message", key="schema_file")
    elif message is None and len(top_level) > 1:
        what = f"{file.name} has several messages, so it has to be said which one the values are"
        yield ConfigProblem(what, hint=f"add message: NAME; {known}")
    elif message is not None and message.rpartition(".")[2] not in names:
        yield ConfigProblem(f"{file.name} has no message '{message}'", key="message", hint=known)


Accept = Literal["same_record", "resolvable", "any"]


class SchemaChange(Model):
    """The reaction to a writer's schema that the table does not cover."""

    on_change: Literal["evolve", "ignore", "fail"] = "evolve"
    """Change the table before the rows that need it, leave the new fields out and say so, or stop."""
    accept: Accept = "same_record"
    """Whose records become rows. same_record: the writer's record has the name or an alias of the reader's, and at
    least one of its fields. resolvable: also all required fields. any: every writer's record. Others are unreadable:
    dead letters, or they stop the feed."""


class Expectation(Model):
    """A rule that each decoded record has to meet."""

    rule: Sql = Field(min_length=1)
    """SQL over the decoded fields and the record's metadata columns. It has to be true; null is not."""
    on_violation: Literal["drop", "dead_letter", "fail"] = "fail"
    """Leave the record out and count it, make it a dead letter, or stop."""


class Bounds(Model):
    """The most dead letters that are accepted; at least one bound is given."""

    max_rows: Annotated[int, Field(ge=0)] | None = Field(None, description="So many dead letters at most.")
    max_share: Annotated[float, Field(ge=0, le=1)] | None = None
    """Dead letters by records, at most: 0.01 for 1 %."""


class WindowBudget(Bounds):
    """Bounds over the batches of a time."""

    duration: Period = Field("1 hour", description="How far it looks back: '<n> seconds|minutes|hours|days'.")

    def _contradictions(self) -> Iterator[str]:
        if self.max_rows is None and self.max_share is None:
            yield "a window requires max_rows or max_share"


class ErrorBudget(Bounds):
    """The most dead letters in a batch, and in all batches of a window together."""

    window: WindowBudget | None = Field(None, description="Bounds over the batches of a time, beside those of each.")

    def _contradictions(self) -> Iterator[str]:
        if self.max_rows is None and self.max_share is None and self.window is None:
            yield "an error budget requires max_rows, max_share or a window"


class DeadLetters(OneOf):
    """The place for records that cannot be decoded or break an expectation, instead of stopping the feed."""

    __kinds__ = ("table", "topic")
    table: TableTemplate | None = None
    """An Iceberg table, catalog.namespace.table; several feeds may share it. {topic} may stand in it as in the
    sink's."""
    topic: TopicName | None = None
    """Or a topic of the source's cluster, created if it is missing; several feeds may share it."""
    budget: ErrorBudget | None = None
    """When it is too many: the feed stops, and the batch is not written. Default: never."""
