"""Compare the offsets in the metadata columns of a table's rows with the offsets in the table's ledger."""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lakefeed.errors import ConfigError, MissingExtra
from lakefeed.ledger.snapshots import scanned
from lakefeed.offsets.ranges import OffsetRange, Partition
from lakefeed.sinks.definition import StoredRows

if TYPE_CHECKING:
    from pyiceberg.table import Table

TOPIC, PARTITION, OFFSET = "kafka_topic", "kafka_partition", "kafka_offset"
MOST_EXAMPLES = 20

_PLACES = """
CREATE TABLE placed AS
SELECT p.*, coalesce(p.position < s.last, false) AS covered,
       coalesce(p.position < b.first, false) AND NOT coalesce(p.position < s.last, false) AS before
FROM positions p
ASOF LEFT JOIN spans s ON p.topic = s.topic AND p.part = s.part AND p.position >= s.first
LEFT JOIN begins b ON p.topic = b.topic AND p.part = b.part
"""
_TOTALS = """
SELECT topic, part, count(*) FILTER (covered), count(DISTINCT position) FILTER (covered), count(*) FILTER (before),
       count(*) FILTER (NOT covered AND NOT before)
FROM placed GROUP BY topic, part
"""
_REPEATED = """
SELECT * FROM (
  SELECT topic, part, position, count(*) AS times FROM placed WHERE covered GROUP BY topic, part, position
) WHERE times > 1
QUALIFY row_number() OVER (PARTITION BY topic, part ORDER BY position) <= ?
ORDER BY ALL
"""
# A mark is an offset with a row or a dead letter, the offset before a span, or the offset after a span (an end mark,
# ends = 1). The offsets between two marks are absent, unless the first is an end mark: then they are in no span. If an
# offset is both the end mark of a span and the first mark of the next span, the end mark sorts first.
_ABSENT = """
WITH marks AS (
  SELECT topic, part, position, 0 AS ends FROM placed WHERE covered
  UNION SELECT l.topic, l.part, l.position, 0
  FROM letters l ASOF JOIN spans s ON l.topic = s.topic AND l.part = s.part AND l.position >= s.first
  WHERE l.position < s.last
  UNION SELECT topic, part, first - 1, 0 FROM spans
  UNION SELECT topic, part, last, 1 FROM spans
), steps AS (
  SELECT topic, part, position, ends,
         lead(position) OVER (PARTITION BY topic, part ORDER BY position, ends DESC) AS next
  FROM marks
)
SELECT topic, part, position + 1, next FROM steps WHERE next > position + 1 AND ends = 0
QUALIFY row_number() OVER (PARTITION BY topic, part ORDER BY position) <= ?
ORDER BY ALL
"""


@dataclass(frozen=True, order=True)
class Letter:
    """A dead letter's position, and the id of the replay that has marked it."""

    topic: str
    partition: int
    offset: int
    replay_id: str | None = None


@dataclass(frozen=True)
class RowCoverage:
    """The rows of one partition, compared with the ledger by the offsets in the rows.

    Attributes:
        rows: the number of rows with offsets of the ledger.
        offsets: the number of different offsets of these rows.
        before: the number of rows that are older than the oldest remaining commit.
        outside: the number of rows whose offsets are in no commit.
        repeated: the first offsets with several rows, and their number of rows.
        absent: the first offset ranges with neither row nor dead letter.
    """

    rows: int = 0
    offsets: int = 0
    before: int = 0
    outside: int = 0
    repeated: tuple[tuple[int, int], ...] = ()
    absent: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class IcebergRows:
    """The rows of an Iceberg table, at the snapshot ``until``; with ``feed``, the rows in the feed's branch."""

    table: Table
    feed: str | None = None
    until: int | None = None

    @property
    def columns(self) -> set[str]:
        return set(self.table.schema().column_names)

    @property
    def where(self) -> str:
        return ".".join(self.table.name())

    def read(self, columns: Sequence[str]) -> Any:
        scan = scanned(self.table, self.feed, selected_fields=tuple(columns))
        return (scan if self.until is None else scan.update(snapshot_id=self.until)).to_arrow_batch_reader()


