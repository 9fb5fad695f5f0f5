"""Compares the rows of a feed's table with the receipts of its commits; Spark reads the rows."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from lakefeed import Pipeline
from lakefeed.clients.iceberg.reader import open_table
from lakefeed.clients.spark.connect import classic
from lakefeed.clients.spark.errors import translating
from lakefeed.errors import ConfigError
from lakefeed.lazy import SparkSession
from lakefeed.ledger.snapshots import head_of
from lakefeed.messages.printable import counted
from lakefeed.offsets.ranges import OffsetRange, intersection, union
from lakefeed.operations.verify.evidence import Finding
from lakefeed_receipts.receipts import POSITIONS, FeedReceipts, Group, Sums, of_columns, partition_of, receipts_of
from lakefeed_receipts.settings import SHARED_KEY, Receipts
from lakefeed_receipts.table import ReceiptedTable, within

OTHERS, UNPROVEN, FOREIGN = -1, -2, -3
MOST_NAMED = 5  # columns


@dataclass(frozen=True)
class ContentProof:
    """The result of a comparison: of all rows, or of a part. ``rows_unproven`` of ``rows`` have no receipt."""

    feed: str
    table: str
    table_uuid: str
    snapshot_id: int | None
    at: float
    whole: bool
    commits: int
    rows: int
    rows_unproven: int
    proven: tuple[OffsetRange, ...]
    seal: str | None
    findings: tuple[Finding, ...]

    @property
    def faults(self) -> tuple[Finding, ...]:
        return tuple(each for each in self.findings if each.fault)

    def as_dict(self) -> dict[str, Any]:
        return {"verified": not self.faults, **asdict(self), "proven": [str(each) for each in self.proven]}


def verify_content(
    pipeline: Pipeline,
    *,
    spark: SparkSession | None = None,
    offsets: Sequence[OffsetRange] = (),
    partition: int | None = None,
    sample: int | None = None,
) -> ContentProof:
    """Compare rows with receipts: all, or only those of commits with these offsets, of a partition, or of a sample."""
    config, block = pipeline.config, pipeline.config.block(Receipts)
    if block is None or not block.enabled:
        raise ConfigError("this feed writes no receipts", where=pipeline.config.name, hint="add receipts: true")
    key = SHARED_KEY if block.key is None else block.key.get_secret_value()
    stored = open_table(config.sink.ledger_table, connections=pipeline.feed.connections)
    head, receipts = head_of(stored, config.name), receipts_of(stored, config.name, key)
    chosen = [group for group in receipts.groups if not offsets or intersection(group.spans, offsets)]
    chosen = [group for group in chosen if partition in (None, *(span.partition for span in group.spans))]
    part = "with these offsets or this partition " if offsets or partition is not None else ""
    if all(group.sums is None for group in chosen) and (part or receipts.newest is None) and not receipts.faults:
        what, hint = f"no commit {part}has a receipt to compare", "compare all rows: the total proves expired commits"
        raise ConfigError(what, where=config.sink.ledger_table, hint=hint)
    if sample is not None and sample < len(chosen):
        chosen = random.sample(chosen, sample)
    whole = len(chosen) == len(receipts.groups) and partition is None
    spark = classic(spark) or pipeline.session()
    table = pipeline.feed.ledger_table(spark)
    assert isinstance(table, ReceiptedTable)  # The pipeline has the block.
    groups = {span: number for number, group in enumerate(chosen) if group.sums is not None for span in group.spans}
    groups |= dict.fromkeys(receipts.unproven, UNPROVEN)
    found: dict[int, Sums] = {}
    schema = stored.schemas()[head.schema_id] if head and head.schema_id is not None else stored.schema()
    if head is not None:
        with translating():
            rows = spark.read.option("versionAsOf", str(head.snapshot_id)).table(table.name)
            rows = rows if whole else rows.filter(within(groups))
            found = table.sums(rows, groups, topics=receipts.topics, snapshot=head.snapshot_id)
    # Rows from before a column with a default have the default, which no receipt has.
    names = {str(each.field_id): each.name for each in schema.fields if each.initial_default is None}
    findings = list(receipts.faults)
    proven: list[OffsetRange] = []
    for number, group in enumerate(chosen):
        if group.sums is None:
            findings.append(_note("unproven", f"{_title(group)}: no receipt, so its rows are not proven"))
            continue
        faults = list(_compare(group, found.get(number, {}), names, partition))
        findings += faults
        if not faults:
            proven += [span for span in group.spans if partition in (None, span.partition)]
    if whole:
        findings += _rest(receipts, found.get(OTHERS, {}), names)
        if foreign := _rows(found.get(FOREIGN, {})):
            findings.append(_note("others", f"{counted(foreign, 'row')} of other topics, or without a position"))
    return ContentProof(
        feed=config.name,
        table=table.name,
        table_uuid=str(stored.metadata.table_uuid),
        snapshot_id=None if head is None else head.snapshot_id,
        at=time.time(),
        whole=whole,
        commits=sum(len(each.commits) for each in chosen),
        rows=sum(_rows(sums) for group, sums in found.items() if whole or group >= 0),
        rows_unproven=_rows(found.get(UNPROVEN, {})) + (_rows(found.get(OTHERS, {})) if receipts.rest is None else 0),
        proven=tuple(union(proven)),
        seal=None if receipts.newest is None else receipts.newest.seal,
        findings=tuple(sorted(findings, key=lambda each: not each.fault)),
    )


def _note(kind: str, what: str) -> Finding:
    return Finding.of(kind, what, fault=False)


def _title(group: Group) -> str:
    first, last = group.commits[0], group.commits[-1]
    return first if first == last else f"{first} to {last.removeprefix('snapshot ')}"


def _rows(sums: Sums) -> int:
    return sum(words[2] for name, words in sums.items() if "/" in name)


def _compare(group: Group, rows: Sums, names: dict[str, str], partition: int | None) -> Iterator[Finding]:
    """Find partitions whose rows differ from those that were written, and the columns that differ."""
    assert group.sums is not None
    differing = _differing(group.sums, rows)
    columns = [names[name] for name in differing if name in names]
    # The sums of a partition include columns that were dropped since, so only its rows can be counted.
    is_whole = all(name in names or name == POSITIONS for name in of_columns({**group.sums, **rows}))
    found = False
    for name in sorted(name for name in {**group.sums, **rows} if "/" in name):
        topic, number = partition_of(name)
        before, now = (sums.get(name, (0, 0, 0))[:3] for sums in (group.sums, rows))
        if partition not in (None, number) or (before == now if is_whole else before[2] == now[2]):
            continue
        found = True
        kind, what = _difference(now[2] - before[2], now[2], columns, moved=POSITIONS in differing)
        spans = [span for span in group.spans if span.key == (topic, number)]
        bounds = min((each.start for each in spans), default=0), max((each.end for each in spans), default=0)
        what = f"{_title(group)}: [{bounds[0]}, {bounds[1]}) of {topic}-{number}: {what}"
        yield Finding.of(kind, what, OffsetRange(topic, number, *bounds))
    if not is_whole and columns and not found:
        yield Finding.of("content-changed", f"{_title(group)}: values were changed, in {', '.join(columns)}")


def _differing(before: Sums, now: Sums) -> list[str]:
    """Return the ids of columns whose values differ: all of them if rows are missing or were added."""
    one, two = of_columns(before), of_columns(now)
    return [name for name in sorted({*one, *two}, key=int) if one.get(name, (0, 0, 0)) != two.get(name, (0, 0, 0))]


def _difference(more: int, rows: int, columns: Sequence[str], *, moved: bool) -> tuple[str, str]:
    if more:
        kind, verb = ("content-doubled", "were added") if more > 0 else ("content-missing", "are missing")
        return kind, f"{counted(abs(more), 'row')} {verb}; the table has {rows:,}"
    if moved:
        return "content-missing", "rows are missing, and as many others were added"
    more_columns = f" and {len(columns) - MOST_NAMED} more" if len(columns) > MOST_NAMED else ""
    return "content-changed", f"values were changed, in {', '.join(columns[:MOST_NAMED])}{more_columns}"


def _rest(receipts: FeedReceipts, rows: Sums, names: dict[str, str]) -> Iterator[Finding]:
    """Compare the rows whose commits have expired with the total."""
    rest, have = receipts.rest, of_columns(rows)
    if rest is None:
        if number := _rows(rows):
            yield _note("unproven", f"{counted(number, 'row')} of expired commits, whose total is unknown")
    elif differing := [name for name in _differing(rest, have) if name in names or name == POSITIONS]:
        more = have.get(POSITIONS, (0, 0, 0))[2] - rest.get(POSITIONS, (0, 0, 0))[2]
        columns = [names[name] for name in differing if name in names]
        kind, what = _difference(more, have.get(POSITIONS, (0, 0, 0))[2], columns, moved=POSITIONS in differing)
        where = ", ".join(sorted(name.replace("/", "-") for name in rows if "/" in name))
        yield Finding.of(kind, f"rows of expired commits, or of none{where and f', in {where}'}: {what}")
