"""The position of another tool, as its own files, snapshots or group say, before the table was compared with it.

A consumer group is read here; one that still has members is refused.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, get_args

from lakefeed.clients.kafka.groups import group_names, group_offsets, groups_with_members
from lakefeed.config.sources import KafkaSource
from lakefeed.errors import ConfigError, ResourceMissing
from lakefeed.offsets.ranges import Partition

Tool: TypeAlias = Literal["spark-checkpoint", "group", "iceberg-connect", "hudi", "s3-files"]
TOOLS: tuple[str, ...] = get_args(Tool)
PLACES = {"spark-checkpoint": "PATH", "group": "NAME", "hudi": "PATH", "s3-files": "PATH"}
"""Tools whose position is at a place that has to be named."""

FORMS = "spark-checkpoint:PATH, group:NAME, iceberg-connect or iceberg-connect:CONNECTOR, hudi:PATH or s3-files:PATH"


@dataclass(frozen=True)
class Origin:
    """The value of ``--from``: which tool, and where its position is; the place of some tools may be empty."""

    tool: Tool
    place: str

    @classmethod
    def parse(cls, text: str) -> Origin:
        """Read ``TOOL:PLACE``; a ConfigError for anything else."""
        tool, _, place = text.partition(":")
        if tool not in TOOLS or (tool in PLACES and not place):
            what = f"'{text}' names no position of another tool"
            if tool in TOOLS:
                what = f"{tool} needs a place: {tool}:{PLACES[tool]}"
            raise ConfigError(what, where="--from", hint=f"write {FORMS}")
        found: Tool = tool  # type: ignore[assignment]
        return cls(found, place.rstrip("/"))

    def __str__(self) -> str:
        return f"{self.tool}:{self.place}" if self.place else self.tool


@dataclass(frozen=True, kw_only=True)
class OtherPosition:
    """The position of another tool.

    Attributes:
        offsets: the next offset that it reads, by partition.
        place: where that was read.
        open_batch: where its last batch ends, if the tool has planned that batch and not marked it done: only the table
            knows whether its rows are there. ``offsets`` are then where the batch begins.
        batch_id: of its last batch, if it numbers them.
        query_id: of its query, if its commits of the table name that.
        written_at: when it wrote its position last, in seconds since 1970.
        groups: its consumer groups, which must have no members.
        notes: what a user should know.
    """

    offsets: Mapping[Partition, int]
    place: str
    open_batch: Mapping[Partition, int] | None = None
    batch_id: int | None = None
    query_id: str | None = None
    written_at: float | None = None
    groups: Sequence[str] = ()
    notes: Sequence[str] = field(default_factory=tuple)


def read_group(source: KafkaSource, group: str) -> OtherPosition:
    """Read where a consumer group stands in all topics; a ResourceMissing if it has committed nothing."""
    offsets = group_offsets(source, group)
    if not offsets:
        near = difflib.get_close_matches(group, group_names(source), n=3)
        raise ResourceMissing(
            f"the consumer group {group} has committed no offsets",
            where=source.bootstrap_servers,
            hint=f"did you mean {' or '.join(near)}?" if near else "lakefeed status --group shows a group's offsets",
        )
    return OtherPosition(offsets=offsets, place=f"group {group} at {source.bootstrap_servers}", groups=(group,))


def require_no_members(source: KafkaSource, groups: Sequence[str], *, purpose: str) -> None:
    """Refuse groups that have members: their position moves, or the broker would not take another."""
    if busy := groups_with_members(source, groups):
        raise ConfigError(
            f"the consumer group {busy[0]} has members: its client still runs",
            where=source.bootstrap_servers,
            hint=f"stop it, wait until the broker has noticed (session.timeout.ms), and {purpose} again",
        )
