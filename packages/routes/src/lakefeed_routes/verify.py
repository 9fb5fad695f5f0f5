"""Compare the ledger table of a feed with the feed's other tables, one per value of a field.

The ledger table has the number of rows of each batch in each table, and the tables' own commits have to agree.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from lakefeed.clients.iceberg.reader import open_catalog, open_table
from lakefeed.config.connections import Connections
from lakefeed.config.models import PipelineConfig
from lakefeed.config.routes import LEDGER, own_name
from lakefeed.config.values import TableField
from lakefeed.errors import ConfigError
from lakefeed.ledger.feed_position import Position
from lakefeed.ledger.snapshot_summary import POSITION, Commit
from lakefeed.ledger.snapshots import ancestors, commits_of, others_in
from lakefeed.messages.printable import counted
from lakefeed.offsets.ranges import OffsetRanges
from lakefeed.operations.verify.audit import findings
from lakefeed.operations.verify.evidence import Evidence, FileCheck, Finding, check_files, coverage
from lakefeed.operations.verify.row_offsets import IcebergRows
from lakefeed.sinks.iceberg.table import CREATED_BY

if TYPE_CHECKING:
    from pyiceberg.table import Table

_THREADS = 8


def with_tables(evidence: Evidence, config: PipelineConfig, connections: Connections, *, deep: bool) -> Evidence:
    """Add evidence about each table of the feed; with ``deep``, also the offsets of all rows."""
    iceberg = config.sink.iceberg
    if iceberg is None or (by := iceberg.routed_by) is None:
        return evidence
    found = dict(_tables(config.name, by, connections))
    tables = {name: _evidence_of(table, config.name) for name, table in found.items()}
    if deep and evidence.commits and not any(each.files.lost for each in tables.values()):
        ends = evidence.commits[-1].ranges
        parts = tuple(_rows_until(found[name], tables[name], ends, config.name) for name in found)
        evidence = replace(evidence, row_coverage=coverage(evidence, ManyRows(iceberg.table, parts)))
    return replace(
        evidence,
        files=sum((each.files for each in tables.values()), evidence.files),
        tables={name: sum(commit.rows for commit in each.commits) for name, each in tables.items()},
        of_tables=tuple(table_findings(evidence, tables)),
    )


def _tables(feed: str, by: TableField, connections: Connections) -> Iterator[tuple[str, Table]]:
    """Yield the tables that the feed has created and written, by the value that names a table."""
    catalog, _, namespace = by.before.rpartition(".")[0].partition(".")
    listed = open_catalog(catalog, connections=connections).list_tables(tuple(namespace.split(".")))
    paths = [".".join((catalog, *path)) for path in listed]
    named = [(name, path) for path in paths if (name := own_name(path, by.before, by.after)) not in (None, LEDGER)]
    with ThreadPoolExecutor(_THREADS) as threads:
        tables = threads.map(lambda each: open_table(each[1], connections=connections), named)
        for (name, _), table in sorted(zip(named, tables, strict=True), key=lambda each: str(each[0])):
            if (
                name is not None
                and table.properties.get(CREATED_BY) == feed
                and f"{POSITION}.{feed}" in table.properties
            ):
                yield name, table


def _evidence_of(table: Table, feed: str) -> Evidence:
    line, whole = ancestors(table, feed)
    position = Position.from_json(table.properties[f"{POSITION}.{feed}"])
    return Evidence(
        commits=tuple(commits_of(line, feed)),
        history_complete=whole,
        recorded=None if position is None else position.ranges,
        recorded_known=position is not None,
        foreign_commits=tuple(others_in(line)),
        files=check_files(table, feed),
    )


def table_findings(evidence: Evidence, tables: Mapping[str, Evidence]) -> Iterator[Finding]:
    """Yield faults of single tables, and batches whose number of rows in a table differs from the ledger table's."""
    for name, table in tables.items():
        for finding in findings(replace(table, files=FileCheck())):
            # The offset ranges of a table's commits cover all records; their counts cover only the table's own records.
            if finding.kind != "untold":
                yield replace(finding, what=f"table {name}: {finding.what}")
    if not any(commit.routed is not None for commit in evidence.commits):
        return
    for name in sorted({name for commit in evidence.commits for name in commit.routed or {}} - tables.keys()):
        rows = sum((commit.routed or {}).get(name, 0) for commit in evidence.commits)
        yield Finding.of("table-missing", f"table {name}: it is gone, or has lost its position, with {rows:,} rows")
    for name, table in tables.items():
        yield from _compared(name, table, evidence)


def _compared(name: str, table: Evidence, evidence: Evidence) -> Iterator[Finding]:
    """Yield batches whose number of rows differs from the table's commits, which end where batches end.

    A commit of a replaced driver may end elsewhere. Then the sums must be equal at the table's next commit.
    """
    batches = evidence.commits
    left = deque(table.commits)
    if not evidence.history_complete and batches:
        first = OffsetRanges.between({}, {span.key: span.start for span in batches[0].ranges.ranges})
        left = deque(commit for commit in left if not _is_within(commit, first))
    if not table.history_complete and table.commits:
        oldest = table.commits[0].ranges
        batches = tuple(batch for batch in batches if batch.ranges.ends == oldest.ends or not _is_within(batch, oldest))
    ends = [batch.ranges.ends for batch in batches]
    need = had = 0
    for batch in batches:
        need += (batch.routed or {}).get(name, 0)
        while left and _is_within(left[0], batch.ranges):
            had += left.popleft().rows
        if need != had and (batch is batches[-1] or not left or left[0].ranges.ends in ends):
            what = f"table {name} has {counted(had, 'row')} of the batches up to here, and should have {need:,}"
            yield Finding.of("table-rows", what, commit=batch)
            need = had = 0
    if rows := sum(commit.rows for commit in left):
        what = f"table {name}: {counted(rows, 'row')} are of a batch that other tables may lack"
        yield Finding.of("unfinished", f"{what}; the next start of the feed completes it", fault=False)


def _is_within(commit: Commit, ranges: OffsetRanges) -> bool:
    """Return True if a commit ends at or before the ends of these ranges."""
    return all(end <= ranges.ends.get(key, -1) for key, end in commit.ranges.ends.items())


def _rows_until(table: Table, evidence: Evidence, ends: OffsetRanges, feed: str) -> IcebergRows:
    """Return the table's rows up to these ends, without rows that a running feed may have committed later."""
    later = next((commit.snapshot_id for commit in evidence.commits if not _is_within(commit, ends)), None)
    parent = None if later is None else next(each for each in table.metadata.snapshots if each.snapshot_id == later)
    return IcebergRows(table, feed, until=None if parent is None else parent.parent_snapshot_id or 0)


@dataclass(frozen=True)
class ManyRows:
    """The rows of several tables."""

    where: str
    parts: Sequence[IcebergRows]

    @property
    def columns(self) -> set[str]:
        return set.intersection(*(part.columns for part in self.parts)) if self.parts else set()

    def read(self, columns: Sequence[str]) -> Any:
        import pyarrow as pa

        readers = [part.read(columns) for part in self.parts if part.until != 0]
        if not readers:
            raise ConfigError("no table of the feed has rows", where=self.where, hint="run verify without --deep")
        schema = readers[0].schema
        return pa.RecordBatchReader.from_batches(schema, (batch.cast(schema) for reader in readers for batch in reader))
