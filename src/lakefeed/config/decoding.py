"""The block ``decode`` of ``pipeline.yaml``, and the blocks about changed schemas and unreadable records."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from lakefeed import plugins
from lakefeed.config.base import ConfigProblem, Model, OneOf, OneOfInstalled
from lakefeed.config.connections import Registry
from lakefeed.config.sql import Ddl, Sql
from lakefeed.config.values import Count, Period, TableTemplate, TopicName
from lakefeed.lazy import Column

_LENIENT = (
    "Also accept numbers and booleans for text, NaN and Infinity, whole numbers with more digits than a double has, "
    "and lone surrogates (replaced by U+FFFD). Default: such a value is an error."
)

_SUBJECT = "Subject whose latest version is the table's schema. Default: <topic>-value, for keys <topic>-key."
SCHEMA_FILE = "Instead of schema_ddl: a file, either an .avsc or a Spark schema as .json."

AFTER_IS_TEXT = (
    "envelope: debezium requires columns in the field 'after', but here it is a text, as MongoDB's connector writes it"
)
UNWRAP_DOCUMENTS = "let the connector unwrap its events (ExtractNewDocumentState), and remove decode.envelope"
UNAVAILABLE = "__debezium_unavailable_value"
"""Debezium's default of unavailable.value.placeholder."""
UnknownField = Literal["ignore", "evolve", "dead_letter", "variant"]
UNKNOWN_FIELDS = "unknown_fields"
"""The column for a JSON record's fields that have no column of their own, with ``on_unknown_field: variant``."""
RecordMetadata = Literal["topic", "partition", "offset", "timestamp", "key", "headers", "sequence_number"]


class AvroDecode(Model):
    """Avro values: with a registry they begin with Confluent's header, with a schema file alone they have no header."""

    registry: Registry | None = None
    """Schema Registry of the values; Confluent's 5-byte header in front of each value has the schema id."""
    subject: str | None = Field(None, description=_SUBJECT)
    subjects: list[Annotated[str, Field(min_length=1)]] = Field(default_factory=list)
    """Subjects whose schema ids are accepted; {topic} is replaced by the name of each topic. A record with another
    schema id is unreadable: it becomes a dead letter or stops the feed. Default: ids of any subject."""
    schema_file: Path | None = None
    """An .avsc file. With a registry it is the reader's schema, without one the writer's."""

    def _contradictions(self) -> Iterator[str]:
        if self.registry is None and self.schema_file is None:
            yield "avro requires a registry (values with Confluent's header) or a schema_file (values without header)"
        if self.registry is None and self.subject is not None:
            yield "subject requires a registry"
        if self.registry is None and self.subjects:
            yield "subjects requires a registry"
        yield from _of_glue(self.registry, self.subject)


def _of_glue(registry: Registry | None, subject: str | None) -> Iterator[str]:
    if registry is not None and registry.glue is not None and subject is None:
        yield "glue requires subject: the name of the schema in AWS Glue, by default the topic's name"


class ProtobufDecode(Model):
    """Protobuf values: with a registry they begin with Confluent's header, with a schema file they have no header."""

    registry: Registry | None = None
    """Schema Registry of the values; Confluent's header in front of each value has schema id and message indexes."""
    subject: str | None = Field(None, description=_SUBJECT)
    schema_file: Path | None = None
    """Without a registry: a .proto file with its imports beside it, or a descriptor set (protoc --descriptor_set_out
    --include_imports)."""
    message: str | None = None
    """The name of the message, with or without its package. Default: the schema's only or first message."""

    def _contradictions(self) -> Iterator[str | ConfigProblem]:
        if (self.registry is None) == (self.schema_file is None):
            yield "protobuf requires either a registry (values with Confluent's header) or a schema_file (without)"
        if self.registry is not None and self.registry.glue is not None:
            yield "protobuf cannot be read with AWS Glue's registry: use avro or json_schema"
        if self.registry is None and self.subject is not None:
            yield "subject requires a registry"
        if self.schema_file is not None and self.schema_file.suffix == ".proto":
            yield from _message_problems(self.schema_file, self.message)


class JsonSchemaDecode(Model):
    """JSON values with Confluent's 5-byte header and a JSON Schema in a registry."""

    registry: Registry = Field(description="Schema Registry that the values' schema ids belong to.")
    subject: str | None = Field(None, description=_SUBJECT)
    lenient: bool = Field(False, description=_LENIENT)

    def _contradictions(self) -> Iterator[str]:
        yield from _of_glue(self.registry, self.subject)


