"""Reads the receipts of a table's commits, and finds which rows each receipt describes.

A receipt has, for each column and for each partition of the topic, the sum of the hashes of its rows' values
(``RowDigest.java``), and the total after the commit. It is in the commit's summary, and a property of the
table, because snapshots expire.

Batches and moves, backfills, and replays have a chain each, because each of the three has its own fence: a receipt has
the keyed digest of the receipt before it, so a receipt cannot be changed, left out or put elsewhere.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from lakefeed.ledger.snapshot_summary import BACKFILL_OF, COMMIT_ID, COUNTS, FEED, MOVED, RANGES, REPLAY_OF, Commit
from lakefeed.offsets import ranges
from lakefeed.offsets.ranges import OffsetRange, OffsetRanges, Partition, difference, intersection, union
from lakefeed.operations.verify.evidence import Finding

ENTRY = "lakefeed.kept.receipt"
CHAINS = {FEED: "", BACKFILL_OF: ".backfills", REPLAY_OF: ".replays"}
"""The end of a receipt's key, by the key of its commit's feed."""
POSITIONS = "0"
"""The name of the digest of positions among the digests of columns."""
WORD = 1 << 64

Sums = Mapping[str, tuple[int, ...]]
"""Two words of digests and a number, by column id or ``topic/partition``; of a partition, its bounds, too."""


def sums_of(document: Mapping[str, str]) -> Sums:
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


def sealed(key: str, known: Mapping[str, str], body: str) -> str:
    """Return a receipt's text: its keyed digest, which proves the commit's ranges and counts, too, and its body."""
    proven = "\n".join((known.get(RANGES, ""), known.get(COUNTS, ""), body))
    return f"{hmac.new(key.encode(), proven.encode(), hashlib.sha256).hexdigest()} {body}"


@dataclass(frozen=True)
class Receipt:
    """The receipt of one commit.

    Attributes:
        seal: the keyed digest of the receipt.
        previous: that of the receipt before; None if receipts begin here.
        since: the offsets at which the receipts of each partition begin.
        removed: whether the commit, a move, removes the rows.
    """

    seal: str
    body: str
    commit: str
    previous: str | None
    since: Mapping[Partition, int]
    removed: bool
    sums: Sums
    total: Sums

    @classmethod
    def of(cls, text: str | None) -> Receipt | None:
        """Read a receipt; None if there is none or it is no receipt any more."""
        seal, _, body = (text or "").partition(" ")
        try:
            document = json.loads(body)
            return cls(
                seal=seal,
                body=body,
                commit=str(document["commit"]),
                previous=document["previous"],
                since={partition_of(name): int(at) for name, at in document["since"].items()},
                removed=bool(document["removed"]),
                sums=sums_of(document["sums"]),
                total=sums_of(document["total"]),
            )
        except (ValueError, TypeError, KeyError, AttributeError):
            return None


def begun(previous: Receipt | None, commit: str, since: Mapping[Partition, int], *, removed: bool) -> dict[str, Any]:
    """Return the fields of a receipt that are known before its rows, with the total before it."""
    return {
        "commit": commit,
        "previous": None if previous is None else previous.seal,
        "since": {name_of(key): at for key, at in sorted(since.items())},
        "removed": removed,
        "total": text_of({} if previous is None else previous.total),
    }


@dataclass
class Group:
    """Commits whose rows cannot be distinguished by their offsets, mostly one commit; and the sums of their rows.

    Attributes:
        sums: None if a commit of the group has no receipt, so that nothing can be proven.
        counted: whether the total has these rows.
    """

    commits: list[str]
    spans: list[OffsetRange]
    sums: Sums | None
    counted: bool = True


@dataclass
class FeedReceipts:
    """The receipts of a feed in a line of snapshots, and the faults in them.

    Attributes:
        since: the offsets at which the receipts begin.
        total: the sum of all receipts, also of expired snapshots; None if it is unknown.
        newest: the newest receipt of each chain.
    """

    groups: list[Group] = field(default_factory=list)
    faults: list[Finding] = field(default_factory=list)
    notes: list[Finding] = field(default_factory=list)
    newest: dict[str, Receipt] = field(default_factory=dict)
    _ends: dict[Partition, int] = field(default_factory=dict)

    @property
    def since(self) -> Mapping[Partition, int]:
        return self.newest[""].since if "" in self.newest else {}

    @property
    def total(self) -> Sums:
        return added({}, *(each.total for each in self.newest.values()))

    @property
    def rest(self) -> Sums:
        """The sums of the rows whose commits have expired."""
        known = (of_columns(each.sums) for each in self.groups if each.sums is not None and each.counted)
        return added(self.total, *known, sign=-1)

    def add(self, summary: Mapping[str, str], snapshot_id: int, feed: str, key: str) -> None:
        """Add a snapshot, from the oldest on; compare its receipt with the commit and with the receipt before."""
        chain = next((end for owner, end in CHAINS.items() if summary.get(owner) == feed), None)
        if chain is None or (chain != ".replays" and RANGES not in summary):
            return
        text = summary.get(f"{ENTRY}.{feed}{chain}")
        receipt, last = Receipt.of(text), self.newest.get(chain)
        title = f"snapshot {snapshot_id}"
        if receipt is None:
            if text is not None:
                self._fault(f"{title}: its receipt cannot be read", snapshot_id)
            self._add(Group([title], _spans(summary, {}), None))
            return
        if sealed(key, summary, receipt.body) != text or receipt.commit != summary.get(COMMIT_ID):
            self._fault(
                f"{title}: its receipt, ranges or counts were changed, or the feed's key is another", snapshot_id
            )
        elif last is not None and receipt.previous is None:
            self.notes.append(Finding.of("receipts-begin", f"{title}: receipts begin again here", fault=False))
            for group in self.groups:
                group.counted = False
        elif last is not None and (receipt.previous != last.seal or _after(last, receipt) != receipt.total):
            self._fault(f"{title}: its receipt does not follow the one before it: a commit is missing", snapshot_id)
        elif _all(receipt.sums, "/") != _all(receipt.sums, ""):
            self._fault(f"{title}: the sums of its receipt by column and by partition differ", snapshot_id)
        self.newest[chain] = receipt
        if MOVED in summary:
            self._move(Commit.of(snapshot_id, summary), receipt)
        else:
            self._add(Group([title], _spans(summary, receipt.sums), receipt.sums))

    def end(self, properties: Mapping[str, str], feed: str) -> None:
        """Add the receipts in the table's properties, whose snapshots may have expired."""
        for chain in CHAINS.values():
            receipt, newest = Receipt.of(properties.get(f"{ENTRY}.{feed}{chain}")), self.newest.get(chain)
            if newest is None and receipt is not None:
                self.newest[chain] = receipt
            elif newest is not None and receipt is not None and newest.seal != receipt.seal:
                self._fault("the table's properties have another receipt than the newest commit", None)

    def _fault(self, what: str, snapshot_id: int | None) -> None:
        self.faults.append(replace(Finding.of("receipt", what), snapshot_id=snapshot_id))

    def _add(self, group: Group) -> None:
        for span in group.spans:
            if span.start < self._ends.get(span.key, 0):
                self._merge(group)
                break
        else:
            self.groups.append(group)
        for span in group.spans:
            self._ends[span.key] = max(span.end, self._ends.get(span.key, 0))

    def _merge(self, group: Group) -> None:
        """Add a group together with all that share offsets with it."""
        others = [each for each in self.groups if intersection(each.spans, group.spans)]
        self.groups = [each for each in self.groups if each not in others]
        known = [each.sums for each in (*others, group)]
        sums = None if None in known else added({}, *(each for each in known if each is not None))
        spans = union([*group.spans, *(span for each in others for span in each.spans)])
        self.groups.append(Group([*(one for each in others for one in each.commits), *group.commits], spans, sums))

    def _move(self, move: Commit, receipt: Receipt) -> None:
        """Remove the rows that a rewind has deleted: the commits that had some of them become one group."""
        gone = [OffsetRange(*key, start, end) for key, (start, end) in move.rewound.items()]
        if not gone or move.move is None or move.move.deleted_rows is None:
            return
        self._merge(Group([f"snapshot {move.snapshot_id}"], gone, {}))
        group = self.groups[-1]
        group.spans = difference(group.spans, gone)
        group.sums = None if group.sums is None else added(group.sums, receipt.sums, sign=-1)


def _after(last: Receipt, receipt: Receipt) -> Sums:
    return added(last.total, of_columns(receipt.sums), sign=-1 if receipt.removed else 1)


def _all(sums: Sums, kind: str) -> tuple[int, int]:
    """Return the sum over all partitions, or over all columns."""
    chosen = [words for name, words in sums.items() if ("/" in name) == bool(kind)]
    return sum(words[0] for words in chosen) % WORD, sum(words[1] for words in chosen) % WORD


def _spans(summary: Mapping[str, str], sums: Sums) -> list[OffsetRange]:
    """Return the offsets of a commit; a replay's letters have the offsets between its rows' first and last one."""
    if RANGES in summary:
        return [span for span in ranges.without_batches(OffsetRanges.from_json(summary[RANGES])).ranges if span.records]
    return [OffsetRange(*partition_of(name), at[3], at[4] + 1) for name, at in sums.items() if "/" in name]


def unproven(since: Mapping[Partition, int], groups: Iterable[Group]) -> Iterator[OffsetRange]:
    """Yield the offsets from before the receipts, without those of groups."""
    before = [OffsetRange(*key, 0, at) for key, at in since.items() if at]
    yield from difference(before, [span for each in groups for span in each.spans])
