"""Compare the counts in a feed's commits with its dead letters, rows and keys, which ``evidence`` has read."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from lakefeed.ledger.outcomes import ZERO, Counts, total
from lakefeed.ledger.snapshot_summary import Backfill, Commit
from lakefeed.offsets.ranges import OffsetRange, Offsets, Partition
from lakefeed.operations.verify.evidence import Evidence, Finding, Keyed, Letters, covered, kept_moves
from lakefeed.operations.verify.row_offsets import RowCoverage

MOST_POSITIONS_SHOWN = 5


@dataclass(frozen=True, kw_only=True)
class CommitOutcome:
    """The records of a commit that remain after later moves of the feed.

    Attributes:
        limits: by partition, the lowest offset to which later moves have rewound the partition.
        left: topics that the feed no longer reads, or that were recreated.
    """

    commit: Commit | Backfill
    limits: Mapping[Partition, int] = field(default_factory=dict)
    left: frozenset[str] = frozenset()

    def counts(self) -> dict[Partition, tuple[Counts, Counts]]:
        """Return the least and greatest possible counts of remaining records: part of a range may be rewound."""
        found = {}
        for span in self.commit.ranges.ranges:
            partition = span.key
            if span.topic in self.left or partition not in self.commit.counts:
                continue
            counts, gone = self.commit.counts[partition], self.rewound(span)
            least = counts
            if gone >= span.records and span.records:
                counts = least = ZERO
            elif gone:
                letters = max(0, counts.dead_letters - gone)
                least = Counts(max(0, counts.rows - gone) + letters, letters)
            found[partition] = (least, counts)
        return found

    @property
    def is_rewound(self) -> bool:
        return all(self.rewound(span) == span.records for span in self.commit.ranges.ranges)

    def rewound(self, span: OffsetRange) -> int:
        limit = self.limits.get(span.key)
        return 0 if limit is None else max(0, span.end - max(span.start, limit))


def outcomes_since(commits: Sequence[Commit | Backfill]) -> list[CommitOutcome]:
    """Return the ``CommitOutcome`` of each commit after all later moves, in the order of the commits."""
    found = []
    limits: dict[Partition, int] = {}
    left: frozenset[str] = frozenset()
    for commit in reversed(commits):
        found.append(CommitOutcome(commit=commit, limits=dict(limits), left=left))
        for partition, (start, _) in commit.rewound.items():
            limits[partition] = min(start, limits.get(partition, start))
        left |= commit.left_ids.keys()
    return found[::-1]


def _counts_left(evidence: Evidence) -> tuple[dict[Partition, Counts], dict[Partition, Counts], set[Partition]]:
    """Return by partition the least and greatest counts of remaining records, and the partitions that were rewound."""
    least: dict[Partition, Counts] = defaultdict(Counts)
    most: dict[Partition, Counts] = defaultdict(Counts)
    rewound: set[Partition] = set()
    for outcome in outcomes_since(evidence.line):
        rewound |= outcome.limits.keys()
        for key, (low, high) in outcome.counts().items():
            least[key] += low
            most[key] += high
    return least, most, rewound


def renamed_topics(commits: tuple[Commit, ...]) -> set[str]:
    """Return the names that several topics have had: their rows cannot be distinguished by name and offset."""
    ids: dict[str, set[str]] = defaultdict(set)
    for commit in commits:
        # Include topics that the feed has left, because the commits with their ranges may have expired.
        for topic, topic_id in (*commit.ranges.topic_ids.items(), *commit.left_ids.items()):
            ids[topic].add(topic_id)
    return {topic for topic, known in ids.items() if len(known) > 1}


def letter_findings(evidence: Evidence) -> Iterator[Finding]:
    """Find dead letters that were not written, or that have vanished without a replay."""
    if (letters := evidence.dead_letters) is not None:
        yield from _written(evidence, letters)
        yield from _present(evidence, letters)
        return
    lost = sum(total(commit.counts).dead_letters for commit in evidence.landed)
    if evidence.files.lost:
        return
    if lost and (topic := evidence.dead_letter_topic) is not None:
        what = f"{lost:,} dead letters were counted; they are in the topic {topic}, which has no ledger to compare with"
        yield Finding.of("letters-in-topic", what, fault=False)
    elif lost:
        what = f"{lost:,} dead letters were counted, and the pipeline file names no table that could have them"
        yield Finding.of("letters-unkept", what)


def _written(evidence: Evidence, letters: Letters) -> Iterator[Finding]:
    written: dict[tuple[OffsetRange, ...], list[int]] = defaultdict(list)
    for outcome in outcomes_since(letters.commits):
        if outcome.commit.move is None and not outcome.is_rewound:
            written[outcome.commit.ranges.ranges].append(outcome.commit.rows)
    rewound = set()
    for outcome in outcomes_since(evidence.line):
        commit = outcome.commit
        if isinstance(commit, Backfill):
            pending = "the next backfill writes them" if commit == evidence.backfills[-1] else None
            if not outcome.is_rewound:
                yield from _fewer(commit, _written_of(commit, letters), letters, pending)
        elif outcome.is_rewound and commit.move is None:
            # Dead letters of a rewound commit are deleted, now or at the next start.
            rewound.add(commit.ranges.ranges)
        else:
            # After a rewind, two commits may have the same ranges: the older commit gets the older count of letters.
            queue = written.get(commit.ranges.ranges, [])
            count = queue.pop(0) if total(commit.counts).dead_letters and queue else None
            pending = "the next start of the feed writes them" if commit is evidence.commits[-1] else None
            yield from _fewer(commit, count, letters, pending)
    known = {commit.ranges.ranges: commit for commit in evidence.commits if commit.move is None}
    for ranges, rows in written.items():
        if ranges in known and ranges not in rewound and (count := sum(rows)):
            what = f"{count:,} dead letters were written that no commit counts"
            yield Finding.of("letters", what, commit=known[ranges])


def _fewer(commit: Commit | Backfill, written: int | None, letters: Letters, pending: str | None) -> Iterator[Finding]:
    """Yield a finding if the number of letters that a commit counts differs from ``written``.

    ``pending`` says what will still write missing letters; None if nothing will.
    """
    counted = total(commit.counts).dead_letters
    if not counted or written == counted or (written is None and not letters.whole):
        return
    what = f"it counts {counted:,} dead letters, and {written or 0:,} were written"
    if written is None and pending:
        yield Finding.of("letters-pending", f"{what}; {pending}", commit=commit, fault=False)
    else:
        yield Finding.of("letters", what, commit=commit)


def _written_of(commit: Commit | Backfill, letters: Letters) -> int | None:
    """Return the number of letters that were written for a commit; None if the dead-letter table has no such commit."""
    if isinstance(commit, Backfill):
        return letters.of_backfills.get(commit.number)
    ranges = commit.ranges.ranges
    return next((each.rows for each in reversed(letters.commits) if each.ranges.ranges == ranges), None)


def _present(evidence: Evidence, letters: Letters) -> Iterator[Finding]:
    least, most, uncertain = _counts_left(evidence)
    replayed: dict[Partition, int] = defaultdict(int)
    present: dict[Partition, list[int]] = defaultdict(list)
    for replay in evidence.replays:
        for key, counts in replay.counts.items():
            replayed[key] += counts.records - counts.dead_letters
    offsets = Offsets(covered(evidence.landed))
    landed = {replay.replay_id for replay in evidence.replays}
    for letter in sorted(letters.letters):
        # Skip letters of batches that are not in the evidence, and replayed letters that the next replay deletes.
        if offsets.has(letter.topic, letter.partition, letter.offset) and letter.replay_id not in landed:
            present[letter.topic, letter.partition].append(letter.offset)
    # Skip topics that were recreated, since some letters may belong to the earlier topic of the same name.
    names, pending = renamed_topics(evidence.commits), _pending(evidence, letters)
    for key in sorted(key for key in most.keys() | present.keys() if key[0] not in names):
        name, here, counted = f"{key[0]}-{key[1]}", present[key], most[key].dead_letters - pending[key]
        if twice := sorted({offset for offset, following in pairwise(here) if offset == following}):
            what = f"{name}: several dead letters have {_listed(twice)}"
            yield Finding.of("letters-twice", what, OffsetRange(*key, twice[0], twice[-1] + 1))
        # A letter may have been replayed before a rewind past its record.
        again = replayed[key]
        surplus = len(here) + (0 if key in uncertain else again) > counted
        gone = least[key].dead_letters - pending[key] - len(here) - again
        if len(here) > counted or (surplus and evidence.history_complete):
            what = f"{name}: the table has {len(here):,} dead letters, {again:,} were replayed, {counted:,} are counted"
            yield Finding.of("letters-surplus", what, key)
        elif gone > 0:
            what = (
                f"{name}: {gone:,} dead letters are neither in the table nor replayed: lakefeed dead-letters drop or "
                "another client has deleted them"
            )
            yield Finding.of("letters-dropped", what, key, fault=False)


def _pending(evidence: Evidence, letters: Letters) -> dict[Partition, int]:
    """Return, by partition, how many dead letters of the newest commits were not written yet."""
    pending: dict[Partition, int] = defaultdict(int)
    newest: tuple[Commit | Backfill, ...] = (*evidence.commits[-1:], *evidence.backfills[-1:])
    for commit in newest if letters.whole else ():
        if _written_of(commit, letters) is None:
            for key, counts in commit.counts.items():
                pending[key] += counts.dead_letters
    return pending


def row_findings(evidence: Evidence) -> Iterator[Finding]:
    """Find repeated rows, missing rows, and rows of no commit, by the offsets in the rows' metadata columns."""
    if (coverage := evidence.row_coverage) is None:
        return
    required = _required_rows(evidence)
    names = renamed_topics(evidence.commits)
    is_adopted = any(commit.adopted for commit in evidence.commits)
    # If a rewind has kept rows, an offset may have several rows. The rewind's commit may have expired.
    kept_twice = set(evidence.rows_kept).union(*(commit.rewound for commit in kept_moves(evidence.commits)))
    for key in sorted(coverage.keys() | required.keys()):
        rows, name = coverage.get(key, RowCoverage()), f"{key[0]}-{key[1]}"
        if key[0] in names:
            both = "this topic or from an earlier topic of this name"
            what = f"{name}: {rows.rows:,} rows are from {both}; their offsets do not show the topic"
            yield Finding.of("renamed", what, key, fault=False)
            continue
        if rows.outside or (rows.before and evidence.history_complete and not is_adopted):
            what = f"{name}: {rows.outside + rows.before:,} rows have offsets that no commit has"
            yield Finding.of("outside", what, key)
        elif rows.before:
            since = "the feed took the table over" if is_adopted else "the oldest remaining commit"
            what = f"{name}: {rows.before:,} rows are from before {since}"
            yield Finding.of("before", what, key, fault=False)
        if rows.rows > rows.offsets:
            offsets = [offset for offset, _ in rows.repeated]
            intended = ", which a transform may intend" if evidence.transformed else ""
            if key in kept_twice:
                intended = "; the feed was rewound with --keep-rows"
            what = f"{name}: {rows.rows - rows.offsets:,} rows too many; several rows have {_listed(offsets)}{intended}"
            place: OffsetRange | Partition = OffsetRange(*key, offsets[0], offsets[-1] + 1) if offsets else key
            yield Finding.of("duplicates", what, place, fault=not intended)
        # A table of keyed rows has only the newest offset of each key.
        if rows.offsets < required[key] and not evidence.transformed and evidence.keyed is None:
            absent = ", ".join(f"[{start}, {end})" for start, end in rows.absent[:MOST_POSITIONS_SHOWN])
            deleted = any(commit.deleted for commit in evidence.foreign_commits)
            why = "; commits of no feed have deleted rows" if deleted else ""
            what = (
                f"{name}: {required[key] - rows.offsets:,} of {required[key]:,} rows are missing{why}; "
                f"offsets with neither row nor dead letter: {absent or 'none'}"
            )
            place = OffsetRange(*key, rows.absent[0][0], rows.absent[-1][1]) if rows.absent else key
            yield Finding.of("missing", what, place, fault=not deleted)


