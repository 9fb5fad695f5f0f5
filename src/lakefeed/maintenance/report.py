"""What one upkeep of a table did, or would do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from lakefeed.maintenance.planner import Due


@dataclass
class Done:
    """What was done so far; filled while the work continues.

    Attributes:
        partitions: partitions that were compacted.
        files_before: small files that were read.
        files_after: files that are there instead.
        bytes: in those that were read.
        manifests_before: manifests that were read.
        manifests_after: manifests that are there instead.
        delete_files_before: files of deletes that were read.
        delete_files_after: those that are there instead.
        snapshots: snapshots that went.
        expired_files: files that went with them.
        orphans: files that nothing referred to, deleted; with dry_run those that would be.
        orphan_bytes: in them.
        conflicts: partitions and steps that were left because others' commits came first each time.
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


@dataclass(frozen=True, kw_only=True)
class Report:
    """One upkeep of one table.

    Attributes:
        table: its name.
        dry_run: whether nothing was done.
        due: what was due at the beginning.
        did: what was done; with dry_run only the orphans are counted.
        before: the table's figures (``Health.figures``).
        after: the same afterwards; None with dry_run.
        scan_seconds: how long Spark read all rows, before and after; None if that was not asked for.
        seconds: how long it took.
        unfinished: why not all was done that was due: ``time``, ``stopped``, ``lease``; None if it was.
    """

    table: str
    dry_run: bool
    due: tuple[Due, ...]
    did: Done
    before: Mapping[str, Any]
    after: Mapping[str, Any] | None
    scan_seconds: tuple[float, float] | None
    seconds: float
    unfinished: str | None

    @property
    def gave_up(self) -> bool:
        """Whether something was left because others' commits came first."""
        return bool(self.did.conflicts)

    def as_dict(self) -> dict[str, Any]:
        """For ``--output json``."""
        return {**asdict(self), "seconds": round(self.seconds, 3), "gave_up": self.gave_up}

    @property
    def sentence(self) -> str:
        """One line for people: what was done."""
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
            parts.append(
                {"time": "the time was over", "stopped": "stopped", "lease": "the lease was lost"}[self.unfinished]
            )
        return "; ".join(parts) or "nothing was due"
