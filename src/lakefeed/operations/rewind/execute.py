"""Moves a feed on purpose: ledger, rows, dead letters, checkpoint and monitoring group together.

The move in the table's ledger is what counts. Whatever is cut off after it is made good by the next start, which finds
a move that the checkpoint does not know, or by the same command once more.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from lakefeed.clients.iceberg.reader import open_table
from lakefeed.clients.iceberg.sql import rows_where
from lakefeed.clients.kafka.monitoring import MonitoringGroup
from lakefeed.config.connections import Connections
from lakefeed.config.models import PipelineConfig
from lakefeed.errors import CheckpointMismatch, ConfigError, ResourceMissing
from lakefeed.feed.recovery import ends
from lakefeed.ledger.checkpoint import Claim
from lakefeed.ledger.outcomes import ZERO
from lakefeed.ledger.snapshot_summary import FEED, POSITION, RANGES, Commit
from lakefeed.ledger.snapshots import summaries
from lakefeed.ledger.stateful_batches import has_state
from lakefeed.offsets.ranges import Partition
from lakefeed.operations.rewind.plan import PartitionMove, move_commit, planned
from lakefeed.operations.rewind.targets import partitions_of, targets
from lakefeed.operations.status import FeedStatus, read_status
from lakefeed.operations.verify.row_offsets import OFFSET, PARTITION, TOPIC
from lakefeed.sinks.dead_letters.filter import DeadLetterFilter
from lakefeed.sinks.dead_letters.query import TableReader
from lakefeed.sinks.dead_letters.store import DeadLetterStore
from lakefeed.sinks.protocol import MovableSink
from lakefeed.sinks.stored import position_in

if TYPE_CHECKING:
    from pyiceberg.table import Table


@dataclass(frozen=True, kw_only=True)
class RewindPlan:
    """What a rewind will do.

    Attributes:
        feed: the feed's name.
        table: its table.
        moves: partitions that go elsewhere; none if only the checkpoint is recreated.
        letters: dead letters that are deleted.
        delete_rows: whether the rows of what is read again are deleted.
        columns: of the table, that have a row's topic, partition and offset; the topic's is empty if it is not kept.
        survey: where the feed stands.
    """

    feed: str
    table: str
    moves: tuple[PartitionMove, ...]
    letters: int
    delete_rows: bool
    columns: tuple[str, str, str]
    survey: FeedStatus

    @property
    def rows(self) -> int:
        """Rows from offsets that are read again."""
        return sum(each.rows or 0 for each in self.moves)

    def as_dict(self) -> dict[str, Any]:
        """For ``--output json``."""
        return {
            "feed": self.feed,
            "table": self.table,
            "moves": [{**asdict(each), "again": each.again, "given_up": each.given_up} for each in self.moves],
            "rows": self.rows,
            "rows_deleted": self.rows if self.delete_rows else 0,
            "dead_letters_deleted": self.letters,
        }


def plan(
    config: PipelineConfig,
    *,
    connections: Connections,
    to: str,
    topic: str | None = None,
    partition: int | None = None,
    delete_rows: bool | None = None,
    accept_loss: bool = False,
) -> RewindPlan:
    """What a rewind would do; asks table, topics and dead letters, without Spark, and changes nothing.

    Args:
        config: the pipeline.
        connections: store and catalogs.
        to: ``earliest``, ``latest``, ``table`` (where the table is: only the checkpoint is recreated), a point in time
            (``timestamp:2026-11-20T06:30``), ``snapshot:ID``, or offsets as ``written_offsets`` reads them.
        topic: only this topic's partitions.
        partition: only partitions of this number.
        delete_rows: whether the rows of what is read again are deleted. None only where there are none.
        accept_loss: whether records may be left unread.

    Raises:
        ConfigError: the sink keeps no ledger, a target is wrong, or a choice is missing.
        ResourceMissing: the topic has not got what is to be read.
        RecordsLost: the topic was recreated.
    """
    config.sink.require("rewind")
    name = config.sink.ledger_table
    survey = read_status(config, connections=connections)
    if survey.position is not None and has_state(survey.position.ranges):
        raise ConfigError(
            f"feed '{config.name}' keeps state, which cannot be moved to other offsets",
            where=name,
            hint="name a new table and a new checkpoint location, which read the topics again",
        )
    known = {} if survey.position is None else ends(survey.position)
    ids = {} if survey.position is None else survey.position.ranges.topic_ids
    chosen = {
        key: at
        for key, at in (known or dict.fromkeys(partitions_of(survey), 0)).items()
        if topic in (None, key[0]) and partition in (None, key[1])
    }
    moves: tuple[PartitionMove, ...] = ()
    columns = (TOPIC, PARTITION, OFFSET)
    if to != "table":
        if survey.position is None and survey.is_position_known:
            raise ConfigError(
                f"feed '{config.name}' has landed nothing yet, so there is nothing to rewind",
                hint="source.kafka.start says where a new feed begins; --to table removes a checkpoint in the way",
            )
        if not survey.is_position_known and (delete_rows or topic is not None or partition is not None):
            raise ConfigError(
                "the table was rolled back and does not tell where the feed stood: all partitions have to be moved, "
                "and no rows can be deleted with it",
                where=name,
                hint="name where each partition resumes, without --topic, --partition and --delete-rows",
            )
        table = open_table(name, connections=connections)
        requested = targets(to, config, survey, table, chosen, accept_loss=accept_loss)
        moves = planned(known, requested, survey.topics, ids=ids, accept_loss=accept_loss)
        columns = (TOPIC if TOPIC in table.schema().column_names else "", PARTITION, OFFSET)
        moves = _with_rows(moves, table, columns, ids, config.name, delete_rows=delete_rows)
    elif not survey.is_position_known and survey.refusal is not None:
        raise survey.refusal
    moves, letters = _with_letters(moves, config, survey, connections)
    return RewindPlan(
        feed=config.name,
        table=name,
        moves=moves,
        letters=letters,
        delete_rows=bool(delete_rows) and any(each.again for each in moves),
        columns=columns,
        survey=survey,
    )


def carry_out(
    config: PipelineConfig,
    agreed: RewindPlan,
    *,
    sink: MovableSink,
    claim: Claim | None,
    fence: str | None,
    letters: DeadLetterStore | None,
) -> str | None:
    """Does it. A driver that runs is stopped at its next commit, by the fence.

    Args:
        config: the pipeline.
        agreed: what is to be done.
        sink: the table.
        claim: the checkpoint; None for a feed without one, as where each topic has a table of its own.
        fence: taken for this; None if there is no table.
        letters: where dead letters are kept; None if the pipeline keeps none.

    Returns:
        What the user should hear of the monitoring group, if anything.

    Raises:
        CheckpointMismatch: the feed has gone on since this was planned.
    """
    before = agreed.survey.position
    if agreed.survey.is_position_known:
        now = sink.position()
        if (now and now.snapshot_id) != (before and before.snapshot_id):
            raise CheckpointMismatch(
                f"feed '{agreed.feed}' has gone on since this was planned; nothing was moved",
                where=agreed.table,
                hint="run the command again",
            )
    if agreed.moves:
        ranges = before.ranges if before is not None else None
        commit = move_commit(agreed.feed, ranges, agreed.moves, agreed.survey.topics, deletes=agreed.delete_rows)
        where = rows_where(_spans(agreed.moves), columns=agreed.columns) if agreed.delete_rows else None
        sink.land_move(replace(commit, fence=fence), commit_id=uuid.uuid4().hex, delete_where=where)
    position = sink.position()
    if letters is not None:
        letters.follow(position.ranges if position is not None else None, moved=True)
    if claim is not None:
        claim.discard()
        claim.note(move=position.moved_by if position is not None else None)
    if position is None or config.kafka.monitoring_group is None:
        return None
    return MonitoringGroup(config.kafka, config.kafka.monitoring_group).publish(position.ranges.ranges)


def _spans(moves: tuple[PartitionMove, ...]) -> dict[Partition, tuple[int, int]]:
    return {(each.topic, each.partition): (each.to, each.to + each.again) for each in moves if each.again}


def _with_rows(
    moves: tuple[PartitionMove, ...],
    table: Table,
    columns: tuple[str, str, str],
    ids: Mapping[str, str],
    feed: str,
    *,
    delete_rows: bool | None,
) -> tuple[PartitionMove, ...]:
    """Counts the rows from what is read again, as far as the table keeps their offsets."""
    spans = _spans(moves)
    if not spans:
        return moves
    why = _why_unknown(table, columns, ids, feed, {topic for topic, _ in spans})
    if why is not None and delete_rows:
        raise ConfigError(
            f"rows cannot be deleted by their offsets: {why}",
            where=".".join(table.name()),
            hint="--keep-rows reads the records again beside the rows that are there; decode: {metadata: [topic, "
            "partition, offset]} keeps the offsets of new rows",
        )
    counts = _counted(table, columns, spans) if why is None else {}
    if delete_rows is None and (why is not None or any(counts.values())):
        message = f"the {sum(counts.values()):,} rows of them" if why is None else "the rows of them"
        raise ConfigError(
            f"{sum(each.again for each in moves):,} offsets are read again: say what becomes of {message}",
            hint="--delete-rows deletes them in the same commit, --keep-rows leaves them beside the new ones",
        )
    return tuple(replace(each, rows=counts.get((each.topic, each.partition))) if each.again else each for each in moves)


def _why_unknown(
    table: Table, columns: tuple[str, str, str], ids: Mapping[str, str], feed: str, topics: set[str]
) -> str | None:
    """Why a row's offset does not tell which record it is of; None if it does."""
    have = table.schema().column_names
    missing = [name for name in columns if name and name not in have]
    others = [key for key in table.properties if key.startswith(f"{POSITION}.") and key != f"{POSITION}.{feed}"]
    if not columns[0] and (len(ids) > 1 or others):
        missing.insert(0, TOPIC)
    if missing:
        return f"the table does not keep {' and '.join(missing)}"
    if older := _older_topics(table, feed, ids, topics):
        return f"it has rows of another topic that was called {older[0]} before, with the same offsets"
    return None


