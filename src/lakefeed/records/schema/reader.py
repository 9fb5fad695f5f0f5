"""The schema that a feed's records are read with, kept in step with its writers' and with its table."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, Protocol

from lakefeed.config.failures import Accept
from lakefeed.errors import ConfigError, ResourceMissing, SchemaChanged, SchemaIncompatible, Unreachable
from lakefeed.records.schema.avro import NO_DEFAULT, AvroSchema, Field, Record, Ref, nullable, short_name
from lakefeed.records.schema.changes import Entry
from lakefeed.records.schema.merge import SchemaMerge, merge_schemas
from lakefeed.records.schema.parse import parse
from lakefeed.records.spec import ConfluentJson, DecodeSpec, Json

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType


def refusal(reader: str, writer: str, accept: Accept, *, by_name: bool = True) -> str | None:
    """Why the records of a writer's schema must not become rows; None if they may.

    Args:
        reader: Avro record schema (JSON) of the table's rows.
        writer: Avro record schema (JSON).
        accept: the rule.
        by_name: whether the name of the record counts. JSON Schema has titles, which are not names.

    Raises:
        ConfigError: one of the two is no Avro record schema.
    """
    if accept == "any":
        return None
    ours, theirs = _record(parse(reader)), _record(parse(writer))
    if by_name and not _same_record(ours, theirs):
        return f"the record is a {theirs.name}, but the table's rows are {ours.name}"
    if not any(_same_field(one, other) for one in ours.fields for other in theirs.fields):
        return f"the record shares no field with the table's rows, which are {ours.name}"
    if accept == "resolvable":
        missing = next((each for each in ours.fields if _required(each) and not _is_in(theirs, each)), None)
        if missing is not None:
            return f"the record has no field {missing.name}, which is required and has no default"
    return None


def _record(schema: AvroSchema) -> Record:
    assert isinstance(schema.root, Ref)  # parse lets nothing else through.
    record = schema.named(schema.root)
    assert isinstance(record, Record)
    return record


def _same_record(ours: Record, theirs: Record) -> bool:
    """By name or alias on either side. Namespaces do not count, as in Avro's resolution."""
    known = {short_name(each) for each in (ours.name, *ours.aliases)}
    return short_name(theirs.name) in known or short_name(ours.name) in {short_name(each) for each in theirs.aliases}


def _same_field(ours: Field, theirs: Field) -> bool:
    return theirs.name in (ours.name, *ours.aliases) or ours.name in theirs.aliases


def _required(field: Field) -> bool:
    return field.default is NO_DEFAULT and not nullable(field.type)


def _is_in(record: Record, field: Field) -> bool:
    return any(_same_field(field, each) for each in record.fields)


ChangePolicy = Literal["evolve", "ignore", "fail"]


@dataclass(frozen=True, kw_only=True)
class SchemaWarning:
    """What the user should hear of without the feed's stopping.

    Attributes:
        schema_id: the writer's schema.
        text: one sentence, without a full stop.
    """

    schema_id: int
    text: str

    def __str__(self) -> str:
        return f"schema id {self.schema_id}: {self.text}"


