"""The ledger of an Iceberg table: a commit's snapshot summary has the offset ranges of its records.

The ledger compares a batch's ranges, never its id. It skips a batch with the last commit's ranges, writes a batch that
begins where the last commit ended, and refuses any other batch.

Only one driver can commit: the driver that took the feed's fence last. The fence is a table property, and the catalog's
compare-and-set guards it (``io.lakefeed.commit.CheckedOperations``). Every commit of the feed has the fence of its
driver. A commit is refused if the table has another fence.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from lakefeed.clients.iceberg.sql import in_branch, quoted, set_properties
from lakefeed.clients.iceberg.write_lock import run_in_turn
from lakefeed.clients.spark import jvm, statements
from lakefeed.errors import CheckpointMismatch
from lakefeed.lazy import SparkSession, StructType, py4j, t
from lakefeed.ledger.continuity import check_commit, fence_lost, next_fence
from lakefeed.ledger.feed_position import Position
from lakefeed.ledger.protocol import CommitCheck
from lakefeed.ledger.snapshot_summary import (
    BACKFILL_OF,
    BRANCH,
    COMMIT_ID,
    FEED,
    FENCE,
    RANGES,
    Backfill,
    Commit,
    Upserts,
)

QUIET = "lakefeed.upkeep.quiet"
"""Table property: the time until which rewrites of files are refused, in ms since 1970 (``Quiet.java``)."""

QUIET_SECONDS = 600.0

# Refusals of the JVM module (io.lakefeed.commit.BatchRefused) begin with REFUSED; a fence's contain FENCE_REFUSED.
REFUSED = "lakefeed refuses the commit"
FENCE_REFUSED = "is taken: the table has"
TRIES = 20
MOST_A_CALL = 512
"""The maximum number of snapshots that one call reads from the JVM."""


@dataclass(frozen=True)
class _Snapshot:
    """A snapshot of the table, as ``FeedLedger.ancestors`` describes it."""

    id: int
    parent: int | None
    sequence: int
    milliseconds: int
    summary: dict[str, str]


class IcebergLedger:
    """The commits of one feed in one Iceberg table."""

    keeps_offsets: ClassVar[bool] = True

    def __init__(self, spark: SparkSession, table: str, feed: str, *, branch: str | None = None) -> None:
        self._written = in_branch(table, branch)
        self._spark = spark
        self._table = table
        self._feed = feed
        self._checked: Any = None
        self._columns: tuple[str, StructType] | None = None

    def fence_taken(self) -> str | None:
        return self.properties().get(f"{FENCE}.{self._feed}")

    def take_fence(self, suffix: str = "", *, prefix: str = "") -> str:
        """Take the feed's fence: only this driver's commits succeed until another driver takes the fence.

        The name in the fence begins with ``prefix``.
        """
        key = f"{FENCE}.{self._feed}{suffix}"
        for attempt in range(TRIES):
            fence = next_fence(self.properties().get(key), prefix=prefix)
            try:
                statements.run(self._spark, set_properties(self._table, {key: fence}))
            except Exception as error:
                if FENCE_REFUSED not in str(error) or attempt == TRIES - 1:
                    raise
                continue
            return fence
        raise AssertionError("unreachable")

    def commits(self) -> Iterator[Commit]:
        """Yield the feed's commits among the ancestors of the table's current snapshot, the newest first."""
        for each in self._ancestors():
            if each.summary.get(FEED) == self._feed and RANGES in each.summary:
                yield Commit.of(each.id, each.summary, committed_at=each.milliseconds / 1000)

    def backfills(self) -> Iterator[Backfill]:
        """Yield the feed's backfills among the ancestors of the table's current snapshot, the newest first."""
        for each in self._ancestors():
            if each.summary.get(BACKFILL_OF) == self._feed and RANGES in each.summary:
                yield Backfill.of(each.id, each.summary, number=each.sequence, milliseconds=each.milliseconds)

    def rows_of(self, commit_id: str) -> int | None:
        """Return the number of rows that a commit has added; None if the table does not have the commit."""
        if (landed := jvm.java(self._spark).commit.Outcomes.landed(commit_id)) is not None:
            return int(landed)
        summary = self._summary_of(commit_id)
        return None if summary is None else int(summary.get("added-records", 0))

    def changed_by(self, commit_id: str) -> int:
        """Return the number of rows that a MERGE has inserted, changed or deleted."""
        upserts = Upserts.of(self._summary_of(commit_id) or {}) or Upserts()
        return upserts.landed + upserts.deleted

    def _summary_of(self, commit_id: str) -> dict[str, str] | None:
        return next((each.summary for each in self._ancestors() if each.summary.get(COMMIT_ID) == commit_id), None)

    def has_replay(self, replay_id: str) -> bool:
        """Return whether the table has a replay's rows. It finds the last replay, and replays with live snapshots."""
        return bool(jvm.java(self._spark).commit.FeedLedger.hasReplay(self.loaded(), self._feed, replay_id))

    def ask_for_quiet(self) -> None:
        """Refuse rewrites of the table's files until the feed's next commit, for at most ``QUIET_SECONDS``."""
        until = int((time.time() + QUIET_SECONDS) * 1000)
        statements.run(self._spark, set_properties(self._table, {QUIET: str(until)}))

    def location(self) -> str:
        return str(self.loaded().location())

    def position(self) -> Position | None:
        """Return the feed's position, even if its snapshots have expired; None without a commit of the feed."""
        return self._position_in(self.loaded())

    def columns(self) -> StructType:
        """Return the table's columns as Spark types, from the table that ``take_checked`` returns.

        A batch is checked right before it is written, so the write can use the table that the check has loaded.
        """
        return self.columns_of(self.take_checked())

    def rows_in(self, table: Any) -> int:
        """Return the number of rows in the feed's branch of a loaded table."""
        head = jvm.java(self._spark).commit.FeedLedger.head(table, self._feed)
        return 0 if head is None else int(head.summary().get("total-records") or 0)

    def take_checked(self) -> Any:
        """Return the table that the last ``check`` loaded; load it again if a call has already taken it."""
        table, self._checked = self._checked or self.loaded(), None
        return table

    def columns_of(self, table: Any) -> StructType:
        """Return the columns of a loaded table as Spark types."""
        text = str(jvm.java(self._spark).commit.FeedLedger.columns(table))
        if self._columns is None or text != self._columns[0]:
            self._columns = text, t.StructType.fromJson(json.loads(text))
        return self._columns[1]

    def _position_in(self, table: Any) -> Position | None:
        try:
            text = jvm.java(self._spark).commit.FeedLedger.position(table, self._feed)
        except py4j.Py4JJavaError as error:
            if REFUSED not in str(error):
                raise
            raise position_unknown(self._feed, where=self._table) from None
        return None if text is None else Position.from_json(str(text))

    def record_move(self, commit: Commit, *, commit_id: str, delete_where: str | None = None) -> None:
        properties = {**commit.properties(), COMMIT_ID: commit_id}
        if delete_where is not None:
            where, values = statements.parts(delete_where)
            delete = f"DELETE FROM {quoted(tuple(self._written.split('.')))} WHERE {where}"  # noqa: S608
            statement = statements.Statement.of(delete, values)
            run_in_turn(self._table, lambda: self.run(statement, properties), ask_for_quiet=self.ask_for_quiet)
        self.ensure_commit(properties)

    def run(
        self,
        statement: str,
        properties: Mapping[str, str],
        *,
        session: SparkSession | None = None,
        bounds: Any = None,
    ) -> None:
        """Run a statement that changes rows, and put properties into its snapshot's summary.

        ``session`` has the statement's views; default: the ledger's session. ``bounds`` are a MERGE's ``KeyBounds``.
        """
        spark: Any = session or self._spark
        sql, values = statements.parts(statement)
        jvm.java(self._spark).commit.FeedLedger.commit(spark._jsparkSession, sql, values, bounds, properties)

    def land_empty(self, properties: Mapping[str, str]) -> None:
        """Commit a snapshot with these properties that changes no rows."""
        jvm.java(self._spark).commit.FeedLedger.commit(self.loaded(), properties)

    def ensure_commit(self, properties: Mapping[str, str]) -> None:
        """Commit an empty snapshot if the statement made none because it changed no rows: the ledger needs a commit."""
        if self.rows_of(properties[COMMIT_ID]) is None:
            self.land_empty(properties)

    def check(self, commit: Commit) -> CommitCheck:
        self._checked = self.loaded()
        try:
            return check_commit(commit, self._position_in(self._checked), where=self._table)
        except CheckpointMismatch:
            # If another driver took over while this one was suspended, the newer commits are no rolled-back checkpoint.
            taken = self.fence_taken()
            if commit.fence is not None and taken not in (None, commit.fence):
                raise fence_lost(taken, commit.fence, where=self._table) from None
            raise

    def properties(self) -> dict[str, str]:
        """Return the table's current properties."""
        return dict(self.loaded().properties())

    def branch(self) -> str | None:
        """Return the branch that the feed writes to; None for the main branch, which readers see."""
        return self.properties().get(f"{BRANCH}.{self._feed}")

    def head(self) -> Any:
        """Return the newest snapshot of the feed's branch as Iceberg's Java object; None if the branch has none."""
        return jvm.java(self._spark).commit.FeedLedger.head(self.loaded(), self._feed)

    def has_published(self) -> bool:
        """Return whether the main branch, which readers see, has a commit of the feed."""
        return bool(jvm.java(self._spark).commit.Publication.hasPublished(self.loaded(), self._feed))

    def publication_state(self) -> str:
        """Return the state of the main branch relative to the feed's branch: see ``Publication.java``."""
        return str(jvm.java(self._spark).commit.Publication.state(self.loaded(), self._feed))

    def branch_is_free(self, branch: str) -> bool:
        """Return whether the branch does not exist, or is at the same snapshot as the main branch."""
        table = self.loaded()
        ref, main = table.refs().get(branch), table.currentSnapshot()
        if ref is None or main is not None:
            return ref is None or bool(ref.snapshotId() == main.snapshotId())
        # In a table without snapshots, a branch begins with an empty snapshot.
        return str(table.snapshot(ref.snapshotId()).summary().get("total-records")) == "0"

    def format_version(self) -> int:
        """Return the table's current format version."""
        return int(self.loaded().operations().current().formatVersion())

    def _ancestors(self) -> Iterator[_Snapshot]:
        """Yield the ancestors of the newest snapshot of the feed's branch, the newest first, with that snapshot."""
        table, start, most = self.loaded(), None, 1
        while page := json.loads(
            str(jvm.java(self._spark).commit.FeedLedger.ancestors(table, self._feed, start, most))
        ):
            for each in page:
                yield _Snapshot(**each)
            start = page[-1]["parent"]
            if start is None:
                return
            # Most callers need only the newest snapshot, a few need all of them.
            most = min(8 * most, MOST_A_CALL)

    def loaded(self) -> Any:
        """Load the current table as Iceberg's Java object."""
        spark: Any = self._spark
        return jvm.java(self._spark).commit.FeedLedger.load(spark._jsparkSession, self._table)


def position_unknown(feed: str, *, where: str) -> CheckpointMismatch:
    """Return the error for a table that was rolled back behind all known commits of a feed."""
    return CheckpointMismatch(
        f"the table was rolled back to before the commits of feed '{feed}'; the feed's position is unknown",
        where=where,
        hint="restore the table; or say where the feed resumes: lakefeed offsets rewind pipeline.yaml --to timestamp:…",
    )