def _older_topics(table: Table, feed: str, ids: Mapping[str, str], names: set[str]) -> list[str]:
    return sorted(
        topic
        for _, summary in summaries(table)
        if summary.get(FEED) == feed and RANGES in summary
        for topic, topic_id in Commit.of(0, summary).ranges.topic_ids.items()
        if topic in names and ids.get(topic, topic_id) != topic_id
    )


def _counted(
    table: Table, columns: tuple[str, str, str], spans: Mapping[Partition, tuple[int, int]]
) -> dict[Partition, int]:
    from pyiceberg.expressions import parser

    only = next(iter(spans))[0]
    counts: dict[Partition, int] = dict.fromkeys(spans, 0)
    scan = table.scan(
        row_filter=parser.parse(rows_where(spans, columns=columns)),
        selected_fields=tuple(name for name in columns if name),
    )
    for batch in scan.to_arrow_batch_reader():
        topics = batch.column(TOPIC).to_pylist() if columns[0] else [only] * batch.num_rows
        for name, number in zip(topics, batch.column(PARTITION).to_pylist(), strict=True):
            counts[name, number] += 1
    return counts


def _with_letters(
    moves: tuple[PartitionMove, ...], config: PipelineConfig, survey: FeedStatus, connections: Connections
) -> tuple[tuple[PartitionMove, ...], int]:
    """Counts the dead letters that go: those of what is read again, and those past where the table is."""
    kept = config.dead_letters.table if config.dead_letters else None
    if kept is None:
        return moves, 0
    known = {} if survey.position is None else ends(survey.position)
    goes_to = {**known, **{(each.topic, each.partition): each.to for each in moves}}
    _require_written(kept, goes_to, config, survey, connections)
    try:
        found = TableReader(kept, connections=connections).find(DeadLetterFilter(feed=config.name))
    except ResourceMissing:
        return moves, 0
    gone = [
        (each["topic"], each["partition"])
        for each in found
        if (each["topic"], each["partition"]) in goes_to or not known
        if each["offset"] >= goes_to.get((each["topic"], each["partition"]), 0)
    ]
    return tuple(replace(each, letters=gone.count((each.topic, each.partition))) for each in moves), len(gone)


