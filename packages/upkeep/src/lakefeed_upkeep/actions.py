"""Maintain a table by Iceberg's own Spark actions, in short pieces that can fail without harm.

A piece is one commit. Appends never conflict with a piece: Iceberg rebases the later commit on the earlier one. If
another writer rewrites the same rows, Iceberg refuses the later commit; maintenance then tries the piece again.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import date
from typing import Any, TypeVar

from lakefeed.clients.iceberg.write_lock import turns_at
from lakefeed.clients.spark.jvm import java
from lakefeed.config.values import seconds_of
from lakefeed.lazy import SparkSession, py4j, spark_errors
from lakefeed.ledger.iceberg import QUIET
from lakefeed_upkeep.settings import Compact, Expire, Step, Upkeep
from lakefeed_upkeep.table_stats import Ancestor, Health, Partition

Result = TypeVar("Result")

TRIES = 5
FIRST_WAIT_SECONDS = 0.5
CONFLICTS = ("CommitFailedException", "ValidationException", "Cannot commit rewrite because of")
"""Iceberg's exceptions after a conflict with another commit, and the text of an exception that wraps one of them."""
GONE = "NotFoundException"
"""The exception for a missing file: another writer has replaced it and expired its snapshots, or it is lost."""
NO_CONFLICTS = ("GC is disabled", "lakefeed refuses the commit", "Unable to determine whether certain files are orphan")
MB = 1024 * 1024


class WriteConflict(Exception):
    """Another writer's commit came first at every attempt, so nothing of this piece is in the table."""


@dataclass
class Done:
    """The counts of the work so far.

    Attributes:
        bytes: the size of the files that compaction has read.
        orphans: the number of unreferenced files that were deleted, or would be deleted without ``dry_run``.
        conflicts: the partitions and steps that maintenance gave up, because other commits came first at every attempt.
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
            # If a rewrite has not reduced the number of files, Iceberg would choose the same files again: stop.
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
        """Combine small files of position deletes, without the deletes of rows that no longer exist."""
        alone = ("max-concurrent-file-group-rewrites", "1")
        result = self._retry(lambda table: self._actions.rewritePositionDeletes(table).option(*alone).execute())
        done = self._done
        done.delete_files_before = int(result.rewrittenDeleteFilesCount())
        done.delete_files_after = int(result.addedDeleteFilesCount())
        self._say(f"{done.delete_files_before:,} files of deletes became {done.delete_files_after:,}")

    def expire(self, expiry: Expiry) -> None:
        """Remove the expired snapshots, and the files that no other snapshot uses."""

        def expire(table: Any) -> tuple[int, Any]:
            before = _count_snapshots(table)
            action = self._actions.expireSnapshots(table).expireOlderThan(int(expiry.before * 1000))
            result = action.retainLast(expiry.keep).option("stream-results", "true").execute()
            # Writers may commit meanwhile, so the difference of two counts may be negative.
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
        """Run a piece while no MERGE runs in this process; raise WriteConflict if another process requests a pause."""
        with turns_at(self._table).maintaining():
            table = self.load()
            if int(table.properties().getOrDefault(QUIET, "0")) > time.time() * 1000:
                raise WriteConflict
            return piece(table)

    @property
    def _actions(self) -> Any:
        return self._jvm.org.apache.iceberg.spark.actions.SparkActions.get(self._java_session)


def is_conflict(text: str) -> bool:
    """Return True if a Java exception's text means that another commit came first."""
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


LAST = "lakefeed.upkeep.last"
"""The table property with the report of the last maintenance, as JSON."""

MANIFEST_BYTES = 8 * 1024 * 1024  # The default of Iceberg's commit.manifest.target-size-bytes.
HELD_DAYS = 30
"""For this many days, a stopped feed's newest commit and all later snapshots are kept; its offsets are kept forever."""

REWRITES: tuple[Step, ...] = ("compact", "manifests")
"""The steps that commit snapshots."""

DELETED = 0.3  # Compact a partition in which this share of rows is deleted, as Iceberg's rewrite_data_files does.


@dataclass(frozen=True, kw_only=True)
class LastUpkeep:
    """The time and the work of the last maintenance, and the time of the last search for orphans."""

    at: float | None = None
    orphans_at: float | None = None
    did: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> LastUpkeep:
        """Read the table's properties; ignore an invalid value."""
        try:
            last = json.loads(properties.get(LAST, "{}"))
            return cls(at=last.get("at"), orphans_at=last.get("orphans_at"), did=last.get("did", {}))
        except (ValueError, AttributeError):
            return cls()

    def to_json(self) -> str:
        return json.dumps(asdict(self), separators=(",", ":"))


@dataclass(frozen=True, kw_only=True)
class Expiry:
    """The snapshots that may expire: older than ``before`` (seconds since 1970), and not among the newest ``keep``.

    ``held_for`` is the feed whose newest commit makes more snapshots stay than the settings demand.
    """

    before: float
    keep: int
    snapshots: int
    held_for: str | None = None


@dataclass(frozen=True)
class Due:
    """A step that is due; the number of files to rewrite, and their bytes, are None if not known beforehand."""

    step: Step
    why: str
    files: int = 0
    bytes: int = 0


