"""Build parts of Spark SQL: quoted names, table properties, conditions on offsets."""

from __future__ import annotations

from collections.abc import Mapping

from lakefeed.clients.spark.statements import Statement
from lakefeed.offsets.ranges import Partition

Path = tuple[str, ...]


def in_branch(table: str, branch: str | None) -> str:
    """Return the identifier of a table's branch; without a branch, return the table's identifier."""
    return table if branch is None else f"{table}.branch_{branch}"


def set_properties(table: str, properties: Mapping[str, str]) -> Statement:
    return with_properties(f"ALTER TABLE {quoted_table(table)} SET", properties)


def with_properties(sql: str, properties: Mapping[str, str]) -> Statement:
    """Return ``sql`` followed by a clause TBLPROPERTIES with these properties."""
    listed = ", ".join(f":key{at} = :value{at}" for at in range(len(properties)))
    names = {f"key{at}": key for at, key in enumerate(properties)}
    values = {f"value{at}": value for at, value in enumerate(properties.values())}
    return Statement.of(f"{sql} TBLPROPERTIES ({listed})", {**names, **values})


def quoted_table(identifier: str) -> str:
    """Quote the parts of ``catalog.namespace.table``."""
    return quoted(tuple(identifier.split(".")))


def quoted(path: Path) -> str:
    """Quote the parts of a name for SQL, and join them by dots; a part may itself have dots."""
    return ".".join("`" + part.replace("`", "``") + "`" for part in path)


def rows_where(spans: Mapping[Partition, tuple[int, int]], *, columns: tuple[str, str, str]) -> Statement:
    """Return the condition for rows whose offsets are in these spans; the end of a span is exclusive.

    ``columns`` are the names of the columns with topic, partition and offset; if the first is empty, topics are not
    compared.
    """
    topic_column, partition_column, offset_column = columns
    parts, topics = [], {}
    for at, ((topic, partition), (start, end)) in enumerate(sorted(spans.items())):
        of_topic = f"{topic_column} = :topic{at} AND " if topic_column else ""
        topics[f"topic{at}"] = topic
        parts.append(
            f"({of_topic}{partition_column} = {partition} AND {offset_column} >= {start} AND {offset_column} < {end})"
        )
    return Statement.of(" OR ".join(parts) or "false", topics)