class JsonDecode(Model):
    """JSON values, with a schema from the file or inferred from records. Without one, a value of any form becomes one
    column ``value``: a variant in an Iceberg table of format_version 3, else text."""

    schema_ddl: Ddl | None = Field(None, description="Columns as Spark DDL: 'id BIGINT, name STRING'.")
    schema_file: Path | None = Field(None, description=SCHEMA_FILE)
    schema_: Literal["sample"] | None = Field(None, alias="schema")
    """Instead of schema_ddl, sample: the first run infers the schema from the newest records and stores it with the
    table."""
    sample_records: Count = Field(1_000, description="The most records that schema: sample reads.")
    lenient: bool = Field(False, description=_LENIENT)

    def _contradictions(self) -> Iterator[str]:
        if [self.schema_ddl, self.schema_file, self.schema_].count(None) < 2:
            yield "json takes one of schema_ddl, schema_file and schema: sample"

    @property
    def is_whole(self) -> bool:
        """Return whether the whole value becomes one column, because the file names no columns."""
        return self.schema_ddl is None and self.schema_file is None and self.schema_ is None


class StringDecode(Model):
    """Values that are UTF-8 text; they become one column ``value``."""


class RawDecode(Model):
    """Values that stay undecoded: they become one column ``value`` of bytes."""


@dataclass(frozen=True, kw_only=True)
class JavaFormat:
    """A format whose reader is a Java class in a jar of an installed package.

    Attributes:
        name: the format's name in messages, such as ``CSV``.
        reader: the class; it derives from ``io.lakefeed.decode.RecordReader``.
        schema: the schema of the rows: Spark DDL, an Avro record schema (JSON), or the JSON of a Spark ``StructType``.
        options: the class's options, by names in lower case.
    """

    name: str
    reader: str
    schema: str
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class ExpressionFormat:
    """A format whose reader is a Spark expression, without Python in the tasks.

    Attributes:
        decode: takes the column of bytes; returns a column ``struct<value: struct<…>, error: string>``. For an
            unreadable record ``value`` is null and ``error`` has the reason. The expression must not raise errors: use
            ``try_cast`` instead of ``cast``. Two formats are equal if their functions are equal.
    """

    decode: Callable[[Column], Column]


class InstalledFormat(Model):
    """The settings of a format that another package adds.

    If a field ``schema_ddl`` or ``schema_file`` declares the columns, ``check`` compares the file's settings with them.
    """

    def decoder(self) -> JavaFormat | ExpressionFormat:
        """Return the decoder of the values; called at the start of a run, and by commands that decode."""
        raise NotImplementedError


class Encoded(OneOfInstalled):
    """The format of keys or values: a block with exactly one kind of format."""

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
        """The format's settings if an installed package adds the format; else None."""
        return next((each for each in vars(self).values() if isinstance(each, InstalledFormat)), None)

    @property
    def declaring(self) -> JsonDecode | InstalledFormat | None:
        """The format's settings if it can declare columns (``schema_ddl``, ``schema_file``); else None."""
        return self.json_ or self.installed

    @property
    def registered(self) -> AvroDecode | ProtobufDecode | JsonSchemaDecode | None:
        """The format's settings if it can use a registry; else None."""
        return self.avro or self.protobuf or self.json_schema

    @property
    def registry(self) -> Registry | None:
        return self.registered.registry if self.registered is not None else None

    @property
    def subject(self) -> str | None:
        return self.registered.subject if self.registered is not None else None

    @property
    def unknown_fields(self) -> UnknownField:
        """The treatment of a JSON field that has no column."""
        return "ignore"

    @property
    def is_sampled(self) -> bool:
        """Return whether the feed infers the schema from records."""
        return self.json_ is not None and self.json_.schema_ is not None

    @property
    def reads_headers(self) -> bool:
        """Return whether decoding needs the records' headers, in which serializers may write the schema's id."""
        return self.registry is not None


class KeyDecode(Encoded):
    """The encoding of the records' keys. A key becomes the column ``kafka_key``; a null key stays null."""

    def _contradictions(self) -> Iterator[str | ConfigProblem]:
        yield from super()._contradictions()
        if self.is_sampled:
            yield "the schema of keys cannot be sampled: give schema_ddl or schema_file"


