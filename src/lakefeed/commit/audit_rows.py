"""What a feed's commits count, held against its dead letters and its rows. Nothing is read here."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise

from lakefeed.commit.evidence import Evidence, Finding, Letters, Partition, Placed, spans
from lakefeed.commit.outcomes import total

MOST_POSITIONS_TOLD = 5


def letter_findings(evidence: Evidence) -> Iterator[Finding]:
    """Each batch's dead letters were written, and each of them is still there, or replayed, or dropped."""
    if evidence.letters is not None:
        yield from _written(evidence, evidence.letters)
        yield from _present(evidence, evidence.letters)
        return
    lost = sum(total(each.counts).dead_letters for each in evidence.commits)
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
    written = {each.ranges.ranges: each.rows for each in kept.commits}
    for number, commit in enumerate(evidence.commits):
        counted = total(commit.counts).dead_letters
        found = written.get(commit.ranges.ranges)
        if found == counted or (not counted and found is None) or (found is None and not kept.whole):
            continue
        pending = found is None and number == len(evidence.commits) - 1
        yield Finding(
            kind="letters-pending" if pending else "letters",
            what=f"batch {commit.batch_id}, snapshot {commit.snapshot_id}: {counted:,} dead letters are counted, "
            f"{found or 0:,} were written" + ("; the next start of the feed writes them" if pending else ""),
            fault=not pending,
            batch_id=commit.batch_id,
            snapshot_id=commit.snapshot_id,
        )


def _present(evidence: Evidence, kept: Letters) -> Iterator[Finding]:
    counted: dict[Partition, int] = defaultdict(int)
    replayed: dict[Partition, int] = defaultdict(int)
    present: dict[Partition, list[int]] = defaultdict(list)
    for commit in evidence.commits:
        for key, counts in commit.counts.items():
            counted[key] += counts.dead_letters
    for replay in evidence.replays:
        for key, counts in replay.counts.items():
            replayed[key] += counts.records - counts.dead_letters
    covered = spans(evidence.commits)
    landed = {each.replay_id for each in evidence.replays}
    for letter in sorted(kept.letters):
        key = (letter.topic, letter.partition)
        start, end = covered.get(key, (0, 0))
        # Later batches may have landed since the table was read. A replay that was cut off deletes its letters later.
        if start <= letter.offset < end and letter.replay_id not in landed:
            present[key].append(letter.offset)
    pending = _pending(evidence, kept)
    for topic, partition in sorted(counted.keys() | present.keys()):
        key = (topic, partition)
        here, there = present[key], counted[key] - pending.get(key, 0)
        if twice := sorted({one for one, other in pairwise(here) if one == other}):
            yield Finding(
                kind="letters-twice",
                what=f"{topic}-{partition}: {_listed(twice)} more than once among the dead letters",
                topic=topic,
                partition=partition,
                start=twice[0],
                end=twice[-1] + 1,
            )
        gone = there - len(here) - replayed[key]
        if len(here) > there or (gone < 0 and evidence.whole):
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
    """Dead letters of the newest commit that are yet to be written."""
    if not evidence.commits or not kept.whole:
        return {}
    last = evidence.commits[-1]
    if any(each.ranges.ranges == last.ranges.ranges for each in kept.commits):
        return {}
    return {key: counts.dead_letters for key, counts in last.counts.items()}


def row_findings(evidence: Evidence) -> Iterator[Finding]:
    """Rows by their own offsets: each once, none from elsewhere, none missing."""
    if (placed := evidence.placed) is None:
        return
    wanted: dict[Partition, int] = defaultdict(int)
    # Of replays it is not known which letters they were of: they may be older than the oldest commit that is left.
    counted = [each.counts for each in evidence.commits]
    if evidence.whole:
        counted += [each.counts for each in evidence.replays]
    for commit_counts in counted:
        for key, counts in commit_counts.items():
            wanted[key] += counts.rows
    deleted = any(each.deleted for each in evidence.others)
    for topic, partition in sorted(placed.keys() | wanted.keys()):
        key = (topic, partition)
        rows, name = placed.get(key, Placed()), f"{topic}-{partition}"
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
            yield Finding(
                kind="duplicates",
                what=f"{name}: {rows.rows - rows.offsets:,} rows are of offsets that have a row already; "
                f"{_listed(offsets)} more than once{intended}",
                fault=not evidence.transformed,
                topic=topic,
                partition=partition,
                start=offsets[0] if offsets else None,
                end=offsets[-1] + 1 if offsets else None,
            )
        if rows.offsets < wanted[key] and not evidence.transformed:
            absent = ", ".join(f"[{start}, {end})" for start, end in rows.absent[:MOST_POSITIONS_TOLD])
            why = "; commits of no feed have deleted rows" if deleted else ""
            yield Finding(
                kind="missing",
                what=f"{name}: {wanted[key] - rows.offsets:,} of {wanted[key]:,} rows are not there{why}; neither row "
                f"nor dead letter have the offsets {absent or '(none)'}",
                fault=not deleted,
                topic=topic,
                partition=partition,
                start=rows.absent[0][0] if rows.absent else None,
                end=rows.absent[-1][1] if rows.absent else None,
            )


def _listed(offsets: list[int]) -> str:
    shown = ", ".join(map(str, offsets[:MOST_POSITIONS_TOLD]))
    more = f" and {len(offsets) - MOST_POSITIONS_TOLD:,} further" if len(offsets) > MOST_POSITIONS_TOLD else ""
    return f"offset{'s' if len(offsets) > 1 else ''} {shown}{more} {'are' if len(offsets) > 1 else 'is'} there"
