"""Open the Delta sink's table, plan its changes, and read its ledger without Spark."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

from lakefeed.errors import ConfigError
from lakefeed.lazy import DataFrame, SparkSession, StructType
from lakefeed.ledger.outcomes import check_outcomes, counts_by_partition
from lakefeed.sinks.base import BatchedSink, BatchSinkDefinition, BatchSinkWriter
from lakefeed.sinks.definition import (
    Changes,
    Claim,
    Commit,
    CommitHistory,
    Entry,
    SinkContext,
    SnapshotProperties,
    StoredSchema,
)
from lakefeed_delta.settings import DeltaSinkConfig
from lakefeed_delta.table import DeltaStore


class DeltaDefinition(BatchSinkDefinition):
    """Opens and checks the table, and reads its ledger."""

    def __init__(self, settings: DeltaSinkConfig, context: SinkContext) -> None:
        super().__init__(settings, context, partial(DeltaStore, context=context))

    def open(self, spark: SparkSession, claim: Claim) -> DeltaSink:
        self.own.spark = spark
        assert self._ledger is not None
        writer = BatchSinkWriter(self.own, self._ledger, self.context.patience)
        return DeltaSink(writer, claim, self._ledger, where=self.settings.where)

    def schema_planner(self, spark: SparkSession, noted: str | None) -> DeltaPlanner:
        self.own.spark = spark
        return DeltaPlanner(self.own, noted)

    @contextmanager
    def history(self) -> Iterator[CommitHistory]:
        entries = list(self.own.entries())
        with super().history() as found:
            # The log is cleaned after a time; then only its newest entries are left.
            yield replace(found, is_whole=not entries or json.loads(entries[-1])["number"] == 1)


class DeltaSink(BatchedSink):
    """Writes a batch's files first, so that its rows are computed once, and commits them with the entry."""

    def land(self, rows: DataFrame, commit: SnapshotProperties, *, commit_id: str) -> int | None:
        """Write the files, check the batch's outcomes, and commit; return the number of rows."""
        if not isinstance(commit, Commit):
            what = "the sink delta takes only the batches of a feed, no backfills or replays"
            raise ConfigError(what, where=self.location(), hint="write these records to an Iceberg table")
        writer: Any = self.writer
        staged = writer.own.stage(rows)
        try:
            count = staged.count
            counts = counts_by_partition(check_outcomes(rows.sparkSession, commit_id))
        except BaseException:
            staged.discard()
            raise
        writer.write(staged, replace(commit, rows=count, grown=count, counts=counts), commit_id=commit_id)
        return int(count)


class DeltaPlanner:
    """Plans the table's changes; ``noted`` is the reader's schema in the checkpoint location."""

    def __init__(self, store: DeltaStore, noted: str | None) -> None:
        self._store, self._noted = store, noted

    def stored_schema(self) -> StoredSchema | None:
        return None if self._noted is None else StoredSchema.of_json(self._noted)

    def changes(self, rows: StructType, stored: StoredSchema | None = None, entries: Sequence[Entry] = ()) -> Changes:
        return (self._store.change(rows),)
