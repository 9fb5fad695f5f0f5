"""Maintains one table from start to end: inspects it, takes the lease, does what is due, and inspects it again.

Guarantee: whatever happens, the table's rows and the feeds' ledgers do not change. A piece is one commit or none. A
killed job only leaves unreferenced files behind, and a later maintenance run finds these as orphans.
"""

from __future__ import annotations

import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, asdict, dataclass, field
from functools import partial
from typing import Any, Literal, Self

from lakefeed.clients.spark.jvm import java
from lakefeed.clients.spark.session import activate
from lakefeed.config.connections import Connections
from lakefeed.config.operation import Upkeep
from lakefeed.errors import ConfigError, TableBusy
from lakefeed.lazy import SparkSession
from lakefeed.maintenance.actions import MB, Done, MaintenanceActions, WriteConflict
from lakefeed.maintenance.planner import LAST, REWRITES, Due, LastUpkeep, MaintenancePlan, plan
from lakefeed.maintenance.table_stats import Health, read_health

Unfinished = Literal["time", "stopped", "lease"]

POOL = "lakefeed-upkeep"
"""Spark's scheduler pool for these jobs; it has a low weight if ``spark.scheduler.mode`` is FAIR."""
LEASE_SECONDS = 120.0
LEASE_POLL_SECONDS = 1.0


@dataclass(frozen=True, kw_only=True)
class Report:
    """The report of maintaining one table, with its figures (``Health.figures``) ``before`` and ``after``.

    With dry_run only orphans are counted, and ``after`` is None. ``scan_seconds`` has the times in which Spark read all
    rows before and after, if requested. ``unfinished`` is the reason why not everything that was due was done.
    """

    table: str
    dry_run: bool
    due: tuple[Due, ...]
    did: Done
    before: Mapping[str, Any]
    after: Mapping[str, Any] | None
    scan_seconds: tuple[float, float] | None
    seconds: float
    unfinished: Unfinished | None

    @property
    def gave_up(self) -> bool:
        """Check that work was left because other commits came first."""
        return bool(self.did.conflicts)

    def as_dict(self) -> dict[str, Any]:
        """Return the document of ``--output json``."""
        return {**asdict(self), "seconds": round(self.seconds, 3), "gave_up": self.gave_up}

    @property
    def sentence(self) -> str:
        """The work that was done, in one line for people."""
        did, parts = self.did, []
        if did.files_before:
            parts.append(f"{did.files_before:,} files of {did.partitions:,} partitions became {did.files_after:,}")
        if did.delete_files_before:
            parts.append(f"{did.delete_files_before:,} files of deletes became {did.delete_files_after:,}")
        if did.manifests_before:
            parts.append(f"{did.manifests_before:,} manifests became {did.manifests_after:,}")
        if did.snapshots:
            parts.append(f"{did.snapshots:,} snapshots and {did.expired_files:,} files expired")
        if did.orphans:
            parts.append(f"{did.orphans:,} orphans of {did.orphan_bytes / 1e6:,.1f} MB were deleted")
        if did.conflicts:
            parts.append(f"left to the writers: {', '.join(did.conflicts)}")
        if self.unfinished:
            reasons = {"time": "the time was over", "stopped": "stopped", "lease": "the lease was lost"}
            parts.append(reasons[self.unfinished])
        return "; ".join(parts) or "nothing was due"


