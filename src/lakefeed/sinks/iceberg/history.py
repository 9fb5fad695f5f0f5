"""The history of an upsert table: every change of every key as a row of its own, in the order of no table.

Guarantee: exactly-once. A batch's changes are appended in one commit with the batch's offset ranges, just before the
MERGE into the table beside it. A crash between the two leaves the history one batch ahead: the batch comes again with
the same ranges, and the history has it already. Where the feed was rewound, or begins another batch than the one that
the history has, the history first goes back to where the table is, and its rows from there on are deleted.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Self

from lakefeed.clients.iceberg.write_lock import run_in_turn
from lakefeed.config.iceberg_sink import IcebergSinkConfig
from lakefeed.ledger.continuity import violations
from lakefeed.ledger.position_reset import Move, Reason
from lakefeed.ledger.snapshot_summary import COMMIT_ID, Commit, SnapshotProperties
from lakefeed.offsets.ranges import OffsetRanges
from lakefeed.records.schema.fit import align_columns
from lakefeed.sinks.iceberg.merge import OFFSET, PARTITION, TOPIC, history_statement
from lakefeed.sinks.iceberg.table import IcebergTable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

VIEW = "lakefeed_history"


class HistoryTable(IcebergTable):
    """The history of one feed's table."""

    _fence: str | None = None

    @classmethod
    def beside(cls, spark: SparkSession, sink: IcebergSinkConfig, *, feed: str, evolves: bool) -> Self:
        """The history that an upsert sink names."""
        of_table = {name: getattr(sink, name) for name in ("partition_by", "sort_by", "properties")}
        own = IcebergSinkConfig.model_validate(
            {"table": sink.history, **{name: each for name, each in of_table.items() if name in sink.model_fields_set}}
        )
        return cls(spark, own.with_names_made(sink.names_made), feed=feed, evolves=evolves)

    def take_own_fence(self) -> None:
        """Takes the feed's fence in this table too."""
        if self._spark.catalog.tableExists(self.name):
            self._fence = self.take_fence()

    def land_changes(
        self, changes: DataFrame, commit: SnapshotProperties, *, commit_id: str, keys: Sequence[str]
    ) -> None:
        """Adds the changes of a batch, or of anything else that is landed beside the batches, unless they are here."""
        if not isinstance(commit, Commit):
            columns = self._spark.table(self.name).schema
            changes = align_columns(changes, columns)
            changes.createOrReplaceTempView(VIEW)
            statement = history_statement(self.name, VIEW, columns=columns.names, keys=keys)
            properties, session = {COMMIT_ID: commit_id}, changes.sparkSession
            run_in_turn(
                self.name,
                lambda: self.ledger.run(statement, properties, session=session),
                ask_for_quiet=self.ledger.ask_for_quiet,
            )
            return
        own = replace(commit, fence=self._fence)
        position = self.ledger.position()
        if position is not None:
            if position.ranges == commit.ranges:
                return
            if violations(position.ranges, commit):
                self._go_to(own, position.ranges)
        self.land(changes, own, commit_id=commit_id)

    def _go_to(self, commit: Commit, stands: OffsetRanges) -> None:
        """Moves the history to where a batch begins, and deletes what it has from there on."""
        ends = {(each.topic, each.partition): each.end for each in stands.ranges}
        starts = {(each.topic, each.partition): each.start for each in commit.ranges.ranges}
        ids = commit.ranges.topic_ids
        left = {topic: old for topic, old in stands.topic_ids.items() if ids.get(topic) != old}
        positions = {key: (ends[key], start) for key, start in starts.items() if ends.get(key, start) != start}
        begin: dict[str, dict[int, int]] = {}
        for (topic, partition), start in starts.items():
            begin.setdefault(topic, {})[partition] = start
        reason: Reason = "rewind" if any(to < start for start, to in positions.values()) else "accepted-loss"
        move = replace(
            commit,
            ranges=OffsetRanges.between(begin, begin, ids),
            move=Move(reason, positions, left),
        )
        self.ledger.record_move(move, commit_id=uuid.uuid4().hex, delete_where=_from(positions))


def _from(positions: Mapping[tuple[str, int], tuple[int, int]]) -> str | None:
    """The rows that a move goes back behind, as a condition."""
    back = [
        f"({TOPIC} = '{topic}' AND {PARTITION} = {partition} AND {OFFSET} >= {to})"
        for (topic, partition), (start, to) in sorted(positions.items())
        if to < start
    ]
    return " OR ".join(back) or None
