"""Proves from outside that a feed's table holds each record once: from its metadata and the broker, without Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from lakefeed.commit.audit import findings
from lakefeed.commit.covered import Position
from lakefeed.commit.evidence import (
    Evidence,
    Finding,
    Keyed,
    Letter,
    Letters,
    Placed,
    covered,
    spans,
    sparse,
)
from lakefeed.commit.ledger import FENCE, POSITION, Backfill, Commit, Upserts
from lakefeed.commit.outcomes import ZERO, total
from lakefeed.commit.positions import keyed_rows, placed
from lakefeed.commit.snapshots import ancestors, backfills_of, commits_of, others_in, replays_of, upserts_in
from lakefeed.config.connections import Connections
from lakefeed.config.models import IcebergSink, KafkaSource, PipelineConfig
from lakefeed.dead_letters.place import BACKFILLS
from lakefeed.errors import ConfigError, ResourceMissing
from lakefeed.kafka.held import records_held
from lakefeed.kafka.topics import TopicDescription, Topics
from lakefeed.tables.reader import open_table

if TYPE_CHECKING:
    from pyiceberg.table import Table


@dataclass(frozen=True, kw_only=True)
class Standing:
    """One partition: what has landed, and what the topic has.

    Attributes:
        topic: its name.
        partition: the partition.
        start: the first offset that has verifiably landed.
        end: one more than the last.
        topic_start: the first offset that the topic still has; None if the topic is gone or another.
        topic_end: one more than its last.
        lag: offsets that have not landed yet.
    """

    topic: str
    partition: int
    start: int
    end: int
    topic_start: int | None
    topic_end: int | None

    @property
    def lag(self) -> int | None:
        """Offsets that are in the topic and not in the table; transactions leave some without a record."""
        return None if self.topic_end is None else max(0, self.topic_end - self.end)


@dataclass(frozen=True, kw_only=True)
class Verification:
    """What was proven about a feed.

    Attributes:
        feed: the feed's name.
        table: its table.
        deep: whether rows were compared by their own offsets.
        commits: commits that were verified.
        whole: whether they are all that the feed made; else older snapshots have expired.
        first_batch: the oldest of them; None without any.
        last_batch: the newest.
        offsets: offsets that they span.
        records: records among them.
        dead_letters: of the records.
        skipped: of the records.
        rows: rows that the commits added.
        backfills: commits of backfills, whose records and rows are among the others.
        replayed: rows that replays of dead letters added.
        upserts: what became of all changes; None where rows are appended.
        partitions: where each stands.
        findings: faults first, then notes.
    """

    feed: str
    table: str
    deep: bool
    commits: int
    whole: bool
    first_batch: int | None
    last_batch: int | None
    offsets: int
    records: int
    dead_letters: int
    skipped: int
    rows: int
    backfills: int
    replayed: int
    upserts: Upserts | None
    partitions: tuple[Standing, ...]
    findings: tuple[Finding, ...]

    @property
    def faults(self) -> tuple[Finding, ...]:
        """What disproves exactly-once."""
        return tuple(each for each in self.findings if each.fault)

    @property
    def notes(self) -> tuple[Finding, ...]:
        """What one should know of, or what cannot be told."""
        return tuple(each for each in self.findings if not each.fault)

    def as_dict(self) -> dict[str, Any]:
        """For ``--output json``."""
        plain = asdict(self)
        plain["partitions"] = [{**asdict(each), "lag": each.lag} for each in self.partitions]
        return {"verified": not self.faults, **plain}


def verified(config: PipelineConfig, *, connections: Connections, deep: bool = False) -> Verification:
    """Holds a feed's commits, its dead letters, and the broker's offsets against each other.

    May run beside the feed: it sees the table at one moment. Reads metadata, and where the dead letters were; the
    broker counts again only where a range has fewer records than offsets.

    Args:
        config: the pipeline.
        connections: store and catalogs.
        deep: also read each row's own topic, partition and offset, which the table has to keep.

    Raises:
        ConfigError: the sink keeps no offsets, or with ``deep`` the table does not.
        ResourceMissing: the table is not there.
        Unreachable: the broker, the catalog or the store does not answer.
    """
    sink, source = config.sink.iceberg, config.source.kafka
    assert source is not None  # The model holds exactly one kind.
    if sink is None:
        raise ConfigError(
            "a Parquet feed cannot be verified from outside: _spark_metadata lists files by batch id, and has neither "
            "offsets nor counts to hold them against",
            where=config.sink.parquet.path if config.sink.parquet else None,
            hint="land the feed in an Iceberg table; docs/exactly-once.md says what Parquet guarantees",
        )
    table = open_table(sink.table, connections=connections)
    evidence = _gathered(config, source, table, connections, deep=deep)
    commits = evidence.commits
    counts = sum((total(each.counts) for each in evidence.landed), ZERO)
    return Verification(
        feed=config.name,
        table=sink.table,
        deep=deep,
        commits=len(commits),
        whole=evidence.whole,
        first_batch=commits[0].batch_id if commits else None,
        last_batch=commits[-1].batch_id if commits else None,
        offsets=sum(each.ranges.records for each in evidence.landed),
        records=counts.records,
        dead_letters=counts.dead_letters,
        skipped=counts.skipped,
        rows=sum(each.rows for each in evidence.landed),
        backfills=len(evidence.backfills),
        replayed=sum(each.rows for each in evidence.replays),
        upserts=Upserts.sum(each.upserts for each in commits) if evidence.keyed else None,
        partitions=tuple(_standings(evidence)),
        findings=tuple(findings(evidence)),
    )


def _gathered(
    config: PipelineConfig, source: KafkaSource, table: Table, connections: Connections, *, deep: bool
) -> Evidence:
    feed, sink = config.name, config.sink.iceberg
    assert sink is not None
    line, whole = ancestors(table)
    commits, backfills = tuple(commits_of(line, feed)), tuple(backfills_of(line, feed))
    recorded = table.properties.get(f"{POSITION}.{feed}")
    position = Position.from_json(recorded) if recorded is not None else None
    # After the table, so that no batch of it can be without them.
    letters = None
    if config.dead_letters is not None and config.dead_letters.table is not None:
        letters = _letters(config.dead_letters.table, feed, connections)
    landed: tuple[Commit | Backfill, ...] = (*commits, *backfills)
    topics = _topics(source, {topic for topic, _ in spans(landed)})
    same = {
        name
        for name, found in topics.items()
        if found is not None and (commits or backfills)[-1].ranges.topic_ids.get(name, found.topic_id) == found.topic_id
    }

    def positions(of: Table) -> dict[tuple[str, int], Placed] | None:
        if not (deep and commits):
            return None
        begins = {key: start for key, (start, _) in spans(commits).items()}
        kept = letters.letters if letters else ()
        return placed(of, covered(landed), topics=topics, begins=begins, letters=kept)

    ids = (commits or backfills)[-1].ranges.topic_ids if landed else {}
    asked = [
        each
        for commit in landed
        for each in sparse((commit,))
        if each.topic in same and commit.ranges.topic_ids.get(each.topic) == ids.get(each.topic)
    ]
    return Evidence(
        commits=commits,
        whole=whole,
        recorded=None if position is None else position.ranges,
        recorded_known=recorded is None or position is not None,
        fence=table.properties.get(f"{FENCE}.{feed}"),
        backfills=backfills,
        backfill_fence=table.properties.get(f"{FENCE}.{feed}{BACKFILLS}"),
        replays=tuple(replays_of(line, feed)),
        others=tuple(others_in(line)),
        letters=letters,
        letters_topic=config.dead_letters.topic if config.dead_letters else None,
        topics=topics,
        held=records_held(source, asked, topics={name: found for name, found in topics.items() if found is not None}),
        transformed=config.transform is not None,
        placed=positions(table),
        keyed=_keyed(sink, feed, table, connections, positions=positions, deep=deep) if sink.mode == "upsert" else None,
    )


def _keyed(
    sink: IcebergSink,
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
    if sink.history is not None:
        beside = open_table(sink.history, connections=connections)
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


def _topics(source: KafkaSource, names: set[str]) -> dict[str, TopicDescription | None]:
    cluster = Topics(source.bootstrap_servers, options=dict(source.options))
    # Also the quickest way to learn that nobody answers.
    there = set(cluster.list())
    return {name: cluster.describe(name) if name in there else None for name in sorted(names)}


def _standings(evidence: Evidence) -> Iterator[Standing]:
    described: Mapping[str, TopicDescription | None] = evidence.topics
    ids = evidence.commits[-1].ranges.topic_ids if evidence.commits else {}
    last = spans(evidence.commits[-1:])
    for (topic, partition), (start, end) in sorted(spans(evidence.landed).items()):
        # A rewind has gone back behind what landed once.
        _, end = last.get((topic, partition), (start, end))
        found = described.get(topic)
        if found is not None and ids.get(topic, found.topic_id) != found.topic_id:
            found = None
        offsets = next((each for each in found.partitions if each.id == partition), None) if found else None
        yield Standing(
            topic=topic,
            partition=partition,
            start=start,
            end=end,
            topic_start=offsets.start_offset if offsets else None,
            topic_end=offsets.end_offset if offsets else None,
        )
