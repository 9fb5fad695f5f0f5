"""Read the evidence about a feed from its table, dead letters and topics, without Spark."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TYPE_CHECKING, Any

from lakefeed.clients.iceberg.reader import open_table
from lakefeed.clients.kafka.scan import count_records
from lakefeed.clients.kafka.topics import TopicDescription, Topics, mark_cut_offs
from lakefeed.config.connections import Connections
from lakefeed.config.models import PipelineConfig
from lakefeed.config.sources import KafkaSource
from lakefeed.errors import ResourceMissing
from lakefeed.ledger.feed_position import Position
from lakefeed.ledger.outcomes import ZERO
from lakefeed.ledger.snapshot_summary import FENCE, POSITION, Backfill, Commit, Upserts
from lakefeed.ledger.snapshots import (
    OtherCommit,
    ReplayCommit,
    ancestors,
    backfills_of,
    commits_of,
    head_of,
    others_in,
    replays_of,
    rows_before,
    upserts_in,
)
from lakefeed.offsets.ranges import OffsetRange, OffsetRanges, Partition, union, without_batches
from lakefeed.operations.verify.row_offsets import IcebergRows, Letter, RowCoverage, count_keyed_rows, scan_row_offsets
from lakefeed.sinks.dead_letters.store import BACKFILLS
from lakefeed.sinks.definition import StoredRows
from lakefeed.sinks.factory import sink_of

if TYPE_CHECKING:
    from pyiceberg.io import FileIO
    from pyiceberg.table import Table


@dataclass(frozen=True)
class FileCheck:
    """The files of a table's newest snapshot: manifests, data files and delete files.

    Attributes:
        present: the number of files that the store has with their right size.
        unchecked: the number of files beyond ``MOST_FILES``.
    """

    present: int = 0
    lost: tuple[LostFile, ...] = ()
    unchecked: int = 0

    def __add__(self, other: FileCheck) -> FileCheck:
        return FileCheck(self.present + other.present, self.lost + other.lost, self.unchecked + other.unchecked)


def check_files(table: Table, feed: str | None = None) -> FileCheck:
    """Read the manifests of the feed's branch, and check the files in them with HEAD requests."""
    head = head_of(table, feed)
    if head is None:
        return FileCheck()
    io, lost, opened = table.io, list[LostFile](), 0
    named: dict[str, tuple[str, int]] = {}
    try:
        manifests = head.manifests(io)
        opened += 1
    except Exception as error:
        return FileCheck(lost=(LostFile("manifest list", head.manifest_list, _reason(error)),))
    for manifest in sorted(manifests, key=lambda each: each.sequence_number or 0, reverse=True):
        try:
            entries = manifest.fetch_manifest_entry(io)
            opened += 1
        except Exception as error:
            lost.append(LostFile("manifest", manifest.manifest_path, _reason(error)))
            continue
        for entry in entries:
            file = entry.data_file
            named[file.file_path] = ("data file" if file.content == 0 else "delete file", file.file_size_in_bytes)
    looked_for = list(islice(named.items(), MOST_FILES))
    lost += _lost(io, looked_for)
    present = opened + len(looked_for) - sum(each.path in named for each in lost)
    return FileCheck(present, tuple(lost), len(named) - len(looked_for))


def _lost(io: FileIO, files: list[tuple[str, tuple[str, int]]]) -> Iterator[LostFile]:
    def look(file: tuple[str, tuple[str, int]]) -> LostFile | None:
        path, (what, size) = file
        try:
            found = len(io.new_input(path))
        except FileNotFoundError as error:
            return LostFile(what, path, _reason(error))
        return None if found == size else LostFile(what, path, f"it has {found:,} bytes instead of {size:,}")

    with ThreadPoolExecutor(_THREADS) as pool:
        yield from (each for each in pool.map(look, files) if each is not None)


