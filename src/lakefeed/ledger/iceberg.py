"""The ledger of an Iceberg table: the summary of a commit's snapshot has the offset ranges of its records.

The ledger compares a batch's ranges, never its id. It skips a batch with the last commit's ranges, writes a batch that
begins where the last commit ended, and refuses any other batch.

Only the driver that took the feed's fence last can commit. The fence is a table property. A commit names the fence of
its driver, and ``io.lakefeed.commit.CheckedOperations`` compares this fence with the property inside the catalog's
compare-and-set.
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

# Messages of io.lakefeed.commit.BatchRefused begin with REFUSED. If the commit's fence is outdated, the message also
# contains FENCE_REFUSED.
REFUSED = "lakefeed refuses the commit"
FENCE_REFUSED = "is taken: the table has"
TRIES = 20
MOST_A_CALL = 512
"""The most snapshots that one call into the JVM returns."""


@dataclass(frozen=True)
class _Snapshot:
    """A snapshot of the table, as ``FeedLedger.ancestors`` describes it."""

    id: int
    parent: int | None
    sequence: int
    milliseconds: int
    summary: dict[str, str]


class IcebergLedger:
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
        """Take the feed's fence, whose name begins with ``prefix``: other drivers can no longer commit."""
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
        """Yield the feed's commits that have not expired, newest first."""
        for each in self._ancestors():
            if each.summary.get(FEED) == self._feed and RANGES in each.summary:
                yield Commit.of(each.id, each.summary, committed_at=each.milliseconds / 1000)

    def backfills(self) -> Iterator[Backfill]:
        """Yield the feed's backfills that have not expired, newest first."""
        for each in self._ancestors():
            if each.summary.get(BACKFILL_OF) == self._feed and RANGES in each.summary:
                yield Backfill.of(each.id, each.summary, number=each.sequence, milliseconds=each.milliseconds)

    def rows_of(self, commit_id: str) -> int | None:
        """Return the number of rows that the commit with this id has added; None if the table has no such commit."""
        if (landed := jvm.java(self._spark).commit.Outcomes.landed(commit_id)) is not None:
            return int(landed)
        summary = self._summary_of(commit_id)
        return None if summary is None else int(summary.get("added-records", 0))

    def changed_by(self, commit_id: str) -> int:
        """Return how many rows the MERGE of the commit with this id has inserted, updated or deleted."""
        upserts = Upserts.of(self._summary_of(commit_id) or {}) or Upserts()
        return upserts.landed + upserts.deleted

    def _summary_of(self, commit_id: str) -> dict[str, str] | None:
        return next((each.summary for each in self._ancestors() if each.summary.get(COMMIT_ID) == commit_id), None)

    def has_replay(self, replay_id: str) -> bool:
        """Return whether the table has a replay's rows; finds the newest replay even if its snapshot has expired."""
        return bool(jvm.java(self._spark).commit.FeedLedger.hasReplay(self.loaded(), self._feed, replay_id))

    def ask_for_quiet(self) -> None:
        """Refuse rewrites of the table's files until the feed's next commit, for at most ``QUIET_SECONDS``."""
        until = int((time.time() + QUIET_SECONDS) * 1000)
        statements.run(self._spark, set_properties(self._table, {QUIET: str(until)}))

    def location(self) -> str:
        return str(self.loaded().location())

    def position(self, table: Any = None) -> Position | None:
        """Return the feed's position in ``table``, or by default in the newly loaded table."""
        try:
            text = jvm.java(self._spark).commit.FeedLedger.position(table or self.loaded(), self._feed)
        except py4j.Py4JJavaError as error:
            if REFUSED not in str(error):
                raise
            raise position_unknown(self._feed, where=self._table) from None
        return None if text is None else Position.from_json(str(text))

    def columns(self) -> StructType:
        """Return the table's columns as Spark types, from the table that ``check`` has just loaded."""
        return self.columns_of(self.take_checked())

    def rows_in(self, table: Any) -> int:
        """Return the number of rows in the feed's branch of a table that the caller has loaded."""
        head = jvm.java(self._spark).commit.FeedLedger.head(table, self._feed)
        return 0 if head is None else int(head.summary().get("total-records") or 0)

    def take_checked(self) -> Any:
        """Return the table that the last ``check`` loaded; a second call loads the table again."""
        table, self._checked = self._checked or self.loaded(), None
        return table

    def columns_of(self, table: Any) -> StructType:
        text = str(jvm.java(self._spark).commit.FeedLedger.columns(table))
        if self._columns is None or text != self._columns[0]:
            self._columns = text, t.StructType.fromJson(json.loads(text))
        return self._columns[1]

    def record_move(self, commit: Commit, *, commit_id: str, delete_where: str | None = None) -> None:
        properties = {**commit.properties(), COMMIT_ID: commit_id}
        if delete_where is not None:
            where, values = statements.parts(delete_where)
            delete = f"DELETE FROM {quoted(tuple(self._written.split('.')))} WHERE {where}"  # noqa: S608
            statement = statements.Statement.of(delete, values)
            run_in_turn(self._table, lambda: self.run(statement, properties), ask_for_quiet=self.ask_for_quiet)
        self.ensure_commit(properties)

    def run(
        self, statement: str, properties: Mapping[str, str], *, session: SparkSession | None = None, bounds: Any = None
    ) -> None:
        """Run a statement that changes rows, and write properties to its snapshot's summary.

        ``session`` has the views that the statement names; default: the ledger's session. ``bounds``: ``KeyBounds`` of
        a MERGE.
        """
        spark: Any = session or self._spark
        sql, values = statements.parts(statement)
        jvm.java(self._spark).commit.FeedLedger.commit(spark._jsparkSession, sql, values, bounds, properties)

    def land_empty(self, properties: Mapping[str, str]) -> None:
        """Commit a snapshot with these properties that changes no rows."""
        jvm.java(self._spark).commit.FeedLedger.commit(self.loaded(), properties)

    def ensure_commit(self, properties: Mapping[str, str]) -> None:
        """Commit an empty snapshot if the statement changed no rows, because the ledger needs a snapshot."""
        if self.rows_of(properties[COMMIT_ID]) is None:
            self.land_empty(properties)

    def check(self, commit: Commit) -> CommitCheck:
        self._checked = self.loaded()
        try:
            return check_commit(commit, self.position(self._checked), where=self._table)
        except CheckpointMismatch:
            # While this driver was suspended, another driver may have taken over and committed: report that instead.
            taken = self.fence_taken()
            if commit.fence is not None and taken not in (None, commit.fence):
                raise fence_lost(taken, commit.fence, where=self._table) from None
            raise

    def properties(self, table: Any = None) -> dict[str, str]:
        """Return the properties of ``table``, or by default of the newly loaded table."""
        # Python's dict() of a Java map would call into the JVM for each property.
        text = str(jvm.java(self._spark).commit.FeedLedger.properties(table or self.loaded()))
        return dict(json.loads(text))

    def branch(self) -> str | None:
        """Return the branch that the feed writes to; None for the main branch."""
        return self.properties().get(f"{BRANCH}.{self._feed}")

    def head(self) -> Any:
        """Return the newest snapshot of the feed's branch as a Java object; None if the branch is empty."""
        return jvm.java(self._spark).commit.FeedLedger.head(self.loaded(), self._feed)

    def has_published(self) -> bool:
        """Return whether a commit of the feed was published to the main branch."""
        return bool(jvm.java(self._spark).commit.Publication.hasPublished(self.loaded(), self._feed))

    def publication_state(self) -> str:
        """Return the state of the main branch relative to the feed's branch: see ``Publication.java``."""
        return str(jvm.java(self._spark).commit.Publication.state(self.loaded(), self._feed))

    def branch_is_free(self, branch: str) -> bool:
        """Return whether a feed may begin to write to ``branch``: it is missing or at the main branch's snapshot."""
        table = self.loaded()
        ref, main = table.refs().get(branch), table.currentSnapshot()
        if ref is None or main is not None:
            return ref is None or bool(ref.snapshotId() == main.snapshotId())
        # The branch of an empty table has an empty snapshot, which Iceberg creates with the branch.
        return str(table.snapshot(ref.snapshotId()).summary().get("total-records")) == "0"

    def format_version(self) -> int:
        return int(self.loaded().operations().current().formatVersion())

    def _ancestors(self) -> Iterator[_Snapshot]:
        """Yield the snapshots of the feed's branch, newest first."""
        table, start, most = self.loaded(), None, 1
        while page := json.loads(
            str(jvm.java(self._spark).commit.FeedLedger.ancestors(table, self._feed, start, most))
        ):
            for each in page:
                yield _Snapshot(**each)
            start = page[-1]["parent"]
            if start is None:
                return
            # A call reads 8 times as many snapshots as the call before: most callers need only the newest, a few need
            # all.
            most = min(8 * most, MOST_A_CALL)

    def loaded(self) -> Any:
        """Load the table's current state as a Java object."""
        spark: Any = self._spark
        return jvm.java(self._spark).commit.FeedLedger.load(spark._jsparkSession, self._table)


def position_unknown(feed: str, *, where: str) -> CheckpointMismatch:
    what = f"the table was rolled back to before the commits of feed '{feed}', so the feed's position is unknown"
    hint = "restore the table; or choose a position: lakefeed offsets rewind pipeline.yaml --to timestamp:…"
    return CheckpointMismatch(what, where=where, hint=hint)
