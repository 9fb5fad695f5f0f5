"""Compare a feed's commits with each other and with the broker's answers, which ``evidence`` has read."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace

from lakefeed.ledger.outcomes import ZERO, total
from lakefeed.ledger.snapshot_summary import Backfill, Commit
from lakefeed.messages.printable import counted
from lakefeed.offsets.ranges import OffsetRange, Partition, difference, intersection, union, without_batches
from lakefeed.operations.verify.audit_rows import letter_findings, row_findings, upsert_findings
from lakefeed.operations.verify.evidence import Evidence, Finding


def findings(evidence: Evidence) -> list[Finding]:
    """Return all findings, faults first."""
    found = [
        *evidence.of_tables,
        *_files(evidence),
        *_continuity(evidence.commits),
        *_adopted(evidence),
        *_topics(evidence),
        *_backfills(evidence),
        *_fences(evidence.commits, evidence.fence),
        *_fences(evidence.backfills, evidence.backfill_fence),
        *_records(evidence),
        *_rows(evidence),
        *_left_out(evidence),
        *_recorded(evidence),
        *_limits_of_the_proof(evidence),
        *letter_findings(evidence),
        *row_findings(evidence),
        *upsert_findings(evidence),
    ]
    return sorted(found, key=lambda finding: not finding.fault)


def _files(evidence: Evidence) -> Iterator[Finding]:
    """Find files of the table's newest snapshot that are missing in the store."""
    for file in evidence.files.lost:
        what = f"the {file.what} {file.path}: {file.why}; the table cannot be read"
        hint = (
            "Restore the file, roll back to a snapshot without the file, or rewind the feed to read its records again"
        )
        yield Finding.of("file-lost", f"{what}. {hint}")
    if evidence.files.unchecked:
        what = f"{evidence.files.unchecked:,} older files of the table were not checked"
        yield Finding.of("files", what, fault=False)


def _continuity(commits: tuple[Commit, ...]) -> Iterator[Finding]:
    """Find commits that do not begin where the partition's last commit ended, although they do not move the feed."""
    ends: dict[Partition, int] = {}
    ids: dict[str, str] = {}
    for number, commit in enumerate(commits):
        left = commit.move.left_ids if commit.move else {}
        for topic, topic_id in commit.ranges.topic_ids.items():
            before, ids[topic] = ids.get(topic, topic_id), topic_id
            if before == topic_id:
                continue
            if before != left.get(topic):
                what = f"{topic} is another topic (id {topic_id}) than in the last commit (id {before})"
                yield Finding.of("topic-changed", what, topic, commit=commit)
            ends = {partition: end for partition, end in ends.items() if partition[0] != topic}
        if commit.move is not None:
            yield from _moved(commit, ends)
            if commit.move.unknown:
                ends = {}
        if number:
            present = {each.key for each in commit.ranges.ranges}
            for gone in commits[number - 1].ranges.ranges:
                if gone.key in present:
                    continue
                if gone.topic in left and left[gone.topic] != commit.ranges.topic_ids.get(gone.topic):
                    continue
                what = f"{gone.topic}-{gone.partition} is missing; the last commit has it up to {gone.end}"
                finding = Finding.of("forgotten", what, gone.key, commit=commit)
                yield replace(finding, start=gone.end)
        for span in commit.ranges.ranges:
            partition = span.key
            expected = ends.get(partition, span.start)
            if span.start != expected:
                gap = span.start > expected
                between = OffsetRange(*partition, min(expected, span.start), max(expected, span.start))
                what = f"{span.topic}-{span.partition} begins at {span.start}; the last commit ended at {expected}"
                why = f"{between.records:,} offsets are {'in no commit' if gap else 'in more than one commit'}"
                yield Finding.of("gap" if gap else "overlap", f"{what}: {why}", between, commit=commit)
            ends[partition] = span.end if commit.move else max(span.end, ends.get(partition, 0))


def _moved(commit: Commit, ends: dict[Partition, int]) -> Iterator[Finding]:
    """Report offsets that a move skips or reads again; if it begins at ``ends``, set ``ends`` to its target."""
    assert commit.move is not None
    ids, left = commit.ranges.topic_ids, commit.left_ids
    notes: list[tuple[str, str | Partition | OffsetRange]] = []
    for (topic, partition), (start, to) in sorted(commit.move.positions.items()):
        if ends.get((topic, partition), start) == start:
            ends[topic, partition] = to
        span = OffsetRange(topic, partition, min(start, to), max(start, to))
        name, offsets = f"{topic}-{partition}", f"[{span.start}, {span.end})"
        if topic in left:
            where = f"{to} of the topic with the id {ids.get(topic)}"
            what = f"the feed left {name} of the topic with the id {left[topic]} at {start}, and resumes at {where}"
            notes.append((what, (topic, partition)))
        elif to > start:
            notes.append((f"{span.records:,} offsets of {name}, {offsets}, were given up: --accept-loss", span))
        else:
            rows = "kept" if commit.move.deleted_rows is None else "deleted"
            what = f"{name} moved back from {start} to {to}; the rows of the offsets {offsets} were {rows}"
            notes.append((what, span))
    notes += [(f"the feed has left the topic {topic} with the id {left[topic]}", topic) for topic in sorted(left)]
    for what, place in notes:
        yield _with_snapshot(Finding.of(commit.move.reason, what, place, commit=commit, fault=False), what)