def _require_written(
    kept: str, goes_to: Mapping[Partition, int], config: PipelineConfig, survey: FeedStatus, connections: Connections
) -> None:
    """Refuses a move from a batch whose dead letters a crash has left out: the next start could not tell them any more.

    Raises:
        CheckpointMismatch: there are such letters, and their records are not read again.
    """
    if survey.position is None:
        return
    table = open_table(config.sink.ledger_table, connections=connections)
    summary = next((found for number, found in summaries(table) if number == survey.position.snapshot_id), None)
    if summary is None:
        return
    last = Commit.of(survey.position.snapshot_id, summary)
    left_out = [
        each
        for each in last.ranges.ranges
        if last.counts.get((each.topic, each.partition), ZERO).dead_letters
        and goes_to.get((each.topic, each.partition), 0) > each.start
    ]
    if not left_out:
        return
    try:
        written = position_in(open_table(kept, connections=connections), config.name, where=kept)
    except ResourceMissing:
        written = None
    reached = ends(written) if written is not None else {}
    if any(reached.get((each.topic, each.partition), 0) < each.end for each in left_out):
        raise CheckpointMismatch(
            f"the dead letters of batch {last.batch_id} of feed '{config.name}' are not written yet",
            where=kept,
            hint="start the feed once, which writes them; then move it",
        )
