"""Plan the takeover of a table: read the other tool's position, and compare it with the topics and the table."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from lakefeed import open_table
from lakefeed.clients.iceberg.sql import set_properties
from lakefeed.clients.kafka.topics import TopicDescription, partitions_of
from lakefeed.clients.spark.jvm import cause_of
from lakefeed.clients.spark.statements import run
from lakefeed.errors import CheckpointMismatch, ConfigError, LakefeedError, RecordsLost, ResourceMissing
from lakefeed.feed.feed import Feed
from lakefeed.lazy import SparkSession, py4j
from lakefeed.ledger.checkpoint import StoredCheckpoint
from lakefeed.ledger.continuity import REWIND
from lakefeed.ledger.iceberg import REFUSED
from lakefeed.ledger.snapshot_summary import Adoption, Commit, adopted_property
from lakefeed.ledger.snapshots import ancestors, commits_of
from lakefeed.messages.printable import counted
from lakefeed.offsets.ranges import OffsetRanges, Partition
from lakefeed.operations.status import feed_status
from lakefeed.operations.verify.row_offsets import TOPIC
from lakefeed_adopt.iceberg_connect import is_group_of_sink, read_connect_position
from lakefeed_adopt.position import Origin, OtherPosition, read_group, require_no_members
from lakefeed_adopt.rows import (
    MOST_SHOWN,
    RowCheck,
    RowColumns,
    behind_rows,
    check_rows,
    is_batch_committed,
    resolve_open_batch,
)
from lakefeed_adopt.s3_files import read_file_position
from lakefeed_adopt.spark_checkpoint import read_hudi_position, read_spark_checkpoint

if TYPE_CHECKING:
    from pyiceberg.table import Table
    from pyiceberg.table.snapshots import Snapshot


_NEW = "a new table is created, and begins there; the other tool's rows stay where they are"
QUIET_SECONDS = 300.0
"""The seconds since a tool's last write within which the tool is treated as running."""


@dataclass(frozen=True, kw_only=True)
class AdoptedPartition:
    """The takeover of one partition.

    Attributes:
        offset: the offset at which the feed begins.
        rows: the number of the table's rows from this partition; None if the rows have no offsets.
        is_new: the other tool has not read the partition, so the feed begins at its first record.
    """

    topic: str
    partition: int
    offset: int
    topic_start: int
    topic_end: int
    rows: int | None
    is_new: bool

    @property
    def unread(self) -> int:
        return self.topic_end - self.offset


@dataclass(frozen=True, kw_only=True)
class AdoptionPlan:
    """The changes that a takeover makes.

    Attributes:
        place: the file, group or topic that has the other tool's position.
        notes: sentences that the user should read before the takeover.
        after: the table's newest snapshot; the commit is refused if the table has a newer one by then.
        is_done: the feed has taken the table over already.
        is_checked: the rows' own offsets were compared with the position.
        is_new_table: the takeover creates the table; the other tool's rows are elsewhere.
    """

    feed: str
    table: str
    tool: str
    place: str
    partitions: tuple[AdoptedPartition, ...]
    notes: tuple[str, ...]
    after: int | None
    topic_ids: Mapping[str, str]
    is_done: bool
    is_checked: bool
    is_new_table: bool = False

    @property
    def ranges(self) -> OffsetRanges:
        """The offset ranges of the feed's first commit; each range is empty."""
        offsets = {(part.topic, part.partition): part.offset for part in self.partitions}
        return OffsetRanges.at(offsets, self.topic_ids)

    @property
    def adoption(self) -> Adoption:
        return Adoption(self.tool, self.place, self.after)

    def as_dict(self) -> dict[str, Any]:
        return {
            "feed": self.feed,
            "table": self.table,
            "from": self.tool,
            "place": self.place,
            "partitions": [{**asdict(part), "unread": part.unread} for part in self.partitions],
            "rows_compared": self.is_checked,
            "new_table": self.is_new_table,
            "notes": list(self.notes),
        }