def _required_rows(evidence: Evidence) -> dict[Partition, int]:
    """Return the number of offsets that must have a row, by partition."""
    least, _, uncertain = _counts_left(evidence)
    required = defaultdict(int, {key: counts.rows for key, counts in least.items()})
    # A replayed letter's row is not required if it is older than the oldest remaining commit, or was rewound.
    for replay in evidence.replays if evidence.history_complete else ():
        for key, counts in replay.counts.items():
            required[key] += 0 if key in uncertain else counts.rows
    return required


def _listed(offsets: list[int]) -> str:
    shown = ", ".join(map(str, offsets[:MOST_POSITIONS_SHOWN]))
    more = f" and {len(offsets) - MOST_POSITIONS_SHOWN:,} others" if len(offsets) > MOST_POSITIONS_SHOWN else ""
    return f"one of the offsets {shown}{more}" if len(offsets) > 1 else f"the offset {shown}"


def upsert_findings(evidence: Evidence) -> Iterator[Finding]:
    """Find changes that no count includes, repeated keys, and a number of rows that the commits do not add up to."""
    if evidence.keyed is not None:
        yield from _changes(evidence, evidence.keyed)
        yield from _keys(evidence, evidence.keyed)
        if evidence.keyed.history is not None:
            yield from _history(evidence, evidence.keyed, evidence.keyed.history)


