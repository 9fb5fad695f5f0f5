"""Read the committed offsets of a consumer group, and refuse groups that still have members."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from lakefeed.clients.kafka.groups import group_names, group_offsets, groups_with_members
from lakefeed.config.sources import KafkaSource
from lakefeed.errors import ConfigError, ResourceMissing
from lakefeed_adopt.position import OtherPosition


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
