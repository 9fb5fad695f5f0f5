"""Builds the rows of a feed from its records: decode, classify, transform."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from lakefeed.ledger.outcomes import BatchOutcomes
from lakefeed.records.decode import RECORD, DecodeSpec, RecordPolicy, decoded, judged
from lakefeed.records.schema.fit import RowTransform, StorableRows
from lakefeed.records.schema.reader import ReaderSchema
from lakefeed.records.transform.steps import split_by_topic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class RowBuilder:
    """Builds rows with the schema that the feed reads records with at this moment.

    Args:
        schema: the schema that records are read with, and how it changes.
        policy: when a record is a row, is skipped, is a dead letter or stops the feed.
        keep: metadata columns of the rows.
        transform: from decoded rows to the sink's.
        streams: topics whose rows the transform takes separately, by the names that it uses for them.
        key: how keys are encoded; None if they stay bytes.
        is_decoded: the source gives rows instead of records: nothing is decoded or classified.
        check: looks at the frame of a query with state before anything is changed for it; raises if it must not run.
    """

    def __init__(
        self,
        schema: ReaderSchema,
        *,
        policy: RecordPolicy,
        keep: tuple[str, ...],
        transform: RowTransform,
        streams: Mapping[str, str] | None = None,
        key: DecodeSpec | None = None,
        is_decoded: bool = False,
        check: Callable[[DataFrame], None] | None = None,
    ) -> None:
        self.schema = schema
        self._policy = policy
        self._keep = keep
        self._transform = StorableRows(transform)
        self._streams = streams or {}
        self._key = key
        self._is_decoded = is_decoded
        self._check = check

    def classify(self, records: DataFrame) -> DataFrame:
        """Decode the records with the schema of this moment; the verdict on each is in the column ``RECORD``."""
        policy = replace(self._policy, refused_schemas=self.schema.refused_ids)
        return judged(decoded(records, self.schema.spec, key=self._key), policy, keep=self._keep)

    def rows(self, records: DataFrame) -> DataFrame:
        """Build the rows for their columns; not for writing them, because nothing is counted."""
        rows = self._build(records, lambda part: self.classify(part).drop(RECORD))
        if self._check is not None:
            self._check(rows)
        return rows

    def accepted_rows(self, records: DataFrame, outcomes: BatchOutcomes) -> DataFrame:
        """Build the rows to write; the outcome of each record is counted while they are computed."""
        return self._build(records, lambda part: outcomes.accepted(self.classify(part)))

    @contextmanager
    def counted(self, records: DataFrame, spark: SparkSession) -> Iterator[tuple[DataFrame, BatchOutcomes]]:
        """Build the rows to write, with a counter of their own."""
        with BatchOutcomes(spark) as outcomes:
            yield self.accepted_rows(records, outcomes), outcomes

    def notes(self) -> tuple[str, ...]:
        """Return what to report to the user since the last call."""
        return (*self.schema.notes(), *self._transform.notes())

    def _build(self, records: DataFrame, read: Callable[[DataFrame], DataFrame]) -> DataFrame:
        return self._transform(records if self._is_decoded else split_by_topic(records, self._streams, read))