def _changes(evidence: Evidence, keyed: Keyed) -> Iterator[Finding]:
    """Find commits whose records are not the sum of dead letters and skipped, superseded, void and applied changes."""
    void = 0
    for commit in evidence.commits:
        if commit.move is not None:
            continue
        upserts = commit.upserts
        if upserts is None:
            what = "its rows were appended, not merged: a key may have many rows"
            yield Finding.of("appended", what, commit=commit)
            continue
        if not evidence.transformed and upserts.changes != (counted := total(commit.counts).rows):
            what = (
                f"it merged {upserts.changes:,} changes, but {counted:,} records are neither dead letters nor skipped"
            )
            yield Finding.of("changes", what, commit=commit)
        if upserts.superseded < 0 or upserts.void < 0 or upserts.deletes > upserts.keys:
            what = (
                f"{upserts.changes:,} changes of {upserts.keys:,} keys cannot have inserted {upserts.inserted:,}, "
                f"changed {upserts.updated:,} and deleted {upserts.deleted:,} rows"
            )
            yield Finding.of("merged", what, commit=commit)
        # If deletes are not marked, the delete of a missing row changes nothing and is not counted as void.
        void += upserts.void if keyed.marks else max(0, upserts.void - (upserts.deletes - upserts.deleted))
    if void:
        what = f"{void:,} changes were older than the row of their key: they came late, or again after a rewind"
        yield Finding.of("void", what, fault=False)


