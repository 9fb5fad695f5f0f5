"""Runs the steps of upkeep: Iceberg's own Spark actions, in pieces that are short and can fail without harm.

Each piece is one commit. Appends never conflict with it: the second committer puts its commit on top of the other's.
Where others rewrite the same rows, the second is refused; here that is taken as ours to try again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING, Any, TypeVar

from lakefeed.clients.iceberg.write_lock import turns_at
from lakefeed.clients.spark.jvm import java
from lakefeed.ledger.iceberg import QUIET
from lakefeed.maintenance.planner import Expiry
from lakefeed.maintenance.table_stats import Partition

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Result = TypeVar("Result")

TRIES = 5
FIRST_WAIT_SECONDS = 0.5
# Iceberg's exceptions when the commits of others come first, and its message when it has wrapped them.
CONFLICTS = (
    "CommitFailedException",
    "ValidationException",
    "Cannot commit rewrite because of",
)
# A file that was read is gone: others have replaced and expired it meanwhile, or it is lost for good.
GONE = "NotFoundException"
NO_CONFLICTS = ("GC is disabled", "lakefeed refuses the commit", "Unable to determine whether certain files are orphan")
MB = 1024 * 1024


class WriteConflict(Exception):
    """The commits of others came first each time; nothing of this piece is in the table."""


@dataclass(frozen=True, kw_only=True)
class Rewritten:
    """One piece of a rewrite: the files that it has read, those that replace them, and the bytes that it has read."""

    before: int
    after: int
    bytes: int = 0


class MaintenanceActions:
    """The steps for one table. Each raises ``WriteConflict`` if the commits of others came first too often.

    Args:
        table: catalog.namespace.table
        stopping: True when no new piece is to be begun, and no failed one to be tried again.
    """

    def __init__(self, spark: SparkSession, table: str, *, stopping: Callable[[], bool]) -> None:
        self._jvm: Any = spark._jvm
        self._java_session = spark._jsparkSession
        self._upkeep = java(spark).upkeep
        self._table = table
        self._stopping = stopping

    def load(self) -> Any:
        """Load the Java table as it is at present."""
        return self._jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(self._java_session, self._table)

    def compact(
        self, partition: Partition, *, target_bytes: int, group_bytes: int, min_files: int
    ) -> Iterator[Rewritten]:
        """Rewrite the small files of a partition, piece by piece; the caller may stop between two of them.

        Args:
            target_bytes: size of the files to write.
            group_bytes: so much is read at once.
            min_files: so many small files are worth a piece.
        """
        average = max(1, partition.small_bytes // max(1, partition.small_files))
        files_at_once = max(min_files, group_bytes // average, 2)
        options = {
            "target-file-size-bytes": target_bytes,
            "max-file-group-size-bytes": max(group_bytes, target_bytes),
            "max-files-to-rewrite": files_at_once,
            "max-concurrent-file-group-rewrites": 1,
            "min-input-files": min_files,
        }
        values = self._jvm.java.util.ArrayList()
        for value in partition.key.values:
            values.add(as_text(value))

        def rewrite(table: Any) -> Rewritten:
            chosen = self._upkeep.PartitionFilter.of(table, partition.key.spec_id, values)
            action = self._actions.rewriteDataFiles(table).filter(chosen)
            for name, value in options.items():
                action = action.option(name, str(value))
            result = action.execute()
            return Rewritten(
                before=int(result.rewrittenDataFilesCount()),
                after=int(result.addedDataFilesCount()),
                bytes=int(result.rewrittenBytesCount()),
            )

        for _ in range(2 + partition.files // files_at_once):
            piece = self._retry(rewrite)
            if not piece.before:
                return
            yield piece
            if piece.after >= piece.before:
                # No fewer files: Iceberg would choose them again and again.
                return

    def rewrite_manifests(self) -> Rewritten:
        """Rewrite all manifests, clustered by partition."""

        def rewrite(table: Any) -> Rewritten:
            result = self._actions.rewriteManifests(table).execute()
            return Rewritten(before=len(list(result.rewrittenManifests())), after=len(list(result.addedManifests())))

        return self._retry(rewrite)

    def rewrite_delete_files(self) -> Rewritten:
        """Rewrite small files of position deletes, and leave out those whose rows are gone."""

        def rewrite(table: Any) -> Rewritten:
            action = self._actions.rewritePositionDeletes(table).option("max-concurrent-file-group-rewrites", "1")
            result = action.execute()
            return Rewritten(before=int(result.rewrittenDeleteFilesCount()), after=int(result.addedDeleteFilesCount()))

        return self._retry(rewrite)

    def expire(self, expiry: Expiry) -> tuple[int, int]:
        """Remove snapshots, and the files that only they need; return how many snapshots and files."""

        def expire(table: Any) -> tuple[int, int]:
            before = _count_snapshots(table)
            action = self._actions.expireSnapshots(table).expireOlderThan(int(expiry.before * 1000))
            result = action.retainLast(expiry.keep).option("stream-results", "true").execute()
            counts = (
                result.deletedDataFilesCount(),
                result.deletedPositionDeleteFilesCount(),
                result.deletedEqualityDeleteFilesCount(),
                result.deletedManifestsCount(),
                result.deletedManifestListsCount(),
                result.deletedStatisticsFilesCount(),
            )
            # A writer's commit may have come in between: never fewer than none.
            return max(0, before - _count_snapshots(table)), sum(int(count) for count in counts)

        return self._retry(expire)

    def find_orphans(self, *, before: float, delete: bool) -> tuple[int, int]:
        """Find files that nothing refers to; return how many they are and their bytes.

        Args:
            before: older ones alone, in seconds since 1970.
            delete: False to count them alone.
        """
        found = self._upkeep.OrphanFiles.find(self._java_session, self.load(), int(before * 1000), delete)
        return int(found[0]), int(found[1])

    def _retry(self, piece: Callable[[Any], Result]) -> Result:
        """Try a piece until it does not conflict, and wait twice as long after each try."""
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        for attempt in range(1, TRIES + 1):
            try:
                return self._run_in_turn(piece)
            except (Py4JError, PySparkException, WriteConflict) as error:
                conflict = isinstance(error, WriteConflict) or is_conflict(str(error))
                last = attempt == TRIES or self._stopping()
                if not conflict and (last or GONE not in str(error)):
                    raise
                if last:
                    raise WriteConflict from error
                time.sleep(FIRST_WAIT_SECONDS * 2 ** (attempt - 1))
        raise AssertionError("unreachable")

    def _run_in_turn(self, piece: Callable[[Any], Result]) -> Result:
        """Run a piece when no MERGE of this process is at work, and no writer of another one has asked for quiet."""
        with turns_at(self._table).maintaining():
            table = self.load()
            if int(table.properties().getOrDefault(QUIET, "0")) > time.time() * 1000:
                raise WriteConflict
            return piece(table)

    @property
    def _actions(self) -> Any:
        return self._jvm.org.apache.iceberg.spark.actions.SparkActions.get(self._java_session)


def is_conflict(text: str) -> bool:
    """Whether a Java exception's text is of commits of others that came first."""
    return any(conflict in text for conflict in CONFLICTS) and not any(other in text for other in NO_CONFLICTS)


def as_text(value: Any) -> str | None:
    """A partition's value as Iceberg reads it from text (``Conversions.fromPartitionString``)."""
    if value is None:
        return None
    if isinstance(value, bool):
        return str(value).lower()
    return value.isoformat() if isinstance(value, date) else str(value)


def _count_snapshots(table: Any) -> int:
    return int(table.operations().refresh().snapshots().size())
