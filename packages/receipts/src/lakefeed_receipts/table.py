"""Appends the rows of a feed to its Iceberg table, with a receipt in each commit."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from pydantic import SecretStr

from lakefeed.clients.spark.jvm import java, put_secret
from lakefeed.config.iceberg_sink import IcebergSinkConfig
from lakefeed.config.keyed import POSITION_COLUMNS
from lakefeed.errors import CheckpointMismatch, ConfigError
from lakefeed.lazy import Column, DataFrame, SparkSession, sf
from lakefeed.ledger.snapshot_summary import RANGES, Backfill, Commit, Replay, SnapshotProperties
from lakefeed.offsets.ranges import OffsetRange, Partition
from lakefeed.sinks.definition import Changes
from lakefeed.sinks.iceberg.table import IcebergTable
from lakefeed_receipts import receipts
from lakefeed_receipts.receipts import CHAINS, ENTRY, Receipt, Sums, added
from lakefeed_receipts.settings import SHARED_KEY

MOST_SNAPSHOTS = 10_000


@dataclass(frozen=True)
class ReceiptedMove(Commit):
    """A move of the feed, with the entry of its receipt."""

    entries: Mapping[str, str] = field(default_factory=dict)

    def properties(self) -> dict[str, str]:
        return {**super().properties(), **self.entries}


class ReceiptedTable(IcebergTable):
    """The table of a feed with the block ``receipts``."""

    def __init__(
        self, spark: SparkSession, sink: IcebergSinkConfig, *, feed: str, key: SecretStr | None, **options: bool
    ) -> None:
        super().__init__(spark, sink, feed=feed, **options)
        self._key = SHARED_KEY if key is None else key.get_secret_value()
        self._entry = f"{ENTRY}.{feed}"
        self._landed: Receipt | None = None
        self._secret = f"lakefeed.receipts.{feed}"
        put_secret(spark, self._secret, SecretStr(self._key))

    def changes(self, *arguments: Any) -> Changes:
        exists = self._spark.catalog.tableExists(self.name)
        files = self.ledger.properties().get("write.format.default", "parquet") if exists else "parquet"
        if files.lower() != "parquet":
            what = f"receipts are taken by the encoder of Parquet files only, and the table has files of {files}"
            hint = "remove receipts, or change the table's property write.format.default"
            raise ConfigError(what, where=f"table {self.name}", hint=hint)
        return super().changes(*arguments)

    def land(self, rows: DataFrame, commit: SnapshotProperties, *, commit_id: str) -> int | None:
        spark: Any = rows.sparkSession
        chain = {Backfill: ".backfills", Replay: ".replays"}.get(type(commit), "")
        begun = self._begun(chain, commit)
        if begun is None:
            return super().land(rows, commit, commit_id=commit_id)
        ranges, taken = commit.properties().get(RANGES, ""), java(spark).receipts.Receipts
        context, entries = spark._jsc.sc(), [f"{self._entry}{chain}", *self._emptied(begun, chain)]
        known = json.dumps(begun.document(commit_id))
        sealed_later = taken.begin(context, commit_id, self._secret, entries, known, ranges)
        self._landed = None
        try:
            landed = super().land(rows, commit, commit_id=commit_id)
        finally:
            taken.end(context)
        if isinstance(commit, Commit) and (receipt := Receipt.of(sealed_later.get())) is not None:
            self._landed = receipt.next(receipts.latest(begun.reached, commit.ranges.ends))
        return landed

    def commit_reset(self, commit: Commit, *, commit_id: str, delete_where: str | None = None) -> None:
        begun = self._begun("", commit)
        assert begun is not None  # The first chain can always begin.
        document, removed = begun.document(commit_id), added({})
        if delete_where is not None:
            gone = [OffsetRange(*key, start, end) for key, (start, end) in commit.rewound.items()]
            removed, unknown = receipts.written(self._line(self.ledger.loaded()), self._feed, gone, begun)
            if unknown:
                rows = self._spark.table(self.written).filter(within(dict.fromkeys(unknown, 0)))
                removed = added(removed, self.sums(rows, dict.fromkeys(unknown, 0)).get(0, {}))
        total = added(receipts.sums_of(document["total"]), receipts.of_columns(removed), sign=-1)
        document |= {"sums": receipts.text_of(removed), "total": receipts.text_of(total)}
        body = json.dumps(document, separators=(",", ":"))
        entries = dict.fromkeys(self._emptied(begun, ""), "")
        entries[self._entry] = receipts.sealed(self._key, commit.properties(), body)
        self._landed = None
        move = ReceiptedMove(**vars(commit), entries=entries)
        super().commit_reset(move, commit_id=commit_id, delete_where=delete_where)

    def _emptied(self, begun: Receipt, chain: str) -> list[str]:
        """Return the entries of the other chains, if they begin again with this receipt of the first chain."""
        return [f"{self._entry}{each}" for each in CHAINS.values() if each and not chain and begun.previous is None]

    def sums(
        self, rows: DataFrame, groups: Mapping[OffsetRange, int], *, topics: Iterable[str] = (), snapshot: Any = None
    ) -> dict[int, Sums]:
        """Return the sums of the rows in each group's offsets; group -1 has others of these topics, -3 all others."""
        spark: Any = self._spark
        spans: list[Any] = [(receipts.name_of(each.key), each.start, each.end, group) for each, group in groups.items()]
        spans += [(topic, 0, 0, 0) for topic in topics]
        own: Any = rows
        arguments = (own._jdf, self.ledger.loaded(), snapshot, self._secret, json.dumps(spans))
        text = java(spark).receipts.TableDigest.of(spark._jsc.sc(), *arguments)
        return {int(group): receipts.sums_of(sums) for group, sums in json.loads(str(text)).items()}

    def _begun(self, chain: str, commit: SnapshotProperties) -> Receipt | None:
        """Return what the next receipt starts from; None for a backfill or a replay before the first receipt."""
        if self._landed is not None and not chain:
            return self._landed
        if not self._spark.catalog.tableExists(self.name):
            return receipts.begin(chain, self._feed, {}, (None, {}), list, dict)
        table = self.ledger.loaded()
        at: receipts.Newest = (None, {})
        with suppress(CheckpointMismatch):  # The table was rolled back, so nothing is known about its rows.
            position = self.ledger.position(table)
            at = (None, {}) if position is None else (position.commit_id, position.ranges.ends)
        topics = {each.topic for each in commit.ranges.ranges} if isinstance(commit, Commit) else set[str]()
        properties, present = self.ledger.properties(table), partial(self._present, topics)
        return receipts.begin(chain, self._feed, properties, at, partial(self._line, table), present)

    def _present(self, topics: Iterable[str]) -> dict[Partition, int]:
        """Return the offsets below which the table has rows, which have no receipt where receipts begin."""
        rows = self._spark.table(self.written)
        if any(name not in rows.columns for name in POSITION_COLUMNS):
            return {}
        topic, number, offset = POSITION_COLUMNS
        own = rows.where(sf.col(topic).isin(*topics) & (sf.col(number) >= 0) & (sf.col(offset) >= 0))
        ends = own.groupBy(topic, number).agg(sf.max(offset)).collect()
        return {(str(each[0]), int(each[1])): int(each[2]) + 1 for each in ends}

    def _line(self, table: Any) -> list[tuple[int, dict[str, str]]]:
        found = java(self._spark).commit.FeedLedger.ancestors(table, self._feed, None, MOST_SNAPSHOTS)
        return [(each["id"], each["summary"]) for each in reversed(json.loads(str(found)))]


def within(groups: Mapping[OffsetRange, int]) -> Column:
    """Return the condition for rows between the first and the last offset of each partition's groups."""
    topic, number, offset = (sf.col(name) for name in POSITION_COLUMNS)
    bounds: dict[Partition, tuple[int, int]] = {}
    for span in (each for each, group in groups.items() if group >= 0):
        start, end = bounds.get(span.key, (span.start, span.end))
        bounds[span.key] = min(start, span.start), max(end, span.end)
    found = sf.lit(False)
    for key, (start, end) in bounds.items():
        found |= (topic == key[0]) & (number == key[1]) & offset.between(start, end - 1)
    return found
