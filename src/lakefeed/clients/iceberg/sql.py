"""Writes the parts of Spark SQL that several statements share: names, properties, conditions."""

from __future__ import annotations

from collections.abc import Mapping

from lakefeed.offsets.ranges import Partition

Path = tuple[str, ...]


def in_branch(table: str, branch: str | None) -> str:
    """Return the name under which Iceberg's Spark catalog reads and writes a branch of a table."""
    return table if branch is None else f"{table}.branch_{branch}"


def set_properties(table: str, properties: Mapping[str, str]) -> str:
    """Return the statement that sets table properties."""
    return f"ALTER TABLE {quoted(tuple(table.split('.')))} SET TBLPROPERTIES ({listed(properties)})"


def listed(properties: Mapping[str, str]) -> str:
    """List table properties as SQL does."""
    return ", ".join(f"{text_sql(key)} = {text_sql(each)}" for key, each in properties.items())


def quoted(path: Path) -> str:
    """Quote a name of one or more parts, each taken as it is."""
    return ".".join("`" + part.replace("`", "``") + "`" for part in path)


def rows_where(spans: Mapping[Partition, tuple[int, int]], *, columns: tuple[str, str, str]) -> str:
    """Write a condition in Spark SQL: rows of these offsets, without the last; a topic's column may be empty."""
    topic_column, partition_column, offset_column = columns
    parts = []
    for (topic, partition), (start, end) in sorted(spans.items()):
        # A topic's name has neither quotes nor backslashes.
        of_topic = f"{topic_column} = '{topic}' AND " if topic_column else ""
        parts.append(
            f"({of_topic}{partition_column} = {partition} AND {offset_column} >= {start} AND {offset_column} < {end})"
        )
    return " OR ".join(parts) or "false"


def text_sql(text: str) -> str:
    """Quote a text."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