class Evolution:
    """The reader's schema of a feed, as writers' schemas come in.

    Args:
        policy: ``evolve``: the reader's schema and the table follow. ``ignore``: new fields are left out, and
            renamed ones keep the reader's names; else as ``evolve``. ``fail``: any change is an error.
        reader_schema: Avro record schema (JSON) to begin with.
        known_ids: ids whose schemas are in ``reader_schema`` already.
        where: the table or subject, for messages.
        accept: whose records become rows at all, under every policy.
        by_name: whether the name of the record counts for that.
    """

    def __init__(
        self,
        policy: ChangePolicy,
        reader_schema: str,
        *,
        known_ids: Iterable[int] = (),
        where: str | None = None,
        accept: Accept = "same_record",
        by_name: bool = True,
    ) -> None:
        self.policy = policy
        self._accept: Accept = accept
        self._by_name = by_name
        self._foreign: set[int] = set()
        self._reader_schema = reader_schema
        self._known = set(known_ids)
        self._where = where
        self._incompatible: dict[int, SchemaIncompatible] = {}
        self._named: set[str] = set()
        self._warnings: list[SchemaWarning] = []

    @property
    def reader_schema(self) -> str:
        """What reads the records of all known ids that are not incompatible."""
        return self._reader_schema

    @property
    def known_ids(self) -> frozenset[int]:
        """All ids that have been met, the incompatible ones too."""
        return frozenset(self._known)

    @property
    def merged_ids(self) -> frozenset[int]:
        """The ids whose records ``reader_schema`` reads: what to remember for the next start."""
        return frozenset(self._known - self._incompatible.keys())

    @property
    def incompatible(self) -> Mapping[int, SchemaIncompatible]:
        """The ids whose records the reader's schema must not read, and why: their records are dead letters."""
        return MappingProxyType(self._incompatible)

    def merge_writer_schema(self, schema_id: int, writer_schema: str) -> SchemaMerge | None:
        """A writer's schema occurs in the batch at hand.

        Several new ones are best met in the order of their ids. After it ``reader_schema`` is the new one: the
        batch is decoded again with it, after the table's DDL for ``Merge.changes``.

        Returns:
            None if the reader's schema stays: the id is known, or reads as it is, or does not fit at all.

        Raises:
            SchemaChanged: policy ``fail``, and the schema would become another, or does not fit.
            ConfigError: it is no Avro record schema.
        """
        if schema_id in self._known:
            return None
        if foreign := refusal(self._reader_schema, writer_schema, self._accept, by_name=self._by_name):
            self.refuse(schema_id, SchemaIncompatible(foreign, where=self._where))
            self._foreign.add(schema_id)
            return None
        try:
            merge = merge_schemas(self._reader_schema, writer_schema, grow=self.policy != "ignore")
        except SchemaIncompatible as misfit:
            if self.policy == "fail":
                raise self._stopped(schema_id, misfit.what) from misfit
            self.refuse(schema_id, misfit)
            return None
        if merge.changes and self.policy == "fail":
            raise self._stopped(schema_id, "; ".join(map(str, merge.changes)))
        self._known.add(schema_id)
        if new := [str(each) for each in merge.left_out if str(each) not in self._named]:
            self._named.update(new)
            self._warn(schema_id, f"left out by schema.on_change: ignore: {'; '.join(new)}")
        if merge.schema == self._reader_schema:
            return None
        self._reader_schema = merge.schema
        self._judge_again()
        return merge

    def copy(self) -> Evolution:
        """The same of its own, to come back to."""
        same = copy(self)
        same._known, same._foreign = set(self._known), set(self._foreign)
        same._incompatible, same._named = dict(self._incompatible), set(self._named)
        same._warnings = list(self._warnings)
        return same

    def refuse(self, schema_id: int, why: SchemaIncompatible) -> None:
        """Makes the records of this id unreadable: they are dead letters, or stop the feed."""
        self._known.add(schema_id)
        self._incompatible[schema_id] = why
        self._warn(schema_id, f"{why.what}; its records are not landed")

    def _judge_again(self) -> None:
        """Forgets what was refused as foreign: a reader's schema that has grown may have a field of it now."""
        for schema_id in self._foreign:
            self._known.discard(schema_id)
            self._incompatible.pop(schema_id, None)
        self._warnings = [each for each in self._warnings if each.schema_id not in self._foreign]
        self._foreign.clear()

    def take_warnings(self) -> tuple[SchemaWarning, ...]:
        """What is to be shown since the last call."""
        taken, self._warnings = tuple(self._warnings), []
        return taken

    def _warn(self, schema_id: int, text: str) -> None:
        self._warnings.append(SchemaWarning(schema_id=schema_id, text=text))

    def _stopped(self, schema_id: int, what: str) -> SchemaChanged:
        return SchemaChanged(
            f"the schema changed with schema id {schema_id}: {what}",
            where=self._where,
            hint="lakefeed schema diff <pipeline.yaml> shows what the table would become; "
            "to let it, set schema.on_change: evolve",
        )