class Decode(Encoded):
    """The encoding of the records' values. Values become columns."""

    key: KeyDecode | None = None
    """How keys are encoded, with the same formats as values. The column kafka_key then has decoded keys, not bytes."""
    envelope: Literal["debezium"] | None = None
    """debezium: values are change events with before, after and op. The row is the content of after; for a delete, of
    before."""
    unavailable_value: str | None = Field(None, min_length=1)
    """The placeholder for a value that the database did not log: the connector's unavailable.value.placeholder. An
    upsert keeps the stored value instead. Default: __debezium_unavailable_value with an envelope, else none."""
    on_unavailable: Literal["set_null", "keep"] | None = None
    """The value to write for the placeholder if there is no stored value, as in an append, a history or the row of a
    new key. set_null: null. keep: the placeholder itself. Default: set_null. An upsert of documents, which replaces
    whole documents, treats the record as unreadable by default."""
    metadata: list[RecordMetadata] = Field(default_factory=list)
    """The record's metadata that become columns: kafka_topic, kafka_partition, kafka_offset and so on. sequence_number
    is for Kinesis."""
    on_null: Literal["fail", "skip", "keep", "dead_letter"] = "fail"
    """For a null value (tombstone): stop the feed, skip and count the record, write a row of nulls, or make a dead
    letter."""
    on_bad_timestamp: Literal["error", "keep"] | None = None
    """For a record's timestamp that Spark cannot represent, such as nanoseconds sent as milliseconds. error: the record
    is unreadable (a dead letter, or the feed stops). keep: the row has a null time. Default: error if the rows have the
    column kafka_timestamp, else keep."""
    on_unknown_field: UnknownField = "ignore"
    """For a JSON record with a field without a column. ignore: leave the field out, count the record and show the
    field's path. evolve: add a column, whose type a sample of the field's values shows; requires json: {schema:
    sample}. dead_letter: the record becomes a dead letter with the path. variant: the column unknown_fields gets each
    outermost field that has no column, or has an inner field without one. Default: ignore."""

    on_encrypted: Literal["keep", "dead_letter", "stop"] = "keep"
    """For a record whose registered schema has rules that encrypt fields, which lakefeed cannot decrypt. keep: land the
    ciphertext and report it. dead_letter: the record becomes a dead letter. stop: the feed stops. Default: keep."""

    @property
    def unknown_fields(self) -> UnknownField:
        return self.on_unknown_field

    @property
    def reads_headers(self) -> bool:
        return "headers" in self.metadata or super().reads_headers or (self.key is not None and self.key.reads_headers)

    @property
    def placeholder(self) -> str | None:
        """The placeholder for a value that the database did not log; None without one."""
        return self.unavailable_value or (UNAVAILABLE if self.envelope else None)

    def _contradictions(self) -> Iterator[str | ConfigProblem]:
        yield from super()._contradictions()
        ddl = self.json_.schema_ddl if self.json_ is not None and self.envelope else None
        if ddl and re.search(r"(?i)(?<![\w`])`?after`?\s*:?\s*string\b", ddl):
            yield ConfigProblem(AFTER_IS_TEXT, key="envelope", hint=UNWRAP_DOCUMENTS)
        if self.on_unavailable is not None and self.placeholder is None:
            yield "on_unavailable requires unavailable_value, or envelope: debezium"
        if self.on_encrypted != "keep" and self.registry is None:
            what = "on_encrypted requires a registry, whose schemas have the rules that encrypt fields"
            yield ConfigProblem(what, key="on_encrypted", hint="remove on_encrypted")
        if self.on_unknown_field != "ignore" and self.json_ is None and self.json_schema is None:
            what = "on_unknown_field is for JSON: records of other formats have no fields beside their schema's"
            hint = "remove on_unknown_field; schema.on_change decides about new fields of registered schemas"
            yield ConfigProblem(what, key="on_unknown_field", hint=hint)
        elif self.on_unknown_field == "variant" and (self.json_ is None or self.json_.is_whole or self.envelope):
            what = "on_unknown_field: variant requires decode.json with columns, without an envelope"
            hint = "write on_unknown_field: dead_letter, or read whole values with decode: json"
            yield ConfigProblem(what, key="on_unknown_field", hint=hint)
        elif self.on_unknown_field == "evolve" and not self.is_sampled:
            what = "on_unknown_field: evolve adds columns to a guessed schema, and this file declares the columns"
            hint = "write json: {schema: sample}, or on_unknown_field: dead_letter"
            yield ConfigProblem(what, key="on_unknown_field", hint=hint)


