"""Compares the counts of a feed's commits with its dead letters and rows. Reads nothing itself."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise

from lakefeed.ledger.outcomes import total
from lakefeed.ledger.snapshot_summary import Backfill, Commit
from lakefeed.offsets.ranges import OffsetRange, Partition
from lakefeed.offsets.sets import Offsets
from lakefeed.operations.verify.evidence import Evidence, Finding, Letters, Placed, covered
from lakefeed.operations.verify.history import doubled, fates, renamed

MOST_POSITIONS_SHOWN = 5


def letter_findings(evidence: Evidence) -> Iterator[Finding]:
    """Each batch's dead letters were written, and each of them is still there, or replayed, or dropped."""
    if evidence.letters is not None:
        yield from _written(evidence, evidence.letters)
        yield from _written_of_backfills(evidence, evidence.letters)
        yield from _present(evidence, evidence.letters)
        return
    lost = sum(total(each.counts).dead_letters for each in evidence.landed)
    if lost and evidence.letters_topic is not None:
        yield Finding(
            kind="letters-in-topic",
            what=f"{lost:,} dead letters were counted; they go to the topic {evidence.letters_topic}, which has no "
            "ledger to hold them against",
            fault=False,
        )
    elif lost:
        yield Finding(
            kind="letters-unkept",
            what=f"{lost:,} dead letters were counted, and the pipeline names no dead-letter table to look for them in",
        )


def _written(evidence: Evidence, kept: Letters) -> Iterator[Finding]:
    written: dict[tuple[OffsetRange, ...], list[int]] = defaultdict(list)
    for each in fates(kept.commits):
        if each.commit.move is None and not each.is_rewound:
            written[each.commit.ranges.ranges].append(each.commit.rows)
    rewound = set()
    for number, fate in enumerate(fates(evidence.commits)):
        commit = fate.commit
        if fate.is_rewound and commit.move is None:
            # Its letters may be deleted already, or be about to.
            rewound.add(commit.ranges.ranges)
            continue
        counted = total(commit.counts).dead_letters
        # What was rewound may be read again in the same ranges.
        queue = written.get(commit.ranges.ranges, [])
        found = queue.pop(0) if counted and queue else None
        if found == counted or not counted or (found is None and not kept.whole):
            continue
        pending = found is None and number == len(evidence.commits) - 1
        yield _fewer(commit, counted, found, "the next start of the feed writes them" if pending else None)
    known = {each.ranges.ranges: each for each in evidence.commits if each.move is None}
    for ranges, rows in written.items():
        if ranges in known and ranges not in rewound and (count := sum(rows)):
            commit = known[ranges]
            yield Finding(
                kind="letters",
                what=f"{commit.title}: {count:,} dead letters were written that are not counted",
                batch_id=commit.batch_id,
                snapshot_id=commit.snapshot_id,
            )


def _written_of_backfills(evidence: Evidence, kept: Letters) -> Iterator[Finding]:
    for fate in fates(evidence.line):
        if not isinstance(fate.commit, Backfill) or fate.is_rewound:
            continue
        counted, found = total(fate.commit.counts).dead_letters, _found(fate.commit, kept)
        if counted and found != counted and (found is not None or kept.whole):
            pending = found is None and fate.commit == evidence.backfills[-1]
            yield _fewer(fate.commit, counted, found, "the next backfill writes them" if pending else None)


def _fewer(commit: Commit | Backfill, counted: int, found: int | None, pending: str | None) -> Finding:
    return Finding(
        kind="letters-pending" if pending else "letters",
        what=f"{commit.title}: {counted:,} dead letters are counted, {found or 0:,} were written"
        + (f"; {pending}" if pending else ""),
        fault=not pending,
        batch_id=commit.batch_id,
        snapshot_id=commit.snapshot_id,
    )


def _found(commit: Commit | Backfill, kept: Letters) -> int | None:
    """How many letters of a commit were written; None if there is no commit of them."""
    if isinstance(commit, Backfill):
        return kept.of_backfills.get(commit.number)
    return next((each.rows for each in reversed(kept.commits) if each.ranges.ranges == commit.ranges.ranges), None)


def _newest(evidence: Evidence) -> tuple[Commit | Backfill, ...]:
    """The commits whose letters may be yet to be written: a crash, or a look, came between the two."""
    return (*evidence.commits[-1:], *evidence.backfills[-1:])