def _with_snapshot(finding: Finding, what: str) -> Finding:
    """Return a finding that names its snapshot instead of a batch, because a move or takeover is no batch."""
    return replace(finding, what=f"snapshot {finding.snapshot_id}: {what}")


def _adopted(evidence: Evidence) -> Iterator[Finding]:
    """Report that verify does not check rows that another tool wrote before a takeover."""
    for commit in evidence.commits:
        if commit.adopted is not None:
            begins = ", ".join(f"{span.topic}-{span.partition} at {span.end}" for span in commit.ranges.ranges)
            what = f"the table was taken over from {commit.adopted.tool}; only later offsets are verified: {begins}"
            yield _with_snapshot(Finding.of("adopted", what, commit=commit, fault=False), what)


def _topics(evidence: Evidence) -> Iterator[Finding]:
    """Find topics that were recreated or cut off since the newest commit, or that have lost unread records."""
    if not evidence.commits:
        return
    last = without_batches(evidence.commits[-1].ranges)
    for topic in sorted({span.topic for span in last.ranges}):
        description = evidence.topics.get(topic)
        if description is None:
            what = f"Kafka has no topic {topic} now; its lag is unknown"
            yield Finding.of("topic-missing", what, topic, fault=False)
            continue
        known = last.topic_ids.get(topic)
        if known is not None and known != description.topic_id:
            ids = f"its id is {description.topic_id}, and the id of the table's records is {known}"
            yield Finding.of("topic-recreated", f"the topic {topic} was recreated: {ids}", topic)
            continue
        ends = {span.partition: span.end for span in last.ranges if span.topic == topic}
        for partition in description.partitions:
            name, end = f"{topic}-{partition.id}", ends.get(partition.id)
            if end is None:
                continue
            if partition.agreed is not None and partition.agreed < end:
                other = OffsetRange(topic, partition.id, partition.agreed, end)
                what = f"{name} was cut off at {other.start}, and the table has it up to {end}"
                why = "a replica that lacked records became the leader, and later records got their offsets"
                yield Finding.of("cut-off", f"{what}: {why}", other)
                continue
            if end > partition.end_offset:
                lost = OffsetRange(topic, partition.id, partition.end_offset, end)
                what = f"{name} ends at {lost.start} in the topic and at {end} in the table"
                why = "the broker has lost records, or it is another cluster"
                yield Finding.of("ahead", f"{what}: {why}", lost)
            if end < partition.start_offset:
                gone = OffsetRange(topic, partition.id, end, partition.start_offset)
                what = f"{name} begins at {gone.end} in the topic and ends at {end} in the table"
                why = f"retention has removed {gone.records:,} offsets before they were read"
                yield Finding.of("overtaken", f"{what}: {why}", gone)


def _backfills(evidence: Evidence) -> Iterator[Finding]:
    """Find offsets that landed twice: by a backfill and the feed, or by two backfills."""
    if not evidence.backfills:
        return
    ids: dict[str, str] = {}
    by_feed: list[OffsetRange] = []
    by_backfills: list[OffsetRange] = []
    for landed in evidence.line:
        for topic, topic_id in landed.ranges.topic_ids.items():
            if ids.setdefault(topic, topic_id) != topic_id:
                # The topic was recreated, so the same offsets are those of other records now.
                ids[topic] = topic_id
                by_feed = [span for span in by_feed if span.topic != topic]
                by_backfills = [span for span in by_backfills if span.topic != topic]
        if landed.move is not None:
            rewound = [OffsetRange(*partition, start, end) for partition, (start, end) in landed.rewound.items()]
            by_feed, by_backfills = difference(by_feed, rewound), difference(by_backfills, rewound)
            continue
        here = landed.ranges.ranges
        before = [*by_feed, *by_backfills] if isinstance(landed, Backfill) else by_backfills
        for span in intersection(here, before):
            name = f"{span.topic}-{span.partition}"
            what = f"[{span.start}, {span.end}) of {name} has landed twice, and a backfill is involved"
            yield Finding.of("overlap", what, span, commit=landed)
        if isinstance(landed, Backfill):
            by_backfills = union([*by_backfills, *here])
        else:
            by_feed = union([*by_feed, *here])


