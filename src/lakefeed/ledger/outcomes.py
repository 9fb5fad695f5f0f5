"""Counts a batch's rows, dead letters and skipped records while Spark writes them (``io.lakefeed.commit.Outcomes``)."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from itertools import islice
from typing import Any, Self

from lakefeed.clients.spark import jvm
from lakefeed.clients.spark.errors import UNKNOWN_SCHEMA
from lakefeed.lazy import DataFrame, SparkSession, sf
from lakefeed.messages.printable import counted
from lakefeed.messages.text import one_line
from lakefeed.offsets.ranges import OffsetRange, Partition, by_partition
from lakefeed.stopwatch import add_time

CATALOG = "lakefeed_outcomes"
CATALOG_CLASS = "io.lakefeed.commit.OutcomeCatalog"
UNBOUNDED = 2**63 - 1


@dataclass(frozen=True)
class Counts:
    records: int = 0
    dead_letters: int = 0
    skipped: int = 0
    left_out: int = 0
    """The number of records that have a JSON field without a column."""

    @property
    def rows(self) -> int:
        """The number of records that reach the transform, or the table if there is no transform."""
        return self.records - self.dead_letters - self.skipped

    def __add__(self, other: Counts) -> Counts:
        return Counts(*(one + more for one, more in zip(astuple(self), astuple(other), strict=True)))


ZERO = Counts()


def counts_by_partition(text: str) -> dict[Partition, Counts]:
    """Read ``{"topic":{"0":[records,dead_letters,skipped,left_out]}}`` of a snapshot; ``left_out`` may be missing."""
    return {key: Counts(*counts) for key, counts in by_partition(json.loads(text)).items()}


def check_outcomes(spark: SparkSession, commit_id: str) -> str:
    """Return as JSON the counts of a batch that Spark has computed; raise Spark's error if it must not land."""
    outcomes = jvm.java(spark).commit.Outcomes.of(commit_id)
    if outcomes is None:
        return "{}"
    outcomes.check()
    return str(outcomes.toJson())


def seconds_since_allowed(spark: SparkSession, commit_id: str) -> float:
    """Return the seconds since ``check_outcomes`` allowed the batch to land; -1 before that."""
    outcomes = jvm.java(spark).commit.Outcomes.of(commit_id)
    return -1.0 if outcomes is None else float(outcomes.secondsSinceAllowed())


@contextmanager
def timing_commit(phase: str, since_allowed: Callable[[], float]) -> Iterator[None]:
    """Add to ``phase`` the seconds from the permission to land the batch to the end of the ``with`` block."""
    began = time.monotonic()
    yield
    seconds = since_allowed()
    # If the batch was allowed to land before the block began, that was another sink's commit: do not count it.
    if 0 <= seconds <= time.monotonic() - began:
        add_time(phase, seconds)


def total(counts: Mapping[Partition, Counts]) -> Counts:
    return sum(counts.values(), ZERO)


@dataclass(frozen=True)
class Reason:
    """An error that dead letters of a batch have in common."""

    reason: str
    """The error's text without numbers, so that similar errors are counted together."""
    count: int
    sample: str = ""
    """The whole text of one of the errors."""


@dataclass(frozen=True)
class SchemasMissing:
    """The batch is not written: writers used schemas that the reader's schema does not cover."""

    schema_ids: frozenset[int]


@dataclass(frozen=True)
class FieldsMissing:
    """The batch is not written: its records have JSON fields that have no column yet but can become columns."""

    starts: Mapping[Partition, int]
    """By partition, the offset of its first record with such a field; other partitions are missing."""
    field: str
    """The path of one such field."""


class RuleChanged(Exception):
    """The batch is not written: the sink now accepts fewer of its records than when they were read."""


@dataclass(frozen=True)
class Stopped:
    """The batch is not written: a record stops the feed, as the pipeline file requires."""

    record: str
    """The record and the reason: ``topic …, partition …, offset …: why``."""


@dataclass(frozen=True)
class OverBudget:
    """The batch is not written: it has more dead letters than the error budget allows."""

    counts: Counts
    reasons: tuple[Reason, ...]


