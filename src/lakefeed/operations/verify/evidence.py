"""What is known of a feed at one moment: from its table, its dead letters and the broker; and what is found in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from lakefeed.clients.kafka.topics import TopicDescription
from lakefeed.ledger.outcomes import ZERO
from lakefeed.ledger.snapshot_summary import Backfill, Commit
from lakefeed.ledger.snapshots import OtherCommit, ReplayCommit
from lakefeed.ledger.stateful_batches import without_batches
from lakefeed.offsets.ranges import OffsetRange, OffsetRanges, Partition
from lakefeed.offsets.sets import united


@dataclass(frozen=True, kw_only=True)
class Finding:
    """Something that is wrong, or that cannot be determined.

    Attributes:
        kind: a word for programs, such as ``gap`` or ``overlap``.
        what: one sentence.
        fault: whether it disproves exactly-once; else it is a note.
        topic: the topic, where it is about one.
        partition: the partition, where it is about one.
        start: the first offset that it is about.
        end: one more than the last.
        batch_id: the batch in whose commit it shows.
        snapshot_id: that commit's snapshot.
    """

    kind: str
    what: str
    fault: bool = True
    topic: str | None = None
    partition: int | None = None
    start: int | None = None
    end: int | None = None
    batch_id: int | None = None
    snapshot_id: int | None = None


@dataclass(frozen=True, order=True)
class Letter:
    """Where a dead letter was, and the replay that it is marked with."""

    topic: str
    partition: int
    offset: int
    replay_id: str | None = None


@dataclass(frozen=True)
class Letters:
    """The feed's part of the dead-letter table.

    Attributes:
        commits: of the feed, oldest first.
        whole: whether no snapshot of the table has expired.
        letters: those that are there now.
        of_backfills: how many letters were written of each backfill, by its number.
    """

    commits: tuple[Commit, ...] = ()
    whole: bool = True
    letters: tuple[Letter, ...] = ()
    of_backfills: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Placed:
    """Where the rows of one partition come from, as their own columns say.

    Attributes:
        rows: rows from offsets that the ledger covers.
        offsets: how many different offsets these rows have.
        before: rows from before the oldest commit that is left.
        outside: rows from offsets that no commit has.
        repeated: offsets with more than one row and how many rows, the first few.
        absent: offset ranges with neither row nor dead letter, the first few.
    """

    rows: int = 0
    offsets: int = 0
    before: int = 0
    outside: int = 0
    repeated: tuple[tuple[int, int], ...] = ()
    absent: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, kw_only=True)
class Keyed:
    """What is known of a table of keyed rows.

    Attributes:
        marks: whether deleted rows stay, marked.
        grown: rows that the MERGEs of its snapshots have inserted, less those that they have deleted.
        rows: rows that it has; None if not looked up.
        repeated: keys with more than one row and how many rows, the first few.
        history: the feed's part of the history beside it; None without one.
        history_placed: its rows by their own offsets; None if not looked up.
    """

    marks: bool = False
    grown: int = 0
    rows: int | None = None
    repeated: tuple[tuple[str, int], ...] = ()
    history: Letters | None = None
    history_placed: Mapping[Partition, Placed] | None = None


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """All that is known of a feed at one moment.

    Attributes:
        commits: the feed's, oldest first, that the table's present state descends from.
        whole: whether no snapshot of the table has expired.
        older_rows: rows that the table had before the oldest snapshot that is left.
        recorded: the newest position by the table's property; None without one.
        recorded_known: False if the property says that the table was rolled back to before what it knows.
        rows_kept: partitions that were rewound with their rows kept, by the recorded position.
        fence: the fence that was taken last.
        backfills: of old records beside the feed, oldest first.
        backfill_fence: the fence of backfills that was taken last.
        replays: replays of the feed's dead letters, oldest first.
        others: commits of no feed.
        letters: None if the feed keeps none in a table.
        letters_topic: the topic that it keeps them in instead.
        topics: the broker's answer for each topic; None where there is no such topic.
        held: records that the broker holds in a range, or None if it no longer has its offsets. Only for ranges with
            fewer records than offsets.
        transformed: whether a transform decides how many rows there are.
        placed: the rows by their own offsets; None if not looked up.
        keyed: what is known where changes are merged by key; None where rows are appended.
    """

    commits: tuple[Commit, ...]
    whole: bool = True
    older_rows: int = 0
    recorded: OffsetRanges | None = None
    recorded_known: bool = True
    rows_kept: frozenset[Partition] = frozenset()
    fence: str | None = None
    backfills: tuple[Backfill, ...] = ()
    backfill_fence: str | None = None
    replays: tuple[ReplayCommit, ...] = ()
    others: tuple[OtherCommit, ...] = ()
    letters: Letters | None = None
    letters_topic: str | None = None
    topics: Mapping[str, TopicDescription | None] = field(default_factory=dict)
    held: Mapping[OffsetRange, int | None] = field(default_factory=dict)
    transformed: bool = False
    placed: Mapping[Partition, Placed] | None = None
    keyed: Keyed | None = None

    @property
    def landed(self) -> tuple[Commit | Backfill, ...]:
        """All commits that landed records with offsets."""
        return (*self.commits, *self.backfills)

    @property
    def line(self) -> tuple[Commit | Backfill, ...]:
        """The same as they came, oldest first."""
        placed: list[tuple[int, bool, Commit | Backfill]] = [
            *((number, False, commit) for number, commit in enumerate(self.commits)),
            *((backfill.after - 1, True, backfill) for backfill in self.backfills),
        ]
        return tuple(each for _, _, each in sorted(placed, key=lambda each: each[:2]))


def spans(commits: Sequence[Commit | Backfill]) -> dict[Partition, tuple[int, int]]:
    """From the first offset to the last that the commits cover, for each partition."""
    found: dict[Partition, tuple[int, int]] = {}
    for commit in commits:
        for each in without_batches(commit.ranges).ranges:
            start, end = found.get((each.topic, each.partition), (each.start, each.end))
            found[each.topic, each.partition] = (min(start, each.start), max(end, each.end))
    return found


def begins(
    commits: Sequence[Commit], kept: Mapping[Partition, Sequence[tuple[int, int]]] | None = None
) -> dict[Partition, int]:
    """Below which offset rows can be of commits that have expired, for each partition.

    Args:
        commits: those that are left, oldest first.
        kept: offsets that rewinds went back behind with their rows kept, also where the rewind's commit has expired.
    """
    found = {key: start for key, (start, _) in spans(commits).items()}
    for commit in commits:
        if commit.move is not None and commit.move.deleted_rows is None:
            # The rows that the move kept are further on than where it goes.
            for key, (_, end) in commit.rewound.items():
                found[key] = max(end, found[key])
    for key, intervals in (kept or {}).items():
        for _, end in intervals:
            found[key] = max(end, found.get(key, end))
    return found


def covered(commits: Sequence[Commit | Backfill]) -> list[OffsetRange]:
    """The offsets that the commits cover, in as few ranges as possible."""
    return united(each for commit in commits for each in without_batches(commit.ranges).ranges)


def sparse(commits: Sequence[Commit | Backfill]) -> list[OffsetRange]:
    """The ranges with fewer records than offsets: only the broker can say whether that is right."""
    return [
        each
        for commit in commits
        for each in without_batches(commit.ranges).ranges
        if commit.counts.get((each.topic, each.partition), ZERO).records < each.records
    ]