def _reason(error: Exception) -> str:
    """Return what is wrong with a file that cannot be read; if the store is the cause, raise the error."""
    if isinstance(error, FileNotFoundError):
        return "it is gone"
    if isinstance(error, OSError):
        raise error
    return f"it cannot be read ({type(error).__name__})"


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A fault, or a note on something that verify cannot check; programs read ``kind``."""

    kind: str
    what: str
    fault: bool = True
    topic: str | None = None
    partition: int | None = None
    start: int | None = None
    end: int | None = None
    batch_id: int | None = None
    snapshot_id: int | None = None

    @classmethod
    def of(
        cls,
        kind: str,
        what: str,
        place: str | Partition | OffsetRange | None = None,
        *,
        commit: Commit | Backfill | ReplayCommit | None = None,
        fault: bool = True,
    ) -> Finding:
        """Return a finding about a topic, a partition or offsets; its text begins with the commit's title."""
        finding = cls(kind=kind, what=what, fault=fault)
        if commit is not None:
            what = f"{commit.title}: {what}"
            finding = replace(finding, what=what, batch_id=commit.batch_id, snapshot_id=commit.snapshot_id)
        if isinstance(place, OffsetRange):
            return replace(finding, topic=place.topic, partition=place.partition, start=place.start, end=place.end)
        topic, partition = place if isinstance(place, tuple) else (place, None)
        return replace(finding, topic=topic, partition=partition)


@dataclass(frozen=True)
class Letters:
    """A feed's part of a dead-letter table, or of the history table beside a table of keyed rows.

    Attributes:
        whole: whether the table still has all snapshots.
        of_backfills: how many letters each backfill wrote, by the backfill's number.
    """

    commits: tuple[Commit, ...] = ()
    whole: bool = True
    letters: tuple[Letter, ...] = ()
    of_backfills: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Keyed:
    """The evidence about a table of keyed rows.

    Attributes:
        marks: whether the table marks rows as deleted instead of deleting them.
        grown: the number of rows that the commits have inserted, minus the number that they have deleted.
        rows: the table's number of rows; None if they were not counted.
        repeated: the first keys with several rows, and their number of rows.
    """

    marks: bool = False
    grown: int = 0
    rows: int | None = None
    repeated: tuple[tuple[str, int], ...] = ()
    history: Letters | None = None
    history_coverage: Mapping[Partition, RowCoverage] | None = None


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """All evidence about a feed at one moment; commits, backfills and replays are oldest first.

    Attributes:
        history_complete: whether the table still has all snapshots.
        older_rows: the number of rows that the table had before its oldest remaining snapshot.
        recorded: the feed's position in the table's properties, if they have one.
        recorded_known: false if a rollback has made that position unknown.
        rows_kept: the offsets that the feed has read again after rewinds that kept the rows, as ``recorded`` has them.
        foreign_commits: commits that belong to no feed.
        broker_record_counts: the broker's counts for ranges with fewer records than offsets; None if the broker lacks
            some of the offsets.
        transformed: whether a transform decides the number of rows.
        row_coverage: by partition, a summary of the offsets in the rows; None if the rows were not read.
        keyed: the evidence about keys; None if the sink appends rows.
        files: the files of the table, of its history and of the dead letters.
        tables: by table, the number of rows, for a feed with several tables; ``of_tables`` are the findings about them.
    """

    commits: tuple[Commit, ...]
    history_complete: bool = True
    older_rows: int = 0
    recorded: OffsetRanges | None = None
    recorded_known: bool = True
    rows_kept: Mapping[Partition, Sequence[tuple[int, int]]] = field(default_factory=dict)
    fence: str | None = None
    backfills: tuple[Backfill, ...] = ()
    backfill_fence: str | None = None
    replays: tuple[ReplayCommit, ...] = ()
    foreign_commits: tuple[OtherCommit, ...] = ()
    dead_letters: Letters | None = None
    dead_letter_topic: str | None = None
    topics: Mapping[str, TopicDescription | None] = field(default_factory=dict)
    broker_record_counts: Mapping[OffsetRange, int | None] = field(default_factory=dict)
    transformed: bool = False
    row_coverage: Mapping[Partition, RowCoverage] | None = None
    keyed: Keyed | None = None
    files: FileCheck = field(default_factory=FileCheck)
    tables: Mapping[str, int] = field(default_factory=dict)
    of_tables: tuple[Finding, ...] = ()

    @property
    def landed(self) -> tuple[Commit | Backfill, ...]:
        """The feed's own commits, followed by those of its backfills."""
        return (*self.commits, *self.backfills)

    @property
    def line(self) -> tuple[Commit | Backfill, ...]:
        """The commits of the feed and of backfills in the order in which the table received them."""
        numbered: list[tuple[float, Commit | Backfill]] = list(enumerate(self.commits))
        # Put a backfill after the ``after`` commits that came before it.
        numbered += [(backfill.after - 0.5, backfill) for backfill in self.backfills]
        return tuple(commit for _, commit in sorted(numbered, key=lambda pair: pair[0]))

    @property
    def topic_ids(self) -> Mapping[str, str]:
        """The topics' ids in the newest commit; the broker's answers about topics with other ids are ignored."""
        newest = (self.commits or self.backfills)[-1:]
        return newest[0].ranges.topic_ids if newest else {}

    @property
    def same_topics(self) -> dict[str, TopicDescription]:
        """The topics that exist and were not recreated since the newest commit."""
        ids = self.topic_ids
        return {name: topic for name, topic in self.topics.items() if topic and ids.get(name) in (None, topic.topic_id)}