PATIENCE_SECONDS = 300
"""How long a registry may be away, as in the tasks (``registry_patience_seconds``)."""
PAUSE_SECONDS = 2


@dataclass(frozen=True)
class StoredSchema:
    """A reader's schema as the sink remembers it, for the next start."""

    schema: str
    ids: frozenset[int]

    def to_json(self) -> str:
        """As a table property."""
        return json.dumps({"schema": self.schema, "ids": sorted(self.ids)}, separators=(",", ":"))

    @classmethod
    def of_json(cls, text: str) -> StoredSchema:
        """Reads what ``to_json`` wrote.

        Raises:
            ConfigError: if it is something else.
        """
        try:
            found = json.loads(text)
            return cls(str(found["schema"]), frozenset(int(each) for each in found["ids"]))
        except (ValueError, KeyError, TypeError):
            raise ConfigError("this is not the reader's schema of a feed", where=text[:200]) from None


class SchemaKeeper(Protocol):
    """A sink whose columns follow the schema, and which remembers it."""

    def stored_schema(self) -> StoredSchema | None:
        """What ``apply_schema`` got last; None before the first time."""

    def apply_schema(self, rows: StructType, stored: StoredSchema | None = None, entries: Sequence[Entry] = ()) -> None:
        """Makes the sink take these rows, before any is written, and remembers the reader's schema."""


