"""Reads the receipts of a table's commits, and finds which rows each receipt describes.

A receipt has the sums of the hashes of a commit's values, by column and by partition (``RowDigest.java``), and the
total after the commit. It is in the commit's summary and, because snapshots expire, in a property of the table.

Batches and moves, backfills, and replays have a chain each, because each of the three has its own fence: a receipt has
the keyed digest of the one before. After a commit of the first chain without a receipt, all chains begin a new epoch.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from lakefeed.ledger import snapshot_summary as keys
from lakefeed.ledger.outcomes import counts_by_partition
from lakefeed.ledger.snapshots import ancestors
from lakefeed.offsets import ranges
from lakefeed.offsets.ranges import OffsetRange, OffsetRanges, Partition, difference, intersection, union
from lakefeed.operations.verify.evidence import Finding

if TYPE_CHECKING:
    from pyiceberg.table import Table

ENTRY = "lakefeed.kept.receipt"
CHAINS = {keys.FEED: "", keys.BACKFILL_OF: ".backfills", keys.REPLAY_OF: ".replays"}
"""The end of a receipt's key, by the key of its commit's feed."""
END, WORD = 2**63 - 1, 1 << 64
ROLLED_BACK = "rolled-back"
"""The value of a property whose value a rollback has hidden."""
POSITIONS = "0"
"""The name of the digest of positions among the digests of columns."""

Ends = Mapping[Partition, int]
Newest = tuple[str | None, Ends]
Summary = Mapping[str, str]
Line = Sequence[tuple[int, Summary]]
"""The ids and summaries of snapshots, oldest first."""
Sums = Mapping[str, tuple[int, ...]]
"""Two words of digests and a number, by column id or ``topic/partition``; of a partition, its bounds, too."""


def sums_of(document: Summary) -> Sums:
    return {name: tuple(int(word, 16) for word in text.split(",")) for name, text in document.items()}


def text_of(sums: Sums) -> dict[str, str]:
    return {name: ",".join(f"{word:x}" for word in words) for name, words in sums.items()}


def added(*all_sums: Sums, sign: int = 1) -> Sums:
    """Add sums to the first ones, or subtract them; leave out those that become zero."""
    first, *others = all_sums
    found = {name: words[:3] for name, words in first.items()}
    for sums in others:
        for name, words in sums.items():
            before = found.get(name, (0, 0, 0))
            found[name] = tuple((one + sign * two) % WORD for one, two in zip(before, words, strict=False))
    return {name: words for name, words in found.items() if any(words)}


def of_columns(sums: Sums) -> Sums:
    return {name: words[:3] for name, words in sums.items() if "/" not in name}


def partition_of(name: str) -> Partition:
    topic, _, number = name.rpartition("/")
    return topic, int(number)


def name_of(partition: Partition) -> str:
    return f"{partition[0]}/{partition[1]}"


def chain_of(summary: Summary, feed: str) -> str | None:
    """Return the chain of a snapshot's receipt; None if no commit of the feed has made the snapshot."""
    chain = next((end for owner, end in CHAINS.items() if summary.get(owner) == feed), None)
    return None if chain in ("", ".backfills") and keys.RANGES not in summary else chain


def sealed(key: str, known: Summary, body: str) -> str:
    """Return a receipt's text: its keyed digest, which proves the commit's ranges and counts, too, and its body."""
    proven = "\n".join((known.get(keys.RANGES, ""), known.get(keys.COUNTS, ""), body))
    return f"{hmac.new(key.encode(), proven.encode(), hashlib.sha256).hexdigest()} {body}"


@dataclass(frozen=True)
class Receipt:
    """The receipt of one commit; that of a move has the rows that it removed.

    ``total`` adds up the receipts of ``epoch``. They leave out all rows at offsets below ``since``, because the table
    may have others there without a receipt. The commits before have only offsets below ``reached``.
    """

    seal: str
    body: str
    commit: str
    previous: str | None
    epoch: str
    since: Ends
    reached: Ends
    sums: Sums
    total: Sums

    @classmethod
    def of(cls, text: str | None) -> Receipt | None:
        """Read a receipt; None if there is none or it is no receipt any more."""
        seal, _, body = (text or "").partition(" ")
        try:
            document = json.loads(body)
            known = {key: document[key] for key in ("commit", "previous", "epoch")}
            known |= {key: sums_of(document[key]) for key in ("sums", "total")}
            for key in ("since", "reached"):
                known[key] = {partition_of(name): int(at) for name, at in document[key].items()}
            return cls(seal=seal, body=body, **known)
        except (ValueError, TypeError, KeyError, AttributeError):
            return None

    def next(self, reached: Ends) -> Receipt:
        """Return the beginning of the next receipt."""
        return replace(self, previous=self.seal, reached=reached, sums={})

    def document(self, commit: str) -> dict[str, Any]:
        known: dict[str, Any] = {"commit": commit, "previous": self.previous, "epoch": self.epoch}
        ends = {"since": self.since, "reached": self.reached}
        known |= {name: {name_of(key): at for key, at in each.items() if at} for name, each in ends.items()}
        return known | {"total": text_of(self.total)}