@dataclass
class Maintenance:
    """Maintains one table once; its session may run a feed too. Set ``stop`` to end after the current piece."""

    table: str
    _: KW_ONLY
    spark: SparkSession
    connections: Connections
    settings: Upkeep
    stop: threading.Event = field(default_factory=threading.Event)
    say: Callable[[str], None] = lambda line: None

    def __post_init__(self) -> None:
        self._lease: Lease | None = None
        self._deadline = float("inf")
        self._done = Done()
        self._actions = MaintenanceActions(self.spark, self.table, done=self._done, say=self.say, stopping=self._cut)
        self._unfinished: Unfinished | None = None

    def run(
        self, *, dry_run: bool = False, asked: bool = True, measure_scan: bool = False, wait: float = 0.0
    ) -> Report:
        """Do the work that is due.

        Args:
            dry_run: change nothing; count orphans, and report what is due.
            asked: whether a user requests it now; then orphans are searched in any case.
            measure_scan: read all rows before and after, and report the seconds that this took.
            wait: seconds to wait while another job maintains the table; then TableBusy is raised.
        """
        began = time.monotonic()
        activate(self.spark)
        before = self._health()
        self._require_no_rewrites(before)
        planned = plan(before, self.settings, now=time.time(), asked=asked)
        after = scans = None
        if dry_run:
            if planned.orphans_before is not None:
                self._actions.find_orphans(before=planned.orphans_before, delete=False)
        elif planned.due:
            scan = self._scan_seconds() if measure_scan else None
            with Lease(self.spark, self._actions.load(), name=self.table, wait=wait) as self._lease:
                self._deadline = time.monotonic() + self.settings.max_minutes * 60
                self._do_all(planned, before)
                done = {name: value for name, value in vars(self._done).items() if value}
                orphans_at = self._actions.orphans_at or LastUpkeep.of(before.properties).orphans_at
                self._lease.notes[LAST] = LastUpkeep(at=time.time(), orphans_at=orphans_at, did=done).to_json()
            after = self._health()
            scans = (scan, self._scan_seconds()) if scan is not None else None
        return Report(
            table=self.table,
            dry_run=dry_run,
            due=planned.due,
            did=self._done,
            before=before.figures(),
            after=after.figures() if after else None,
            scan_seconds=scans,
            seconds=time.monotonic() - began,
            unfinished=self._unfinished,
        )

    def _require_no_rewrites(self, health: Health) -> None:
        """Refuse steps that commit to the published table if a feed lands in a branch: publishing would then fail."""
        if not health.branches:
            return
        branch = health.branches[0]
        without = "publish the branch, and take it out of the pipeline file for the time of the upkeep"
        if asked := [step for step in self.settings.only or () if step in REWRITES]:
            raise ConfigError(
                f"a feed lands in the branch {branch} of the table: {' and '.join(asked)} would commit to the table "
                "that readers see, and the branch could not be published any more",
                where=f"table {self.table}",
                hint=f"--only expire,orphans; or {without}",
            )
        if not bool(java(self.spark).commit.FeedLedger.guardsProperties(self._actions.load())):
            raise ConfigError(
                f"a feed lands in the branch {branch} of the table, and upkeep's lease on this catalog is a commit to "
                "the table that readers see: the branch could not be published any more",
                where=f"table {self.table}",
                hint=without,
            )

    def _do_all(self, planned: MaintenancePlan, health: Health) -> None:
        context, settings = self.spark.sparkContext, self.settings
        context.setLocalProperty("spark.scheduler.pool", POOL)
        try:
            for partition in planned.partitions:
                compact = partial(self._actions.compact, partition, settings.compact, target_bytes=health.target_bytes)
                self._try(partition.key.path or "the table", compact)
            if self._done.partitions:
                # Plan again: compaction took time, wrote manifests, and left delete files without rows.
                asked = planned.orphans_before is not None
                planned = plan(self._health(), settings, now=time.time(), asked=asked)
            if planned.delete_files:
                self._try("files of deletes", self._actions.rewrite_delete_files)
            if planned.manifests:
                self._try("manifests", self._actions.rewrite_manifests)
            if (expiry := planned.expiry) is not None:
                self._try("snapshots", partial(self._actions.expire, expiry))
            if (before := planned.orphans_before) is not None:
                self._try("orphans", partial(self._actions.find_orphans, before=before, delete=True))
        finally:
            context.setLocalProperty("spark.scheduler.pool", None)  # type: ignore[arg-type]  # None ends it.

    def _try(self, name: str, work: Callable[[], None]) -> None:
        if self._cut() is not None:
            return
        try:
            work()
        except WriteConflict:
            self._done.conflicts.append(name)
            self.say(f"{name}: left alone, the commits of others came first each time")

    def _cut(self) -> Unfinished | None:
        """Return the reason why no new piece may begin; None if one may begin."""
        if self.stop.is_set():
            self._unfinished = "stopped"
        elif self._lease is not None and self._lease.lost.is_set():
            self._unfinished = "lease"
        elif time.monotonic() >= self._deadline:
            self._unfinished = "time"
        return self._unfinished

    def _health(self) -> Health:
        target = self.settings.compact.target_mb
        return read_health(self.table, connections=self.connections, target_bytes=target * MB if target else None)

    def _scan_seconds(self) -> float:
        began = time.monotonic()
        self.spark.table(self.table).write.format("noop").mode("overwrite").save()
        return round(time.monotonic() - began, 3)


class Lease:
    """A context manager that lets only one job at a time maintain a table.

    The lease is taken by compare-and-set in the table's properties (``io.lakefeed.upkeep.Lease``) and renewed during
    the work; the lease of a killed job expires. It only prevents double work: Iceberg's own checks prevent harmful
    commits. Entering the context raises ``TableBusy`` if another job does not end in time.

    Args:
        wait: seconds to wait for another job's end.
        seconds: the duration of a lease without renewal; a killed job keeps others out for this time.

    Attributes:
        lost: set when another job has the lease, because this job could not renew it in time.
        notes: table properties to set when the lease is released.
    """

    def __init__(
        self, spark: SparkSession, loaded: Any, *, name: str, wait: float = 0.0, seconds: float = LEASE_SECONDS
    ) -> None:
        self._java = java(spark).upkeep.Lease
        self._loaded = loaded
        self._name = name
        self._wait = wait
        self._seconds = seconds
        self._who = f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
        self._ended = threading.Event()
        self._renewal = threading.Thread(target=self._renew, name="lakefeed-upkeep-lease", daemon=True)
        self.lost = threading.Event()
        self.notes: dict[str, str] = {}

    def __enter__(self) -> Self:
        deadline = time.monotonic() + self._wait
        while (held := self._take()) is not None:
            if time.monotonic() >= deadline:
                who, _, until = held.rpartition(" ")
                left = max(0, int(until) / 1000 - time.time())
                raise TableBusy(
                    f"another upkeep job is at work on the table ({who})",
                    where=self._name,
                    hint=f"its lease ends in {left:.0f} s unless it makes it longer; --wait waits for it",
                )
            time.sleep(LEASE_POLL_SECONDS)
        self._renewal.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        self._renewal.join()
        self._java.release(self._loaded, self._who, self.notes)

    def _take(self) -> str | None:
        now = int(time.time() * 1000)
        held = self._java.take(self._loaded, self._who, now, now + int(self._seconds * 1000))
        return None if held is None else str(held)

    def _renew(self) -> None:
        while not self._ended.wait(self._seconds / 3):
            if self._take() is not None:
                self.lost.set()
                return
