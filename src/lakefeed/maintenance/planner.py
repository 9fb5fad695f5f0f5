"""What is due at a table, and why. Pure decisions over ``Health``: nothing is read or done here."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from lakefeed.config.durations import seconds_of
from lakefeed.config.upkeep import Compact, Expire, Manifests, Orphans, Step, Upkeep
from lakefeed.maintenance.table_stats import Ancestor, Health, Partition

LAST = "lakefeed.upkeep.last"
"""Table property: what the last upkeep did, as JSON."""

MANIFEST_BYTES = 8 * 1024 * 1024  # Iceberg's target (commit.manifest.target-size-bytes).
HELD_DAYS = 30
"""So long the newest commit of a feed that has stopped holds all that came after it; its position is kept for ever."""

DELETED = 0.3  # Share of rows; Iceberg's own (delete-ratio-threshold of rewrite_data_files).


@dataclass(frozen=True, kw_only=True)
class LastUpkeep:
    """What the table remembers of upkeep.

    Attributes:
        at: when the last one ended, in seconds since 1970; None if there was none.
        orphans_at: when orphans were last looked for to the end.
        did: its figures by step, as the report has them.
    """

    at: float | None = None
    orphans_at: float | None = None
    did: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> LastUpkeep:
        """Reads the table's properties; what cannot be read counts as none."""
        try:
            found = json.loads(properties.get(LAST, "{}"))
            return cls(at=found.get("at"), orphans_at=found.get("orphans_at"), did=found.get("did", {}))
        except (ValueError, AttributeError):
            return cls()

    def to_json(self) -> str:
        """As the table property."""
        return json.dumps(asdict(self), separators=(",", ":"))


@dataclass(frozen=True, kw_only=True)
class Expiry:
    """Which snapshots may go.

    Attributes:
        before: those committed before, in seconds since 1970.
        keep: so many stay in any case.
        snapshots: how many would go now.
        held_for: the feed whose newest commit holds more of them than the settings do; None if none does.
    """

    before: float
    keep: int
    snapshots: int
    held_for: str | None = None


@dataclass(frozen=True, kw_only=True)
class Due:
    """One step that is due.

    Attributes:
        step: which.
        why: a sentence.
        files: files that it would take away, as far as that is known before.
        bytes: bytes that it would read.
    """

    step: Step
    why: str
    files: int = 0
    bytes: int = 0


@dataclass(frozen=True, kw_only=True)
class MaintenancePlan:
    """What is due at a table.

    Attributes:
        partitions: to compact, the coldest first.
        manifests: whether to rewrite the manifests.
        delete_files: whether to rewrite the files of position deletes.
        expiry: which snapshots may go; None if none.
        orphans_before: files older than this, in seconds since 1970, may be orphans; None if it is not time to look.
        due: the same for people.
    """

    partitions: tuple[Partition, ...]
    manifests: bool
    delete_files: bool
    expiry: Expiry | None
    orphans_before: float | None
    due: tuple[Due, ...]


def plan(health: Health, settings: Upkeep, *, now: float, asked: bool = False) -> MaintenancePlan:
    """What is due.

    Args:
        health: the table.
        settings: what counts as due, and what may be done at all.
        now: seconds since 1970.
        asked: a user requests it now, so that orphans are looked for even if they were a short time ago.
    """
    steps = settings.steps
    partitions = compactable(health, settings.compact) if "compact" in steps else ()
    manifests = "manifests" in steps and too_many_manifests(health, settings.manifests)
    delete_files = "manifests" in steps and health.delete_files >= settings.manifests.delete_files
    expirable = expiry(health.ancestors, settings.expire, now=now) if "expire" in steps else None
    looked = LastUpkeep.of(health.properties).orphans_at
    orphans = "orphans" in steps and health.snapshot_id is not None and _is_time(looked, settings.orphans, now, asked)
    found = MaintenancePlan(
        partitions=partitions,
        manifests=manifests,
        delete_files=delete_files,
        expiry=expirable if expirable and expirable.snapshots else None,
        orphans_before=now - seconds_of(settings.orphans.older_than) if orphans else None,
        due=(),
    )
    return MaintenancePlan(**{**vars(found), "due": tuple(_reasons(found, health, settings, looked))})


