"""Runs the steps of maintenance: Iceberg's own Spark actions, in short pieces that can fail without harm.

A piece is one commit. Appends never conflict with a piece, because Iceberg bases the later commit on the earlier one.
If another writer rewrites the same rows, Iceberg refuses the later commit; maintenance then tries the piece again.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date
from typing import Any, TypeVar

from lakefeed.clients.iceberg.write_lock import turns_at
from lakefeed.clients.spark.jvm import java
from lakefeed.lazy import SparkSession, py4j, spark_errors
from lakefeed.ledger.iceberg import QUIET
from lakefeed_upkeep.planner import Expiry
from lakefeed_upkeep.settings import Compact
from lakefeed_upkeep.table_stats import Partition

Result = TypeVar("Result")

TRIES = 5
FIRST_WAIT_SECONDS = 0.5
CONFLICTS = ("CommitFailedException", "ValidationException", "Cannot commit rewrite because of")
"""Iceberg's exceptions when another writer's commit came first, and the text of an exception that wraps these."""
GONE = "NotFoundException"
"""The exception for a missing file: another writer has replaced and expired it, or it is lost for good."""
NO_CONFLICTS = ("GC is disabled", "lakefeed refuses the commit", "Unable to determine whether certain files are orphan")
MB = 1024 * 1024


class WriteConflict(Exception):
    """Other writers' commits came first at every attempt; nothing of this piece of work is in the table."""


@dataclass
class Done:
    """The counts of the work so far.

    Attributes:
        bytes: the size of the files that compaction has read.
        orphans: the number of unreferenced files that were deleted, or would be deleted without ``dry_run``.
        conflicts: the partitions and steps that were not done, because other commits came first at every attempt.
    """

    partitions: int = 0
    files_before: int = 0
    files_after: int = 0
    bytes: int = 0
    manifests_before: int = 0
    manifests_after: int = 0
    delete_files_before: int = 0
    delete_files_after: int = 0
    snapshots: int = 0
    expired_files: int = 0
    orphans: int = 0
    orphan_bytes: int = 0
    conflicts: list[str] = field(default_factory=list)


