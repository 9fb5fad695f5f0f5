"""Compares a feed's commits with the broker. Reads and asks nothing itself."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from lakefeed.ledger.outcomes import ZERO, total
from lakefeed.ledger.snapshot_summary import Backfill, Commit
from lakefeed.ledger.stateful_batches import without_batches
from lakefeed.offsets.ranges import Partition
from lakefeed.operations.verify.audit_backfills import backfill_findings
from lakefeed.operations.verify.audit_rows import letter_findings, row_findings
from lakefeed.operations.verify.audit_upserts import upsert_findings
from lakefeed.operations.verify.evidence import Evidence, Finding


def findings(evidence: Evidence) -> list[Finding]:
    """All findings, faults first."""
    found = [
        *_continuity(evidence.commits),
        *_topics(evidence),
        *backfill_findings(evidence),
        *_fences(evidence.commits, evidence.fence),
        *_fences(evidence.backfills, evidence.backfill_fence),
        *_records(evidence),
        *_rows(evidence),
        *_recorded(evidence),
        *_others(evidence),
        *letter_findings(evidence),
        *row_findings(evidence),
        *upsert_findings(evidence),
    ]
    return sorted(found, key=lambda each: not each.fault)


def _continuity(commits: tuple[Commit, ...]) -> Iterator[Finding]:
    """Each commit begins, in each partition, where the last one that had the partition ended, or says that it moves."""
    ends: dict[Partition, int] = {}
    ids: dict[str, str] = {}
    for number, commit in enumerate(commits):
        at = commit.title
        left = commit.move.left_ids if commit.move else {}
        for topic, topic_id in commit.ranges.topic_ids.items():
            if (before := ids.setdefault(topic, topic_id)) != topic_id:
                if before != left.get(topic):
                    yield Finding(
                        kind="topic-changed",
                        what=f"{at}: {topic} is another topic (id {topic_id}) than before (id {before})",
                        topic=topic,
                        batch_id=commit.batch_id,
                        snapshot_id=commit.snapshot_id,
                    )
                ids[topic] = topic_id
                ends = {key: end for key, end in ends.items() if key[0] != topic}
        if commit.move is not None:
            yield from _moved(commit, ends)
            if commit.move.unknown:
                ends = {}
        if number:
            for gone in commit.ranges.forgotten_after(commits[number - 1].ranges):
                if gone.topic in left and left[gone.topic] != commit.ranges.topic_ids.get(gone.topic):
                    continue
                yield Finding(
                    kind="forgotten",
                    what=f"{at}: {gone.topic}-{gone.partition} is missing, the commit before has it up to {gone.end}",
                    topic=gone.topic,
                    partition=gone.partition,
                    start=gone.end,
                    batch_id=commit.batch_id,
                    snapshot_id=commit.snapshot_id,
                )
        for each in commit.ranges.ranges:
            key = (each.topic, each.partition)
            expected = ends.get(key, each.start)
            if each.start != expected:
                gap = each.start > expected
                first, last = sorted((expected, each.start))
                is_in = "in no commit" if gap else "in more than one commit"
                yield Finding(
                    kind="gap" if gap else "overlap",
                    what=f"{at}: {each.topic}-{each.partition} begins at {each.start}, the commit before ended at "
                    f"{expected}: {last - first:,} offsets are {is_in}",
                    topic=each.topic,
                    partition=each.partition,
                    start=first,
                    end=last,
                    batch_id=commit.batch_id,
                    snapshot_id=commit.snapshot_id,
                )
            ends[key] = each.end if commit.move else max(each.end, ends.get(key, 0))


def _moved(commit: Commit, ends: dict[Partition, int]) -> Iterator[Finding]:
    """What a move leaves out or reads again; sets the ends to where it goes, if it goes from there."""
    assert commit.move is not None
    ids, left = commit.ranges.topic_ids, commit.left_ids
    for (topic, partition), (start, to) in sorted(commit.move.positions.items()):
        if ends.get((topic, partition), start) == start:
            ends[topic, partition] = to
        name, count = f"{topic}-{partition}", abs(to - start)
        first, last = sorted((start, to))
        is_left = topic in left
        if is_left:
            what = (
                f"the feed left {name} of the topic with the id {left[topic]} at {start}, and resumes at {to} of the "
                f"topic with the id {ids.get(topic)}"
            )
        elif to > start:
            what = f"{count:,} offsets of {name}, [{first}, {last}), were given up: --accept-loss"
        else:
            rows = "kept" if commit.move.deleted_rows is None else "deleted"
            what = f"{name} went back from {start} to {to}; the rows of the offsets [{first}, {last}) were {rows}"
        yield Finding(
            kind=commit.move.reason,
            what=f"snapshot {commit.snapshot_id}: {what}",
            fault=False,
            topic=topic,
            partition=partition,
            start=None if is_left else first,
            end=None if is_left else last,
            batch_id=commit.batch_id,
            snapshot_id=commit.snapshot_id,
        )
    for topic, topic_id in sorted(left.items()):
        yield Finding(
            kind=commit.move.reason,
            what=f"snapshot {commit.snapshot_id}: the feed has left the topic {topic} with the id {topic_id}",
            fault=False,
            topic=topic,
            batch_id=commit.batch_id,
            snapshot_id=commit.snapshot_id,
        )


def _topics(evidence: Evidence) -> Iterator[Finding]:
    """The topics are those that the newest commit knows, and still hold what it has not read."""
    if not evidence.commits:
        return
    last = evidence.commits[-1]
    for topic in sorted({each.topic for each in without_batches(last.ranges).ranges}):
        description = evidence.topics.get(topic)
        if description is None:
            yield Finding(
                kind="topic-missing",
                what=f"there is no topic {topic} of Kafka now that could be asked; lag is unknown",
                fault=False,
                topic=topic,
            )
            continue
        known = last.ranges.topic_ids.get(topic)
        if known is not None and known != description.topic_id:
            yield Finding(
                kind="topic-recreated",
                what=f"the broker's {topic} has the id {description.topic_id}, the table's rows are of {known}: "
                "the topic was recreated",
                topic=topic,
            )
            continue
        for partition in description.partitions:
            end = next(
                (each.end for each in last.ranges.ranges if (each.topic, each.partition) == (topic, partition.id)), None
            )
            if end is None:
                continue
            if end > partition.end_offset:
                yield Finding(
                    kind="ahead",
                    what=f"{topic}-{partition.id} ends at {partition.end_offset} in the topic and at {end} in the "
                    "table: the broker has lost records, or it is another cluster",
                    topic=topic,
                    partition=partition.id,
                    start=partition.end_offset,
                    end=end,
                )
            if end < partition.start_offset:
                yield Finding(
                    kind="overtaken",
                    what=f"{topic}-{partition.id} begins at {partition.start_offset} in the topic, the table ends "
                    f"at {end}: retention has removed {partition.start_offset - end:,} offsets before they were read",
                    topic=topic,
                    partition=partition.id,
                    start=end,
                    end=partition.start_offset,
                )


def _fences(commits: Sequence[Commit | Backfill], taken_last: str | None) -> Iterator[Finding]:
    """No commit of a driver that had been replaced."""
    highest = 0
    for commit in commits:
        fence = _number(commit.fence)
        if fence is not None and fence < highest:
            yield Finding(
                kind="fence",
                what=f"{commit.title}: its driver (fence {fence}) had been replaced by one with fence {highest}",
                batch_id=commit.batch_id,
                snapshot_id=commit.snapshot_id,
            )
        highest = max(highest, fence or 0)
    taken = _number(taken_last)
    if taken is not None and taken < highest:
        yield Finding(kind="fence", what=f"the table's fence is {taken}, a commit has {highest}: it was set back")


def _number(fence: str | None) -> int | None:
    """A fence is a number and, after a space, who has taken it."""
    first = (fence or "").partition(" ")[0]
    return int(first) if first.isdigit() else None


def _records(evidence: Evidence) -> Iterator[Finding]:
    """Each offset of a range is a counted record, or the broker says that it holds none."""
    uncounted: dict[Partition, int] = defaultdict(int)
    # What the broker holds, it holds of the topic that has the name now.
    ids = evidence.landed[-1].ranges.topic_ids if evidence.landed else {}
    if evidence.commits:
        ids = evidence.commits[-1].ranges.topic_ids
    for commit in evidence.landed:
        at = commit.title
        known = {(each.topic, each.partition) for each in commit.ranges.ranges}
        for topic, partition in sorted(commit.counts.keys() - known):
            yield Finding(
                kind="counts",
                what=f"{at}: records of {topic}-{partition} are counted, and the commit has no range of it",
                topic=topic,
                partition=partition,
                batch_id=commit.batch_id,
                snapshot_id=commit.snapshot_id,
            )
        for each in without_batches(commit.ranges).ranges:
            counted = commit.counts.get((each.topic, each.partition), ZERO).records
            if counted == each.records:
                continue
            held = evidence.held.get(each) if ids.get(each.topic) == commit.ranges.topic_ids.get(each.topic) else None
            if counted < each.records and held is None:
                uncounted[each.topic, each.partition] += each.records - counted
            elif counted > each.records or (held or 0) > counted:
                there = f"the topic holds {held:,}" if counted < each.records else f"there are {each.records:,} offsets"
                yield Finding(
                    kind="records",
                    what=f"{at}: {counted:,} records of {each.topic}-{each.partition} are counted in "
                    f"[{each.start}, {each.end}), {there}",
                    topic=each.topic,
                    partition=each.partition,
                    start=each.start,
                    end=each.end,
                    batch_id=commit.batch_id,
                    snapshot_id=commit.snapshot_id,
                )
    for (topic, partition), count in sorted(uncounted.items()):
        yield Finding(
            kind="untold",
            what=f"{topic}-{partition}: {count:,} offsets held no record when they were read; the broker no longer has "
            "them to say why",
            fault=False,
            topic=topic,
            partition=partition,
        )


def _rows(evidence: Evidence) -> Iterator[Finding]:
    """A commit adds the rows that it counts, where no transform stands between."""
    if evidence.transformed:
        yield Finding(
            kind="transform",
            what="the pipeline has a transform, which decides how many rows records become: rows are not compared with "
            "counts",
            fault=False,
        )
        return
    if evidence.keyed is not None:
        return
    for each in (*evidence.landed, *evidence.replays):
        if each.rows != (counted := total(each.counts).rows):
            yield Finding(
                kind="rows",
                what=f"{each.title}: {each.rows:,} rows were added, records less dead letters and skipped are "
                f"{counted:,}",
                batch_id=each.batch_id,
                snapshot_id=each.snapshot_id,
            )


def _recorded(evidence: Evidence) -> Iterator[Finding]:
    """The position in the table's properties, which outlives snapshots, is that of the newest commit."""
    if not evidence.recorded_known:
        yield Finding(
            kind="position",
            what="the table was rolled back to before the feed's commits; the feed's position is unknown",
        )
        return
    if evidence.recorded is None:
        return
    if not evidence.commits:
        if evidence.whole:
            yield Finding(
                kind="position",
                what="the table's properties know a position of the feed, and its history no commit: another engine "
                "has rolled it back",
            )
        return
    if evidence.recorded != evidence.commits[-1].ranges:
        yield Finding(
            kind="position",
            what="the table's properties have another position than the feed's newest commit: another engine has "
            "rolled the table back, or committed past the check",
            batch_id=evidence.commits[-1].batch_id,
            snapshot_id=evidence.commits[-1].snapshot_id,
        )


def _others(evidence: Evidence) -> Iterator[Finding]:
    if not evidence.whole:
        first = f"batch {evidence.commits[0].batch_id}" if evidence.commits else "nothing"
        yield Finding(
            kind="expired", what=f"older snapshots have expired: verified is what is left, from {first} on", fault=False
        )
    if evidence.others:
        added, deleted = sum(each.added for each in evidence.others), sum(each.deleted for each in evidence.others)
        yield Finding(
            kind="others",
            what=f"{len(evidence.others)} commits of no feed added {added:,} rows and deleted {deleted:,}, the last in "
            f"snapshot {evidence.others[-1].snapshot_id}",
            fault=False,
        )