def plan_adoption(
    feed: Feed,
    origin: Origin,
    *,
    offset_columns: str | None = None,
    by_rows: bool = False,
    is_stopped: bool = False,
    new_table: bool = False,
) -> AdoptionPlan:
    """Plan the takeover of the feed's table from another tool, without Spark and without changes.

    Args:
        offset_columns: the table's columns for topic, partition and offset, if they differ from lakefeed's; the topic
            may be omitted if all rows are from one topic.
        by_rows: begin after the last row of each partition, even if the other tool's position differs: a tool that
            writes rows and commits offsets in two steps may stop between the two.
        is_stopped: the user confirms that the other tool is stopped, so recent writes are accepted.
        new_table: the takeover may create the table; the other tool's rows are elsewhere.

    Raises:
        ConfigError: the sink does not support takeovers, the other tool runs, or its position cannot be used.
        CheckpointMismatch: the position and the table disagree.
        RecordsLost: the topic ends before the position, so it is another topic.
        ResourceMissing: the table, a topic or the position does not exist.
    """
    config = feed.config
    config.sink.require("adopt")
    if config.sink.chosen.landing_branch is not None:
        what = "the main branch of a table can be taken over, but the feed writes to another branch"
        hint = "leave sink.iceberg.branch out for the takeover, and write it again before a later run"
        raise ConfigError(what, where=config.sink.ledger_table, hint=hint)
    if config.source.kafka is None:
        what = f"the feed reads {config.source.kind}, and only a feed of Kafka topics can take a table over"
        raise ConfigError(what, where=config.name, hint="name a pipeline with source.kafka")
    name = config.sink.ledger_table
    table = _open(name, feed, is_new=new_table)
    line = ancestors(table)[0] if table else []
    if table and (commits := list(commits_of(line, config.name))):
        return _done(feed, origin, table, commits)
    status = feed_status(feed)
    if status.refusal is not None:
        raise status.refusal
    if status.position is not None or status.checkpoint.batch_id is not None:
        raise CheckpointMismatch(
            f"feed '{config.name}' has begun already",
            where=name if status.position is not None else config.checkpoint,
            hint="a takeover precedes the feed's first run: choose another feed name and checkpoint location",
        )
    if origin.tool == "group" and not by_rows and is_group_of_sink(line, origin.place):
        raise ConfigError(
            f"{origin.place} is the group of Iceberg's sink for Kafka Connect, which may be ahead of the table",
            where=name,
            hint=f"write --from iceberg-connect:{origin.place}",
        )
    position = read_position(feed, origin, table, line)
    _require_stopped(feed, position, line[-1].timestamp_ms / 1000 if line else None, is_stopped=is_stopped)
    committed = is_batch_committed(position, line)
    columns, why = _columns(table, offset_columns, status.topics) if table else (None, (_NEW,))
    if by_rows and columns is None:
        hint = "name the table's columns for topic, partition and offset: --offset-columns topic,partition,offset"
        raise ConfigError("the table has no offsets after which the feed could begin", where=name, hint=hint)
    if not by_rows:
        position = resolve_open_batch(position, committed, columns, status.topics, config.kafka)
    offsets = _offsets_of(feed, position, status.topics)
    check = RowCheck({}, (), ())
    if columns is not None:
        if by_rows:
            offsets, position = _behind_rows(columns, offsets, position, status.topics)
        check = check_rows(columns, offsets, status.topics, config.kafka)
    if check.faults:
        raise _disagree(check, position, where=name)
    there = partitions_of(status.topics)
    partitions = tuple(
        AdoptedPartition(
            topic=key[0],
            partition=key[1],
            offset=at,
            topic_start=there[key].start_offset,
            topic_end=there[key].end_offset,
            rows=None if columns is None else check.rows.get(key, 0),
            is_new=key not in position.offsets,
        )
        for key, at in sorted(offsets.items())
    )
    head = table.current_snapshot() if table else None
    return AdoptionPlan(
        feed=config.name,
        table=name,
        tool=origin.tool,
        place=position.place,
        partitions=partitions,
        notes=(*position.notes, *_notes(position, partitions), *why, *check.notes),
        after=head.snapshot_id if head else None,
        topic_ids={topic: found.topic_id for topic, found in status.topics.items() if found is not None},
        is_done=False,
        is_checked=columns is not None,
        is_new_table=table is None,
    )


def _behind_rows(
    columns: RowColumns,
    offsets: Mapping[Partition, int],
    position: OtherPosition,
    topics: Mapping[str, TopicDescription | None],
) -> tuple[dict[Partition, int], OtherPosition]:
    """Return the offset after each partition's last row; note in the position each partition whose offset differs."""
    found, there = behind_rows(columns, offsets, topics), partitions_of(topics)
    for key, at in found.items():
        if at > there[key].end_offset:
            raise RecordsLost(
                f"{key[0]}-{key[1]} ends at {there[key].end_offset}, and the table has a row of offset {at - 1}",
                where=columns.where,
                hint="correct source.kafka: name the cluster and the topics whose records the table has",
            )
    notes = [
        f"{topic}-{number}: begins at {at}, after its rows; the other tool's position is {offsets[topic, number]}"
        for (topic, number), at in sorted(found.items())
        if at != offsets[topic, number]
    ]
    return found, replace(position, notes=(*position.notes, *notes))