def compactable(health: Health, settings: Compact) -> tuple[Partition, ...]:
    """The partitions that are worth a rewrite, the coldest first: a partition without writers has no conflicts."""
    due = [
        each
        for each in health.partitions
        if each.small_files >= settings.min_files
        or (each.small_files > 1 and each.small_bytes > health.target_bytes)
        or (each.records and each.deleted >= DELETED * each.records)
    ]
    return tuple(sorted(due, key=lambda each: (each.newest, each.key.path)))


def too_many_manifests(health: Health, settings: Manifests) -> bool:
    """Whether the manifests are many, and would be fewer."""
    ideal = -(-health.manifest_bytes // MANIFEST_BYTES)
    return health.manifests > max(settings.more_than, 2 * ideal)


def expiry(ancestors: tuple[Ancestor, ...], settings: Expire, *, now: float) -> Expiry:
    """How far back the snapshots can go.

    The newest commit of each feed stays, and so does all that came after it: a feed that starts again reads there
    which dead letters it has to make good, and a replay that was cut off whether it has landed. After ``HELD_DAYS``
    days this ends, since one feed that is gone would hold the snapshots of all others; where the feed stands is then
    known from the table's property alone.

    Args:
        ancestors: the present snapshot's line, newest first.
        settings: what is to stay beside that.
        now: seconds since 1970.
    """
    requested = now - seconds_of(settings.older_than)
    newest: dict[str, int] = {}
    for depth, each in enumerate(ancestors):
        if each.holds is not None and each.at >= now - HELD_DAYS * 86_400:
            newest.setdefault(each.holds, depth)
    deepest = max(newest.values(), default=-1)
    before = min([requested, *(each.at for each in ancestors[: deepest + 1])])
    kept = _kept(ancestors, before=before, keep=settings.keep)
    held = kept > _kept(ancestors, before=requested, keep=settings.keep)
    return Expiry(
        before=before,
        keep=settings.keep,
        snapshots=len(ancestors) - kept,
        held_for=next(name for name, depth in newest.items() if depth == deepest) if held else None,
    )


def _kept(ancestors: tuple[Ancestor, ...], *, before: float, keep: int) -> int:
    """As Iceberg counts: from the newest on, up to the first that is neither among so many nor young enough."""
    kept = 0
    for each in ancestors:
        if kept >= keep and each.at < before:
            break
        kept += 1
    return kept


def _is_time(looked: float | None, settings: Orphans, now: float, asked: bool) -> bool:
    return asked or looked is None or now - looked >= seconds_of(settings.every)


def _reasons(found: MaintenancePlan, health: Health, settings: Upkeep, looked: float | None) -> list[Due]:
    reasons = []
    if found.partitions:
        files = sum(each.small_files for each in found.partitions)
        where = f" of {len(found.partitions):,} partitions" if health.partitions[0].key.path else ""
        target = health.target_bytes // (1024 * 1024)
        reasons.append(
            Due(
                step="compact",
                why=f"{files:,} files{where} are below 3/4 of {target:,} MB, or have many deleted rows",
                files=files,
                bytes=sum(each.small_bytes for each in found.partitions),
            )
        )
    if found.manifests:
        why = f"{health.manifests:,} manifests hold {health.manifest_bytes / 1e6:,.1f} MB"
        reasons.append(Due(step="manifests", why=why, files=health.manifests, bytes=health.manifest_bytes))
    if found.delete_files:
        why = f"{health.delete_files:,} files of deletes have to be read beside the rows"
        reasons.append(Due(step="manifests", why=why, files=health.delete_files))
    if found.expiry is not None:
        held = f"; more stay for the newest commit of {found.expiry.held_for}" if found.expiry.held_for else ""
        why = (
            f"{found.expiry.snapshots:,} of {health.snapshots:,} snapshots are older than "
            f"{settings.expire.older_than} and not among the newest {found.expiry.keep}{held}"
        )
        reasons.append(Due(step="expire", why=why))
    if found.orphans_before is not None:
        when = "never" if looked is None else f"more than {settings.orphans.every} ago, or not since you ask"
        reasons.append(Due(step="orphans", why=f"files that no snapshot knows were last looked for: {when}"))
    return reasons
