"""The ledger of an Iceberg table: every commit carries, in its snapshot, the offset ranges that it came from.

A batch is never skipped because its id is known. It is skipped only if exactly its ranges are in the table
already, written only if it goes on where the table's last commit ended, and refused otherwise.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import astuple, dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from lakefeed import jvm
from lakefeed.commit.covered import Position
from lakefeed.commit.move import Move
from lakefeed.commit.outcomes import Counts, counts_by_partition
from lakefeed.commit.ranges import OffsetRanges
from lakefeed.errors import CheckpointMismatch
from lakefeed.schema.ddl import quoted, set_properties
from lakefeed.tables.conflicts import run_in_turn

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FEED = "lakefeed.feed"
BATCH_ID = "lakefeed.batch-id"
RANGES = "lakefeed.ranges"
COMMIT_ID = "lakefeed.commit-id"
COUNTS = "lakefeed.counts"
FENCE = "lakefeed.fence"
FENCE_TAKEN = "lakefeed.fence-taken"
ROWS = "lakefeed.rows"
CONTINUITY = "lakefeed.continuity"
REPLAY = "lakefeed.replay"
REPLAY_OF = "lakefeed.replay-of"
MOVED = "lakefeed.moved"
BACKFILL_OF = "lakefeed.backfill-of"
POSITION = "lakefeed.position"
UPSERTED = "lakefeed.upserted"
QUIET = "lakefeed.upkeep.quiet"
"""Table property: until when no rewrite of files may be committed, in ms since 1970 (``Quiet.java``)."""

QUIET_SECONDS = 600.0
MERGED = "spark.merge-into.num-target-rows-"
"""Spark's own counts of a MERGE, which Iceberg puts into the snapshot: inserted, updated and deleted rows."""


# How the JVM module's refusals begin (io.lakefeed.commit.BatchRefused).
REFUSED = "lakefeed refuses the commit"


@dataclass(frozen=True)
class Upserts:
    """What became of the changes of a batch that was merged into a table of keyed rows.

    Attributes:
        changes: as they came out of the transform.
        keys: different keys among them; the other changes were superseded within the batch.
        deletes: of these keys, those whose newest change is a delete.
        inserted: rows for keys that the table did not have.
        updated: rows that were changed.
        deleted: rows that were removed.
    """

    changes: int = 0
    keys: int = 0
    deletes: int = 0
    inserted: int = 0
    updated: int = 0
    deleted: int = 0

    @property
    def landed(self) -> int:
        """Rows that the table has from this batch."""
        return self.inserted + self.updated

    @property
    def superseded(self) -> int:
        """Changes that a newer one of the same batch made void."""
        return self.changes - self.keys

    @property
    def void(self) -> int:
        """Changes that found a newer row, or nothing to delete."""
        return self.keys - self.inserted - self.updated - self.deleted

    def to_json(self) -> str:
        """What is known before the commit: ``[changes,keys,deletes]``."""
        return json.dumps([self.changes, self.keys, self.deletes], separators=(",", ":"))

    @classmethod
    def sum(cls, each: Iterable[Upserts | None]) -> Upserts:
        """Of several batches."""
        return cls(*(sum(column) for column in zip(*(astuple(found) for found in each if found), strict=True)))

    @classmethod
    def of(cls, summary: Mapping[str, str]) -> Upserts | None:
        """Reads a snapshot's summary; None if the commit is no such batch."""
        if UPSERTED not in summary:
            return None
        merged = (int(summary.get(f"{MERGED}{what}", 0)) for what in ("inserted", "updated", "deleted"))
        return cls(*json.loads(summary[UPSERTED]), *merged)


class SnapshotProperties(Protocol):
    """Whatever tells what a commit's snapshot is to carry."""

    def properties(self) -> dict[str, str]:
        """For the snapshot's summary."""


@dataclass(frozen=True)
class Commit:
    """One commit of a feed, as its snapshot says."""

    feed: str
    batch_id: int
    ranges: OffsetRanges
    fence: str | None = None
    snapshot_id: int | None = None
    rows: int = 0
    files: int = 0
    counts: Mapping[tuple[str, int], Counts] = field(default_factory=dict)
    committed_at: float = 0.0
    """Seconds since 1970."""
    move: Move | None = None
    """Where the commit is no batch, but moves the feed; its ranges are empty then, where it moves to."""
    upserts: Upserts | None = None
    """Where the batch's changes were merged into the table; ``rows`` are then those that were inserted or changed."""

    @property
    def title(self) -> str:
        """As findings call it."""
        return f"batch {self.batch_id}, snapshot {self.snapshot_id}"

    def properties(self) -> dict[str, str]:
        """What is written into the snapshot's summary, in one step with the data."""
        written = {FEED: self.feed, BATCH_ID: str(self.batch_id), RANGES: self.ranges.to_json()}
        if self.move is not None:
            written[MOVED] = self.move.to_json(self.ranges)
        return written if self.fence is None else {**written, FENCE: self.fence}

    @classmethod
    def of(cls, snapshot_id: int, summary: Mapping[str, str], *, committed_at: float = 0.0) -> Commit:
        """Reads a snapshot's summary that has these properties."""
        move = Move.from_json(summary[MOVED]) if MOVED in summary else None
        upserts = Upserts.of(summary)
        return cls(
            feed=summary[FEED],
            batch_id=int(summary[BATCH_ID]),
            ranges=OffsetRanges.from_json(summary[RANGES]),
            fence=summary.get(FENCE),
            snapshot_id=snapshot_id,
            # A move that deletes rows writes those anew that it leaves in a file; it adds none.
            rows=0 if move else upserts.landed if upserts else int(summary.get("added-records", 0)),
            files=int(summary.get("added-data-files", 0)),
            counts=counts_by_partition(summary.get(COUNTS, "{}")),
            committed_at=committed_at,
            move=move,
            upserts=upserts,
        )


