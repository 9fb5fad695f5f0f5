"""Receipts of random histories of a table prove its rows: no false fault, and no alteration of a proven row escapes."""

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from lakefeed.ledger.feed_position import ROLLED_BACK, CommittedOffsets, Position
from lakefeed.ledger.snapshot_summary import BACKFILL_OF, COMMIT_ID, COUNTS, REPLAY_OF, Commit, PositionReset
from lakefeed.offsets.ranges import OffsetRange, OffsetRanges, Partition, difference, union
from lakefeed_receipts.receipts import (
    CHAINS,
    ENTRY,
    WORD,
    FeedReceipts,
    Receipt,
    Sums,
    added,
    begin,
    name_of,
    of_columns,
    sealed,
    sums_of,
    text_of,
    written,
)

FEED, KEY, TOPIC = "f", "key", "t"
SEEDS = range(100)


@dataclass(frozen=True)
class Row:
    """A row of the table; ``copy`` distinguishes rows of one offset."""

    partition: Partition
    offset: int
    value: int
    copy: int = 0


def hashed(row: Row, column: int) -> tuple[int, int]:
    chance = random.Random(f"{row.partition}/{row.offset}/{column}/{row.value if column else 0}")
    return chance.randrange(WORD), chance.randrange(WORD)


def sums(rows: Sequence[Row]) -> Sums:
    """Return the sums of rows as ``RowDigest.java`` does, of the positions and one column."""
    found: dict[str, tuple[int, ...]] = {}
    for row in rows:
        for column in (0, 1):
            one, two = hashed(row, column)
            own = name_of(row.partition)
            for name, count in ((str(column), 1), (own, column)):
                before = found.get(name, (0, 0, 0, row.offset, row.offset) if name == own else (0, 0, 0))
                words = ((before[0] + one) % WORD, (before[1] + two) % WORD, before[2] + count)
                bounds = (min(before[3], row.offset), max(before[4], row.offset)) if name == own else ()
                found[name] = (*words, *bounds)
    return found


@dataclass(frozen=True)
class Snapshot:
    number: int
    parent: "Snapshot | None"
    summary: dict[str, str]
    rows: tuple[Row, ...]
    position: Position | None
    recorded: bool = True
    """Whether lakefeed wrote the snapshot, so that the properties follow it."""


