"""Appends the rows of a feed to its Iceberg table, with a receipt in each commit."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any

from pydantic import SecretStr

from lakefeed.clients.spark.jvm import java, put_secret
from lakefeed.config.iceberg_sink import IcebergSinkConfig
from lakefeed.config.keyed import POSITION_COLUMNS
from lakefeed.errors import CheckpointMismatch, ConfigError
from lakefeed.lazy import Column, DataFrame, SparkSession, sf
from lakefeed.ledger.snapshot_summary import COMMIT_ID, FEED, RANGES, Backfill, Commit, Replay, SnapshotProperties
from lakefeed.offsets.ranges import OffsetRange, Partition, difference
from lakefeed.sinks.iceberg.table import IcebergTable
from lakefeed_receipts.receipts import ENTRY, Receipt, Sums, added, begun, of_columns, sealed, sums_of, text_of
from lakefeed_receipts.settings import SHARED_KEY

MOST_SNAPSHOTS = 10_000


@dataclass(frozen=True)
class ReceiptedMove(Commit):
    """A move of the feed, with the entry of its receipt."""

    entry: tuple[str, str] = ("", "")

    def properties(self) -> dict[str, str]:
        return {**super().properties(), self.entry[0]: self.entry[1]}


class ReceiptedTable(IcebergTable):
    """The table of a feed with the block ``receipts``."""

    def __init__(
        self,
        spark: SparkSession,
        sink: IcebergSinkConfig,
        *,
        feed: str,
        key: SecretStr | None,
        evolves: bool = True,
        takes_defaults: bool = False,
    ) -> None:
        super().__init__(spark, sink, feed=feed, evolves=evolves, takes_defaults=takes_defaults)
        self._key = SHARED_KEY if key is None else key.get_secret_value()
        self._newest: dict[str, Receipt | None] = {}

    @property
    def _secret(self) -> str:
        name = f"lakefeed.receipts.{self._feed}"
        put_secret(self._spark, name, SecretStr(self._key))
        return name

    def land(self, rows: DataFrame, commit: SnapshotProperties, *, commit_id: str) -> int | None:
        if missing := [name for name in POSITION_COLUMNS if name not in rows.columns]:
            what = f"the rows have no column {' and '.join(missing)}, by which a receipt finds them"
            raise ConfigError(what, where="receipts", hint=f"keep {', '.join(missing)} in the transform")
        spark: Any = rows.sparkSession
        chain = {Backfill: ".backfills", Replay: ".replays"}.get(type(commit), "")
        previous = self._previous(chain)
        since = {each.key: each.start for each in commit.ranges.ranges} if isinstance(commit, Commit) else {}
        known = begun(previous, commit_id, since if previous is None else previous.since, removed=False)
        ranges, receipts = commit.properties().get(RANGES, ""), java(spark).receipts.Receipts
        context, entry = spark._jsc.sc(), f"{ENTRY}.{self._feed}{chain}"
        columns = list(POSITION_COLUMNS)
        sealed_later = receipts.begin(context, commit_id, self._secret, columns, entry, json.dumps(known), ranges)
        self._newest.pop(chain, None)
        try:
            landed = super().land(rows, commit, commit_id=commit_id)
        finally:
            receipts.end(context)
        self._newest[chain] = Receipt.of(sealed_later.get())
        return landed

    def commit_reset(self, commit: Commit, *, commit_id: str, delete_where: str | None = None) -> None:
        previous = self._previous("")
        since = {each.key: each.start for each in commit.ranges.ranges} if previous is None else dict(previous.since)
        removed: Sums = {}
        if delete_where is not None:
            gone = [OffsetRange(*key, start, end) for key, (start, end) in commit.rewound.items()]
            before = [OffsetRange(*key, 0, at) for key, at in since.items() if at]
            receipted = dict.fromkeys(difference(gone, before), 0)
            removed = self.sums(self._spark.table(self.written).filter(within(receipted)), receipted).get(0, {})
            for span in gone:
                since[span.key] = min(since.get(span.key, 0), span.start)
        document = begun(previous, commit_id, since, removed=True)
        total = added({} if previous is None else previous.total, of_columns(removed), sign=-1)
        body = json.dumps({**document, "sums": text_of(removed), "total": text_of(total)}, separators=(",", ":"))
        text = sealed(self._key, commit.properties(), body)
        self._newest.pop("", None)
        move = ReceiptedMove(**vars(commit), entry=(f"{ENTRY}.{self._feed}", text))
        super().commit_reset(move, commit_id=commit_id, delete_where=delete_where)

    def sums(self, rows: DataFrame, groups: Mapping[OffsetRange, int]) -> dict[int, Sums]:
        """Return the sums of the rows in each group's offsets; group -1 has all others."""
        spark: Any = self._spark
        spans = [(f"{each.topic}/{each.partition}", each.start, each.end, group) for each, group in groups.items()]
        own: Any = rows
        arguments = (own._jdf, self.ledger.loaded(), self._secret, list(POSITION_COLUMNS), json.dumps(spans))
        text = java(spark).receipts.TableDigest.of(spark._jsc.sc(), *arguments)
        return {int(group): sums_of(sums) for group, sums in json.loads(str(text)).items()}

    def _previous(self, chain: str) -> Receipt | None:
        """Return the receipt of the newest commit of a chain; None if that commit has none."""
        if chain in self._newest:
            return self._newest[chain]
        if not self._spark.catalog.tableExists(self.name):
            return None
        table, entry = self.ledger.loaded(), f"{ENTRY}.{self._feed}{chain}"
        recorded = Receipt.of(self.ledger.properties(table).get(entry))
        if chain:
            return recorded
        try:
            position = self.ledger.position(table)
        except CheckpointMismatch:  # The table was rolled back, so nothing is known about its rows.
            return None
        if position is None or recorded is None or recorded.commit == position.commit_id:
            return None if position is None else recorded
        # Another engine or a rollback has changed which commit is the newest.
        found = java(self._spark).commit.FeedLedger.ancestors(table, self._feed, None, MOST_SNAPSHOTS)
        summaries = (each["summary"] for each in json.loads(str(found)))
        newest: dict[str, str] = next(
            (each for each in summaries if each.get(FEED) == self._feed and RANGES in each), {}
        )
        receipt = Receipt.of(newest.get(entry))
        return receipt if receipt is not None and receipt.commit == newest.get(COMMIT_ID) else None


def within(groups: Mapping[OffsetRange, int]) -> Column:
    """Return the condition for rows between the first and the last offset of each partition's groups."""
    topic, number, offset = (sf.col(name) for name in POSITION_COLUMNS)
    bounds: dict[Partition, tuple[int, int]] = {}
    for span in (each for each, group in groups.items() if group >= 0):
        start, end = bounds.get(span.key, (span.start, span.end))
        bounds[span.key] = min(start, span.start), max(end, span.end)
    each = [
        (topic == key[0]) & (number == key[1]) & offset.between(start, end - 1) for key, (start, end) in bounds.items()
    ]
    return reduce(lambda one, two: one | two, each, sf.lit(False))
