"""Upkeep of one table from end to end: look, take the lease, do what is due piece by piece, look again.

Guarantee: whatever happens, the table's rows and the feeds' ledgers stay as they are. Each piece is one commit or none;
what a killed job leaves behind are files that nothing refers to, and a later upkeep finds them as orphans.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

from lakefeed.clients.spark.session import activate
from lakefeed.config.connections import Connections
from lakefeed.config.upkeep import Upkeep
from lakefeed.maintenance.actions import MB, MaintenanceActions, WriteConflict
from lakefeed.maintenance.lease import Lease
from lakefeed.maintenance.planner import LAST, LastUpkeep, MaintenancePlan, plan
from lakefeed.maintenance.reading import health
from lakefeed.maintenance.report import Done, Report
from lakefeed.maintenance.table_stats import Health

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

POOL = "lakefeed-upkeep"
"""Spark's scheduler pool of these jobs; it weighs little where ``spark.scheduler.mode`` is FAIR."""


class Maintenance:
    """Looks after one table.

    Args:
        table: catalog.namespace.table
        spark: the session; it may run a feed at the same time.
        connections: store and catalogs, to look at the table without Spark.
        settings: what is due, and what may be done.
        stop: set it to end after the piece at hand.
        say: called with one line for each piece.
    """

    def __init__(
        self,
        table: str,
        *,
        spark: SparkSession,
        connections: Connections,
        settings: Upkeep,
        stop: threading.Event | None = None,
        say: Callable[[str], None] = lambda line: None,
    ) -> None:
        self._table = table
        self._spark = spark
        self._connections = connections
        self._settings = settings
        self._stop = stop or threading.Event()
        self._say = say
        self._steps = MaintenanceActions(spark, table, loaded=self._loaded, stopping=lambda: self._cut() is not None)
        self._lease: Lease | None = None
        self._deadline = float("inf")
        self._done = Done()
        self._looked_for_orphans: float | None = None
        self._unfinished: Literal["time", "stopped", "lease"] | None = None

    def run(
        self, *, dry_run: bool = False, asked: bool = True, measure_scan: bool = False, wait: float = 0.0
    ) -> Report:
        """Does what is due.

        Args:
            dry_run: do nothing; count orphans, and say what is due.
            asked: somebody asks for it now, so that orphans are looked for in any case.
            measure_scan: read all rows before and after, and say how long it took.
            wait: seconds to wait while another job is at work.

        Raises:
            ResourceMissing: there is no such table.
            TableBusy: another job is at work.
            Py4JJavaError: Iceberg or the store failed, in another way than by a conflict.
        """
        began = time.monotonic()
        activate(self._spark)
        found = self._health()
        planned = plan(found, self._settings, now=time.time(), asked=asked)
        if dry_run or not planned.due:
            if planned.orphans_before is not None:
                self._orphans(planned, delete=False)
            return self._report(planned, found, None, began=began, dry_run=dry_run)
        scan = self._scan_seconds() if measure_scan else None
        with Lease(self._spark, self._loaded(), name=self._table, wait=wait) as self._lease:
            self._deadline = time.monotonic() + self._settings.max_minutes * 60
            self._in_pool(lambda: self._do_all(planned, found))
            self._lease.notes[LAST] = self._remembered(found).to_json()
        after = self._health()
        scans = (scan, self._scan_seconds()) if scan is not None else None
        return self._report(planned, found, after, began=began, scans=scans)

    def _do_all(self, planned: MaintenancePlan, found: Health) -> None:
        self._compact(planned, found)
        if self._done.partitions:
            # Compaction made manifests, left delete files without rows, and took its time.
            found = self._health()
            planned = plan(found, self._settings, now=time.time(), asked=planned.orphans_before is not None)
        if planned.delete_files:
            self._piece("files of deletes", self._delete_files)
        if planned.manifests:
            self._piece("manifests", self._manifests)
        if planned.expiry is not None:
            self._piece("snapshots", lambda: self._expire(planned))
        if planned.orphans_before is not None:
            self._piece("orphans", lambda: self._orphans(planned, delete=True))

    def _compact(self, planned: MaintenancePlan, found: Health) -> None:
        compact = self._settings.compact
        for partition in planned.partitions:
            name = partition.key.path or "the table"
            pieces = self._steps.compact(
                partition,
                target_bytes=found.target_bytes,
                group_bytes=compact.group_mb * MB,
                min_files=compact.min_files,
            )
            began = False
            try:
                while True:
                    if self._cut() is not None:
                        return
                    piece = next(pieces, None)
                    if piece is None:
                        break
                    self._done.partitions += not began
                    began = True
                    self._done.files_before += piece.before
                    self._done.files_after += piece.after
                    self._done.bytes += piece.bytes
                    self._say(f"{name}: {piece.before:,} files of {piece.bytes / 1e6:,.1f} MB became {piece.after:,}")
            except WriteConflict:
                self._left(name)

    def _piece(self, name: str, work: Callable[[], None]) -> None:
        if self._cut() is not None:
            return
        try:
            work()
        except WriteConflict:
            self._left(name)

    def _delete_files(self) -> None:
        piece = self._steps.delete_files()
        self._done.delete_files_before, self._done.delete_files_after = piece.before, piece.after
        self._say(f"{piece.before:,} files of deletes became {piece.after:,}")

    def _manifests(self) -> None:
        piece = self._steps.manifests()
        self._done.manifests_before, self._done.manifests_after = piece.before, piece.after
        self._say(f"{piece.before:,} manifests became {piece.after:,}")

    def _expire(self, planned: MaintenancePlan) -> None:
        assert planned.expiry is not None  # Asked by the caller.
        self._done.snapshots, self._done.expired_files = self._steps.expire(planned.expiry)
        self._say(f"{self._done.snapshots:,} snapshots and {self._done.expired_files:,} files expired")

    def _orphans(self, planned: MaintenancePlan, *, delete: bool) -> None:
        assert planned.orphans_before is not None  # Asked by the caller.
        self._done.orphans, self._done.orphan_bytes = self._steps.orphans(before=planned.orphans_before, delete=delete)
        if delete:
            self._looked_for_orphans = time.time()
            self._say(f"{self._done.orphans:,} orphans of {self._done.orphan_bytes / 1e6:,.1f} MB were deleted")

    def _left(self, name: str) -> None:
        self._done.conflicts.append(name)
        self._say(f"{name}: left alone, the commits of others came first each time")

    def _cut(self) -> Literal["time", "stopped", "lease"] | None:
        """Why no new piece is to be begun; asked when there is one."""
        if self._stop.is_set():
            self._unfinished = "stopped"
        elif self._lease is not None and self._lease.lost.is_set():
            self._unfinished = "lease"
        elif time.monotonic() >= self._deadline:
            self._unfinished = "time"
        return self._unfinished

    def _remembered(self, found: Health) -> LastUpkeep:
        before = LastUpkeep.of(found.properties)
        did = {name: value for name, value in vars(self._done).items() if value}
        return LastUpkeep(at=time.time(), orphans_at=self._looked_for_orphans or before.orphans_at, did=did)

    def _report(
        self,
        planned: MaintenancePlan,
        before: Health,
        after: Health | None,
        *,
        began: float,
        dry_run: bool = False,
        scans: tuple[float, float] | None = None,
    ) -> Report:
        return Report(
            table=self._table,
            dry_run=dry_run,
            due=planned.due,
            did=self._done,
            before=before.figures(),
            after=after.figures() if after else None,
            scan_seconds=scans,
            seconds=time.monotonic() - began,
            unfinished=self._unfinished,
        )

    def _health(self) -> Health:
        target = self._settings.compact.target_mb
        return health(self._table, connections=self._connections, target_bytes=target * MB if target else None)

    def _loaded(self) -> Any:
        gateway: Any = self._spark._jvm
        return gateway.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(self._spark._jsparkSession, self._table)

    def _scan_seconds(self) -> float:
        began = time.monotonic()
        self._spark.table(self._table).write.format("noop").mode("overwrite").save()
        return round(time.monotonic() - began, 3)

    def _in_pool(self, work: Callable[[], None]) -> None:
        """Runs it with Spark jobs of this thread in the pool that weighs little."""
        context = self._spark.sparkContext
        context.setLocalProperty("spark.scheduler.pool", POOL)
        try:
            work()
        finally:
            context.setLocalProperty("spark.scheduler.pool", None)  # type: ignore[arg-type]  # None ends it.