def read_position(feed: Feed, origin: Origin, table: Table | None, line: Sequence[Snapshot]) -> OtherPosition:
    """Read the position of another tool.

    Args:
        table: the feed's table; None if the takeover creates it.
        line: the table's snapshots, oldest first.
    """
    source, place = feed.config.kafka, origin.place
    match origin.tool:
        case "spark-checkpoint":
            return read_spark_checkpoint(StoredCheckpoint(place, s3=feed.connections.s3), where=place)
        case "group":
            return read_group(source, place)
        case "iceberg-connect":
            if table is None:
                what = "the position of Iceberg's sink is in the table that it has written; a new table has none"
                raise ConfigError(what, where="--new-table", hint="leave --new-table out, and name the sink's table")
            return read_connect_position(source, place, table, line)
        case "hudi":
            return read_hudi_position(place, s3=feed.connections.s3)
        case "s3-files":
            return read_file_position(source, place, s3=feed.connections.s3)


def _open(name: str, feed: Feed, *, is_new: bool) -> Table | None:
    """Return the table; None if it does not exist and the user has requested a new table."""
    try:
        return open_table(name, connections=feed.connections)
    except ResourceMissing as missing:
        if is_new:
            return None
        hint = "name the table that the other tool has written; --new-table begins a new one at the tool's position"
        raise ResourceMissing(missing.what, where=missing.where, hint=hint) from None


def _done(feed: Feed, origin: Origin, table: Table, commits: Sequence[Commit]) -> AdoptionPlan:
    """Return the plan of a completed takeover; raise CheckpointMismatch if the feed has committed batches already."""
    name, commit = feed.config.sink.ledger_table, commits[0]
    done = commit.ranges
    if commit.adopted is None or len(commits) > 1 or commit.adopted.tool != origin.tool:
        raise CheckpointMismatch(
            f"feed '{feed.config.name}' has commits in the table already",
            where=name,
            hint="lakefeed offsets show PIPELINE prints its position",
        )
    topics = feed_status(feed).topics
    there = partitions_of(topics)
    partitions = tuple(
        AdoptedPartition(
            topic=span.topic,
            partition=span.partition,
            offset=span.end,
            topic_start=there[span.key].start_offset if span.key in there else 0,
            topic_end=there[span.key].end_offset if span.key in there else span.end,
            rows=None,
            is_new=False,
        )
        for span in done.ranges
    )
    return AdoptionPlan(
        feed=feed.config.name,
        table=name,
        tool=origin.tool,
        place=commit.adopted.place,
        partitions=partitions,
        notes=("the feed has taken the table over already",),
        after=commit.adopted.after,
        topic_ids=done.topic_ids,
        is_done=True,
        is_checked=False,
    )


def _require_stopped(feed: Feed, position: OtherPosition, committed_at: float | None, *, is_stopped: bool) -> None:
    """Refuse a tool that may still run, because its groups have members, or its newest files or commits are recent."""
    if position.groups:
        require_no_members(feed.config.kafka, position.groups, purpose="adopt")
    if is_stopped:
        return
    now = time.time()
    wrote = {"the other tool's position": position.written_at, "the table's newest commit": committed_at}
    for what, at in wrote.items():
        if at is not None and now - at < QUIET_SECONDS:
            ago = counted(max(0, int(now - at)), "second")
            raise ConfigError(
                f"{what} was written {ago} ago: the other tool may still run",
                where=position.place,
                hint=f"stop the other tool and wait {QUIET_SECONDS / 60:.0f} minutes, or confirm the stop: --stopped",
            )


def _columns(
    table: Table, given: str | None, topics: Mapping[str, TopicDescription | None]
) -> tuple[RowColumns | None, tuple[str, ...]]:
    """Return the columns with the rows' offsets; if the table has none, return a note about that instead."""
    columns = RowColumns.of(table, given)
    if columns is None:
        return None, ("the rows have no known columns of offsets, so the position was not compared with them",)
    if TOPIC not in columns.names and len(topics) > 1:
        if given is not None:
            what = f"the feed reads {len(topics)} topics, so the rows' offsets need the column of the topic, too"
            raise ConfigError(what, where="--offset-columns", hint="write --offset-columns topic,partition,offset")
        return None, ("the rows have no column of the topic, so the position was not compared with them",)
    return columns, ()