@dataclass
class Group:
    """Commits whose rows cannot be distinguished by their offsets, mostly one commit.

    ``sums`` is None if one has no receipt; the total has ``counted`` of them. ``expired``: whether expired commits may
    have rows at the same offsets, so that only the total proves the rows.
    """

    commits: list[str]
    spans: list[OffsetRange]
    sums: Sums | None
    counted: Sums = field(default_factory=dict)
    expired: bool = False


class FeedReceipts:
    """The receipts of a feed in a line of snapshots, and the faults in them.

    ``whole``: whether no snapshot has expired. ``left``: the receipts in other lines, which a rollback has left.

    ``groups`` can be compared with the rows at their offsets; ``rest`` has the sums of all other rows of ``topics``,
    mostly of expired commits, or None; rows at offsets in ``unproven`` have no receipt.
    """

    def __init__(
        self, line: Line, properties: Summary, feed: str, key: str, *, whole: bool, left: Collection[str] = ()
    ) -> None:
        self.faults: list[Finding] = []
        self._groups, self._ends = list[Group](), dict[Partition, int]()
        self._last: dict[str, Receipt] = {}
        entry = f"{ENTRY}.{feed}"
        kept = {chain: properties.get(f"{entry}{chain}", "") for chain in CHAINS.values()}
        found = [
            (chain, summary, Receipt.of(text := summary.get(f"{entry}{chain}")), text, number)
            for number, summary in line
            if (chain := chain_of(summary, feed)) is not None
        ]
        main = [receipt for chain, _, receipt, _, _ in found if not chain and receipt is not None]
        self.newest = main[-1] if main else Receipt.of(kept[""] if kept[""] not in left else None)
        epoch = self.newest.epoch if self.newest else ""
        before = below(self.newest.since if self.newest else {})
        # The offsets below which expired commits may have rows; None for all offsets.
        self._expired = {} if whole else main[0].reached if main else None
        for chain, summary, receipt, text, number in found:
            if text is not None and (wrong := self._check(chain, summary, text, receipt, key)):
                self.faults.append(replace(Finding.of("receipt", f"snapshot {number}: {wrong}"), snapshot_id=number))
            if receipt is not None:
                self._last[chain] = receipt
            # The total has no rows of earlier epochs.
            if receipt is None or receipt.epoch == epoch:
                self._add(chain, summary, receipt, number)
        ends = {name: _position(text) for name, text in properties.items() if name.startswith(f"{keys.POSITION}.")}
        recorded, known = ends.pop(f"{keys.POSITION}.{feed}", (None, {}))
        shared = {key for _, each in ends.values() for key in each if key in known}
        for partition in shared:  # Another feed writes rows of the same offsets.
            self._merge(Group([], [OffsetRange(*partition, 0, END)], None))
        total = self._total(kept, left, epoch, whole=whole)
        loose = [group for group in self._groups if group.sums is None and difference(group.spans, before)]
        commit = next((summary.get(keys.COMMIT_ID) for chain, summary, *_ in reversed(found) if not chain), recorded)
        is_newest = self.newest is not None and self.newest.commit == commit
        is_known = self.newest is not None and (whole or is_newest) and not shared
        if not is_known or any(group.expired for group in loose):
            total = None
        self.topics = {topic for topic, _ in (*known, *(self.newest.reached if self.newest else ()))}
        kept_apart = [group for group in self._groups if not group.expired]
        self.groups = [group for group in kept_apart if group.spans and group.commits]
        self.rest = None if total is None else added(total, *(group.counted for group in kept_apart), sign=-1)
        proven = [span for group in self.groups if group.sums is not None for span in group.spans]
        self.unproven = difference([*before, *(span for group in loose for span in group.spans)], proven)

    def _add(self, chain: str, summary: Summary, receipt: Receipt | None, number: int) -> None:
        sums = None if receipt is None else receipt.sums
        if keys.MOVED in summary:
            self._move(keys.Commit.of(number, summary), sums)
        else:
            spans = difference(self._spans(summary, receipt), below(receipt.since if receipt else {}))
            self._put(Group([f"snapshot {number}"], spans, sums, of_columns(sums or {})))

    def _check(self, chain: str, summary: Summary, text: str, receipt: Receipt | None, key: str) -> str | None:
        """Compare a receipt with its commit and with the receipt before; return what is wrong."""
        last = self._last.get(chain)
        if receipt is None:
            return "its receipt cannot be read"
        if sealed(key, summary, receipt.body) != text or receipt.commit != summary.get(keys.COMMIT_ID):
            return "its receipt, ranges or counts were changed, or the feed's key is another"
        if _all(receipt.sums, "/") != _all(receipt.sums, ""):
            return "the sums of its receipt by column and by partition differ"
        if last is None or last.epoch != receipt.epoch:
            return None
        total = added(last.total, of_columns(receipt.sums), sign=-1 if keys.MOVED in summary else 1)
        follows = receipt.previous == last.seal and receipt.total == total
        return None if follows else "its receipt does not follow the one before it: a commit is missing"

    def _total(self, kept: Summary, left: Collection[str], epoch: str, *, whole: bool) -> Sums | None:
        """Return the sum of all receipts of the epoch, with those of expired snapshots; None if it is unknown."""
        totals = []
        for chain, text in kept.items():
            receipt, last = Receipt.of(text), self._last.get(chain)
            rolled_back = text in left or text == ROLLED_BACK
            if last is None and rolled_back and not whole:
                return None
            if text and not rolled_back and (receipt is None or receipt.seal != (last or receipt).seal):
                what = "the table's properties have another receipt than the newest commit"
                self.faults.append(Finding.of("receipt", what))
            last = last or (None if rolled_back else receipt)
            if last is not None and last.epoch == epoch:
                totals.append(last.total)
        return added({}, *totals)

    def _put(self, group: Group) -> None:
        if any(span.start < self._ends.get(span.key, 0) for span in group.spans):
            self._merge(group)
        else:
            group.expired = self._is_expired(group.spans)
            self._groups.append(group)
        for span in group.spans:
            self._ends[span.key] = max(span.end, self._ends.get(span.key, 0))

    def _is_expired(self, spans: Iterable[OffsetRange]) -> bool:
        return any(self._expired is None or span.start < self._expired.get(span.key, 0) for span in spans)

    def _merge(self, group: Group) -> Group:
        """Add a group together with all that share offsets with it."""
        others = [each for each in self._groups if intersection(each.spans, group.spans)]
        self._groups = [each for each in self._groups if each not in others]
        known = [each.sums for each in (*others, group)]
        merged = Group(
            [*(one for each in others for one in each.commits), *group.commits],
            union([*group.spans, *(span for each in others for span in each.spans)]),
            None if None in known else added({}, *(each for each in known if each is not None)),
            added({}, *(each.counted for each in (*others, group))),
            self._is_expired(group.spans) or any(each.expired for each in others),
        )
        self._groups.append(merged)
        return merged

    def _move(self, move: keys.Commit, removed: Sums | None) -> None:
        """Remove the rows that a rewind has deleted: the commits that had some of them become one group."""
        gone = [OffsetRange(*key, start, end) for key, (start, end) in move.rewound.items()]
        if gone and move.move is not None and move.move.deleted_rows is not None:
            group = self._merge(Group([f"snapshot {move.snapshot_id}"], gone, None if removed is None else {}))
            group.spans = difference(group.spans, gone)
            group.sums = None if group.sums is None else added(group.sums, removed or {}, sign=-1)
            group.counted = added(group.counted, of_columns(removed or {}), sign=-1)

    def _spans(self, summary: Summary, receipt: Receipt | None) -> list[OffsetRange]:
        """Return the offsets that rows of a commit may have; the ledger does not have the offsets of a replay."""
        if keys.RANGES in summary:
            found = ranges.without_batches(OffsetRanges.from_json(summary[keys.RANGES])).ranges
            return [span for span in found if span.records]
        if receipt is not None:
            return [
                OffsetRange(*partition_of(name), at[3], at[4] + 1) for name, at in receipt.sums.items() if "/" in name
            ]
        expired = None if self._expired is None else latest(self._expired, self._ends)
        partitions = counts_by_partition(summary.get(keys.COUNTS, "{}"))
        return [OffsetRange(*each, 0, END if expired is None else expired.get(each, 0)) for each in partitions]


