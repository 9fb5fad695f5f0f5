"""Decides what is due at a table, and why. It decides only from ``Health``: it reads nothing and changes nothing."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from lakefeed.config.operation import Compact, Expire, Step, Upkeep
from lakefeed.config.values import seconds_of
from lakefeed.maintenance.table_stats import Ancestor, Health, Partition

LAST = "lakefeed.upkeep.last"
"""Table property: the report of the last maintenance, as JSON."""

MANIFEST_BYTES = 8 * 1024 * 1024  # Iceberg's default (commit.manifest.target-size-bytes).
HELD_DAYS = 30
"""How long the newest commit of a stopped feed keeps itself and all later snapshots; its position is kept forever."""

REWRITES: tuple[Step, ...] = ("compact", "manifests")
"""The steps that commit snapshots."""

DELETED = 0.3  # A share of the rows, as in Iceberg (delete-ratio-threshold of rewrite_data_files).


@dataclass(frozen=True, kw_only=True)
class LastUpkeep:
    """The times of the last maintenance and of the last search for orphans, in seconds since 1970, and its figures."""

    at: float | None = None
    orphans_at: float | None = None
    did: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> LastUpkeep:
        """Read the table's properties; ignore an invalid value."""
        try:
            found = json.loads(properties.get(LAST, "{}"))
            return cls(at=found.get("at"), orphans_at=found.get("orphans_at"), did=found.get("did", {}))
        except (ValueError, AttributeError):
            return cls()

    def to_json(self) -> str:
        return json.dumps(asdict(self), separators=(",", ":"))


@dataclass(frozen=True, kw_only=True)
class Expiry:
    """The snapshots that may expire: those committed ``before`` (in seconds since 1970), except the newest ``keep``.

    ``held_for`` is the feed whose newest commit keeps more snapshots than the settings do; None if there is none.
    """

    before: float
    keep: int
    snapshots: int
    held_for: str | None = None


@dataclass(frozen=True)
class Due:
    """One step that is due, with the number of files to remove and the bytes to read, if they are known beforehand."""

    step: Step
    why: str
    files: int = 0
    bytes: int = 0


@dataclass(frozen=True)
class MaintenancePlan:
    """The rewrites and removals that are due at a table.

    Attributes:
        partitions: the partitions to compact, coldest first.
        orphans_before: files older than this, in seconds since 1970, may be orphans; None if no search is due.
        due: the same steps, for people.
    """

    partitions: tuple[Partition, ...]
    manifests: bool
    delete_files: bool
    expiry: Expiry | None
    orphans_before: float | None
    due: tuple[Due, ...]


def plan(health: Health, settings: Upkeep, *, now: float, asked: bool = False) -> MaintenancePlan:
    """Decide what is due; if a user has ``asked``, search for orphans even if the last search was recent."""
    # A rewrite is a commit to the published table, and a branch could then not be published any more.
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
        why = f"{health.delete_files:,} files of deletes have to be read beside the rows"
        due.append(Due("manifests", why, health.delete_files))

    found = expiry(health.ancestors, settings.expire, now=now)
    expirable = found if "expire" in steps and found.snapshots else None
    if expirable is not None:
        held = f"; more stay for the newest commit of {found.held_for}" if found.held_for else ""
        old = f"{found.snapshots:,} of {health.snapshots:,} snapshots are older than {settings.expire.older_than}"
        due.append(Due("expire", f"{old} and not among the newest {found.keep}{held}"))

    looked = LastUpkeep.of(health.properties).orphans_at
    is_time = asked or looked is None or now - looked >= seconds_of(settings.orphans.every)
    orphans_before = None
    if "orphans" in steps and health.snapshot_id is not None and is_time:
        orphans_before = now - seconds_of(settings.orphans.older_than)
        when = "never" if looked is None else f"more than {settings.orphans.every} ago, or not since you ask"
        due.append(Due("orphans", f"files that no snapshot knows were last looked for: {when}"))
    return MaintenancePlan(partitions, manifests, delete_files, expirable, orphans_before, tuple(due))


def _compactable(health: Health, settings: Compact) -> tuple[Partition, ...]:
    """Return the partitions that are worth a rewrite, coldest first: without writers there are no conflicts."""
    due = [
        partition
        for partition in health.partitions
        if partition.small_files >= settings.min_files
        or (partition.small_files > 1 and partition.small_bytes > health.target_bytes)
        or (partition.records and partition.deleted >= DELETED * partition.records)
    ]
    return tuple(sorted(due, key=lambda partition: (partition.newest, partition.key.path)))


def expiry(ancestors: tuple[Ancestor, ...], settings: Expire, *, now: float) -> Expiry:
    """Decide up to which time snapshots may expire.

    The newest commit of each feed stays, with all later commits. From these, a feed that starts again reads which dead
    letters it still has to write, and an interrupted replay reads whether it has landed. After ``HELD_DAYS`` days they
    may expire, since one abandoned feed would otherwise keep the snapshots of all feeds; the feed's position is then
    only in the table's property. Unpublished snapshots always stay. ``ancestors`` are the present snapshot and its
    ancestors, newest first.
    """
    requested = now - seconds_of(settings.older_than)
    newest: dict[str, int] = {}
    for depth, ancestor in enumerate(ancestors):
        if ancestor.holds is not None and ancestor.at >= now - HELD_DAYS * 86_400:
            newest.setdefault(ancestor.holds, depth)
    deepest = max(newest.values(), default=-1)
    bound = [ancestor.at for ancestor in ancestors[: deepest + 1]]
    # Unpublished snapshots, and the commit before them, are the proof that the branch can be published.
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
    """Count as Iceberg does: up to the first snapshot that is neither among the newest ``keep`` nor recent enough."""
    too_old = (depth for depth, ancestor in enumerate(ancestors) if depth >= keep and ancestor.at < before)
    return next(too_old, len(ancestors))