def _message_problems(file: Path, message: str | None) -> Iterator[ConfigProblem]:
    """Yield a problem if a .proto file does not define the message; searches the text, without compiling it."""
    try:
        text = re.sub(r"//[^\n]*|/\*.*?\*/", " ", file.read_text("utf-8"), flags=re.DOTALL)
    except (OSError, UnicodeDecodeError):
        return  # A missing file is reported when the pipeline file's values are converted.
    names: dict[str, int] = {}
    depth = 0
    for found in re.finditer(r"[{}]|\bmessage\s+([A-Za-z_]\w*)\s*(?=\{)", text):
        if found[1]:
            names.setdefault(found[1], depth)
        else:
            depth += 1 if found[0] == "{" else -1
    top_level = [name for name, level in names.items() if level == 0]
    known = f"the file has {', '.join(top_level[:10])}"
    if not names:
        yield ConfigProblem(
            f"{file.name} defines no message", key="schema_file", hint="name the file that defines the message"
        )
    elif message is None and len(top_level) > 1:
        what = f"{file.name} has several messages, and no setting names the message of the values"
        yield ConfigProblem(what, hint=f"add message: NAME; {known}")
    elif message is not None and message.rpartition(".")[2] not in names:
        yield ConfigProblem(f"{file.name} has no message '{message}'", key="message", hint=known)


Accept = Literal["same_record", "resolvable", "any"]


class SchemaChange(Model):
    """The policy for writers whose schema does not fit the table."""

    on_change: Literal["evolve", "ignore", "fail"] = "evolve"
    """evolve: change the table before the first rows that need the change. ignore: omit new fields and report them.
    fail: stop the feed."""
    accept: Accept = "same_record"
    """Which records become rows, by their writer's schema. same_record: the schema has the reader's record name or an
    alias of it, and at least one of its fields. resolvable: also all required fields. any: all records become rows.
    Other records are unreadable: they become dead letters or stop the feed."""


class Expectation(Model):
    """A rule that all decoded records must meet."""

    rule: Sql = Field(min_length=1)
    """An SQL condition over the decoded fields and the metadata columns. A record meets the rule if the condition is
    true; null breaks it."""
    on_violation: Literal["drop", "dead_letter", "fail"] = "fail"
    """For a record that breaks the rule: drop and count it, make it a dead letter, or stop the feed."""


class Bounds(Model):
    """Upper bounds on the number of dead letters; at least one is required."""

    max_rows: Annotated[int, Field(ge=0)] | None = Field(None, description="The largest number of dead letters.")
    max_share: Annotated[float, Field(ge=0, le=1)] | None = None
    """The highest share of dead letters among all records, from 0 to 1: 0.01 for 1 %."""


class WindowBudget(Bounds):
    """Bounds on the dead letters of all batches within a duration, added up."""

    duration: Period = Field("1 hour", description="The length of the window: '<n> seconds|minutes|hours|days'.")

    def _contradictions(self) -> Iterator[str]:
        if self.max_rows is None and self.max_share is None:
            yield "a window requires max_rows or max_share"


class ErrorBudget(Bounds):
    """Bounds on the dead letters of one batch, and on their sum over all batches within a window."""

    window: WindowBudget | None = Field(None, description="Bounds on the sum of the latest batches.")

    def _contradictions(self) -> Iterator[str]:
        if self.max_rows is None and self.max_share is None and self.window is None:
            yield "an error budget requires max_rows, max_share or a window"


class DeadLetters(OneOf):
    """The destination of unreadable records and of records that break an expectation; they do not stop the feed."""

    __kinds__ = ("table", "topic")
    table: TableTemplate | None = None
    """An Iceberg table, catalog.namespace.table. Several feeds may share it. The name may contain {topic}, as the name
    of the sink's table may."""
    topic: TopicName | None = None
    """Instead of table: a topic of the source's cluster, created if it is missing. Several feeds may share it."""
    budget: ErrorBudget | None = None
    """Bounds on dead letters. A batch that exceeds one is not written, and the feed stops. Default: no bounds."""
