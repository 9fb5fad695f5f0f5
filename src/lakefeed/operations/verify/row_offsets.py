"""Where a table's rows come from, by the metadata columns that each row keeps."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from lakefeed.errors import ConfigError, MissingExtra
from lakefeed.offsets.ranges import OffsetRange, Partition
from lakefeed.operations.verify.evidence import Letter, Placed

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
# The marks are all offsets that are accounted for, and one just before and after each span. What follows an end is in
# no span; where the next one begins one offset later, both have the same mark.
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


class PlacedRows(Protocol):
    """Rows that keep where they come from."""

    @property
    def columns(self) -> set[str]:
        """Their columns."""

    @property
    def where(self) -> str:
        """As errors name it."""

    def read(self, columns: Sequence[str]) -> Any:
        """These columns, as Arrow's ``RecordBatchReader``."""


@dataclass(frozen=True)
class IcebergRows:
    """An Iceberg table's."""

    table: Table

    @property
    def columns(self) -> set[str]:
        """The table's columns."""
        return set(self.table.schema().column_names)

    @property
    def where(self) -> str:
        """catalog.namespace.table"""
        return ".".join(self.table.name())

    def read(self, columns: Sequence[str]) -> Any:
        """Reads the files' columns."""
        return self.table.scan(selected_fields=tuple(columns)).to_arrow_batch_reader()


def placed(
    table: PlacedRows,
    spans: Sequence[OffsetRange],
    *,
    topics: Iterable[str],
    begins: Mapping[Partition, int],
    letters: Iterable[Letter],
) -> dict[Partition, Placed]:
    """Reads the rows' own topic, partition and offset, and nothing else of them; spills to disk where they are many.

    Args:
        table: as it was when its ledger was read.
        spans: the offsets that the ledger covers, in ranges that neither touch nor overlap.
        topics: the feed's; rows of others are somebody else's.
        begins: below which offset rows that are in no span may be of commits whose snapshots have expired, in each
            partition.
        letters: the dead letters, which are no rows.

    Raises:
        ConfigError: the table does not keep these columns.
        MissingExtra: DuckDB is not installed.
    """
    try:
        import duckdb
    except ImportError:
        raise MissingExtra.of("duckdb", "read", "verify --deep") from None
    names = sorted(topics)
    columns = [TOPIC, PARTITION, OFFSET]
    have = table.columns
    if len(names) == 1 and TOPIC not in have:
        columns.remove(TOPIC)
    if missing := [name for name in columns if name not in have]:
        raise ConfigError(
            f"--deep compares the rows' own offsets, and the table does not keep {' and '.join(missing)}",
            where=table.where,
            hint="new rows keep them with decode: {metadata: [topic, partition, offset]}; without --deep the ledger is "
            "verified",
        )
    with tempfile.TemporaryDirectory(prefix="lakefeed-verify-") as folder:
        connection = duckdb.connect(str(Path(folder, "positions.db")))
        try:
            _fill(connection, table, columns, names)
            _insert(connection, "begins", ("first",), [(*key, first) for key, first in begins.items()])
            _insert(
                connection,
                "spans",
                ("first", "last"),
                [(each.topic, each.partition, each.start, each.end) for each in spans],
            )
            _insert(
                connection, "letters", ("position",), [(each.topic, each.partition, each.offset) for each in letters]
            )
            connection.execute(_PLACES)
            return _answers(connection)
        finally:
            connection.close()


def keyed_rows(table: Table, keys: Sequence[str]) -> tuple[int, tuple[tuple[str, int], ...]]:
    """Counts a table's rows, and finds keys that more than one of them has; reads the key columns and nothing else.

    Raises:
        MissingExtra: DuckDB is not installed.
    """
    try:
        import duckdb
    except ImportError:
        raise MissingExtra.of("duckdb", "read", "verify --deep") from None
    names = {name.lower(): name for name in table.schema().column_names}
    columns = tuple(names[key.lower()] for key in keys)
    listed = ", ".join('"' + column.replace('"', '""') + '"' for column in columns)
    with tempfile.TemporaryDirectory(prefix="lakefeed-verify-") as folder:
        connection = duckdb.connect(str(Path(folder, "keys.db")))
        try:
            found = table.scan(selected_fields=columns).to_arrow_batch_reader()  # noqa: F841
            connection.execute(f"CREATE TABLE keyed AS SELECT {listed} FROM found")  # noqa: S608
            [(rows,)] = connection.execute("SELECT count(*) FROM keyed").fetchall()
            repeated = connection.execute(
                f"SELECT {listed}, count(*) FROM keyed GROUP BY {listed} HAVING count(*) > 1 ORDER BY ALL LIMIT ?",  # noqa: S608
                [MOST_EXAMPLES],
            ).fetchall()
        finally:
            connection.close()
    return rows, tuple((", ".join(map(str, key)), times) for *key, times in repeated)


def _fill(connection: Any, table: PlacedRows, columns: list[str], topics: list[str]) -> None:
    # DuckDB finds what it reads from by the variable's name.
    rows = table.read(columns)  # noqa: F841
    topic = TOPIC if TOPIC in columns else f"'{topics[0]}'"
    connection.execute(
        f"CREATE TABLE positions AS SELECT CAST({topic} AS VARCHAR) AS topic, CAST({PARTITION} AS INTEGER) AS part, "  # noqa: S608
        f"CAST({OFFSET} AS BIGINT) AS position FROM rows WHERE {OFFSET} IS NOT NULL AND list_contains(?, {topic})",
        [topics],
    )


def _insert(connection: Any, name: str, columns: tuple[str, ...], rows: list[tuple[Any, ...]]) -> None:
    named = ", ".join(f"{column} BIGINT" for column in columns)
    connection.execute(f"CREATE TABLE {name} (topic VARCHAR, part INTEGER, {named})")
    if rows:
        marks = ", ".join("?" * (2 + len(columns)))
        connection.executemany(f"INSERT INTO {name} VALUES ({marks})", rows)  # noqa: S608


def _answers(connection: Any) -> dict[Partition, Placed]:
    repeated: dict[Partition, list[tuple[int, int]]] = {}
    for topic, part, position, times in connection.execute(_REPEATED, [MOST_EXAMPLES]).fetchall():
        repeated.setdefault((topic, part), []).append((position, times))
    absent: dict[Partition, list[tuple[int, int]]] = {}
    for topic, part, start, end in connection.execute(_ABSENT, [MOST_EXAMPLES]).fetchall():
        absent.setdefault((topic, part), []).append((start, end))
    found = {
        (topic, part): Placed(rows=rows, offsets=offsets, before=before, outside=outside)
        for topic, part, rows, offsets, before, outside in connection.execute(_TOTALS).fetchall()
    }
    return {
        key: replace(found.get(key, Placed()), repeated=tuple(repeated.get(key, ())), absent=tuple(absent.get(key, ())))
        for key in found.keys() | absent.keys()
    }
