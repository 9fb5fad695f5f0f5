"""The position of another tool by its own files, snapshots or group, before the comparison with the table.

This module also reads consumer groups; it refuses a group that has members.
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
"""Tools whose position needs a place, with the place's name in messages."""

FORMS = "spark-checkpoint:PATH, group:NAME, iceberg-connect or iceberg-connect:CONNECTOR, hudi:PATH or s3-files:PATH"


@dataclass(frozen=True)
class Origin:
    """The value of ``--from``: the tool, and the place of its position; some tools need no place."""

    tool: Tool
    place: str

    @classmethod
    def parse(cls, text: str) -> Origin:
        """Parse ``TOOL:PLACE``; raise ConfigError for other texts."""
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
        offsets: the next offset that the tool reads, by partition.
        place: where the position was read.
        open_batch: end offsets of the tool's last batch, if the batch is planned and not marked as done. Only the table
            shows whether its rows were written. ``offsets`` are then the batch's start.
        batch_id: the id of the tool's last batch, if the tool numbers batches.
        query_id: the id of the tool's query, if its commits to the table have it.
        written_at: when the tool last wrote its position, in seconds since 1970.
        groups: the tool's consumer groups, which must have no members.
        notes: texts that the user should read.
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
    """Read a consumer group's committed offsets in all topics; raise ResourceMissing if there are none."""
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
    """Refuse groups that have members: they move their offsets, and the broker refuses offsets from others."""
    if busy := groups_with_members(source, groups):
        raise ConfigError(
            f"the consumer group {busy[0]} has members: its client still runs",
            where=source.bootstrap_servers,
            hint=f"stop it, wait until the broker has noticed (session.timeout.ms), and {purpose} again",
        )