def _present(evidence: Evidence, kept: Letters) -> Iterator[Finding]:
    least: dict[Partition, int] = defaultdict(int)
    most: dict[Partition, int] = defaultdict(int)
    replayed: dict[Partition, int] = defaultdict(int)
    present: dict[Partition, list[int]] = defaultdict(list)
    uncertain: set[Partition] = set()
    for fate in fates(evidence.line):
        uncertain |= fate.limits.keys()
        for key, (low, high) in fate.counts().items():
            least[key] += low.dead_letters
            most[key] += high.dead_letters
    for replay in evidence.replays:
        for key, counts in replay.counts.items():
            replayed[key] += counts.records - counts.dead_letters
    offsets = Offsets(covered(evidence.landed))
    names = renamed(evidence.commits)
    landed = {each.replay_id for each in evidence.replays}
    for letter in sorted(kept.letters):
        key = (letter.topic, letter.partition)
        # Later batches may have landed since the table was read. A replay that was cut off deletes its letters later.
        if offsets.has(letter.topic, letter.partition, letter.offset) and letter.replay_id not in landed:
            present[key].append(letter.offset)
    pending = _pending(evidence, kept)
    for topic, partition in sorted(most.keys() | present.keys()):
        if topic in names:
            continue  # Letters of the topic that had the name before are among them.
        key = (topic, partition)
        here, there = present[key], most[key] - pending.get(key, 0)
        if twice := sorted({one for one, other in pairwise(here) if one == other}):
            yield Finding(
                kind="letters-twice",
                what=f"{topic}-{partition}: {_listed(twice)} more than once among the dead letters",
                topic=topic,
                partition=partition,
                start=twice[0],
                end=twice[-1] + 1,
            )
        # Of letters that were rewound it is not known whether they had been replayed.
        surplus = len(here) + (0 if key in uncertain else replayed[key]) > there
        gone = least[key] - pending.get(key, 0) - len(here) - replayed[key]
        if len(here) > there or (surplus and evidence.whole):
            yield Finding(
                kind="letters-surplus",
                what=f"{topic}-{partition}: {len(here):,} dead letters are there and {replayed[key]:,} were replayed, "
                f"only {there:,} are counted",
                topic=topic,
                partition=partition,
            )
        elif gone > 0:
            yield Finding(
                kind="letters-dropped",
                what=f"{topic}-{partition}: {gone:,} dead letters are neither there nor replayed: they were dropped, "
                "or deleted by somebody else; the table cannot tell which",
                fault=False,
                topic=topic,
                partition=partition,
            )


def _pending(evidence: Evidence, kept: Letters) -> dict[Partition, int]:
    """Dead letters of the newest commits that are yet to be written."""
    pending: dict[Partition, int] = defaultdict(int)
    for commit in _newest(evidence) if kept.whole else ():
        if _found(commit, kept) is None:
            for key, counts in commit.counts.items():
                pending[key] += counts.dead_letters
    return pending


def row_findings(evidence: Evidence) -> Iterator[Finding]:
    """Rows by their own offsets: each once, none from elsewhere, none missing."""
    if (placed := evidence.placed) is None:
        return
    required: dict[Partition, int] = defaultdict(int)
    # Of replays it is not known which letters they were of: they may be older than the oldest commit that is left.
    uncertain: set[Partition] = set()
    for fate in fates(evidence.line):
        uncertain |= fate.limits.keys()
        for key, (least, _) in fate.counts().items():
            required[key] += least.rows
    for replay in evidence.replays if evidence.whole else ():
        for key, counts in replay.counts.items():
            # Of rows of replays that were rewound it is not known which they were.
            required[key] += 0 if key in uncertain else counts.rows
    deleted = any(each.deleted for each in evidence.others)
    names, kept_twice = renamed(evidence.commits), doubled(evidence.commits) | evidence.rows_kept
    for topic, partition in sorted(placed.keys() | required.keys()):
        key = (topic, partition)
        rows, name = placed.get(key, Placed()), f"{topic}-{partition}"
        if topic in names:
            yield Finding(
                kind="renamed",
                what=f"{name}: {rows.rows:,} rows are of this topic or of another that had its name before; by their "
                "offsets they cannot be distinguished",
                fault=False,
                topic=topic,
                partition=partition,
            )
            continue
        if rows.outside or (rows.before and evidence.whole):
            yield Finding(
                kind="outside",
                what=f"{name}: {rows.outside + rows.before:,} rows are from offsets that no commit has",
                topic=topic,
                partition=partition,
            )
        elif rows.before:
            yield Finding(
                kind="before",
                what=f"{name}: {rows.before:,} rows are from before the oldest commit that is left",
                fault=False,
                topic=topic,
                partition=partition,
            )
        if rows.rows > rows.offsets:
            offsets = [offset for offset, _ in rows.repeated]
            intended = ", which a transform may intend" if evidence.transformed else ""
            if key in kept_twice:
                intended = "; the feed was rewound with --keep-rows"
            yield Finding(
                kind="duplicates",
                what=f"{name}: {rows.rows - rows.offsets:,} rows are of offsets that have a row already; "
                f"{_listed(offsets)} more than once{intended}",
                fault=not intended,
                topic=topic,
                partition=partition,
                start=offsets[0] if offsets else None,
                end=offsets[-1] + 1 if offsets else None,
            )
        # Rows of keys are of the newest offsets alone.
        if rows.offsets < required[key] and not evidence.transformed and evidence.keyed is None:
            absent = ", ".join(f"[{start}, {end})" for start, end in rows.absent[:MOST_POSITIONS_SHOWN])
            why = "; commits of no feed have deleted rows" if deleted else ""
            yield Finding(
                kind="missing",
                what=f"{name}: {required[key] - rows.offsets:,} of {required[key]:,} rows are not there{why}; "
                f"neither row nor dead letter have the offsets {absent or '(none)'}",
                fault=not deleted,
                topic=topic,
                partition=partition,
                start=rows.absent[0][0] if rows.absent else None,
                end=rows.absent[-1][1] if rows.absent else None,
            )


def _listed(offsets: list[int]) -> str:
    shown = ", ".join(map(str, offsets[:MOST_POSITIONS_SHOWN]))
    more = f" and {len(offsets) - MOST_POSITIONS_SHOWN:,} further" if len(offsets) > MOST_POSITIONS_SHOWN else ""
    return f"offset{'s' if len(offsets) > 1 else ''} {shown}{more} {'are' if len(offsets) > 1 else 'is'} there"