def collect_evidence(config: PipelineConfig, connections: Connections, *, deep: bool) -> Evidence:
    """Read the evidence about a feed whose sink has a ledger; with ``deep`` also the offsets of all rows."""
    # A package's source may leave gaps between offsets, so the ranges do not show the number of records.
    source = None if config.source.installed is not None else config.kafka
    name = config.sink.chosen.snapshot_table
    if name is None:
        with sink_of(config, connections).history() as stored:
            keyed = None
            if stored.has_keys:
                grown = _growth(commit.upserts for commit in stored.commits)
                keyed = Keyed(marks=stored.marks_deletes, grown=grown, rows=stored.count_rows() if deep else None)
            found = Evidence(commits=stored.commits, history_complete=stored.is_whole, fence=stored.fence, keyed=keyed)
            return _with_sources(found, config, source, connections, stored.rows if deep else None)
    table = open_table(name, connections=connections)
    files = check_files(table, config.name)
    # Rows cannot be read if a file is lost.
    deep = deep and not files.lost
    line, whole = ancestors(table, config.name)
    recorded = table.properties.get(f"{POSITION}.{config.name}")
    position = Position.from_json(recorded) if recorded is not None else None
    # If the commits of rewinds that kept rows have expired, only the position explains repeated offsets.
    kept = position.kept.intervals if position is not None else {}
    evidence = Evidence(
        commits=tuple(commits_of(line, config.name)),
        history_complete=whole,
        older_rows=rows_before(line),
        recorded=None if position is None else position.ranges,
        recorded_known=recorded is None or position is not None,
        rows_kept={partition: intervals for partition, intervals in kept.items() if intervals},
        fence=table.properties.get(f"{FENCE}.{config.name}"),
        backfills=tuple(backfills_of(line, config.name)),
        backfill_fence=table.properties.get(f"{FENCE}.{config.name}{BACKFILLS}"),
        replays=tuple(replays_of(line, config.name)),
        foreign_commits=tuple(others_in(line)),
        files=files,
    )
    evidence = _with_sources(evidence, config, source, connections, IcebergRows(table, config.name) if deep else None)
    if (sink := config.upserting) is None:
        return evidence
    rows, repeated = count_keyed_rows(IcebergRows(table, config.name), sink.keys) if deep else (None, ())
    keyed = Keyed(marks=sink.on_delete == "mark", grown=_growth(upserts_in(line)), rows=rows, repeated=repeated)
    history_table = config.sink.chosen.snapshot_tables.get("history")
    if history_table is not None:
        beside = open_table(history_table, connections=connections)
        own = check_files(beside)
        deep, evidence = deep and not own.lost, replace(evidence, files=evidence.files + own)
        history_line, whole = ancestors(beside)
        written = Letters(tuple(commits_of(history_line, config.name)), whole)
        landed = coverage(evidence, IcebergRows(beside)) if deep else None
        keyed = replace(keyed, history=written, history_coverage=landed)
    return replace(evidence, keyed=keyed)


def _growth(merges: Iterable[Upserts | None]) -> int:
    merged = Upserts.sum(merges)
    return merged.inserted - merged.deleted


def _with_sources(
    evidence: Evidence,
    config: PipelineConfig,
    source: KafkaSource | None,
    connections: Connections,
    rows: StoredRows | None,
) -> Evidence:
    """Add dead letters, topics and rows; as they are read after the commits, all that the commits wrote is there."""
    evidence = replace(evidence, transformed=config.transform is not None)
    if (letters := config.dead_letters) is not None:
        stored, files = (
            (None, FileCheck()) if letters.table is None else _read_letters(letters.table, config.name, connections)
        )
        evidence = replace(evidence, dead_letters=stored, dead_letter_topic=letters.topic)
        evidence = replace(evidence, files=evidence.files + files)
    names = sorted({topic for topic, _ in spans(evidence.landed)})
    evidence = replace(evidence, topics=dict.fromkeys(names))
    if source is not None:
        there = Topics(source.bootstrap_servers, options=source.client_options).describe_all(names)
        last = evidence.commits[-1].ranges.ranges if evidence.commits else ()
        evidence = replace(evidence, topics=mark_cut_offs(source, {name: there.get(name) for name in names}, last))
        evidence = replace(evidence, broker_record_counts=_record_counts(source, evidence))
    return evidence if rows is None else replace(evidence, row_coverage=coverage(evidence, rows))


