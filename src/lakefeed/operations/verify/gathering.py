"""What is known of a feed: read from its table and its dead letters, asked of the broker; without Spark."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lakefeed.clients.iceberg.reader import open_table
from lakefeed.clients.kafka.record_counts import records_held
from lakefeed.clients.kafka.topics import TopicDescription, Topics
from lakefeed.config.connections import Connections
from lakefeed.config.kafka_source import KafkaSource
from lakefeed.config.models import PipelineConfig
from lakefeed.config.upserts import upserting
from lakefeed.errors import ResourceMissing
from lakefeed.ledger.feed_position import Position
from lakefeed.ledger.snapshot_summary import FENCE, POSITION, Backfill, Commit
from lakefeed.ledger.snapshots import (
    ancestors,
    backfills_of,
    commits_of,
    others_in,
    replays_of,
    rows_before,
    upserts_in,
)
from lakefeed.offsets.ranges import OffsetRange
from lakefeed.operations.verify.evidence import Evidence, Keyed, Letter, Letters, Placed, begins, covered, spans, sparse
from lakefeed.operations.verify.row_offsets import IcebergRows, keyed_rows, placed
from lakefeed.sinks.dead_letters.store import BACKFILLS
from lakefeed.sinks.factory import sink_of
from lakefeed.sinks.protocol import CommitHistory

if TYPE_CHECKING:
    from pyiceberg.table import Table

    from lakefeed.config.keyed import KeyedSink


def gathered(config: PipelineConfig, connections: Connections, *, deep: bool) -> Evidence:
    """All that is known of a feed at one moment.

    Args:
        config: the pipeline, whose sink keeps a ledger.
        connections: store and catalogs.
        deep: also read each row's own topic, partition and offset.

    Raises:
        ConfigError: the table does not keep what ``deep`` reads.
        ResourceMissing: the table is not there.
        Unreachable: broker, catalog, store or database do not answer.
    """
    name = config.sink.chosen.snapshot_table
    if name is None:
        with sink_of(config, connections).history() as history:
            return _of_history(config, history, connections, deep=deep)
    feed, source = config.name, _asked(config)
    table = open_table(name, connections=connections)
    line, whole = ancestors(table)
    commits, backfills = tuple(commits_of(line, feed)), tuple(backfills_of(line, feed))
    recorded = table.properties.get(f"{POSITION}.{feed}")
    position = Position.from_json(recorded) if recorded is not None else None
    # Their commits may have expired: only the position still says why offsets have several rows.
    rows_kept = position.kept.intervals if position is not None else {}
    # After the table, so that no batch of it can be without them.
    letters = None
    if config.dead_letters is not None and config.dead_letters.table is not None:
        letters = _letters(config.dead_letters.table, feed, connections)
    landed: tuple[Commit | Backfill, ...] = (*backfills, *commits)
    topics = _topics(source, {topic for topic, _ in spans(landed)})

    def positions(of: Table) -> dict[tuple[str, int], Placed] | None:
        if not (deep and commits):
            return None
        kept = letters.letters if letters else ()
        return placed(IcebergRows(of), covered(landed), topics=topics, begins=begins(commits, rows_kept), letters=kept)

    return Evidence(
        commits=commits,
        whole=whole,
        older_rows=rows_before(line),
        recorded=None if position is None else position.ranges,
        recorded_known=recorded is None or position is not None,
        rows_kept=frozenset(key for key, intervals in rows_kept.items() if intervals),
        fence=table.properties.get(f"{FENCE}.{feed}"),
        backfills=backfills,
        backfill_fence=table.properties.get(f"{FENCE}.{feed}{BACKFILLS}"),
        replays=tuple(replays_of(line, feed)),
        others=tuple(others_in(line)),
        letters=letters,
        letters_topic=config.dead_letters.topic if config.dead_letters else None,
        topics=topics,
        held=_held(source, landed, topics),
        transformed=config.transform is not None,
        placed=positions(table),
        keyed=_keyed(
            sink,
            config.sink.chosen.snapshot_tables.get("history"),
            feed,
            table,
            connections,
            positions=positions,
            deep=deep,
        )
        if (sink := upserting(config))
        else None,
    )


def _keyed(
    sink: KeyedSink,
    history_table: str | None,
    feed: str,
    table: Table,
    connections: Connections,
    *,
    positions: Callable[[Table], dict[tuple[str, int], Placed] | None],
    deep: bool,
) -> Keyed:
    merged = list(upserts_in(ancestors(table)[0]))
    rows, repeated = keyed_rows(table, sink.keys) if deep else (None, ())
    history, history_placed = None, None
    if history_table is not None:
        beside = open_table(history_table, connections=connections)
        history_line, whole = ancestors(beside)
        history = Letters(tuple(commits_of(history_line, feed)), whole)
        history_placed = positions(beside)
    return Keyed(
        marks=sink.on_delete == "mark",
        grown=sum(each.inserted - each.deleted for each in merged),
        rows=rows,
        repeated=repeated,
        history=history,
        history_placed=history_placed,
    )


def _letters(name: str, feed: str, connections: Connections) -> Letters:
    from pyiceberg.expressions import EqualTo

    try:
        table = open_table(name, connections=connections)
    except ResourceMissing:
        return Letters()
    line, whole = ancestors(table)
    equal: Any = EqualTo  # Its constructor is made by a plugin that mypy has not got.
    columns = ("topic", "partition", "offset", "replay")
    rows = table.scan(row_filter=equal("feed", feed), selected_fields=columns).to_arrow().to_pylist()
    return Letters(
        tuple(commits_of(line, feed)),
        whole,
        tuple(Letter(row["topic"], row["partition"], row["offset"], row["replay"]) for row in rows),
        {each.batch_id: each.rows for each in commits_of(line, f"{feed}{BACKFILLS}")},
    )


def _asked(config: PipelineConfig) -> KafkaSource | None:
    """The cluster that is asked what it holds; None for Kinesis, which numbers no records and could not tell.

    Raises:
        ConfigError: the source has no offsets at all.
    """
    return None if config.source.kinesis is not None else config.kafka


def _topics(source: KafkaSource | None, names: set[str]) -> dict[str, TopicDescription | None]:
    if source is None:
        return dict.fromkeys(sorted(names))
    there = Topics(source.bootstrap_servers, options=dict(source.options)).describe_all(sorted(names))
    return {name: there.get(name) for name in sorted(names)}


def _of_history(config: PipelineConfig, history: CommitHistory, connections: Connections, *, deep: bool) -> Evidence:
    source, rows, commits = _asked(config), None, history.commits
    letters = None
    if config.dead_letters is not None and config.dead_letters.table is not None:
        letters = _letters(config.dead_letters.table, config.name, connections)
    topics = _topics(source, {topic for topic, _ in spans(commits)})
    if deep and commits:
        rows = placed(
            history.rows,
            covered(commits),
            topics=topics,
            begins=begins(commits),
            letters=letters.letters if letters else (),
        )
    merged = [each.upserts for each in commits if each.upserts is not None]
    return Evidence(
        commits=commits,
        fence=history.fence,
        letters=letters,
        letters_topic=config.dead_letters.topic if config.dead_letters else None,
        topics=topics,
        held=_held(source, commits, topics),
        transformed=config.transform is not None,
        placed=rows,
        keyed=None
        if not history.has_keys
        else Keyed(
            marks=history.marks_deletes,
            grown=sum(each.inserted - each.deleted for each in merged),
            rows=history.count_rows() if deep else None,
        ),
    )


def _held(
    source: KafkaSource | None, landed: Sequence[Commit | Backfill], topics: Mapping[str, TopicDescription | None]
) -> Mapping[OffsetRange, int | None]:
    """What the broker holds of ranges with fewer records than offsets, in the topics that are still the same."""
    if source is None:
        return {}
    ids = landed[-1].ranges.topic_ids if landed else {}
    same = {name for name, found in topics.items() if found and ids.get(name, found.topic_id) == found.topic_id}
    asked = [
        each
        for commit in landed
        for each in sparse((commit,))
        if each.topic in same and commit.ranges.topic_ids.get(each.topic) == ids.get(each.topic)
    ]
    return records_held(source, asked, topics={name: found for name, found in topics.items() if found is not None})
