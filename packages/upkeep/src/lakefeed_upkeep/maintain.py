"""Maintain one table: inspect it, take the lease, do the work that is due, and inspect it again.

Guarantee: maintenance never changes the table's rows or the feeds' ledgers. A piece of work is one commit or none. A
killed job leaves only unreferenced files, which a later job removes as orphans.
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
from lakefeed.errors import ConfigError, TableBusy
from lakefeed.lazy import SparkSession
from lakefeed_upkeep.actions import (
    LAST,
    MB,
    REWRITES,
    Done,
    Due,
    LastUpkeep,
    MaintenanceActions,
    MaintenancePlan,
    WriteConflict,
    plan,
)
from lakefeed_upkeep.settings import Upkeep
from lakefeed_upkeep.table_stats import Health, read_health

Unfinished = Literal["time", "stopped", "lease"]

POOL = "lakefeed-upkeep"
"""Spark's scheduler pool for upkeep; the pool has a low weight if ``spark.scheduler.mode`` is FAIR."""
LEASE_SECONDS = 120.0
LEASE_POLL_SECONDS = 1.0


@dataclass(frozen=True, kw_only=True)
class Report:
    """The result of maintaining one table.

    Attributes:
        did: the work that was done; with ``dry_run``, only the number of orphans.
        before: the table's ``Health.figures`` before the work; ``after`` has the figures after the work, None with
            ``dry_run``.
        scan_seconds: the seconds in which Spark read all rows before and after the work, if requested.
        unfinished: the reason why some of the due work was not done.
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
        """Return True if some work was not done because other writers' commits came first."""
        return bool(self.did.conflicts)

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "seconds": round(self.seconds, 3), "gave_up": self.gave_up}

    @property
    def sentence(self) -> str:
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
            reasons = {"time": "stopped after max_minutes", "stopped": "stopped", "lease": "the lease was lost"}
            parts.append(reasons[self.unfinished])
        return "; ".join(parts) or "nothing was due"


@dataclass
class Maintenance:
    """Maintains one table once, in a session that may run a feed too; ``stop`` ends the work after a commit."""

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
            dry_run: change nothing; count orphans, and report the due work.
            asked: whether a user requests the work; if so, orphans are searched even if no search is due.
            measure_scan: read all rows before and after the work, and report the seconds.
            wait: the seconds to wait for another job that maintains the table; then raise TableBusy.
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
        """Raise an error for a step that would prevent a feed's branch from being published later."""
        if not health.branches:
            return
        without = "publish the branch, and remove sink.iceberg.branch from the pipeline file during the upkeep"
        if asked := [step for step in self.settings.only or () if step in REWRITES]:
            commits, hint = f"{' and '.join(asked)} would commit", f"give --only expire,orphans; or {without}"
        elif not bool(java(self.spark).commit.FeedLedger.guardsProperties(self._actions.load())):
            commits, hint = "with this catalog, the lease of the upkeep commits", without
        else:
            return
        raise ConfigError(
            f"a feed writes to the branch {health.branches[0]} of the table; {commits} to the main branch, after which "
            "lakefeed could not publish the feed's branch",
            where=f"table {self.table}",
            hint=hint,
        )

    def _do_all(self, planned: MaintenancePlan, health: Health) -> None:
        context, settings = self.spark.sparkContext, self.settings
        context.setLocalProperty("spark.scheduler.pool", POOL)
        try:
            for partition in planned.partitions:
                compact = partial(self._actions.compact, partition, settings.compact, target_bytes=health.target_bytes)
                self._try(partition.key.path or "the table", compact)
            if self._done.partitions:
                # Plan again: compaction took time, wrote manifests, and left delete files for rows that are gone.
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
            context.setLocalProperty("spark.scheduler.pool", None)  # type: ignore[arg-type]

    def _try(self, name: str, work: Callable[[], None]) -> None:
        if self._cut() is not None:
            return
        try:
            work()
        except WriteConflict:
            self._done.conflicts.append(name)
            self.say(f"{name}: not done, because commits of other writers came first at every attempt")

    def _cut(self) -> Unfinished | None:
        """Return why no further commit may begin; None if one may begin."""
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

    The job takes the lease by a compare-and-set of the table's properties (``io.lakefeed.upkeep.Lease``) and renews it
    during the work; the lease of a killed job expires. The lease only prevents double work: Iceberg's own checks
    prevent harmful commits. Entering the context raises ``TableBusy`` if another job does not end in time.

    Args:
        wait: the seconds to wait for another job's end.
        seconds: how long a lease lasts without renewal; if a job is killed, other jobs wait this long.

    Attributes:
        lost: an event that is set if another job takes the lease, because this job has not renewed it in time.
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
                    hint=f"wait until that job ends, by --wait SECONDS; its lease ends in {left:.0f} s unless the "
                    "job renews it",
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
