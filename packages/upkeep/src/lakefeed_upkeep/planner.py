"""Decides by a table's ``Health`` which maintenance is due, and why; this module reads and changes nothing."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from lakefeed.config.values import seconds_of
from lakefeed_upkeep.settings import Compact, Expire, Step, Upkeep
from lakefeed_upkeep.table_stats import Ancestor, Health, Partition

LAST = "lakefeed.upkeep.last"
"""The table property with the report of the last maintenance, as JSON."""

MANIFEST_BYTES = 8 * 1024 * 1024  # Iceberg's default (commit.manifest.target-size-bytes).
HELD_DAYS = 30
"""A stopped feed's newest commit keeps all later snapshots for this number of days. The position never expires."""

REWRITES: tuple[Step, ...] = ("compact", "manifests")
"""The steps that commit snapshots."""

DELETED = 0.3  # Compact a partition with this share of deleted rows, as Iceberg's rewrite_data_files does.


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
    """The snapshots that may expire: committed ``before`` (in seconds since 1970), and not among the newest ``keep``.

    ``held_for`` is the feed whose newest commit keeps more snapshots than the settings do.
    """

    before: float
    keep: int
    snapshots: int
    held_for: str | None = None


@dataclass(frozen=True)
class Due:
    """A step that is due, with the number of files to rewrite and their bytes, if they are known before the work."""

    step: Step
    why: str
    files: int = 0
    bytes: int = 0


@dataclass(frozen=True)
class MaintenancePlan:
    """The maintenance that is due at a table.

    Attributes:
        partitions: the partitions to compact, coldest first.
        orphans_before: files older than this, in seconds since 1970, may be orphans; None if no search is due.
        due: the same steps as texts.
    """

    partitions: tuple[Partition, ...]
    manifests: bool
    delete_files: bool
    expiry: Expiry | None
    orphans_before: float | None
    due: tuple[Due, ...]


def plan(health: Health, settings: Upkeep, *, now: float, asked: bool = False) -> MaintenancePlan:
    """Return the maintenance that is due; if a user has ``asked``, search for orphans in any case."""
    # After a rewrite, which commits to the published table, a branch could not be published any more.
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
    """Return the partitions worth a rewrite, coldest first, because rewrites of cold partitions do not conflict."""
    due = [
        partition
        for partition in health.partitions
        if partition.small_files >= settings.min_files
        or (partition.small_files > 1 and partition.small_bytes > health.target_bytes)
        or (partition.records and partition.deleted >= DELETED * partition.records)
    ]
    return tuple(sorted(due, key=lambda partition: (partition.newest, partition.key.path)))


def expiry(ancestors: tuple[Ancestor, ...], settings: Expire, *, now: float) -> Expiry:
    """Decide which snapshots may expire; ``ancestors`` has the present snapshot and its ancestors, newest first.

    The newest commit of each feed stays, with all later commits: a restarted feed reads there which dead letters it
    still has to write, and an interrupted replay reads whether it was committed. After ``HELD_DAYS`` days, these
    commits may expire, because one abandoned feed would otherwise keep the snapshots of all feeds; then only the
    table's property has the feed's position. Unpublished snapshots always stay.
    """
    requested = now - seconds_of(settings.older_than)
    newest: dict[str, int] = {}
    for depth, ancestor in enumerate(ancestors):
        if ancestor.holds is not None and ancestor.at >= now - HELD_DAYS * 86_400:
            newest.setdefault(ancestor.holds, depth)
    deepest = max(newest.values(), default=-1)
    bound = [ancestor.at for ancestor in ancestors[: deepest + 1]]
    # Unpublished snapshots, and the commit before them, prove that the branch can be published.
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
    """Return the number of snapshots that stay: the newest ``keep``, then all until the first that is too old."""
    too_old = (depth for depth, ancestor in enumerate(ancestors) if depth >= keep and ancestor.at < before)
    return next(too_old, len(ancestors))