@dataclass
class History:
    """A table, its feed, and what happens to them.

    Attributes:
        base: the rows that other programs wrote before the feed.
    """

    chance: random.Random
    base: tuple[Row, ...] = ()
    receipts: bool = True
    snapshots: list[Snapshot] = field(default_factory=list)
    properties: dict[str, str] = field(default_factory=dict)
    expired: set[int] = field(default_factory=set)
    log: list[str] = field(default_factory=list)
    head: Snapshot | None = None
    position: Position | None = None
    copies: int = 0

    @property
    def rows(self) -> tuple[Row, ...]:
        return self.head.rows if self.head is not None else self.base

    def line(self) -> list[Snapshot]:
        found, at = [], self.head
        while at is not None and at.number not in self.expired:
            found.append(at)
            at = at.parent
        return found[::-1]

    def whole(self) -> bool:
        line = self.line()
        return not line or line[0].parent is None

    def summaries(self) -> list[tuple[int, dict[str, str]]]:
        return [(each.number, each.summary) for each in self.line()]

    def commit(self, summary: dict[str, str], rows: Sequence[Row], position: Position | None) -> None:
        self.head = Snapshot(len(self.snapshots), self.head, summary, tuple(rows), position)
        self.snapshots.append(self.head)
        self.properties |= {name: text for name, text in summary.items() if name.startswith(ENTRY)}
        self.stand(position)

    def stand(self, position: Position | None) -> None:
        self.position = position
        text = ROLLED_BACK if position is None else json.dumps(self.document(position))
        self.properties[f"lakefeed.position.{FEED}"] = text

    @staticmethod
    def document(position: Position) -> dict[str, Any]:
        covered = {} if position.covered is None else position.covered.intervals
        offsets = {str(key[1]): [at for span in spans for at in span] for key, spans in covered.items()}
        kept = {str(key[1]): [at for span in spans for at in span] for key, spans in position.kept.intervals.items()}
        return {
            "commit-id": position.commit_id,
            "snapshot-id": position.snapshot_id,
            "moved": position.is_move,
            "ranges": json.loads(position.ranges.to_json()),
            "covered": {TOPIC: {"id": "A", "offsets": offsets}},
            "kept": {TOPIC: {"id": "A", "offsets": kept}},
        }

    # What the feed and its commands do.

    def begun(self, chain: str) -> Receipt | None:
        at = (self.position.commit_id, self.position.ranges.ends) if self.position is not None else (None, {})
        return begin(chain, FEED, self.properties, at, self.summaries, self.present)

    def present(self) -> dict[Partition, int]:
        own = [row for row in self.rows if row.partition[0] == TOPIC]
        return {row.partition: row.offset + 1 for row in sorted(own, key=lambda each: each.offset)}

    def entries(
        self, begun: Receipt, chain: str, commit: str, known: dict[str, str], rows: Sums, *, removed: bool = False
    ) -> dict[str, str]:
        document = begun.document(commit)
        total = added(sums_of(document["total"]), of_columns(rows), sign=-1 if removed else 1)
        body = json.dumps({**document, "sums": text_of(rows), "total": text_of(total)})
        begins = not chain and begun.previous is None
        emptied = {f"{ENTRY}.{FEED}{each}": "" for each in CHAINS.values() if each and begins}
        return {**emptied, f"{ENTRY}.{FEED}{chain}": sealed(KEY, known, body)}

    def new(self, spans: Sequence[OffsetRange]) -> list[Row]:
        self.copies += 1
        # Every seventh record is a dead letter.
        return [
            Row(span.key, at, at * 7919 + 1, self.copies)
            for span in spans
            for at in range(span.start, span.end)
            if at % 7
        ]

    def add(self, known: dict[str, str], chain: str, rows: list[Row], position: Position | None) -> None:
        commit = f"c{len(self.snapshots)}"
        known |= {
            COMMIT_ID: commit,
            COUNTS: json.dumps({TOPIC: {str(p): [1, 0, 0] for p in {r.partition[1] for r in rows}}}),
        }
        begun = self.begun(chain) if self.receipts else None
        if begun is not None:
            counted = [row for row in rows if row.offset >= begun.since.get(row.partition, 0)]
            known |= self.entries(begun, chain, commit, known, sums(counted))
        position = position and replace(position, commit_id=commit if not chain else position.commit_id)
        self.commit(known, [*self.rows, *rows], position)

    def ends(self) -> dict[Partition, int]:
        return dict(self.position.ranges.ends) if self.position is not None else {}

    def batch(self) -> None:
        if self.position is None and any("lakefeed.feed" in each.summary for each in self.snapshots):
            self.choose_position()
            return
        starts = self.ends() or {(TOPIC, p): self.first(p) for p in range(2)}
        ends = {key: at + self.chance.choice([0, 3, 9]) for key, at in starts.items()}
        ranges = OffsetRanges.between(starts, ends, {TOPIC: "A"})
        covered = self.covered([*ranges.ranges])
        kept = self.position.kept if self.position is not None else CommittedOffsets()
        position = Position(ranges, len(self.snapshots), None, covered, kept=kept)
        self.log.append(f"batch {ranges.to_json()}")
        commit = Commit(FEED, 0, ranges)
        self.add(commit.properties(), "", self.new(ranges.ranges), position)

    def first(self, partition: int) -> int:
        before = [row.offset + 1 for row in self.base if row.partition == (TOPIC, partition)]
        return max(before, default=self.chance.choice([0, 20]))

    def covered(self, more: list[OffsetRange], less: Sequence[OffsetRange] = ()) -> CommittedOffsets | None:
        if self.position is not None and self.position.covered is None:
            return None
        have = (
            self.position.covered.intervals if self.position is not None and self.position.covered is not None else {}
        )
        spans = [OffsetRange(*key, *bounds) for key, every in have.items() for bounds in every]
        return self.intervals(union([*difference(spans, less), *more]))

    @staticmethod
    def intervals(spans: Sequence[OffsetRange]) -> CommittedOffsets:
        found: dict[Partition, tuple[tuple[int, int], ...]] = {}
        for span in spans:
            found[span.key] = (*found.get(span.key, ()), (span.start, span.end))
        return CommittedOffsets(found, {TOPIC: "A"})

    def backfill(self) -> None:
        if self.position is None or self.position.covered is None:
            return
        have = [OffsetRange(*k, *b) for k, every in self.position.covered.intervals.items() for b in every]
        holes = difference([OffsetRange(*key, 0, at) for key, at in self.ends().items() if at], have)
        if not holes:
            return
        hole = self.chance.choice(holes)
        hole = hole.cut(hole.start, min(hole.end, hole.start + 5))
        ranges = OffsetRanges((hole,), {TOPIC: "A"})
        self.log.append(f"backfill {hole}")
        position = replace(self.position, covered=self.covered([hole]))
        known = {BACKFILL_OF: FEED, "lakefeed.ranges": ranges.to_json()}
        self.add(known, ".backfills", self.new([hole]), position)

    def replay(self) -> None:
        covered = self.position.covered if self.position is not None else None
        have = [] if covered is None else sorted(covered.intervals.items())
        letters = {key: [at for start, end in spans for at in range(start, end) if at % 7 == 0] for key, spans in have}
        letters = {key: every for key, every in letters.items() if every}
        if not letters:
            return
        key = self.chance.choice(sorted(letters))
        offsets = self.chance.sample(letters[key], k=min(2, len(letters[key])))
        self.copies += 1
        self.log.append(f"replay {key} {offsets}")
        self.add(
            {REPLAY_OF: FEED}, ".replays", [Row(key, at, at * 7919 + 1, self.copies) for at in offsets], self.position
        )

    def rewind(self) -> None:
        self.move(delete=False)

    def rewind_and_delete(self) -> None:
        self.move(delete=True)

    def move(self, *, delete: bool) -> None:
        ends = {key: at for key, at in self.ends().items() if at > 2}
        if not ends or self.position is None:
            return
        key = self.chance.choice(sorted(ends))
        to = self.chance.randrange(ends[key])
        gone = [OffsetRange(*key, to, ends[key])]
        ranges = OffsetRanges.at({**self.ends(), key: to}, {TOPIC: "A"})
        left = [row for row in self.rows if not (delete and row.partition == key and to <= row.offset < ends[key])]
        deleted = {key: len(self.rows) - len(left)} if delete else None
        commit = Commit(FEED, 0, ranges, move=PositionReset("rewind", {key: (ends[key], to)}, {}, deleted))
        name = f"c{len(self.snapshots)}"
        known = {**commit.properties(), COMMIT_ID: name}
        if self.receipts:
            begun = self.begun("")
            assert begun is not None
            removed: Sums = {}
            if delete:
                known_sums, read = written(self.summaries(), FEED, gone, begun)
                found = [
                    row
                    for row in self.rows
                    if any(s.key == row.partition and s.start <= row.offset < s.end for s in read)
                ]
                removed = added(known_sums, sums(found))
            known |= self.entries(begun, "", name, known, removed, removed=True)
        kept = [OffsetRange(*k, *b) for k, every in self.position.kept.intervals.items() for b in every]
        kept = difference(kept, gone) if delete else union([*kept, *gone])
        covered = self.covered([], gone)
        self.log.append(f"rewind {gone} delete={delete}")
        self.commit(known, left, Position(ranges, len(self.snapshots), name, covered, True, self.intervals(kept)))

    def choose_position(self) -> None:
        """Rewind after a rollback that has left the position unknown."""
        ranges = OffsetRanges.at(
            {(TOPIC, partition): self.chance.randrange(30) for partition in range(2)}, {TOPIC: "A"}
        )
        commit, name = Commit(FEED, 0, ranges, move=PositionReset("rewind", unknown=True)), f"c{len(self.snapshots)}"
        known = {**commit.properties(), COMMIT_ID: name}
        if self.receipts:
            begun = self.begun("")
            assert begun is not None
            known |= self.entries(begun, "", name, known, {}, removed=True)
        self.log.append(f"choose {ranges.to_json()}")
        self.commit(known, self.rows, Position(ranges, len(self.snapshots), name, None, True))

    def recreate(self) -> None:
        """Read a recreated topic from its beginning."""
        if self.position is None:
            return
        ranges = OffsetRanges.at(dict.fromkeys(self.ends(), 0), {TOPIC: "A"})
        move = PositionReset("accepted-loss", {key: (at, 0) for key, at in self.ends().items()}, {TOPIC: "B"})
        commit, name = Commit(FEED, 0, ranges, move=move), f"c{len(self.snapshots)}"
        known = {**commit.properties(), COMMIT_ID: name}
        if self.receipts:
            begun = self.begun("")
            assert begun is not None
            known |= self.entries(begun, "", name, known, {}, removed=True)
        self.log.append("recreate")
        position = Position(ranges, len(self.snapshots), name, CommittedOffsets({}, {TOPIC: "A"}), True)
        self.commit(known, self.rows, position)

    def expire(self) -> None:
        line = self.line()
        if line:
            self.log.append(f"expire up to {line[-1].number}")
            last = self.chance.choice([line[-1].number, self.chance.choice(line).number])
            self.expired |= {each.number for each in self.snapshots if each.number < last and each is not self.head}

    def compact(self) -> None:
        if self.head is not None:
            self.log.append("compact")
            self.commit({}, self.rows, self.position)

    def switch(self) -> None:
        self.receipts = not self.receipts
        self.log.append(f"receipts: {self.receipts}")

    def roll_back(self) -> None:
        """Roll back by lakefeed's catalog, whose commits take the properties along: ``CheckedOperations.java``."""
        line = self.line()
        if len(line) < 2:
            return
        self.head = self.chance.choice(line[:-1])
        self.log.append(f"roll back to {self.head.number}")
        for each in line:
            self.properties |= {name: ROLLED_BACK for name in each.summary if name.startswith(ENTRY)}
        for each in self.line():
            self.properties |= {name: text for name, text in each.summary.items() if name.startswith(ENTRY)}
        self.stand(self.head.position if any("lakefeed.feed" in s.summary for s in self.line()) else None)

    def other_engine_rolls_back(self) -> None:
        line = self.line()
        if len(line) < 2:
            return
        # A rollback of replays alone leaves no trace in the position.
        before = [
            each
            for each in line
            if each.position and self.position and each.position.commit_id != self.position.commit_id
        ]
        if not before:
            return
        self.head = self.chance.choice(before)
        self.log.append(f"another engine rolls back to {self.head.number}")
        found = [each for each in self.line() if "lakefeed.feed" in each.summary]
        if not found or self.head.position is None:
            self.position = None
        else:
            self.position = replace(self.head.position, covered=None)

    def foreign(self) -> None:
        if self.head is not None:
            self.copies += 1
            self.log.append("foreign rows")
            rows = [Row(("other", 0), at, at, self.copies) for at in range(3)] + [Row(("", -1), -1, 5, self.copies)]
            self.commit({}, [*self.rows, *rows], self.position)

    # The verification.

    def receipts_now(self) -> FeedReceipts:
        in_line = {each.number for each in self.line()}
        others = [each for each in self.snapshots if each.number not in in_line and each.number not in self.expired]
        left = {text for each in others for name, text in each.summary.items() if name.startswith(ENTRY)}
        return FeedReceipts(self.summaries(), self.properties, FEED, KEY, whole=self.whole(), left=left)

    def faults(self, rows: Sequence[Row]) -> tuple[list[str], list[Row]]:
        """Return the faults of rows, and the rows that are proven."""
        receipts = self.receipts_now()
        found: list[str] = [each.what for each in receipts.faults]
        spans = [(span, group) for group in receipts.groups if group.sums is not None for span in group.spans]
        places: dict[int, list[Row]] = {}
        rest: list[Row] = []
        compared: list[Row] = []
        for row in rows:
            if row.partition[0] != TOPIC:
                continue
            here = [id(group) for span, group in spans if _has(span, row)]
            assert len(here) <= 1, here
            if here:
                places.setdefault(here[0], []).append(row)
                compared.append(row)
            elif not any(_has(span, row) for span in receipts.unproven):
                rest.append(row)
        for group in receipts.groups:
            if group.sums is None:
                continue
            if added({}, group.sums) != added({}, sums(places.get(id(group), []))):
                found.append(f"{group.commits} differ")
        if receipts.rest is not None:
            compared += rest
            if receipts.rest != of_columns(sums(rest)):
                found.append("rest differs")
        return found, compared


