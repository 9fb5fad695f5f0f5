"""Where a feed stands, as checkpoint, table, group and topics say it, and what a start would do; without Spark."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from lakefeed.commit.checkpoint import Note, Owner, noted, owned
from lakefeed.commit.checkpoint_state import CheckpointState, Partition, checkpoint_state
from lakefeed.commit.checkpoint_store import StoredFiles
from lakefeed.commit.covered import ROLLED_BACK, Position
from lakefeed.commit.entries import FEED, POSITION, RANGES, Commit
from lakefeed.commit.opening import moved_by
from lakefeed.commit.snapshots import ancestors, summaries
from lakefeed.commit.start import Facts, Start, decide, ends
from lakefeed.config.connections import Connections
from lakefeed.config.models import PipelineConfig
from lakefeed.elasticsearch.layout import Layout
from lakefeed.elasticsearch.ledger import ElasticsearchLedger
from lakefeed.elasticsearch.server import Server
from lakefeed.errors import CheckpointMismatch, LakefeedError, ResourceMissing
from lakefeed.jdbc.ledger import JdbcLedger
from lakefeed.jdbc.session import PythonDatabase
from lakefeed.kafka.monitoring import MonitoringGroup
from lakefeed.kafka.topic_ids import SourceTopics
from lakefeed.kafka.topics import TopicDescription
from lakefeed.tables.reader import open_table

if TYPE_CHECKING:
    from pyiceberg.table import Table


@dataclass(frozen=True, kw_only=True)
class PartitionStanding:
    """One partition; what is not known is None.

    Attributes:
        topic: its name.
        partition: the partition.
        checkpoint: up to where the checkpoint takes the records for landed.
        table: up to where the table's ledger has them.
        group: what the monitoring group is set to.
        topic_start: the first offset that the topic still has.
        topic_end: one more than its last.
        covered: the offsets that the table has.
    """

    topic: str
    partition: int
    checkpoint: int | None
    table: int | None
    group: int | None
    topic_start: int | None
    topic_end: int | None
    covered: tuple[tuple[int, int], ...] | None

    @property
    def lag(self) -> int | None:
        """Offsets that are in the topic and not landed; transactions leave some without a record."""
        stands = self.checkpoint if self.table is None else self.table
        return None if stands is None or self.topic_end is None else max(0, self.topic_end - stands)


@dataclass(frozen=True, kw_only=True)
class Survey:
    """Where a feed stands.

    Attributes:
        feed: its name.
        sink: its table or path.
        batch_id: the newest batch that the checkpoint has planned; None without any.
        committed: whether the checkpoint has it as done.
        partitions: all that anybody knows of.
        start: what a start would do now.
        refusal: why a start would be refused; None if it would not.
        position: where the feed stands in the table; None if that has nothing of it, or does not tell.
        tells: whether the table tells where the feed stands; not after some rollbacks.
        topics: those that the pipeline reads.
        decided: how a start would begin; None if it would be refused.
        checkpoint: how far the checkpoint has come.
        note: what lakefeed has noted beside it; None if there is none yet.
        logged: the newest batch in the log of a sink without a ledger.
    """

    feed: str
    sink: str
    batch_id: int | None
    committed: bool
    partitions: tuple[PartitionStanding, ...]
    start: str
    refusal: LakefeedError | None
    position: Position | None
    tells: bool
    topics: Mapping[str, TopicDescription | None]
    decided: Start | None
    checkpoint: CheckpointState
    note: Note | None
    logged: int | None

    def as_dict(self) -> dict[str, Any]:
        """For ``--output json``."""
        return {
            "feed": self.feed,
            "sink": self.sink,
            "batch_id": self.batch_id,
            "committed": self.committed,
            "start": self.start,
            "refusal": self.refusal.as_dict() if self.refusal else None,
            "partitions": [{**asdict(each), "lag": each.lag} for each in self.partitions],
        }


def surveyed(config: PipelineConfig, *, connections: Connections) -> Survey:
    """Where a feed stands. Reads two or three small files of the checkpoint and the table's metadata; changes nothing.

    Args:
        config: the pipeline.
        connections: store and catalogs.

    Raises:
        CheckpointMismatch: the checkpoint is another pipeline's.
        Unreachable: broker, store or catalog do not answer.
        MissingExtra: pyiceberg and pyarrow are not installed.
    """
    owner = Owner.of(config)
    found, state = None, CheckpointState()
    if config.checkpoint:
        files = StoredFiles(config.checkpoint, s3=connections.s3)
        found = noted(files, where=config.checkpoint)
        note = owned(found, owner, where=config.checkpoint)
        state = checkpoint_state(files, with_query_id=bool(note.state))
    logged = _logged(config.sink.logged_path, connections) if config.sink.logged_path else None
    topics = SourceTopics(config.kafka).described()
    position, untold = None, None
    if config.sink.iceberg is not None:
        try:
            position = position_in(open_table(config.sink.iceberg.table, connections=connections), config.name)
        except ResourceMissing:
            pass
        except CheckpointMismatch as error:
            untold = error
    if config.sink.jdbc is not None:
        database = PythonDatabase(config.sink.jdbc)
        with database.session() as session:
            position = JdbcLedger(database, config.sink.jdbc, config.name).position(session)
    if (search := config.sink.elasticsearch) is not None:
        server = Server(search)
        if Layout(server, search).described() is not None:
            position = ElasticsearchLedger(server, search, config.name).position()
    decided: Start | None = None
    refusal: LakefeedError | None = untold
    if untold is None:
        decided, refusal = _start(
            Facts(
                feed=config.name,
                sink=owner.sink,
                keeps_ledger=bool(config.sink.iceberg or config.sink.jdbc or config.sink.elasticsearch),
                checkpoint=state,
                last=position,
                unknown_move=moved_by(position) not in (None, found.move if found else None),
                logged=logged,
                topics=topics,
                noted_ids=found.topic_ids if found else {},
                rewinds=config.sink.chosen.rewinds,
                stateful=bool(found and found.state),
                had_state=bool(found and found.state),
                keeps_log=config.sink.logged_path is not None,
            )
        )
    group = MonitoringGroup(config.kafka, config.kafka.monitoring_group) if config.kafka.monitoring_group else None
    return Survey(
        feed=config.name,
        sink=owner.sink,
        batch_id=state.batch_id,
        committed=state.committed,
        partitions=_standings(state, position, topics, (group.offsets() if group else None) or {}),
        start=_told(config, decided, is_new=state.batch_id is None and position is None),
        refusal=refusal,
        position=position,
        tells=untold is None,
        topics=topics,
        decided=decided,
        checkpoint=state,
        note=found,
        logged=logged,
    )


def position_in(table: Table, feed: str) -> Position | None:
    """Where a feed stands in a table, without Java: as ``Ledger.position``.

    Raises:
        CheckpointMismatch: the table was rolled back, and nothing tells.
    """
    text = table.properties.get(f"{POSITION}.{feed}")
    recorded = Position.from_json(text) if text is not None else None
    for snapshot_id, summary in summaries(table):
        if summary.get(FEED) == feed and RANGES in summary:
            if recorded is not None and recorded.snapshot_id == snapshot_id:
                return recorded
            # Another engine has moved the table, and left the property behind.
            return Position(Commit.of(snapshot_id, summary).ranges, snapshot_id)
    _, whole = ancestors(table)
    if text is None or (recorded is not None and not whole):
        return recorded
    raise CheckpointMismatch(
        f"the table was rolled back to before the commits of feed '{feed}' that it still knows: where it stands cannot "
        "be told",
        where=".".join(table.name()) + (f" ({ROLLED_BACK})" if recorded is None else ""),
        hint="restore the table; or say where the feed goes on: lakefeed offsets rewind pipeline.yaml --to timestamp:…",
    )


def _start(facts: Facts) -> tuple[Start | None, LakefeedError | None]:
    try:
        return decide(facts), None
    except LakefeedError as refusal:
        return None, refusal


def _told(config: PipelineConfig, start: Start | None, *, is_new: bool) -> str:
    if start is None:
        return "refused"
    if start.told is not None and config.checkpoint:
        return start.told
    return f"begins at the {config.kafka.start} records" if is_new else "goes on where the last batch ended"


def _logged(path: str, connections: Connections) -> int | None:
    names = StoredFiles(f"{path}/_spark_metadata", s3=connections.s3).names()
    batches = [int(stem) for each in names if (stem := each.removesuffix(".compact")).isdigit()]
    return max(batches, default=None)


def _standings(
    state: CheckpointState,
    position: Position | None,
    topics: Mapping[str, TopicDescription | None],
    group: Mapping[Partition, int],
) -> tuple[PartitionStanding, ...]:
    there = {(name, each.id): each for name, found in topics.items() if found for each in found.partitions}
    checkpoint = state.position or {}
    table = ends(position) if position else {}
    covered = position.covered.intervals if position and position.covered else None
    return tuple(
        PartitionStanding(
            topic=key[0],
            partition=key[1],
            checkpoint=checkpoint.get(key),
            table=table.get(key),
            group=group.get(key),
            topic_start=there[key].start_offset if key in there else None,
            topic_end=there[key].end_offset if key in there else None,
            covered=None if covered is None else tuple(covered.get(key, ())),
        )
        for key in sorted({*there, *checkpoint, *table})
    )
