"""The reader's schema of a feed: writers' schemas are merged into it, and the table is changed to fit it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import KW_ONLY, dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Literal, Protocol, TypeVar

from lakefeed.clients.retry import retry_until
from lakefeed.config.decoding import Accept
from lakefeed.errors import ConfigError, ResourceMissing, SchemaChanged, SchemaIncompatible, Unreachable
from lakefeed.lazy import DataFrame, StructType
from lakefeed.messages.text import one_line
from lakefeed.offsets.ranges import WRITTEN_BY_ANOTHER
from lakefeed.records.schema.avro import NO_DEFAULT, nullable, short_name
from lakefeed.records.schema.changes import Entry
from lakefeed.records.schema.inference import GrownSchema, with_new_fields
from lakefeed.records.schema.merge import SchemaMerge, merge_schemas
from lakefeed.records.schema.parse import parse
from lakefeed.records.spec import ConfluentAvro, ConfluentJson, DecodeSpec, Json, RegisteredFormat, ResolvedDecoder

if TYPE_CHECKING:
    from lakefeed.records.schema.inference import InferredSchema

T = TypeVar("T")
ChangePolicy = Literal["evolve", "ignore", "fail"]
MOST_REFUSED = 100
"""After this number of refused JSON fields, a run adds no more columns."""


@dataclass(frozen=True)
class StoredSchema:
    """A reader's schema that the sink stores for the next start, and the ids of the writers' schemas in it."""

    schema: str
    ids: frozenset[int]

    def to_json(self) -> str:
        return json.dumps({"schema": self.schema, "ids": sorted(self.ids)}, separators=(",", ":"))

    @classmethod
    def of_json(cls, text: str) -> StoredSchema:
        """Read the output of ``to_json``."""
        try:
            document = json.loads(text)
            return cls(str(document["schema"]), frozenset(int(number) for number in document["ids"]))
        except (ValueError, KeyError, TypeError):
            what = "the text in the ledger is not the reader's schema of a feed"
            raise ConfigError(what, where=text[:200], hint=WRITTEN_BY_ANOTHER) from None


class SchemaKeeper(Protocol):
    """A sink that stores the reader's schema, and adapts its columns to this schema."""

    def stored_schema(self) -> StoredSchema | None:
        """Return the schema from the last ``apply_schema``; None before the first call."""

    def apply_schema(self, rows: StructType, stored: StoredSchema | None = None, entries: Sequence[Entry] = ()) -> None:
        """Make the sink accept these rows, before they are written, and store the reader's schema in it."""


def refusal(reader: str, writer: str, accept: Accept, *, by_name: bool = True) -> str | None:
    """Return why ``schema.accept`` refuses the records of a writer's schema; None if it accepts them.

    The decoder has the same rule (``io.lakefeed.decode.Acceptance``); a test compares the two. ``by_name`` is False for
    JSON Schema, whose titles are not names.
    """
    if accept == "any":
        return None
    ours, theirs = parse(reader).record, parse(writer).record
    # Compare names and aliases of both records without namespaces, as Avro's schema resolution does.
    is_same = short_name(theirs.name) in ours.short_names or short_name(ours.name) in theirs.short_names
    if by_name and not is_same:
        return f"the record is a {theirs.name}, but the table's rows are {ours.name}"
    names = {other.name for other in theirs.fields}
    older = {alias for other in theirs.fields for alias in other.aliases}
    shared = {one.name for one in ours.fields if one.name in older or not names.isdisjoint((one.name, *one.aliases))}
    if not shared:
        return f"the record shares no field with the table's rows, which are {ours.name}"
    for one in ours.fields if accept == "resolvable" else ():
        if one.name not in shared and one.default is NO_DEFAULT and not nullable(one.type):
            return f"the record has no field {one.name}, which is required and has no default"
    return None