@dataclass(frozen=True)
class MaintenancePlan:
    """The maintenance that is due at a table.

    Attributes:
        partitions: the partitions to compact; partitions without recent writes come first.
        orphans_before: files older than this, in seconds since 1970, may be orphans; None if no search is due.
        due: all due steps as texts.
    """

    partitions: tuple[Partition, ...]
    manifests: bool
    delete_files: bool
    expiry: Expiry | None
    orphans_before: float | None
    due: tuple[Due, ...]


def plan(health: Health, settings: Upkeep, *, now: float, asked: bool = False) -> MaintenancePlan:
    """Return the maintenance that is due; if a user has ``asked``, include the search for orphans."""
    # A rewrite would commit to the published table, so that a branch could not be published any more.
    steps = tuple(step for step in settings.steps if not (health.branches and step in REWRITES))
    due: list[Due] = []
    partitions = _compactable(health, settings.compact) if "compact" in steps else ()
    if partitions:
        files = sum(partition.small_files for partition in partitions)
        where = f" of {len(partitions):,} partitions" if health.partitions[0].key.path else ""
        why = f"{files:,} files{where} are below 3/4 of {health.target_bytes >> 20:,} MB, or have many deleted rows"
        due.append(Due("compact", why, files, sum(partition.small_bytes for partition in partitions)))

    fewest = -(-health.manifest_bytes // MANIFEST_BYTES)
    manifests = "manifests" in steps and health.manifests > max(settings.manifests.more_than, 2 * fewest)
    if manifests:
        why = f"{health.manifests:,} manifests hold {health.manifest_bytes / 1e6:,.1f} MB"
        due.append(Due("manifests", why, health.manifests, health.manifest_bytes))

    delete_files = "manifests" in steps and health.delete_files >= settings.manifests.delete_files
    if delete_files:
        why = f"readers have to read {health.delete_files:,} files of deletes beside the rows"
        due.append(Due("manifests", why, health.delete_files))

    expired = expiry(health.ancestors, settings.expire, now=now)
    expirable = expired if "expire" in steps and expired.snapshots else None
    if expirable is not None:
        held = f"; more stay for the newest commit of {expired.held_for}" if expired.held_for else ""
        old = f"{expired.snapshots:,} of {health.snapshots:,} snapshots are older than {settings.expire.older_than}"
        due.append(Due("expire", f"{old} and not among the newest {expired.keep}{held}"))

    looked = LastUpkeep.of(health.properties).orphans_at
    is_old = looked is not None and now - looked >= seconds_of(settings.orphans.every)
    orphans_before = None
    if "orphans" in steps and health.snapshot_id is not None and (asked or looked is None or is_old):
        orphans_before = now - seconds_of(settings.orphans.older_than)
        why = f"ran more than {settings.orphans.every} ago" if is_old else "is requested"
        why = "has never run" if looked is None else why
        due.append(Due("orphans", f"the search for files that no snapshot references {why}"))
    return MaintenancePlan(partitions, manifests, delete_files, expirable, orphans_before, tuple(due))


def _compactable(health: Health, settings: Compact) -> tuple[Partition, ...]:
    """Return the partitions worth a rewrite, those without recent writes first, as they cause no conflicts."""
    due = [
        partition
        for partition in health.partitions
        if partition.small_files >= settings.min_files
        or (partition.small_files > 1 and partition.small_bytes > health.target_bytes)
        or (partition.records and partition.deleted >= DELETED * partition.records)
    ]
    return tuple(sorted(due, key=lambda partition: (partition.newest, partition.key.path)))


def expiry(ancestors: tuple[Ancestor, ...], settings: Expire, *, now: float) -> Expiry:
    """Return which snapshots may expire; ``ancestors`` has the present snapshot and its ancestors, newest first.

    The newest commit of each feed stays, with all later commits: a restarted feed needs them to find the dead letters
    that it still has to write, and a replay to find out whether it was committed. After ``HELD_DAYS`` days, these
    commits may expire: otherwise one abandoned feed would keep the snapshots of all feeds. The feed's offsets are then
    only in a table property. Unpublished snapshots always stay.
    """
    requested = now - seconds_of(settings.older_than)
    newest: dict[str, int] = {}
    for depth, ancestor in enumerate(ancestors):
        if ancestor.holds is not None and ancestor.at >= now - HELD_DAYS * 86_400:
            newest.setdefault(ancestor.holds, depth)
    deepest = max(newest.values(), default=-1)
    bound = [ancestor.at for ancestor in ancestors[: deepest + 1]]
    # Unpublished snapshots and the commit before them are needed to prove that the branch can be published.
    bound += [ancestor.at for ancestor in ancestors if not ancestor.is_published]
    before = min([requested, *bound])
    kept = _kept(ancestors, before=before, keep=settings.keep)
    held = kept > _kept(ancestors, before=requested, keep=settings.keep)
    return Expiry(
        before=before,
        keep=settings.keep,
        snapshots=len(ancestors) - kept,
        held_for=next((name for name, depth in newest.items() if depth == deepest), None) if held else None,
    )


def _kept(ancestors: tuple[Ancestor, ...], *, before: float, keep: int) -> int:
    """Return how many snapshots stay: the newest ``keep``, and further ones until one is too old."""
    too_old = (depth for depth, ancestor in enumerate(ancestors) if depth >= keep and ancestor.at < before)
    return next(too_old, len(ancestors))