def _keys(evidence: Evidence, keyed: Keyed) -> Iterator[Finding]:
    for key, times in keyed.repeated:
        yield Finding.of("key-twice", f"{times:,} rows have the key {key}")
    if keyed.rows is not None and keyed.rows != keyed.grown and evidence.history_complete:
        rewound = any(commit.move and commit.move.deleted_rows for commit in evidence.commits)
        foreign = rewound or bool(evidence.foreign_commits)
        what = f"the table has {keyed.rows:,} rows, but its commits inserted {keyed.grown:,} more than they deleted"
        what += "; a rewind or commits of no feed have deleted rows" if foreign else ""
        yield Finding.of("row-count", what, fault=not foreign)


def _history(evidence: Evidence, keyed: Keyed, history: Letters) -> Iterator[Finding]:
    """Find batches whose changes are not in the history exactly once."""
    written = {commit.ranges.ranges: commit.rows for commit in history.commits if commit.move is None}
    batches = [commit for commit in evidence.commits if commit.move is None]
    began = False
    for commit in batches:
        if commit.upserts is None:
            continue
        count = written.get(commit.ranges.ranges)
        began = began or count is not None
        if began and count != commit.upserts.changes:
            what = f"it merged {commit.upserts.changes:,} changes, and the history has {count or 0:,} of them"
            yield Finding.of("history", what, commit=commit, fault=count is not None or history.whole)
    if not batches:
        return
    if batches[0].ranges.ranges not in written:
        what = "the history begins later than the table, or older snapshots of it have expired"
        yield Finding.of("history-begins", what, fault=False)
    elif keyed.history_coverage is not None:
        for finding in row_findings(replace(evidence, keyed=None, row_coverage=keyed.history_coverage)):
            yield replace(finding, kind=f"history-{finding.kind}", what=f"history: {finding.what}")