class MaintenanceActions:
    """The steps for one table. A step raises ``WriteConflict`` if other commits came first too often.

    Args:
        say: called with one line for each piece.
        stopping: returns the reason why no piece may begin or be tried again; None if pieces may begin.

    Attributes:
        orphans_at: when orphans were last deleted, in seconds since 1970.
    """

    def __init__(
        self, spark: SparkSession, table: str, *, done: Done, say: Callable[[str], None], stopping: Callable[[], object]
    ) -> None:
        self._jvm: Any = spark._jvm
        self._java_session = spark._jsparkSession
        self._upkeep = java(spark).upkeep
        self._table = table
        self._done = done
        self._say = say
        self._stopping = stopping
        self.orphans_at: float | None = None

    def load(self) -> Any:
        """Return the Java object of the table in its present state."""
        return self._jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(self._java_session, self._table)

    def compact(self, partition: Partition, settings: Compact, *, target_bytes: int) -> None:
        """Rewrite the small files of a partition to files of ``target_bytes``, piece by piece."""
        group_bytes = settings.group_mb * MB
        average = max(1, partition.small_bytes // max(1, partition.small_files))
        files_at_once = max(settings.min_files, group_bytes // average, 2)
        options = {
            "target-file-size-bytes": target_bytes,
            "max-file-group-size-bytes": max(group_bytes, target_bytes),
            "max-files-to-rewrite": files_at_once,
            "max-concurrent-file-group-rewrites": 1,
            "min-input-files": settings.min_files,
        }
        values = self._jvm.java.util.ArrayList()
        for value in partition.key.values:
            values.add(as_text(value))

        def rewrite(table: Any) -> Any:
            chosen = self._upkeep.PartitionFilter.of(table, partition.key.spec_id, values)
            action = self._actions.rewriteDataFiles(table).filter(chosen)
            for name, value in options.items():
                action = action.option(name, str(value))
            return action.execute()

        done, name = self._done, partition.key.path or "the table"
        for number in range(2 + partition.files // files_at_once):
            result = self._retry(rewrite)
            before, after = int(result.rewrittenDataFilesCount()), int(result.addedDataFilesCount())
            if not before:
                return
            if number == 0:
                done.partitions += 1
            done.files_before += before
            done.files_after += after
            done.bytes += int(result.rewrittenBytesCount())
            self._say(f"{name}: {before:,} files of {result.rewrittenBytesCount() / 1e6:,.1f} MB became {after:,}")
            # If the number of files did not decrease, Iceberg would choose the same files again and again.
            if after >= before or self._stopping() is not None:
                return

    def rewrite_manifests(self) -> None:
        """Rewrite all manifests, clustered by partition."""
        result = self._retry(lambda table: self._actions.rewriteManifests(table).execute())
        done = self._done
        done.manifests_before = len(list(result.rewrittenManifests()))
        done.manifests_after = len(list(result.addedManifests()))
        self._say(f"{done.manifests_before:,} manifests became {done.manifests_after:,}")

    def rewrite_delete_files(self) -> None:
        """Combine small files of position deletes; leave out the deletes of rows that no longer exist."""
        alone = ("max-concurrent-file-group-rewrites", "1")
        result = self._retry(lambda table: self._actions.rewritePositionDeletes(table).option(*alone).execute())
        done = self._done
        done.delete_files_before = int(result.rewrittenDeleteFilesCount())
        done.delete_files_after = int(result.addedDeleteFilesCount())
        self._say(f"{done.delete_files_before:,} files of deletes became {done.delete_files_after:,}")

    def expire(self, expiry: Expiry) -> None:
        """Remove the expired snapshots, and the files that only they use."""

        def expire(table: Any) -> tuple[int, Any]:
            before = _count_snapshots(table)
            action = self._actions.expireSnapshots(table).expireOlderThan(int(expiry.before * 1000))
            result = action.retainLast(expiry.keep).option("stream-results", "true").execute()
            # A writer may have committed meanwhile, so the difference may be negative.
            return max(0, before - _count_snapshots(table)), result

        self._done.snapshots, result = self._retry(expire)
        counts = (
            result.deletedDataFilesCount(),
            result.deletedPositionDeleteFilesCount(),
            result.deletedEqualityDeleteFilesCount(),
            result.deletedManifestsCount(),
            result.deletedManifestListsCount(),
            result.deletedStatisticsFilesCount(),
        )
        self._done.expired_files = sum(int(count) for count in counts)
        self._say(f"{self._done.snapshots:,} snapshots and {self._done.expired_files:,} files expired")

    def find_orphans(self, *, before: float, delete: bool) -> None:
        """Count the unreferenced files that are older than ``before``; with ``delete``, delete them."""
        files, size = self._upkeep.OrphanFiles.find(self._java_session, self.load(), int(before * 1000), delete)
        done = self._done
        done.orphans, done.orphan_bytes = int(files), int(size)
        if delete:
            self.orphans_at = time.time()
            self._say(f"{done.orphans:,} orphans of {done.orphan_bytes / 1e6:,.1f} MB were deleted")

    def _retry(self, piece: Callable[[Any], Result]) -> Result:
        """Try a piece until it does not conflict; double the wait after every attempt."""
        for attempt in range(1, TRIES + 1):
            try:
                return self._run_in_turn(piece)
            except (py4j.Py4JError, spark_errors.PySparkException, WriteConflict) as error:
                conflict = isinstance(error, WriteConflict) or is_conflict(str(error))
                last = attempt == TRIES or self._stopping() is not None
                if not conflict and (last or GONE not in str(error)):
                    raise
                if last:
                    raise WriteConflict from error
                time.sleep(FIRST_WAIT_SECONDS * 2 ** (attempt - 1))
        raise AssertionError("unreachable")

    def _run_in_turn(self, piece: Callable[[Any], Result]) -> Result:
        """Run a piece while no MERGE runs in this process; raise WriteConflict if another process asks for a pause."""
        with turns_at(self._table).maintaining():
            table = self.load()
            if int(table.properties().getOrDefault(QUIET, "0")) > time.time() * 1000:
                raise WriteConflict
            return piece(table)

    @property
    def _actions(self) -> Any:
        return self._jvm.org.apache.iceberg.spark.actions.SparkActions.get(self._java_session)


def is_conflict(text: str) -> bool:
    """Return whether a Java exception's text says that another commit came first."""
    return any(conflict in text for conflict in CONFLICTS) and not any(other in text for other in NO_CONFLICTS)


def as_text(value: Any) -> str | None:
    """Return a partition's value in the form of Iceberg's ``Conversions.fromPartitionString``."""
    if value is None:
        return None
    if isinstance(value, bool):
        return str(value).lower()
    return value.isoformat() if isinstance(value, date) else str(value)


def _count_snapshots(table: Any) -> int:
    return int(table.operations().refresh().snapshots().size())
