"""Move a feed to other offsets: its ledger, rows, dead letters, checkpoint, and the consumer group for monitoring.

The commit of the move in the table's ledger comes first. If the command is interrupted after this commit, the feed's
next start sees that the checkpoint lacks the move, and completes it. The same command, run again, completes it, too.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from lakefeed import Pipeline, open_table
from lakefeed.clients.iceberg.sql import rows_where
from lakefeed.clients.kafka.groups import MonitoringGroup
from lakefeed.clients.kafka.topics import partitions_of
from lakefeed.clients.spark.connect import classic
from lakefeed.clients.spark.errors import translating
from lakefeed.errors import CheckpointMismatch, ConfigError, ResourceMissing
from lakefeed.feed.feed import Feed
from lakefeed.feed.recovery import ends
from lakefeed.lazy import SparkSession
from lakefeed.ledger.continuity import REWIND
from lakefeed.ledger.feed_position import Position
from lakefeed.ledger.outcomes import ZERO
from lakefeed.ledger.snapshot_summary import POSITION, adopted_offsets
from lakefeed.ledger.snapshots import ancestors, commits_of, scanned, stored_position
from lakefeed.offsets.ranges import Partition, has_state
from lakefeed.operations.status import FeedStatus, feed_status
from lakefeed.operations.verify.row_offsets import OFFSET, PARTITION, TOPIC
from lakefeed.sinks.dead_letters.store import DeadLetterFilter
from lakefeed.sinks.dead_letters.table import TableReader
from lakefeed_repair.moves import PartitionMove, find_targets, move_commit, plan_moves, require_own_records

if TYPE_CHECKING:
    from pyiceberg.table import Table

PAGE = "offsets"


@dataclass(frozen=True)
class RewindPlan:
    """The changes that a rewind makes; without ``moves``, it only recreates the checkpoint.

    Attributes:
        letters: the number of dead letters to delete.
        delete_where: the filter of the rows to delete; None if the rows stay.
    """

    feed: str
    table: str
    moves: tuple[PartitionMove, ...]
    letters: int
    delete_where: str | None
    status: FeedStatus

    @property
    def rows(self) -> int:
        """The number of rows whose records the feed will read again."""
        return sum(move.rows or 0 for move in self.moves)

    @property
    def delete_rows(self) -> bool:
        return self.delete_where is not None

    def as_dict(self) -> dict[str, Any]:
        return {
            "feed": self.feed,
            "table": self.table,
            "moves": [{**asdict(move), "again": move.again, "given_up": move.given_up} for move in self.moves],
            "rows": self.rows,
            "rows_deleted": self.rows if self.delete_rows else 0,
            "dead_letters_deleted": self.letters,
        }


def plan_rewind(
    pipeline: Pipeline,
    to: str,
    *,
    topic: str | None = None,
    partition: int | None = None,
    delete_rows: bool | None = None,
    accept_loss: bool = False,
) -> RewindPlan:
    """Plan a rewind from table, topics and dead letters, without Spark; change nothing.

    Args:
        to: ``earliest``, ``latest``, ``table`` (keep the offsets, and only recreate the checkpoint), a time
            (``timestamp:2026-11-20T06:30``), ``snapshot:ID``, or offsets in the form that ``parse_offsets`` reads.
        topic: move only this topic.
        partition: move only partitions with this number.
        delete_rows: whether to delete the rows of records that the feed will read again; None if there are none.
        accept_loss: whether the feed may skip records.
    """
    feed, config = pipeline.feed, pipeline.config
    config.sink.require("rewind")
    name = config.sink.ledger_table
    status = feed_status(feed)
    before = status.position
    if before is not None and has_state(before.ranges):
        raise ConfigError(
            f"feed '{config.name}' keeps state between batches, and its state at other offsets is unknown",
            where=name,
            hint="give the feed a new table and a new checkpoint: it then reads the source from its start",
        )
    known, ids = (ends(before), before.ranges.topic_ids) if before is not None else ({}, {})
    moves: tuple[PartitionMove, ...] = ()
    delete_where = None
    if to != "table":
        if before is None and status.is_position_known:
            raise ConfigError(
                f"feed '{config.name}' has committed nothing yet, so it has no position to rewind",
                hint="set source.kafka.start, at which a new feed begins; --to table removes an old checkpoint",
            )
        if not status.is_position_known and (delete_rows or topic is not None or partition is not None):
            raise ConfigError(
                "the table was rolled back, and the feed's position is unknown: only all partitions can be moved, and "
                "no rows can be deleted",
                where=name,
                hint="give --to for all partitions, without --topic, --partition and --delete-rows",
            )
        positions = known or dict.fromkeys(partitions_of(status.topics), 0)
        chosen = {key: at for key, at in positions.items() if topic in (None, key[0]) and partition in (None, key[1])}
        table = open_table(name, connections=feed.connections)
        targets = find_targets(to, config, status, table, chosen, accept_loss=accept_loss)
        moves = plan_moves(known, targets, status.topics, ids=ids, accept_loss=accept_loss)
        require_own_records(moves, adopted_offsets(table.properties, config.name), where=name)
        moves, delete_where = _with_rows(moves, table, ids, config.name, delete_rows=delete_rows)
    elif not status.is_position_known and status.refusal is not None:
        raise status.refusal
    moves, letters = _with_letters(moves, known, feed, before)
    return RewindPlan(config.name, name, moves, letters, delete_where, status)


def rewind(pipeline: Pipeline, agreed: RewindPlan, *, spark: SparkSession | None = None) -> str | None:
    """Carry out the plan: change ledger, rows, dead letters, checkpoint and consumer group. A running driver stops.

    Returns a message for the user, or None. Raises CheckpointMismatch if the feed has committed since the plan.
    """
    pipeline.require_one_sink()
    spark = classic(spark) or pipeline.session()
    with translating():
        return _execute(pipeline.feed, agreed, spark)


def _execute(feed: Feed, agreed: RewindPlan, spark: SparkSession) -> str | None:
    config = feed.config
    sink = feed.ledger_table(spark)
    claim = feed.claim(spark) if config.checkpoint else None
    fence = sink.take_fence(prefix=REWIND) if spark.catalog.tableExists(agreed.table) else None
    letters = feed.dead_letter_store(spark) if config.dead_letters else None
    before = agreed.status.position
    if agreed.status.is_position_known:
        now = sink.position()
        if (now and now.snapshot_id) != (before and before.snapshot_id):
            raise CheckpointMismatch(
                f"feed '{agreed.feed}' has committed since the rewind was planned; nothing was moved",
                where=agreed.table,
                hint="run the command again",
            )
    if agreed.moves:
        ranges = before.ranges if before is not None else None
        commit = move_commit(agreed.feed, ranges, agreed.moves, agreed.status.topics, deletes=agreed.delete_rows)
        commit = replace(commit, fence=fence)
        sink.commit_reset(commit, commit_id=uuid.uuid4().hex, delete_where=agreed.delete_where)
    position = sink.position()
    if letters is not None:
        letters.follow(position.ranges if position is not None else None, moved=True)
    if claim is not None:
        claim.discard()
        claim.note(move=position.reset_snapshot_id if position is not None else None)
    if position is None or config.kafka.monitoring_group is None:
        return None
    return MonitoringGroup(config.kafka, config.kafka.monitoring_group).publish(position.ranges.ranges)


def _with_rows(
    moves: tuple[PartitionMove, ...], table: Table, ids: Mapping[str, str], feed: str, *, delete_rows: bool | None
) -> tuple[tuple[PartitionMove, ...], str | None]:
    """Return the moves with their numbers of rows, if known, and the filter to delete the rows (None to keep them)."""
    spans = {(move.topic, move.partition): (move.to, move.to + move.again) for move in moves if move.again}
    if not spans:
        return moves, None
    columns = (TOPIC if TOPIC in table.schema().column_names else "", PARTITION, OFFSET)
    why = _why_unknown(table, columns, ids, feed, {topic for topic, _ in spans})
    if why is not None and delete_rows:
        raise ConfigError(
            f"rows cannot be deleted by their offsets: {why}",
            where=".".join(table.name()),
            hint="--keep-rows keeps the old rows beside the new ones; decode: {metadata: [topic, partition, "
            "offset]} stores the offsets of new rows",
        )
    where = rows_where(spans, columns=columns)
    counts = _count_rows(table, feed, columns, spans) if why is None else Counter()
    if delete_rows is None and (why is not None or counts.total()):
        rows = f"the {counts.total():,} rows" if why is None else "the rows"
        raise ConfigError(
            f"the feed will read {sum(move.again for move in moves):,} offsets again: delete or keep {rows} of them?",
            hint="--delete-rows deletes the rows in the same commit, --keep-rows keeps them beside the new rows",
        )
    counted = (replace(move, rows=counts.get((move.topic, move.partition))) if move.again else move for move in moves)
    return tuple(counted), where if delete_rows else None


def _why_unknown(
    table: Table, columns: tuple[str, str, str], ids: Mapping[str, str], feed: str, topics: set[str]
) -> str | None:
    """Return why a row's offset does not identify the row's record; None if it does."""
    have = table.schema().column_names
    missing = [name for name in columns if name and name not in have]
    others = [key for key in table.properties if key.startswith(f"{POSITION}.") and key != f"{POSITION}.{feed}"]
    if not columns[0] and (len(ids) > 1 or others):
        missing.insert(0, TOPIC)
    if missing:
        return f"the table has no column {' and '.join(missing)}"
    commits = commits_of(ancestors(table, feed)[0], feed)
    known = {named for commit in commits for named in commit.ranges.topic_ids.items() if named[0] in topics}
    older = {topic for topic, topic_id in known if ids.get(topic, topic_id) != topic_id}
    return f"it has rows of an earlier topic {min(older)} with the same offsets" if older else None


def _count_rows(
    table: Table, feed: str, columns: tuple[str, str, str], spans: Mapping[Partition, tuple[int, int]]
) -> Counter[Partition]:
    """Return the number of rows in each partition's offset range, by the filter of ``rows_where`` for pyiceberg."""
    from pyiceberg import expressions

    own: Any = expressions  # mypy would need a plugin, which is not loaded, to know these constructors.
    topic_column, partition_column, offset_column = columns
    filters = []
    for (topic, partition), (start, end) in spans.items():
        at = own.GreaterThanOrEqual(offset_column, start), own.LessThan(offset_column, end)
        of_topic = (own.EqualTo(topic_column, topic),) if topic_column else ()
        filters.append(own.And(own.EqualTo(partition_column, partition), *at, *of_topic))
    row_filter = own.Or(*filters) if len(filters) > 1 else filters[0]
    [first, *_] = spans
    counts: Counter[Partition] = Counter(dict.fromkeys(spans, 0))
    scan = scanned(table, feed, row_filter=row_filter, selected_fields=tuple(name for name in columns if name))
    for batch in scan.to_arrow_batch_reader():
        topics = batch.column(TOPIC).to_pylist() if topic_column else [first[0]] * batch.num_rows
        counts.update(zip(topics, batch.column(PARTITION).to_pylist(), strict=True))
    return counts