def begin(
    chain: str,
    feed: str,
    known: Summary,
    at: tuple[str | None, Ends],
    line: Callable[[], Line],
    ends: Callable[[], Ends],
) -> Receipt | None:
    """Return the beginning of a chain's next receipt, or None; ``ends`` reads the offsets below which are rows."""
    kept = {each: known.get(f"{ENTRY}.{feed}{each}", "") for each in CHAINS.values()}
    commit, reached = at
    receipt, newest, is_whole = Receipt.of(kept[""]), dict[str, str](), commit is not None
    for _, summary in line() if is_whole else ():
        if (owner := chain_of(summary, feed)) is not None:
            newest[owner] = summary.get(f"{ENTRY}.{feed}{owner}", "")
            begins = not owner and (begun := Receipt.of(newest[owner])) is not None and begun.previous is None
            is_whole = begins or (is_whole and newest[owner] != "")
    if receipt is None or receipt.commit != commit:
        # Another engine has rolled the table back, or commits have no receipts.
        receipt = Receipt.of(newest.get(""))
        is_whole = is_whole and all(text in ("", newest.get(each)) for each, text in kept.items() if each)
    first = Receipt("", "", "", None, uuid.uuid4().hex, {}, {}, {}, {})
    if receipt is None or receipt.commit != commit or ROLLED_BACK in kept.values() or not is_whole:
        since = latest(reached, {} if chain else ends())
        return None if chain else replace(first, since=since, reached=since)
    if not chain:
        return receipt.next(latest(receipt.reached, reached))
    last = Receipt.of(kept[chain])
    fits = last is not None and last.epoch == receipt.epoch
    return replace(last.next({}) if last and fits else first, epoch=receipt.epoch, since=receipt.since)