def _read_letters(name: str, feed: str, connections: Connections) -> tuple[Letters | None, FileCheck]:
    from pyiceberg.expressions import EqualTo

    try:
        table = open_table(name, connections=connections)
    except ResourceMissing:
        return Letters(), FileCheck()
    if (files := check_files(table)).lost:
        return None, files
    line, whole = ancestors(table)
    equal: Any = EqualTo  # mypy does not load the plugin that knows EqualTo's constructor.
    columns = ("topic", "partition", "offset", "replay")
    rows = table.scan(row_filter=equal("feed", feed), selected_fields=columns).to_arrow().to_pylist()
    letters = tuple(Letter(*(row[column] for column in columns)) for row in rows)
    of_backfills = {commit.batch_id: commit.rows for commit in commits_of(line, f"{feed}{BACKFILLS}")}
    return Letters(tuple(commits_of(line, feed)), whole, letters, of_backfills), files


def _record_counts(source: KafkaSource, evidence: Evidence) -> Mapping[OffsetRange, int | None]:
    """Return the broker's counts for ranges with fewer records than offsets; recreated topics are left out."""
    ids, topics = evidence.topic_ids, evidence.same_topics
    unknown = [
        span
        for commit in evidence.landed
        for span in sparse((commit,))
        if span.topic in topics and commit.ranges.topic_ids.get(span.topic) == ids.get(span.topic)
    ]
    return count_records(source, unknown, topics=topics)


def coverage(evidence: Evidence, rows: StoredRows) -> dict[Partition, RowCoverage] | None:
    if not evidence.commits:
        return None
    return scan_row_offsets(
        rows,
        covered(evidence.landed),
        topics=evidence.topics,
        begins=begins(evidence.commits, evidence.rows_kept),
        letters=evidence.dead_letters.letters if evidence.dead_letters else (),
    )


def spans(commits: Sequence[Commit | Backfill]) -> dict[Partition, tuple[int, int]]:
    """Return each partition's first offset in the commits, and the offset after its last one."""
    found: dict[Partition, tuple[int, int]] = {}
    for commit in commits:
        for span in without_batches(commit.ranges).ranges:
            start, end = found.get(span.key, (span.start, span.end))
            found[span.topic, span.partition] = (min(start, span.start), max(end, span.end))
    return found


def begins(
    commits: Sequence[Commit], kept: Mapping[Partition, Sequence[tuple[int, int]]] | None = None
) -> dict[Partition, int]:
    """Return, by partition, the offset below which expired commits may have written the rows.

    ``kept`` has the offsets that the feed has read again after rewinds that kept the rows.
    """
    found = {partition: start for partition, (start, _) in spans(commits).items()}
    # A rewind with --keep-rows leaves the rows between its target and the offset from which it moved the feed.
    ends = [(partition, end) for commit in kept_moves(commits) for partition, (_, end) in commit.rewound.items()]
    ends += [(partition, end) for partition, intervals in (kept or {}).items() for _, end in intervals]
    for partition, end in ends:
        found[partition] = max(end, found.get(partition, end))
    return found


def kept_moves(commits: Sequence[Commit]) -> Iterator[Commit]:
    """Yield the commits that moved the feed and kept its rows."""
    return (commit for commit in commits if commit.move is not None and commit.move.deleted_rows is None)


def covered(commits: Sequence[Commit | Backfill]) -> list[OffsetRange]:
    """Return the offsets of the commits as ranges that neither adjoin nor overlap."""
    return union(span for commit in commits for span in without_batches(commit.ranges).ranges)


def sparse(commits: Sequence[Commit | Backfill]) -> list[OffsetRange]:
    """Return the ranges with fewer records than offsets, which only the broker can confirm."""
    return [
        span
        for commit in commits
        for span in without_batches(commit.ranges).ranges
        if commit.counts.get(span.key, ZERO).records < span.records
    ]


MOST_FILES = 20_000
"""The largest number of files to check per table, newest first; each check is a HEAD request."""
_THREADS = 16


@dataclass(frozen=True)
class LostFile:
    """A file of the table that is missing or damaged in the store.

    Attributes:
        what: ``manifest list``, ``manifest``, ``data file`` or ``delete file``.
        why: what is wrong with the file, as a sentence.
    """

    what: str
    path: str
    why: str
