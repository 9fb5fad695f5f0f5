"""Where the partitions of a feed are to go: the words, times, snapshots and offsets of ``lakefeed offsets rewind``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from lakefeed.clients.kafka.topics import Topics
from lakefeed.config.models import PipelineConfig
from lakefeed.errors import ConfigError, ResourceMissing
from lakefeed.ledger.snapshot_summary import FEED, RANGES, Commit
from lakefeed.ledger.snapshots import summaries
from lakefeed.offsets.ranges import Partition
from lakefeed.operations.rewind.plan import written_offsets
from lakefeed.operations.status import FeedStatus

if TYPE_CHECKING:
    from pyiceberg.table import Table


def partitions_of(survey: FeedStatus) -> Iterator[Partition]:
    """All partitions of the topics that the feed reads."""
    for name, found in survey.topics.items():
        if found is not None:
            yield from ((name, each.id) for each in found.partitions)


def targets(
    to: str,
    config: PipelineConfig,
    survey: FeedStatus,
    table: Table,
    chosen: Mapping[Partition, int],
    *,
    accept_loss: bool,
) -> dict[Partition, int]:
    """Where each partition is to go.

    Args:
        to: what the user has written.
        config: the pipeline.
        survey: where the feed stands.
        table: its table.
        chosen: the partitions that are meant, and where they stand.
        accept_loss: whether a time may leave records unread.

    Raises:
        ConfigError: it is written wrongly, or names a partition that is not meant.
        ResourceMissing: there is no such snapshot.
    """
    kind, _, value = to.partition(":")
    if to in ("earliest", "latest"):
        there = {(name, each.id): each for name, found in survey.topics.items() if found for each in found.partitions}
        return {
            key: there[key].start_offset if to == "earliest" else there[key].end_offset
            for key in chosen
            if key in there
        }
    if kind == "timestamp":
        return _targets_at(_moment(value), config, survey, chosen, accept_loss=accept_loss)
    if kind == "snapshot" and value.isdigit():
        at = _position_at(table, int(value), config.name)
        return {key: at.get(key, 0) for key in chosen}
    found = written_offsets(to)
    if outside := sorted(found.keys() - chosen.keys()):
        raise ConfigError(f"{outside[0][0]}-{outside[0][1]} is not among the partitions that are to be moved")
    return found


def _targets_at(
    time: datetime, config: PipelineConfig, survey: FeedStatus, chosen: Mapping[Partition, int], *, accept_loss: bool
) -> dict[Partition, int]:
    """The first records from a time on. What was read later stays read: a time goes forward only if asked to."""
    cluster = Topics(config.kafka.bootstrap_servers, options=dict(config.kafka.options))
    targets: dict[Partition, int] = {}
    for name, found in survey.topics.items():
        if found is None:
            continue
        at = cluster.offsets_at(name, time)
        for each in found.partitions:
            if (key := (name, each.id)) in chosen:
                target = at.get(each.id, each.end_offset)
                targets[key] = min(target, chosen[key]) if survey.position and not accept_loss else target
    return targets


def _moment(text: str) -> datetime:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigError(
            f"'{text}' is no point in time", hint="write timestamp:2026-11-20T06:30, which is UTC, or …T06:30+01:00"
        ) from None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def _position_at(table: Table, snapshot_id: int, feed: str) -> dict[Partition, int]:
    """Where the feed stood in a snapshot that the table's present state descends from."""
    line = summaries(table)
    seen = False
    for number, summary in line:
        seen = seen or number == snapshot_id
        if seen and summary.get(FEED) == feed and RANGES in summary:
            return {(each.topic, each.partition): each.end for each in Commit.of(number, summary).ranges.ranges}
    what = "has no commit of the feed up to it" if seen else "is none that the table's present state descends from"
    raise ResourceMissing(f"snapshot {snapshot_id} {what}, or it has expired", where=".".join(table.name()))