def below(ends: Ends) -> list[OffsetRange]:
    return [OffsetRange(*partition, 0, at) for partition, at in ends.items()]


def written(line: Line, feed: str, gone: Sequence[OffsetRange], begun: Receipt) -> tuple[Sums, list[OffsetRange]]:
    """Return the sums of rows at these offsets as they were written, and the offsets whose rows must be read for that.

    A rewind subtracts the sums: if it deletes altered rows, nothing of the alteration may stay in the total.
    """
    groups = FeedReceipts(line, {}, feed, "", whole=False).groups
    entire = [each for each in groups if each.sums is not None and each.counted and not difference(each.spans, gone)]
    read = difference(gone, [*below(begun.since), *(span for each in entire for span in each.spans)])
    return added({}, *(each.sums or {} for each in entire)), read


def latest(*all_ends: Ends) -> dict[Partition, int]:
    """Return the greatest offset of each partition."""
    return {key: max(ends.get(key, 0) for ends in all_ends) for key in {key for ends in all_ends for key in ends}}


def receipts_of(table: Table, feed: str, key: str) -> FeedReceipts:
    """Read the receipts of a feed in a table."""
    line, whole = ancestors(table, feed)
    known = {each.snapshot_id: each.summary.additional_properties if each.summary else {} for each in table.snapshots()}
    in_line = [(each.snapshot_id, known.pop(each.snapshot_id)) for each in line]
    left = {text for each in known.values() for name, text in each.items() if name.startswith(ENTRY)}
    return FeedReceipts(in_line, table.properties, feed, key, whole=whole, left=left)


def _position(text: str) -> tuple[str | None, Ends]:
    """Return the newest commit's id and ends from the property with a feed's position."""
    document = {"ranges": {}} if text == ROLLED_BACK else json.loads(text)
    return document.get("commit-id"), OffsetRanges.from_json(json.dumps(document["ranges"])).ends


def _all(sums: Sums, kind: str) -> tuple[int, int]:
    chosen = [words for name, words in sums.items() if ("/" in name) == bool(kind)]
    return sum(words[0] for words in chosen) % WORD, sum(words[1] for words in chosen) % WORD
