"""The schema that a feed's records are read with, kept in step with its writers' and with its table."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Protocol

from lakefeed.config.failures import Accept
from lakefeed.errors import ConfigError, ResourceMissing, SchemaIncompatible, Unreachable
from lakefeed.records.schema.evolution import ChangePolicy, Evolution
from lakefeed.records.schema.history import Entry
from lakefeed.records.spec import ConfluentJson, DecodeSpec, Json

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

PATIENCE_SECONDS = 300
"""How long a registry may be away, as in the tasks (``registry_patience_seconds``)."""
PAUSE_SECONDS = 2


@dataclass(frozen=True)
class Recorded:
    """A reader's schema as the sink remembers it, for the next start."""

    schema: str
    ids: frozenset[int]

    def to_json(self) -> str:
        """As a table property."""
        return json.dumps({"schema": self.schema, "ids": sorted(self.ids)}, separators=(",", ":"))

    @classmethod
    def of_json(cls, text: str) -> Recorded:
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

    def recorded_schema(self) -> Recorded | None:
        """What ``follow`` got last; None before the first time."""

    def follow(self, rows: StructType, recorded: Recorded | None = None, entries: Sequence[Entry] = ()) -> None:
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
            recorded = Recorded(given.schema, frozenset()) if isinstance(given, Json) and given.sampled else None
            self._keeper.follow(rows_of().schema, recorded, ())
            return
        recorded = self._keeper.recorded_schema()
        spec: Any = self._spec
        latest = {self._latest_id} if self._latest_id is not None else set()
        entries: Sequence[Entry] = ()
        if recorded is None:
            self._evolution = self._evolution_of(spec.reader_schema, latest)
        else:
            self._evolution = self._evolution_of(recorded.schema, recorded.ids)
            entries = self._met(latest)
        self._follow(rows_of, entries)

    def _evolution_of(self, schema: str, ids: Iterable[int]) -> Evolution:
        by_name = not isinstance(self._spec, ConfluentJson)
        return Evolution(self._policy, schema, known_ids=ids, accept=self._accept, by_name=by_name)

    def meet(self, schema_ids: Iterable[int], *, rows_of: Callable[[], DataFrame]) -> None:
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
            self._meet_or_refuse(schema_id, rows_of)

    def _meet_or_refuse(self, schema_id: int, rows_of: Callable[[], DataFrame]) -> None:
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
                merge = self._evolution.meet(schema_id, _patiently(self._writer_schema, schema_id))
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
        recorded = Recorded(self._evolution.reader_schema, self._evolution.merged_ids)
        self._keeper.follow(rows_of().schema, recorded, entries)
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