@dataclass
class Evolution:
    """The reader's schema of a feed, into which writers' schemas are merged.

    Attributes:
        policy: ``evolve`` changes the reader's schema and the table. ``ignore`` also changes them, but omits new fields
            and keeps the reader's names of renamed fields. ``fail`` makes any change an error.
        reader_schema: the Avro record schema (JSON) that reads the records of all merged ids.
        known_ids: the ids whose schemas were merged or refused.
        accept: see ``refusal``, also for ``by_name``.
        times_are_numbers: see ``merge_schemas``.
        incompatible: the reason by refused id; records with these ids become dead letters.
        unusable_ids: the ids whose schema is missing or invalid; the current schema reads their records if it can.
    """

    policy: ChangePolicy
    reader_schema: str
    known_ids: set[int] = field(default_factory=set)
    accept: Accept = "same_record"
    by_name: bool = True
    times_are_numbers: bool = True
    incompatible: dict[int, str] = field(default_factory=dict)
    unusable_ids: set[int] = field(default_factory=set)
    _foreign: set[int] = field(default_factory=set)
    _left_out: set[str] = field(default_factory=set)
    _notes: list[tuple[int, str]] = field(default_factory=list)

    @property
    def merged_ids(self) -> frozenset[int]:
        """The ids whose schemas were merged; the sink stores them for the next start."""
        return frozenset(self.known_ids - self.incompatible.keys())

    def merge_writer_schema(self, schema_id: int, writer_schema: str) -> SchemaMerge | None:
        """Merge a writer's schema; return None if the reader's schema stays. With ``fail``, raise SchemaChanged."""
        if schema_id in self.known_ids:
            return None
        if foreign := refusal(self.reader_schema, writer_schema, self.accept, by_name=self.by_name):
            self.refuse(schema_id, foreign)
            self._foreign.add(schema_id)
            return None
        try:
            merge = merge_schemas(
                self.reader_schema,
                writer_schema,
                grow=self.policy != "ignore",
                times_are_numbers=self.times_are_numbers,
            )
        except SchemaIncompatible as misfit:
            if self.policy == "fail":
                raise _change_error(schema_id, misfit.what) from misfit
            self.refuse(schema_id, misfit.what)
            return None
        if merge.changes and self.policy == "fail":
            raise _change_error(schema_id, "; ".join(map(str, merge.changes)))
        self.known_ids.add(schema_id)
        if new := [str(change) for change in merge.left_out if str(change) not in self._left_out]:
            self._left_out.update(new)
            self.note(schema_id, f"left out by schema.on_change: ignore: {'; '.join(new)}")
        if merge.schema == self.reader_schema:
            return None
        self.reader_schema = merge.schema
        self._forget_foreign()
        return merge

    def refuse(self, schema_id: int, why: str) -> None:
        """Refuse the records with this schema id, so that they become dead letters or stop the feed."""
        self.known_ids.add(schema_id)
        self.incompatible[schema_id] = why
        self.note(schema_id, f"{why}; its records are not landed")

    def note(self, schema_id: int, text: str) -> None:
        self._notes.append((schema_id, text))

    def take_notes(self) -> tuple[str, ...]:
        """Return the messages since the last call."""
        taken, self._notes = self._notes, []
        return tuple(f"schema id {schema_id}: {text}" for schema_id, text in taken)

    def _forget_foreign(self) -> None:
        """Drop refusals, so that ``refusal`` judges again: the larger reader's schema may now share a field with the
        refused schemas.
        """
        self.known_ids -= self._foreign
        self.incompatible = {number: why for number, why in self.incompatible.items() if number not in self._foreign}
        self._notes = [(number, text) for number, text in self._notes if number not in self._foreign]
        self._foreign.clear()


def _change_error(schema_id: int, what: str) -> SchemaChanged:
    hint = "see how the table would change: lakefeed schema diff pipeline.yaml; allow it by schema.on_change: evolve"
    return SchemaChanged(f"the schema changed with schema id {schema_id}: {what}", hint=hint)