def scan_row_offsets(
    stored: StoredRows,
    spans: Sequence[OffsetRange],
    *,
    topics: Iterable[str],
    begins: Mapping[Partition, int],
    letters: Iterable[Letter],
) -> dict[Partition, RowCoverage]:
    """Compare the offsets in the rows with those in the ledger; reads only three columns, and can spill to disk.

    Args:
        stored: the table as it was when its ledger was read.
        spans: the offsets of the ledger, in ranges that neither adjoin nor overlap.
        topics: the topics of the ledger; rows of other topics are ignored.
        begins: by partition, the offset below which a row outside the spans may come from an expired commit.
        letters: the dead letters, because their offsets have no rows.
    """
    with database() as connection:
        load_positions(connection, stored, sorted(topics))
        load(connection, "begins", ("first",), [(*key, first) for key, first in begins.items()])
        ranges = [(span.topic, span.partition, span.start, span.end) for span in spans]
        load(connection, "spans", ("first", "last"), ranges)
        positions = [(letter.topic, letter.partition, letter.offset) for letter in letters]
        load(connection, "letters", ("position",), positions)
        connection.execute(_PLACES)
        repeated, absent = _examples(connection, _REPEATED), _examples(connection, _ABSENT)
        counted = {
            (topic, part): RowCoverage(rows=rows, offsets=offsets, before=before, outside=outside)
            for topic, part, rows, offsets, before, outside in connection.execute(_TOTALS).fetchall()
        }
    return {
        key: replace(counted.get(key, RowCoverage()), repeated=tuple(repeated[key]), absent=tuple(absent[key]))
        for key in counted.keys() | absent.keys()
    }


def count_keyed_rows(rows: IcebergRows, keys: Sequence[str]) -> tuple[int, tuple[tuple[str, int], ...]]:
    """Return a table's number of rows, and the first keys with several rows; reads only the key columns."""
    names = {name.lower(): name for name in rows.columns}
    columns = [names[key.lower()] for key in keys]
    listed = ", ".join('"' + column.replace('"', '""') + '"' for column in columns)
    with database() as connection:
        connection.register("rows", rows.read(columns))
        connection.execute(f"CREATE TABLE keyed AS SELECT {listed} FROM rows")  # noqa: S608
        [(count,)] = connection.execute("SELECT count(*) FROM keyed").fetchall()
        repeated = connection.execute(
            f"SELECT {listed}, count(*) FROM keyed GROUP BY {listed} HAVING count(*) > 1 ORDER BY ALL LIMIT ?",  # noqa: S608
            [MOST_EXAMPLES],
        ).fetchall()
    return count, tuple((", ".join(map(str, key)), times) for *key, times in repeated)


@contextmanager
def database() -> Iterator[Any]:
    """Open a DuckDB database in a temporary folder, so that it can spill to disk."""
    try:
        import duckdb
    except ImportError:
        raise MissingExtra.of("duckdb", "read", "verify --deep") from None
    with (
        tempfile.TemporaryDirectory(prefix="lakefeed-verify-") as folder,
        closing(duckdb.connect(str(Path(folder, "rows.db")))) as connection,
    ):
        yield connection


def load_positions(connection: Any, stored: StoredRows, topics: list[str]) -> None:
    """Read the offsets of the rows of these topics into the table ``positions``."""
    columns, existing = [TOPIC, PARTITION, OFFSET], stored.columns
    if len(topics) == 1 and TOPIC not in existing:
        columns.remove(TOPIC)
    if missing := [name for name in columns if name not in existing]:
        raise ConfigError(
            f"--deep compares the rows' own offsets, and the table has no column {' and '.join(missing)}",
            where=stored.where,
            hint="decode: {metadata: [topic, partition, offset]} adds the offsets to new rows; without --deep, verify "
            "checks the ledger",
        )
    topic = TOPIC if TOPIC in columns else f"'{topics[0]}'"
    connection.register("rows", stored.read(columns))
    connection.execute(
        f"CREATE TABLE positions AS SELECT CAST({topic} AS VARCHAR) AS topic, CAST({PARTITION} AS INTEGER) AS part, "  # noqa: S608
        f"CAST({OFFSET} AS BIGINT) AS position FROM rows WHERE {OFFSET} IS NOT NULL AND list_contains(?, {topic})",
        [topics],
    )


def load(connection: Any, name: str, columns: tuple[str, ...], rows: list[tuple[Any, ...]]) -> None:
    """Create a DuckDB table with topic, partition and these columns of numbers, and fill it with ``rows``."""
    named = ", ".join(f"{column} BIGINT" for column in columns)
    connection.execute(f"CREATE TABLE {name} (topic VARCHAR, part INTEGER, {named})")
    if rows:
        marks = ", ".join("?" * (2 + len(columns)))
        connection.executemany(f"INSERT INTO {name} VALUES ({marks})", rows)  # noqa: S608


def _examples(connection: Any, query: str) -> dict[Partition, list[tuple[int, int]]]:
    examples: dict[Partition, list[tuple[int, int]]] = defaultdict(list)
    for topic, part, *example in connection.execute(query, [MOST_EXAMPLES]).fetchall():
        examples[topic, part].append(tuple(example))
    return examples