def _fences(commits: Sequence[Commit | Backfill], taken_last: str | None) -> Iterator[Finding]:
    """Find commits that a driver made after another driver had replaced it."""
    highest = 0
    for commit in commits:
        fence = _number(commit.fence)
        if fence is not None and fence < highest:
            what = f"a driver with fence {highest} had replaced its driver, whose fence is {fence}"
            yield Finding.of("fence", what, commit=commit)
        highest = max(highest, fence or 0)
    taken = _number(taken_last)
    if taken is not None and taken < highest:
        yield Finding.of("fence", f"the table's fence was set back: it is {taken}, and a commit has {highest}")


def _number(fence: str | None) -> int | None:
    """Return the number of a fence, whose text is a number, a space, and the owner; None for other texts."""
    first = (fence or "").partition(" ")[0]
    return int(first) if first.isdigit() else None


def _records(evidence: Evidence) -> Iterator[Finding]:
    """Find offsets that a commit does not count as records, although the broker has records there."""
    uncounted: dict[Partition, int] = defaultdict(int)
    for commit in evidence.landed:
        known = {span.key for span in commit.ranges.ranges}
        for topic, partition in sorted(commit.counts.keys() - known):
            what = f"the commit counts records of {topic}-{partition}, and has no range of it"
            yield Finding.of("counts", what, (topic, partition), commit=commit)
        for span in without_batches(commit.ranges).ranges:
            counted = commit.counts.get(span.key, ZERO).records
            if counted == span.records:
                continue
            held = None
            if evidence.topic_ids.get(span.topic) == commit.ranges.topic_ids.get(span.topic):
                held = evidence.broker_record_counts.get(span)
            if counted < span.records and held is None:
                uncounted[span.topic, span.partition] += span.records - counted
            elif counted > span.records or (held or 0) > counted:
                there = f"the topic holds {held:,}" if counted < span.records else f"there are {span.records:,} offsets"
                name, offsets = f"{span.topic}-{span.partition}", f"[{span.start}, {span.end})"
                what = f"the commit counts {counted:,} records in {offsets} of {name}; {there}"
                yield Finding.of("records", what, span, commit=commit)
    for (topic, partition), count in sorted(uncounted.items()):
        what = f"{topic}-{partition}: {count:,} offsets had no record when they were read"
        why = "the broker cannot confirm this any more, since it has removed them"
        yield Finding.of("untold", f"{what}; {why}", (topic, partition), fault=False)


def _left_out(evidence: Evidence) -> Iterator[Finding]:
    """Report records with JSON fields that have no column, because their rows are incomplete."""
    if rows := sum(total(commit.counts).left_out for commit in (*evidence.landed, *evidence.replays)):
        what = f"{counted(rows, 'row')}: their records have JSON fields that have no column"
        yield Finding.of("left-out", what, fault=False)


def _rows(evidence: Evidence) -> Iterator[Finding]:
    """Find commits whose snapshot added more or fewer rows than the commit counts. Skipped for a transform."""
    if evidence.transformed:
        what = "the pipeline's transform decides the number of rows: rows are not compared with counts"
        yield Finding.of("transform", what, fault=False)
    elif evidence.keyed is None:
        for commit in (*evidence.landed, *evidence.replays):
            if commit.rows != (counted := total(commit.counts).rows):
                what = (
                    f"it added {commit.rows:,} rows, but its records without dead letters and skipped are {counted:,}"
                )
                yield Finding.of("rows", what, commit=commit)


def _recorded(evidence: Evidence) -> Iterator[Finding]:
    """Compare the feed's position in the table's properties, which do not expire, with the feed's newest commit."""
    if not evidence.recorded_known:
        what = "the table was rolled back to before the feed's commits; the feed's position is unknown"
        yield Finding.of("position", what)
    elif evidence.recorded is None:
        return
    elif not evidence.commits:
        if evidence.history_complete:
            what = "the table's properties have a position of the feed, and its snapshots have no commit"
            yield Finding.of("position", f"{what}: another engine has rolled the table back")
    elif evidence.recorded != evidence.commits[-1].ranges:
        what = (
            "the table's properties have another position than the feed's newest commit: another engine has rolled "
            "the table back, or has committed without lakefeed's check"
        )
        yield replace(Finding.of("position", what, commit=evidence.commits[-1]), what=what)


def _limits_of_the_proof(evidence: Evidence) -> Iterator[Finding]:
    if not evidence.history_complete:
        first = f"batch {evidence.commits[0].batch_id}" if evidence.commits else "nothing"
        what = f"older snapshots have expired: only commits from {first} on were verified"
        yield Finding.of("expired", what, fault=False)
    if foreign := evidence.foreign_commits:
        added, deleted = sum(commit.added for commit in foreign), sum(commit.deleted for commit in foreign)
        what = f"{counted(len(foreign), 'commit')} of no feed added {added:,} rows and deleted {deleted:,}"
        yield Finding.of("others", f"{what}, the last in snapshot {foreign[-1].snapshot_id}", fault=False)