def _with_letters(
    moves: tuple[PartitionMove, ...], known: Mapping[Partition, int], feed: Feed, position: Position | None
) -> tuple[tuple[PartitionMove, ...], int]:
    """Return the moves with their numbers of dead letters to delete, and the sum.

    These letters belong to offsets that the feed will read again, or that the table has not reached.
    """
    store = feed.config.dead_letters.table if feed.config.dead_letters else None
    if store is None:
        return moves, 0
    targets = {**known, **{(move.topic, move.partition): move.to for move in moves}}
    if position is not None:
        _require_written(store, targets, feed, position.snapshot_id)
    try:
        letters = TableReader(store, connections=feed.connections).find(DeadLetterFilter(feed=feed.config.name))
    except ResourceMissing:
        return moves, 0
    gone: Counter[Partition] = Counter()
    for letter in letters:
        partition = (letter["topic"], letter["partition"])
        if (partition in targets or not known) and letter["offset"] >= targets.get(partition, 0):
            gone[partition] += 1
    return tuple(replace(move, letters=gone[move.topic, move.partition]) for move in moves), gone.total()


def _require_written(store: str, targets: Mapping[Partition, int], feed: Feed, snapshot_id: int) -> None:
    """Refuse a move if a crash left the last batch's dead letters unwritten: no later start would write them."""
    name, connections = feed.config.name, feed.connections
    line, _ = ancestors(open_table(feed.config.sink.ledger_table, connections=connections), name)
    last = next((commit for commit in commits_of(line, name) if commit.snapshot_id == snapshot_id), None)
    if last is None:
        return
    counts = ((span, last.counts.get(span.key, ZERO)) for span in last.ranges.ranges)
    dead = {span.key: span for span, count in counts if count.dead_letters}
    left_out = {key: span for key, span in dead.items() if targets.get(key, 0) > span.start}
    if not left_out:
        return
    written = stored_position(store, name, connections=connections)
    reached = ends(written) if written is not None else {}
    if any(reached.get(key, 0) < span.end for key, span in left_out.items()):
        raise CheckpointMismatch(
            f"the dead letters of batch {last.batch_id} of feed '{name}' are not written yet",
            where=store,
            hint="start the feed once to write the dead letters, then move the feed",
        )
