"""The blocks of a pipeline file that say what becomes of records that are not as they should be."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from lakefeed.config.base import Model, OneOf
from lakefeed.config.sql import Sql
from lakefeed.config.values import Period, TableTemplate, TopicName

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
