"""The ledger of an Iceberg table: every commit carries, in its snapshot, the offset ranges that it came from.

A batch is never skipped because its id is known. It is skipped only if exactly its ranges are in the table
already, written only if it continues where the table's last commit ended, and refused otherwise.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from lakefeed.clients.iceberg.java_table import load_table, properties_of
from lakefeed.clients.iceberg.sql import quoted, set_properties
from lakefeed.clients.iceberg.write_lock import run_in_turn
from lakefeed.clients.spark import jvm
from lakefeed.errors import CheckpointMismatch
from lakefeed.ledger.continuity import check_commit
from lakefeed.ledger.feed_position import Position
from lakefeed.ledger.fence import require_fence, take_fence
from lakefeed.ledger.protocol import CommitCheck
from lakefeed.ledger.snapshot_summary import BACKFILL_OF, COMMIT_ID, FEED, RANGES, Backfill, Commit, Upserts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUIET = "lakefeed.upkeep.quiet"
"""Table property: until when no rewrite of files may be committed, in ms since 1970 (``Quiet.java``)."""

QUIET_SECONDS = 600.0

# How the JVM module's refusals begin (io.lakefeed.commit.BatchRefused).
REFUSED = "lakefeed refuses the commit"


class IcebergLedger:
    """The commits of one feed in one Iceberg table."""

    def __init__(self, spark: SparkSession, table: str, feed: str) -> None:
        self._spark = spark
        self._table = table
        self._feed = feed

    def take_fence(self, suffix: str = "") -> str:
        """Make this driver the only one whose commits of the feed succeed, until another takes a fence.

        Args:
            suffix: behind the feed's name, for work that is fenced apart from its batches.
        """
        return take_fence(self._spark, self._table, f"{self._feed}{suffix}")

    def commits(self) -> Iterator[Commit]:
        """The feed's commits that the table's present state descends from, newest first."""
        for snapshot, summary in self._ancestors():
            if summary.get(FEED) == self._feed and RANGES in summary:
                yield Commit.of(int(snapshot.snapshotId()), summary, committed_at=snapshot.timestampMillis() / 1000)

    def backfills(self) -> Iterator[Backfill]:
        """The feed's backfills that the table's present state descends from, newest first."""
        for snapshot, summary in self._ancestors():
            if summary.get(BACKFILL_OF) == self._feed and RANGES in summary:
                number, time = int(snapshot.sequenceNumber()), int(snapshot.timestampMillis())
                yield Backfill.of(int(snapshot.snapshotId()), summary, number=number, milliseconds=time)

    def rows_of(self, commit_id: str) -> int | None:
        """How many rows a commit has added; None if it is not in the table."""
        for _, summary in self._ancestors():
            if summary.get(COMMIT_ID) == commit_id:
                return int(summary.get("added-records", 0))
        return None

    def changed_by(self, commit_id: str) -> int:
        """How many rows a MERGE has inserted, changed or deleted."""
        for _, summary in self._ancestors():
            if summary.get(COMMIT_ID) == commit_id:
                upserts = Upserts.of(summary) or Upserts()
                return upserts.landed + upserts.deleted
        return 0

    def has_replay(self, replay_id: str) -> bool:
        """Whether the rows of a replay of dead letters are in the table.

        Of the feed's last replay it is known for ever, of earlier ones as long as their snapshots have not expired.
        """
        return bool(jvm.java(self._spark).commit.FeedLedger.hasReplay(self.loaded(), self._feed, replay_id))

    def ask_for_quiet(self) -> None:
        """Lets no rewrite of files be committed until the feed's next commit, or for ``QUIET_SECONDS`` at most.

        Raises:
            Py4JJavaError: the catalog could not be written.
        """
        until = int((time.time() + QUIET_SECONDS) * 1000)
        self._spark.sql(set_properties(self._table, {QUIET: str(until)}))

    def location(self) -> str:
        """Where the table is."""
        return str(self.loaded().location())

    def position(self) -> Position | None:
        """Where the feed stands, whether or not its snapshots have expired; None if the table has no commit of it.

        Raises:
            CheckpointMismatch: the table was rolled back to before all that it still knows of the feed.
        """
        from py4j.protocol import Py4JJavaError

        try:
            text = jvm.java(self._spark).commit.FeedLedger.position(self.loaded(), self._feed)
        except Py4JJavaError as error:
            if REFUSED not in str(error):
                raise
            raise position_unknown(self._feed, where=self._table) from None
        return None if text is None else Position.from_json(str(text))

    def record_move(self, commit: Commit, *, commit_id: str, delete_where: str | None = None) -> None:
        """Commits a move of the feed's position.

        Args:
            commit: with its ``move``.
            commit_id: known to it alone.
            delete_where: a condition in Spark SQL; the rows that it is true of are deleted in the same commit.

        Raises:
            Py4JJavaError: Spark could not, or the commit was refused.
        """
        properties = {**commit.properties(), COMMIT_ID: commit_id}
        if delete_where is not None:
            statement = f"DELETE FROM {quoted(tuple(self._table.split('.')))} WHERE {delete_where}"  # noqa: S608
            run_in_turn(self._table, lambda: self.run(statement, properties), ask_for_quiet=self.ask_for_quiet)
        if self.rows_of(commit_id) is None:
            # Also where there was nothing to delete: no such statement makes a snapshot then.
            self.land_empty(properties)

    def run(self, statement: str, properties: Mapping[str, str], *, session: SparkSession | None = None) -> None:
        """Runs a statement that changes rows; its snapshot carries the properties.

        Args:
            statement: in Spark SQL.
            properties: for the snapshot's summary.
            session: the session whose views it names. Default: this one.

        Raises:
            Py4JJavaError: Spark could not, or the commit was refused.
        """
        spark: Any = session or self._spark
        jvm.java(self._spark).commit.FeedLedger.commit(spark._jsparkSession, statement, self._java_map(properties))

    def land_empty(self, properties: Mapping[str, str]) -> None:
        """Commits a snapshot that changes nothing and carries these properties.

        Raises:
            Py4JJavaError: the commit was refused.
        """
        jvm.java(self._spark).commit.FeedLedger.commit(self.loaded(), self._java_map(properties))

    def _java_map(self, entries: Mapping[str, str]) -> Any:
        gateway: Any = self._spark._jvm
        found = gateway.java.util.HashMap()
        for key, value in entries.items():
            found[key] = value
        return found

    def check(self, commit: Commit) -> CommitCheck:
        """Return whether a batch has to be written.

        Raises:
            CheckpointMismatch: it neither is the last commit nor begins where that ended, or another driver has taken
                the feed over.
        """
        try:
            return check_commit(commit, self.position(), where=self._table)
        except CheckpointMismatch:
            # To a driver that was suspended, a table with newer commits looks like a checkpoint that was rolled back.
            require_fence(self._spark, self._table, commit)
            raise

    def properties(self) -> dict[str, str]:
        """The table's properties."""
        return properties_of(self._spark, self._table)

    def _ancestors(self) -> Iterator[tuple[Any, dict[str, str]]]:
        table = self.loaded()
        snapshot = table.currentSnapshot()
        while snapshot is not None:
            yield snapshot, dict(snapshot.summary())
            parent = snapshot.parentId()
            snapshot = None if parent is None else table.snapshot(parent)

    def loaded(self) -> Any:
        """The table as Iceberg's Java object, as it is now."""
        return load_table(self._spark, self._table)


def position_unknown(feed: str, *, where: str) -> CheckpointMismatch:
    """Return the error for a table that was rolled back to before all known commits of a feed."""
    return CheckpointMismatch(
        f"the table was rolled back to before the commits of feed '{feed}'; the feed's position is unknown",
        where=where,
        hint="restore the table; or say where the feed resumes: lakefeed offsets rewind pipeline.yaml --to timestamp:…",
    )