def _has(span: OffsetRange, row: Row) -> bool:
    return span.key == row.partition and span.start <= row.offset < span.end


STEPS = {
    History.batch: 12,
    History.backfill: 3,
    History.replay: 3,
    History.rewind: 2,
    History.rewind_and_delete: 2,
    History.recreate: 1,
    History.expire: 3,
    History.compact: 1,
    History.switch: 1,
    History.roll_back: 1,
    History.other_engine_rolls_back: 1,
    History.foreign: 1,
}


def histories(seed: int) -> Iterator[History]:
    """Yield a table after each of some random steps."""
    chance = random.Random(seed)
    history = History(chance, receipts=chance.random() < 0.8)
    if chance.random() < 0.3:
        history.base = tuple(Row((TOPIC, at % 2), at // 2, at) for at in range(20))
    kinds = [step for step, times in STEPS.items() for _ in range(times)]
    for _ in range(14):
        chance.choice(kinds)(history)
        if history.receipts:
            yield history


@pytest.mark.parametrize("start", SEEDS[::50])
def test_no_history_has_a_false_fault_and_no_alteration_escapes(start: int) -> None:
    proven = 0
    for seed in range(start, start + 50):
        for history in histories(seed):
            found, compared = history.faults(history.rows)
            assert found == [], "\n".join([str(seed), *history.log])
            if not compared:
                continue
            proven += 1
            row = history.chance.choice(compared)
            without = [each for each in history.rows if each != row]
            changed = [*without, replace(row, value=row.value + 1)]
            for altered in (without, [*history.rows, replace(row, copy=-1)], changed):
                assert history.faults(altered)[0] != [], "\n".join([str(seed), *history.log, str(row)])
    assert proven > 200