class BatchOutcomes:
    """Counts the records of one attempt to write a batch, within a ``with`` block.

    After all tasks and before the commit, the catalog (``io.lakefeed.commit.FeedTable``) compares the counts with the
    limits of ``bound`` and ``cover``, and writes the counts to the snapshot's summary.
    """

    def __init__(self, spark: SparkSession) -> None:
        self.commit_id = uuid.uuid4().hex
        self._spark = spark
        self._outcomes: Any = None

    def __enter__(self) -> Self:
        spark: Any = self._spark
        self._spark.conf.set(f"spark.sql.catalog.{CATALOG}", CATALOG_CLASS)
        self._outcomes = jvm.java(spark).commit.Outcomes.open(spark._jsc.sc(), self.commit_id)
        return self

    def __exit__(self, *error: object) -> None:
        jvm.java(self._spark).commit.Outcomes.close(self.commit_id)

    def next(self) -> None:
        """Begin the next batch under a new commit id, in a query whose batches share one plan."""
        following = uuid.uuid4().hex
        self._outcomes.next(self.commit_id, following)
        self.commit_id = following

    def bound(self, *, max_rows: int | None, max_share: float | None, before: Counts = ZERO) -> None:
        """Refuse the commit if dead letters exceed these limits; ``before`` has the counts of earlier batches."""
        self._outcomes.bound(
            UNBOUNDED if max_rows is None else max_rows,
            1.0 if max_share is None else float(max_share),
            before.records,
            before.dead_letters,
        )

    def refuse(self) -> None:
        """Refuse every commit, because the batch is only a trial."""
        self.bound(max_rows=-1, max_share=None)

    def cover(self, schema_ids: Iterable[int]) -> None:
        """Refuse the commit if a record has a schema id that is not among the reader schema's ``schema_ids``."""
        self._outcomes.cover(list(schema_ids))

    def require_fields(self) -> None:
        """Refuse the commit if a record has a JSON field that has no column yet but can become a column."""
        self._outcomes.requireFields()

    def accepted(self, judged: DataFrame) -> DataFrame:
        """Count all records; return those that become rows, as a DataFrame without the column ``RECORD``."""
        # The DataFrame's session may be another session than this object's; both need the catalog.
        judged.sparkSession.conf.set(f"spark.sql.catalog.{CATALOG}", CATALOG_CLASS)
        record = sf.col(f"{RECORD}.record")
        is_row = sf.call_function(
            f"{CATALOG}.outcome_{self.commit_id}",
            record["topic"],
            record["partition"],
            record["offset"],
            sf.col(f"{RECORD}.verdict"),
            # The reason is never null: for a null CASE, Spark's generated code passes the previous record's value.
            sf.coalesce(sf.col(f"{RECORD}.reason"), sf.lit("")),
            # If the registry does not know the id, no schema can be merged: -1 makes the JVM ignore the record's id.
            sf.coalesce(
                sf.when(sf.col(f"{RECORD}.reason").startswith(UNKNOWN_SCHEMA), sf.lit(None))
                .otherwise(sf.col(f"{RECORD}.schema_id"))
                .cast("int"),
                sf.lit(-1),
            ),
        )
        # Filter by a column. Spark would push any other condition below the projections, and repeat the projected
        # expressions there: with an envelope of ten columns, the code would exceed Java's limit for a method.
        return judged.withColumn(IS_ROW, is_row).filter(IS_ROW).drop(IS_ROW, RECORD)

    def seconds_since_allowed(self) -> float:
        return float(self._outcomes.secondsSinceAllowed())

    @property
    def refusal(self) -> SchemasMissing | FieldsMissing | Stopped | OverBudget | None:
        """The reason why the counts refused the commit; None without a refusal."""
        match self._outcomes.refusal():
            case "schemas":
                return SchemasMissing(frozenset(int(each) for each in self._outcomes.schemaIds()))
            case "fields":
                starts = by_partition(json.loads(str(self._outcomes.newFields())))
                return FieldsMissing(starts, str(self._outcomes.newField()))
            case "stop":
                return Stopped(str(self._outcomes.stop()))
            case "budget":
                return OverBudget(self.counts, tuple(self.reasons))
        return None

    @property
    def counts(self) -> Counts:
        """The sum of all partitions' counts; complete when all tasks have ended."""
        counted = self._outcomes
        return Counts(counted.records(), counted.deadLetters(), counted.skipped(), counted.leftOut())

    @property
    def by_partition(self) -> dict[Partition, Counts]:
        return counts_by_partition(str(self._outcomes.toJson()))

    @property
    def left_out_field(self) -> str:
        """The path of a JSON field that has no column; empty if all fields have columns."""
        return str(self._outcomes.leftOutField())

    @property
    def reasons(self) -> list[Reason]:
        """The most frequent reasons of dead letters."""
        kinds = islice(self._outcomes.reasons(), MOST_REASONS)
        return [Reason(str(kind.text()), int(kind.count()), str(kind.sample())[:LONGEST_SAMPLE]) for kind in kinds]

    @property
    def dead_ranges(self) -> list[OffsetRange]:
        """For each partition with dead letters, the range from its first dead letter to its last."""
        bounds = by_partition(json.loads(str(self._outcomes.deadRanges())))
        return [OffsetRange(*key, start, end) for key, (start, end) in bounds.items()]


class LeftOutFields:
    """Counts the records of a run that have JSON fields without a column."""

    def __init__(self) -> None:
        self._records, self._next_note = 0, 1

    def notes(self, outcomes: BatchOutcomes) -> Iterator[str]:
        """Yield a message at the run's first record with such a field, and again at 100 times as many records."""
        self._records += outcomes.counts.left_out
        if self._records >= self._next_note and outcomes.counts.left_out:
            self._next_note = 100 * self._records
            field, records = one_line(outcomes.left_out_field), counted(self._records, "record")
            yield f"the JSON field {field} has no column and is left out; {records} of this run have such fields"


MOST_REASONS = 20
"""The most reasons that are read for a batch, because reading a reason costs three calls into the JVM."""
LONGEST_SAMPLE = 2000

RECORD = "_lakefeed"
"""The name of an additional column of the rows: ``struct<record, schema_id, reason, verdict>``."""
IS_ROW = "_lakefeed_is_row"
"""The name of a boolean column: whether the record becomes a row."""
