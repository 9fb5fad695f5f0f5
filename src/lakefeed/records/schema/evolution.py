"""A running feed meets its writers' schemas: each new id once, under the policy ``schema.on_change``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import copy
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from lakefeed.config.failures import Accept
from lakefeed.errors import SchemaChanged, SchemaIncompatible
from lakefeed.records.schema.accept import refusal
from lakefeed.records.schema.merge import SchemaMerge, merged

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

    def meet(self, schema_id: int, writer_schema: str) -> SchemaMerge | None:
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
            merge = merged(self._reader_schema, writer_schema, grow=self.policy != "ignore")
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
