"""The steps of upkeep: Iceberg's own Spark actions, in pieces that are short and can fail without harm.

Each piece is one commit. Appends never conflict with it: the second committer puts its commit on top of the other's.
Where others rewrite the same rows, the second is refused; here that is taken as ours to try again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
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
# What Iceberg throws when the commits of others come first, and what it says when it has wrapped that.
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
    """What one piece of a rewrite did.

    Attributes:
        before: files that it has read.
        after: files that are there instead.
        bytes: in those that it has read.
    """

    before: int
    after: int
    bytes: int = 0


class MaintenanceActions:
    """The steps for one table.

    Args:
        spark: the session.
        table: catalog.namespace.table
        loaded: reloads the Java table: a conflict requires the present state.
        stopping: True when no new piece is to be begun, and no failed one to be tried again.
    """

    def __init__(
        self, spark: SparkSession, table: str, *, loaded: Callable[[], Any], stopping: Callable[[], bool]
    ) -> None:
        self._spark = spark
        self._table = table
        self._loaded = loaded
        self._stopping = stopping

    def compact(
        self, partition: Partition, *, target_bytes: int, group_bytes: int, min_files: int
    ) -> Iterator[Rewritten]:
        """Rewrites the small files of a partition, piece by piece; the caller may stop between two of them.

        Args:
            partition: as it was found.
            target_bytes: size of the files to write.
            group_bytes: so much is read at once.
            min_files: so many small files are worth a piece.

        Raises:
            Conflict: others' commits came first too often.
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
        most = 2 + partition.files // files_at_once
        for _ in range(most):
            piece = self._tried(lambda table: self._rewrite_data(table, partition, options))
            if not piece.before:
                return
            yield piece
            if piece.after >= piece.before:
                # No fewer files: Iceberg would choose them again and again.
                return

    def manifests(self) -> Rewritten:
        """Rewrites all manifests, clustered by partition.

        Raises:
            Conflict: others' commits came first too often.
        """

        def rewrite(table: Any) -> Rewritten:
            result = self._actions.rewriteManifests(table).execute()
            return Rewritten(before=_size(result.rewrittenManifests()), after=_size(result.addedManifests()))

        return self._tried(rewrite)

    def delete_files(self) -> Rewritten:
        """Rewrites small files of position deletes, and leaves out those whose rows are gone.

        Raises:
            Conflict: others' commits came first too often.
        """

        def rewrite(table: Any) -> Rewritten:
            action = self._actions.rewritePositionDeletes(table).option("max-concurrent-file-group-rewrites", "1")
            result = action.execute()
            return Rewritten(
                before=int(result.rewrittenDeleteFilesCount()),
                after=int(result.addedDeleteFilesCount()),
                bytes=int(result.rewrittenBytesCount()),
            )

        return self._tried(rewrite)

    def expire(self, expiry: Expiry) -> tuple[int, int]:
        """Takes snapshots away, and the files that only they need; returns how many snapshots and files.

        Raises:
            Conflict: others' commits came first too often.
        """

        def expire(table: Any) -> tuple[int, int]:
            before = _snapshots(table)
            action = self._actions.expireSnapshots(table).expireOlderThan(int(expiry.before * 1000))
            result = action.retainLast(expiry.keep).option("stream-results", "true").execute()
            files = sum(
                int(count)
                for count in (
                    result.deletedDataFilesCount(),
                    result.deletedPositionDeleteFilesCount(),
                    result.deletedEqualityDeleteFilesCount(),
                    result.deletedManifestsCount(),
                    result.deletedManifestListsCount(),
                    result.deletedStatisticsFilesCount(),
                )
            )
            # A writer's commit may have come in between: never fewer than none.
            return max(0, before - _snapshots(table)), files

        return self._tried(expire)

    def orphans(self, *, before: float, delete: bool) -> tuple[int, int]:
        """Finds files that nothing refers to, and deletes them; returns how many they are and their bytes.

        Args:
            before: older ones alone, in seconds since 1970.
            delete: False to count them alone.
        """
        found = java(self._spark).upkeep.OrphanFiles.find(
            _java_session(self._spark), self._loaded(), int(before * 1000), delete
        )
        return int(found[0]), int(found[1])

    def _rewrite_data(self, table: Any, partition: Partition, options: dict[str, int]) -> Rewritten:
        values = _jvm(self._spark).java.util.ArrayList()
        for each in partition.key.values:
            values.add(as_text(each))
        chosen = java(self._spark).upkeep.PartitionFilter.of(table, partition.key.spec_id, values)
        action = self._actions.rewriteDataFiles(table).filter(chosen)
        for name, value in options.items():
            action = action.option(name, str(value))
        result = action.execute()
        return Rewritten(
            before=int(result.rewrittenDataFilesCount()),
            after=int(result.addedDataFilesCount()),
            bytes=int(result.rewrittenBytesCount()),
        )

    def _tried(self, piece: Callable[[Any], Result]) -> Result:
        """Tries a piece until it does not conflict, a little longer between two tries each time."""
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        for attempt in range(1, TRIES + 1):
            try:
                return self._in_turn(piece)
            except (Py4JError, PySparkException, WriteConflict) as error:
                conflict = isinstance(error, WriteConflict) or is_conflict(str(error))
                last = attempt == TRIES or self._stopping()
                if not conflict and (last or GONE not in str(error)):
                    raise
                if last:
                    raise WriteConflict from error
                time.sleep(FIRST_WAIT_SECONDS * 2 ** (attempt - 1))
        raise AssertionError("unreachable")

    def _in_turn(self, piece: Callable[[Any], Result]) -> Result:
        """Does a piece when no MERGE of this process is at work, and no writer of another one has asked for quiet."""
        with turns_at(self._table).tidying():
            table = self._loaded()
            if int(table.properties().getOrDefault(QUIET, "0")) > time.time() * 1000:
                raise WriteConflict
            return piece(table)

    @property
    def _actions(self) -> Any:
        return _jvm(self._spark).org.apache.iceberg.spark.actions.SparkActions.get(_java_session(self._spark))


def is_conflict(text: str) -> bool:
    """Whether a Java exception's text is of commits of others that came first."""
    return any(each in text for each in CONFLICTS) and not any(each in text for each in NO_CONFLICTS)


def as_text(value: Any) -> str | None:
    """A partition's value as Iceberg reads it from text (``Conversions.fromPartitionString``)."""
    if value is None:
        return None
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | str | Decimal):
        return str(value)
    return value.isoformat() if isinstance(value, date) else str(value)


def _size(items: Any) -> int:
    return sum(1 for _ in items)


def _snapshots(table: Any) -> int:
    return int(table.operations().refresh().snapshots().size())


def _jvm(spark: SparkSession) -> Any:
    return spark._jvm


def _java_session(spark: SparkSession) -> Any:
    return spark._jsparkSession