@dataclass(frozen=True)
class Backfill:
    """Old records that land beside the feed, and move no position: one commit of them.

    Attributes:
        feed: the feed that has not read them and never will.
        ranges: theirs; partitions without any are left out.
        fence: of the feed's backfills, ``<feed>.backfills``.
        number: the snapshot's sequence number, which later ones exceed; its time in ms where the table has none.
        commit_id: known to it alone.
        committed_at: seconds since 1970.
        after: how many commits of the feed came before it; told by whoever audits.
    """

    feed: str
    ranges: OffsetRanges
    fence: str | None = None
    snapshot_id: int | None = None
    number: int = 0
    commit_id: str | None = None
    rows: int = 0
    counts: Mapping[tuple[str, int], Counts] = field(default_factory=dict)
    committed_at: float = 0.0
    after: int = 0

    @property
    def batch_id(self) -> None:
        """It is no batch."""
        return None

    @property
    def move(self) -> None:
        """It moves nothing."""
        return None

    @property
    def title(self) -> str:
        """As findings call it."""
        return f"backfill, snapshot {self.snapshot_id}"

    def properties(self) -> dict[str, str]:
        """For the snapshot's summary."""
        written = {BACKFILL_OF: self.feed, RANGES: self.ranges.to_json()}
        return written if self.fence is None else {**written, FENCE: self.fence}

    @classmethod
    def of(
        cls, snapshot_id: int, summary: Mapping[str, str], *, number: int | None, milliseconds: int, after: int = 0
    ) -> Backfill:
        """Reads a snapshot's summary that has these properties.

        Args:
            snapshot_id: the snapshot's.
            summary: the snapshot's.
            number: its sequence number, if it has one.
            milliseconds: its time.
            after: how many commits of the feed came before it.
        """
        return cls(
            feed=summary[BACKFILL_OF],
            ranges=OffsetRanges.from_json(summary[RANGES]),
            fence=summary.get(FENCE),
            snapshot_id=snapshot_id,
            number=number or milliseconds,
            commit_id=summary.get(COMMIT_ID),
            rows=int(summary.get("added-records", 0)),
            counts=counts_by_partition(summary.get(COUNTS, "{}")),
            committed_at=milliseconds / 1000,
            after=after,
        )


class Ledger:
    """The commits of one feed in one Iceberg table."""

    def __init__(self, spark: SparkSession, table: str, feed: str) -> None:
        self._spark = spark
        self._table = table
        self._feed = feed

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
            raise CheckpointMismatch(
                f"the table was rolled back to before the commits of feed '{self._feed}' that it still knows: where "
                "it stands cannot be told",
                where=self._table,
                hint="restore the table; or say where the feed goes on: lakefeed offsets rewind",
            ) from None
        return None if text is None else Position.from_json(str(text))

    def land_move(self, commit: Commit, *, commit_id: str, delete_where: str | None = None) -> None:
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

    def is_in_table(self, commit: Commit) -> bool:
        """Whether exactly these ranges are the table's last commit; False if the batch has to be written.

        Raises:
            CheckpointMismatch: if the batch neither is nor follows the last commit.
        """
        return is_last(commit, self.position(), table=self._table)

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
        return _loaded(self._spark, self._table)


def is_last(commit: Commit, last: Position | None, *, table: str) -> bool:
    """Whether exactly these ranges are a table's last commit; False if the batch has to be written.

    Args:
        commit: the batch's.
        last: where the feed stands in the table.
        table: as errors name it.

    Raises:
        CheckpointMismatch: if the batch neither is nor follows the last commit.
    """
    if last is None:
        if commit.batch_id == 0:
            return False
        raise CheckpointMismatch(
            f"the checkpoint of feed '{commit.feed}' is at batch {commit.batch_id}, but the table holds no "
            "commit of it: going on would lose what came before",
            where=table,
            hint="restore the table, or name another checkpoint location to read the topics again",
        )
    if last.ranges == commit.ranges:
        return True
    if commit.ranges.follows(last.ranges):
        return False
    gaps = "; ".join(
        f"{found.topic}-{found.partition} begins at {found.start}, the table ends at {expected}"
        for found, expected in commit.ranges.gap_after(last.ranges)
    ) or "; ".join(
        f"{gone.topic}-{gone.partition} is in the table but not in the batch"
        for gone in commit.ranges.forgotten_after(last.ranges)
    )
    raise CheckpointMismatch(
        f"batch {commit.batch_id} does not go on where feed '{commit.feed}' ended in the table: {gaps}",
        where=f"{table}, snapshot {last.snapshot_id}",
        hint="the checkpoint is not this table's, or one of the two was rolled back or lost: restore it, or "
        "start with a new table and a new checkpoint location",
    )


def properties_of(spark: SparkSession, table: str) -> dict[str, str]:
    """A table's properties, lakefeed's own among them."""
    return dict(_loaded(spark, table).properties())


def _loaded(spark: SparkSession, table: str) -> Any:
    gateway: Any = spark._jvm
    return gateway.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(spark._jsparkSession, table)
