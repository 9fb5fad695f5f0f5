"""The position of another tool, and how to read it from a consumer group."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, get_args

from confluent_kafka import ConsumerGroupState, KafkaException

from lakefeed.clients.kafka.groups import group_names, group_offsets, group_states
from lakefeed.config.sources import KafkaSource
from lakefeed.errors import ConfigError, ResourceMissing, Unreachable
from lakefeed.offsets.ranges import Partition

Tool: TypeAlias = Literal["spark-checkpoint", "group", "iceberg-connect", "hudi", "s3-files"]
TOOLS: tuple[str, ...] = get_args(Tool)
PLACES = {"spark-checkpoint": "PATH", "group": "NAME", "hudi": "PATH", "s3-files": "PATH"}
"""The tools whose ``--from`` needs a value after the colon, with the placeholder of that value in messages."""

FORMS = "spark-checkpoint:PATH, group:NAME, iceberg-connect or iceberg-connect:CONNECTOR, hudi:PATH or s3-files:PATH"


@dataclass(frozen=True)
class Origin:
    """The value of ``--from``: the tool, and the file, group or path with its offsets (empty for some tools)."""

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
    """The offsets up to which another tool has read, and further facts about the tool.

    Attributes:
        offsets: by partition, the next offset that the tool reads.
        place: the file, group or topic that has the position.
        open_batch: the end offsets of the tool's last batch, if the tool has planned it and not recorded its end. Then
            ``offsets`` are the batch's start, and only the table shows whether its rows were written.
        batch_id: the id of the tool's last batch, if the tool numbers batches.
        query_id: the id of the tool's query, if the tool's commits to the table have it.
        written_at: when the tool wrote its position, in seconds since 1970.
        groups: the tool's consumer groups, which must have no members.
        notes: sentences that the user should read.
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
    """Return a consumer group's committed offsets in all topics; raise ResourceMissing if the group has none."""
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
    """Refuse groups with members: their offsets may still change, and the broker accepts offsets from members only."""
    if busy := _with_members(source, groups):
        raise ConfigError(
            f"the consumer group {busy[0]} has members: its client still runs",
            where=source.bootstrap_servers,
            hint=f"stop the client, wait for its session.timeout.ms, and {purpose} again",
        )


def _with_members(source: KafkaSource, groups: Sequence[str]) -> list[str]:
    """Return the given groups that have members now; raise Unreachable if the broker does not answer."""
    try:
        states = group_states(source)
    except (KafkaException, TimeoutError) as error:
        what = f"the broker does not return the members of the group {groups[0]}: {error or 'no answer'}"
        hint = "check that the brokers run and that the login may list groups, then try again"
        raise Unreachable(what, where=source.bootstrap_servers, hint=hint) from None
    without = (ConsumerGroupState.EMPTY, ConsumerGroupState.DEAD)
    return [group for group in groups if states.get(group, ConsumerGroupState.DEAD) not in without]