@dataclass
class ReaderSchema:
    """The current reader's schema of a feed.

    Attributes:
        decoder: the decoder at the start; its schema is the stored schema, or else the registry's newest schema that
        can be used.
        policy: see ``Evolution``.
        keeper: the sink.
        stored: the schema that the sink has stored, if any.
        on_encrypted: ``decode.on_encrypted`` of the pipeline file: what happens to records with encrypted fields.
    """

    decoder: ResolvedDecoder
    _: KW_ONLY
    policy: ChangePolicy = "evolve"
    keeper: SchemaKeeper
    stored: StoredSchema | None = None
    on_encrypted: Literal["keep", "dead_letter", "stop"] = "keep"

    def __post_init__(self) -> None:
        self._passed_over = list(self.decoder.notes)
        self._use(self.decoder)

    def _use(self, decoder: ResolvedDecoder) -> None:
        self.decoder, spec = decoder, decoder.spec
        self._evolution = Evolution(
            self.policy,
            spec.reader_schema if isinstance(spec, RegisteredFormat) else "",
            known_ids=set(self._latest_ids),
            accept=spec.accept if isinstance(spec, RegisteredFormat) else "any",
            by_name=not isinstance(spec, ConfluentJson),
            times_are_numbers=isinstance(spec, ConfluentAvro),
        )

    @property
    def _latest_ids(self) -> list[int]:
        return [] if self.decoder.latest_id is None else [self.decoder.latest_id]

    @property
    def spec(self) -> DecodeSpec:
        """The encoding of the values with the current reader's schema."""
        spec = self.decoder.spec
        if isinstance(spec, RegisteredFormat):
            spec = replace(spec, reader_schema=self._evolution.reader_schema)
        return spec

    @property
    def covered_ids(self) -> frozenset[int] | None:
        """The ids of writers' schemas that were merged, refused or found unusable; None if the format has no ids."""
        if self.decoder.writer_schema is None:
            return None
        return frozenset(self._evolution.known_ids | self._evolution.unusable_ids)

    @property
    def refused_ids(self) -> dict[int, str]:
        """By id of a refused writer's schema, the reason."""
        return dict(self._evolution.incompatible)

    def begin(self, rows_of: Callable[[], DataFrame]) -> None:
        """Merge the latest schema into the stored schema, if possible, and prepare the sink for the rows.

        With the policy ``fail``, the latest schema is not merged here, so that only a record with the latest schema
        stops the feed. If the rows fit no table, older versions are tried: versions of the keys' schema, and versions
        of the values' schema if none is stored.
        """
        refused: SchemaIncompatible | None = None
        for decoder in chain([self.decoder], self.decoder.older()):
            if refused is not None:
                self._use(decoder)
            try:
                self._begin(rows_of)
            except SchemaIncompatible as misfit:
                refused = refused or misfit
                self._passed_over.append(f"{misfit.what}; an older version is the reader's schema")
            else:
                return
        assert refused is not None
        raise refused

    def _judge_encrypted(self, known: Iterable[int]) -> None:
        """Apply ``on_encrypted`` to schema ids that need no merge; with ``stop``, their records stop the feed."""
        for schema_id in sorted(known):
            try:
                what = self._ask(partial(self.decoder.encryption, schema_id))
            except (ResourceMissing, ConfigError):
                continue  # Without this schema, its records cannot be read anyway.
            if what is None:
                continue
            if self.on_encrypted == "stop":
                self._evolution.known_ids.discard(schema_id)
            else:
                self._refuse_encrypted(schema_id, what)

    def _refuse_encrypted(self, schema_id: int, what: str) -> None:
        if self.on_encrypted == "stop":
            hint = "let the records be decrypted before lakefeed, or set decode.on_encrypted to dead_letter or keep"
            raise SchemaChanged(
                f"schema id {schema_id} has encrypted values: {what}", where="decode.on_encrypted: stop", hint=hint
            )
        if self.on_encrypted == "dead_letter":
            self._evolution.refuse(schema_id, f"encrypted: {what}")
        else:
            self._evolution.note(schema_id, f"{what}: lakefeed does not decrypt, and lands the ciphertext")

    def _begin(self, rows_of: Callable[[], DataFrame]) -> None:
        if self.decoder.writer_schema is None:
            # Store the guessed schema: at the next start, other records might lead to another guess.
            given = self.decoder.spec
            sampled = StoredSchema(given.schema, frozenset()) if isinstance(given, Json) and given.sampled else None
            self.keeper.apply_schema(rows_of().schema, sampled, ())
            return
        if self.stored is None:
            self._judge_encrypted(self._latest_ids)
            self._apply(rows_of)
            return
        self._evolution.reader_schema, self._evolution.known_ids = self.stored.schema, set(self.stored.ids)
        # An earlier run may have merged these schemas with another ``on_encrypted``.
        self._judge_encrypted(self.stored.ids.intersection(self._latest_ids) if self._keeps else self.stored.ids)
        waits = self.policy == "fail" or self.on_encrypted == "stop"
        self.merge_writer_schemas([] if waits else self._latest_ids, rows_of=rows_of)

    @property
    def _keeps(self) -> bool:
        return self.on_encrypted == "keep"

    def merge_writer_schemas(self, schema_ids: Iterable[int], *, rows_of: Callable[[], DataFrame]) -> None:
        """Merge new writers' schemas, and prepare the sink for the rows of the merged schema.

        If the table cannot accept the rows of a new schema, the schema is refused, and the feed continues. Raises an
        error if the table does not accept the old rows either, and SchemaChanged with the policy ``fail``.
        """
        before = deepcopy(self._evolution)
        try:
            self._merge(schema_ids, rows_of)
            return
        except (SchemaIncompatible, ConfigError):
            self._evolution = before
            # An error without the new schemas is the table's fault, and stops the feed.
            self._apply(rows_of)
        for schema_id in sorted(schema_ids):
            before = deepcopy(self._evolution)
            try:
                self._merge([schema_id], rows_of)
            except (SchemaIncompatible, ConfigError) as misfit:
                self._evolution = before
                self._evolution.refuse(schema_id, misfit.what)

    @property
    def grows(self) -> bool:
        """Return whether a JSON field without a column becomes a new column."""
        spec = self.decoder.spec
        return isinstance(spec, Json) and spec.unknown_fields == "evolve" and len(spec.refused_fields) < MOST_REFUSED

    def add_fields(self, path: str, sample: InferredSchema, *, rows_of: Callable[[], DataFrame]) -> bool:
        """Add columns for the new fields of a sample of JSON records; return whether the rows have new columns.

        A field that cannot become a column is left out of this run's rows, and a message says why. ``path`` is the path
        of one of the new fields. If the sample shows no type for any of them, that field is refused.
        """
        before, schema = self.decoder, self._json.schema
        grown = with_new_fields(schema, sample.avro, without=self._json.refused_fields)
        try:
            self._grow(grown, rows_of)
        except (SchemaIncompatible, ConfigError):
            self.decoder = before
            # An error without the new columns is the table's fault, and stops the feed.
            self.keeper.apply_schema(rows_of().schema, StoredSchema(schema, frozenset()))
            for field_path in grown.added:
                self._try_field(field_path, sample, rows_of)
        if self.decoder is before:
            self._refuse_fields({path: "its values show no type"})
        return self._json.schema != schema

    @property
    def _json(self) -> Json:
        assert isinstance(self.decoder.spec, Json)  # Only JSON records can have fields that their schema lacks.
        return self.decoder.spec

    def _try_field(self, path: str, sample: InferredSchema, rows_of: Callable[[], DataFrame]) -> None:
        """Add the column for one field; refuse the field if the table cannot have this column."""
        before = self.decoder
        try:
            self._grow(with_new_fields(self._json.schema, sample.avro, only=path), rows_of)
        except (SchemaIncompatible, ConfigError) as misfit:
            self.decoder = before
            self._refuse_fields({path: misfit.what})

    def _grow(self, grown: GrownSchema, rows_of: Callable[[], DataFrame]) -> None:
        if grown.changes:
            self.decoder = replace(self.decoder, spec=replace(self._json, schema=grown.schema))
            entry = Entry(datetime.now(UTC), None, grown.changes)
            self.keeper.apply_schema(rows_of().schema, StoredSchema(grown.schema, frozenset()), [entry])
            self._passed_over.append(f"new JSON fields: {'; '.join(map(str, grown.changes))}")
        self._refuse_fields(grown.refused)

    def _refuse_fields(self, refused: Mapping[str, str]) -> None:
        known = self._json.refused_fields
        if new := {path: why for path, why in refused.items() if path not in known}:
            self.decoder = replace(self.decoder, spec=replace(self._json, refused_fields=known | new.keys()))
            self._passed_over += [f"the JSON field {one_line(path)} is left out: {why}" for path, why in new.items()]

    def notes(self) -> tuple[str, ...]:
        """Return the messages since the last call."""
        passed, self._passed_over = self._passed_over, []
        return (*passed, *self._evolution.take_notes())

    def _merge(self, schema_ids: Iterable[int], rows_of: Callable[[], DataFrame]) -> None:
        evolution, read = self._evolution, self.decoder.writer_schema
        assert read is not None  # Callers do not call this for formats without schema ids.
        entries = []
        for schema_id in sorted(set(schema_ids) - evolution.known_ids - evolution.unusable_ids):
            try:
                text = self._ask(partial(read, schema_id))
                encrypted = self._ask(partial(self.decoder.encryption, schema_id))
            except (ResourceMissing, ConfigError) as unusable:
                evolution.unusable_ids.add(schema_id)
                evolution.note(schema_id, f"{unusable.what}; its new fields, if any, are not landed")
                continue
            except SchemaIncompatible as refused:
                evolution.refuse(schema_id, refused.what)
                continue
            if encrypted is not None:
                self._refuse_encrypted(schema_id, encrypted)
            try:
                merge = evolution.merge_writer_schema(schema_id, text)
            except ConfigError as unusable:
                evolution.refuse(schema_id, unusable.what)
            else:
                if merge:
                    entries.append(Entry(datetime.now(UTC), schema_id, merge.changes))
        self._apply(rows_of, entries)

    @staticmethod
    def _ask(question: Callable[[], T]) -> T:
        """Ask the registry; while it does not answer, wait, so that an outage delays the batch and ends no feed."""
        return retry_until(question, is_transient=lambda error: isinstance(error, Unreachable))

    def _apply(self, rows_of: Callable[[], DataFrame], entries: Sequence[Entry] = ()) -> None:
        stored = StoredSchema(self._evolution.reader_schema, self._evolution.merged_ids)
        self.keeper.apply_schema(rows_of().schema, stored, entries)
        for entry in entries:
            if entry.changes and entry.schema_id is not None:
                self._evolution.note(entry.schema_id, "; ".join(map(str, entry.changes)))