class ReaderSchema:
    """How a feed's values are decoded, now.

    Args:
        spec: as the pipeline says, with the registry's latest schema where it has one.
        policy: ``schema.on_change``.
        accept: ``schema.accept``.
        latest_id: id of the schema in ``spec``; None for formats without ids.
        writer_schema: from an id to the writer's schema, as an Avro record schema.
        keeper: the sink.
    """

    def __init__(
        self,
        spec: DecodeSpec,
        *,
        policy: ChangePolicy = "evolve",
        accept: Accept = "same_record",
        latest_id: int | None = None,
        writer_schema: Callable[[int], str] | None = None,
        keeper: SchemaKeeper,
    ) -> None:
        self._spec = spec
        self._latest_id = latest_id
        self._policy = policy
        self._accept: Accept = accept
        self._writer_schema = writer_schema
        self._keeper = keeper
        self._notes: list[str] = []
        self._gone: set[int] = set()
        self._evolution: Evolution | None = None

    @property
    def spec(self) -> DecodeSpec:
        """What decodes, with the reader's schema of this moment."""
        if self._evolution is None:
            return self._spec
        spec: Any = self._spec
        return replace(spec, reader_schema=self._evolution.reader_schema)  # type: ignore[no-any-return]

    @property
    def covered_ids(self) -> frozenset[int] | None:
        """The writers' schemas that this one covers; None if the format has no ids."""
        return self._evolution.known_ids | self._gone if self._evolution else None

    @property
    def refused_ids(self) -> dict[int, str]:
        """Ids of writers' schemas that cannot become this one, and why."""
        return {each: misfit.what for each, misfit in self._evolution.incompatible.items()} if self._evolution else {}

    def begin(self, rows_of: Callable[[], DataFrame]) -> None:
        """Takes up the schema that the sink remembers, lets it meet the latest one, and makes the sink ready.

        Args:
            rows_of: the feed's rows as they would be decoded now.
        """
        if self._writer_schema is None:
            # A schema that was guessed once stays: other records may let one guess otherwise.
            given = self._spec
            stored = StoredSchema(given.schema, frozenset()) if isinstance(given, Json) and given.sampled else None
            self._keeper.apply_schema(rows_of().schema, stored, ())
            return
        stored = self._keeper.stored_schema()
        spec: Any = self._spec
        latest = {self._latest_id} if self._latest_id is not None else set()
        entries: Sequence[Entry] = ()
        if stored is None:
            self._evolution = self._evolution_of(spec.reader_schema, latest)
        else:
            self._evolution = self._evolution_of(stored.schema, stored.ids)
            entries = self._met(latest)
        self._follow(rows_of, entries)

    def _evolution_of(self, schema: str, ids: Iterable[int]) -> Evolution:
        by_name = not isinstance(self._spec, ConfluentJson)
        return Evolution(self._policy, schema, known_ids=ids, accept=self._accept, by_name=by_name)

    def merge_writer_schemas(self, schema_ids: Iterable[int], *, rows_of: Callable[[], DataFrame]) -> None:
        """Takes in writers' schemas that are new, and makes the sink ready for the rows that follow from them.

        Args:
            schema_ids: ids that occurred. One that the registry has no more is let be: what can be read of its
                records with the present schema is read.
            rows_of: the feed's rows as they would be decoded now.

        A schema whose rows the table cannot take, or whose names the rows have already, is refused: its records
        are unreadable, and the feed continues.

        Raises:
            SchemaChanged: if the feed is to stop at a change.
            SchemaIncompatible: if the table cannot take the rows as they were before.
            ConfigError: if the rows cannot be made as they were before.
        """
        assert self._evolution is not None
        before, notes = self._evolution.copy(), list(self._notes)
        try:
            self._follow(rows_of, self._met(schema_ids))
            return
        except (SchemaIncompatible, ConfigError):
            self._evolution, self._notes = before, notes
            # Raises if the table is at fault, and not one of these schemas.
            self._follow(rows_of, ())
        for schema_id in sorted(schema_ids):
            self._merge_or_refuse(schema_id, rows_of)

    def _merge_or_refuse(self, schema_id: int, rows_of: Callable[[], DataFrame]) -> None:
        assert self._evolution is not None
        before, notes = self._evolution.copy(), list(self._notes)
        try:
            self._follow(rows_of, self._met([schema_id]))
        except (SchemaIncompatible, ConfigError) as misfit:
            self._evolution, self._notes = before, notes
            self._evolution.refuse(schema_id, SchemaIncompatible(misfit.what, where=misfit.where, hint=misfit.hint))
            self._take_warnings()

    def _take_warnings(self) -> None:
        assert self._evolution is not None
        self._notes += [str(each) for each in self._evolution.take_warnings()]

    def _met(self, schema_ids: Iterable[int]) -> Sequence[Entry]:
        assert self._evolution is not None
        assert self._writer_schema is not None
        entries = []
        for schema_id in sorted(set(schema_ids) - self._evolution.known_ids - self._gone):
            try:
                merge = self._evolution.merge_writer_schema(schema_id, _patiently(self._writer_schema, schema_id))
            except (ResourceMissing, ConfigError) as unusable:
                self._gone.add(schema_id)
                self._notes.append(f"schema id {schema_id}: {unusable.what}; its new fields, if any, are not landed")
                continue
            except SchemaIncompatible as refused:
                self._evolution.refuse(schema_id, refused)
                continue
            if merge:
                entries.append(Entry(datetime.now(UTC), schema_id, merge.changes))
        self._take_warnings()
        return entries

    def notes(self) -> tuple[str, ...]:
        """What the user should hear of since the last call."""
        taken, self._notes = tuple(self._notes), []
        return taken

    def _follow(self, rows_of: Callable[[], DataFrame], entries: Sequence[Entry]) -> None:
        assert self._evolution is not None
        stored = StoredSchema(self._evolution.reader_schema, self._evolution.merged_ids)
        self._keeper.apply_schema(rows_of().schema, stored, entries)
        for each in entries:
            if each.changes:
                self._notes.append(f"schema id {each.schema_id}: {'; '.join(map(str, each.changes))}")


def _patiently(writer_schema: Callable[[int], str], schema_id: int) -> str:
    """Asks a registry that does not answer again: an outage is to delay the batch, not to end the feed."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            return writer_schema(schema_id)
        except Unreachable:
            if time.monotonic() > deadline:
                raise
            time.sleep(PAUSE_SECONDS)