def _offsets_of(
    feed: Feed, position: OtherPosition, topics: Mapping[str, TopicDescription | None]
) -> dict[Partition, int]:
    """Return the offset at which the feed begins, by partition; refuse an offset that its topic does not have."""
    missing = [name for name, found in topics.items() if found is None]
    there = partitions_of(topics)
    if missing or not there:
        what = f"there is no topic {missing[0]}" if missing else "no topic matches the feed's topics_pattern"
        raise ResourceMissing(
            what, where=feed.config.name, hint="correct source.kafka: name the cluster, and topics that exist"
        )
    known = {key: at for key, at in position.offsets.items() if key in there}
    if not known:
        read = ", ".join(sorted({topic for topic, _ in position.offsets})[:MOST_SHOWN]) or "nothing"
        what = f"the other tool has not read the topics of feed '{feed.config.name}': the tool reads {read}"
        raise ConfigError(what, where=position.place, hint="correct source.kafka.topics, or name another position")
    for key, at in sorted(known.items()):
        if at > there[key].end_offset:
            raise RecordsLost(
                f"{key[0]}-{key[1]} ends at {there[key].end_offset}, before the other tool's position {at}: the topic "
                "was recreated, or is of another cluster",
                where=position.place,
                hint="correct source.kafka: name the cluster and the topics that the other tool has read",
            )
    return {key: known.get(key, part.start_offset) for key, part in there.items()}


def _notes(position: OtherPosition, partitions: tuple[AdoptedPartition, ...]) -> list[str]:
    mine = {part.topic for part in partitions}
    notes = [
        f"the other tool also reads {topic}, which the feed does not read"
        for topic in sorted({topic for topic, _ in position.offsets} - mine)
    ]
    notes += [
        f"{part.topic}-{part.partition}: retention has removed the offsets [{part.offset}, {part.topic_start}), which "
        "no tool has read; lakefeed run --accept-loss resumes without them"
        for part in partitions
        if part.offset < part.topic_start
    ]
    return notes


def _disagree(check: RowCheck, position: OtherPosition, *, where: str) -> LakefeedError:
    shown = "; ".join(check.faults[:MOST_SHOWN])
    more = f"; and {len(check.faults) - MOST_SHOWN} more" if len(check.faults) > MOST_SHOWN else ""
    return CheckpointMismatch(
        f"the other tool's position and the table's rows disagree: {shown}{more}",
        where=f"{where}, {position.place}",
        hint="start the other tool once more, so that it completes its last batch, and stop it; or begin after the "
        "last row of each partition: --by-rows",
    )


def execute_adoption(feed: Feed, agreed: AdoptionPlan, spark: SparkSession) -> None:
    """Take over the table as planned; do nothing if the feed has already taken it over.

    Only the commit takes the table over. A process that is killed before the commit has at most taken a fence, and
    either set a property or created an empty table. The catalog refuses the commit if the table has a newer commit than
    the plan.

    Raises:
        CheckpointMismatch: the other tool, or a driver of the feed, has committed since the plan.
        ConfigError: the transform keeps state, which no other tool can hand over.
    """
    if agreed.is_done:
        return
    feed.require_stateless(spark)
    sink = feed.ledger_table(spark)
    if agreed.is_new_table:
        feed.begin_writer(spark, sink, feed.source.reread(spark, []))
    else:
        # Set the property before the commit, because without it a backfill or rewind would land the other tool's
        # records again.
        run(spark, set_properties(sink.name, adopted_property(feed.config.name, agreed.ranges)))
    fence = sink.take_fence(prefix=REWIND)
    commit = Commit(feed.config.name, 0, agreed.ranges, fence=fence, adopted=agreed.adoption)
    try:
        sink.commit_reset(commit, commit_id=uuid.uuid4().hex)
    except py4j.Py4JJavaError as error:
        if REFUSED not in str(error):
            raise
        cause = cause_of(error).removeprefix(f"{REFUSED}: ")
        raise CheckpointMismatch(
            f"the table has changed since the plan, and was not adopted: {cause}",
            where=agreed.table,
            hint="stop the other tool, and run the command again",
        ) from None
