"""Audits a snapshot before it is published: compares the whole table with the pipeline file's expectations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from lakefeed.clients.iceberg.sql import quoted
from lakefeed.config.keyed import OWN
from lakefeed.config.publish import Count, TableExpectations
from lakefeed.config.values import seconds_of
from lakefeed.errors import ConfigError
from lakefeed.lazy import Column, DataFrame, StructType, sf, t
from lakefeed.ledger.publication import TableAudit
from lakefeed.messages.printable import counted
from lakefeed.records.schema.fit import find_field

MOST_NAMED = 3
_ROWS = f"{OWN}_rows"


def require_columns(expect: TableExpectations, columns: StructType, *, where: str) -> None:
    """Raise an error for an expectation of a missing column, or of an age for a column without a time."""
    fresh = () if expect.fresh is None else (expect.fresh.column,)
    for option, names in (
        ("fresh.column", fresh),
        ("null_share", tuple(expect.null_share)),
        *(("unique", tuple(each)) for each in expect.unique),
    ):
        for name in names:
            if find_field(columns, name) is None:
                raise ConfigError(
                    f"publish.expect.{option} names the column '{name}', which the table does not have",
                    where=where,
                    hint=f"name one of the table's columns: {', '.join(columns.names)}",
                )
    aged = find_field(columns, fresh[0]) if fresh else None
    if aged is not None and not isinstance(aged.dataType, t.TimestampType | t.TimestampNTZType | t.DateType):
        what = f"publish.expect.fresh.column: {aged.name} is {aged.dataType.simpleString()}, which has no age"
        raise ConfigError(what, where=where, hint="name a column with timestamps or dates")


def audit(staged: DataFrame, published: DataFrame | None, expect: TableExpectations, *, snapshot_id: int) -> TableAudit:
    """Compare a snapshot's rows with the expectations; ``published`` has the rows that readers see now.

    Spark reads all named columns once, and the columns of an entry of ``unique`` once more.
    """
    nulls = tuple(expect.null_share)
    sums: dict[str, Column] = {"rows": sf.count(sf.lit(1))}
    for at, column in enumerate(nulls):
        sums[f"nulls_{at}"] = sf.count_if(sf.col(_name(column)).isNull())
    if expect.fresh is not None:
        newest = sf.max(sf.col(_name(expect.fresh.column)).cast("timestamp"))
        sums["newest"] = newest.cast("string")
        sums["age"] = sf.current_timestamp().cast("double") - newest.cast("double")
    [row] = staged.agg(*(column.alias(name) for name, column in sums.items())).collect()
    rows = int(row["rows"])
    new_rows = rows - (0 if published is None else published.count())

    def failures() -> Iterator[str]:
        if expect.rows is not None:
            yield from _outside(rows, expect.rows, f"the table has {counted(rows, 'row')}")
        if expect.new_rows is not None:
            yield from _outside(new_rows, expect.new_rows, f"there are {counted(new_rows, 'new row')}")
        if expect.fresh is not None:
            column, within = expect.fresh.column, expect.fresh.within
            if row["age"] is None:
                yield f"no row has a {column}"
            elif row["age"] > seconds_of(within):
                age = f"{row['newest']}, {row['age'] / 60:,.0f} minutes ago"
                yield f"the newest {column} is {age}, at most {within} is allowed"
        for at, column in enumerate(nulls):
            most, without = expect.null_share[column], int(row[f"nulls_{at}"])
            if without > most * rows:
                share = f"{without:,} of {rows:,} rows have no {column}"
                yield f"{share}: {without / rows:.2%}, at most {most:.2%} is allowed"
        for columns in expect.unique:
            yield from _repeated(staged, columns)

    return TableAudit(snapshot_id=snapshot_id, rows=rows, new_rows=new_rows, failures=tuple(failures()))


def _outside(number: int, bounds: Count, text: str) -> Iterator[str]:
    if bounds.at_least is not None and number < bounds.at_least:
        yield f"{text}, at least {bounds.at_least:,} are expected"
    if bounds.at_most is not None and number > bounds.at_most:
        yield f"{text}, at most {bounds.at_most:,} are allowed"


def _repeated(staged: DataFrame, columns: Sequence[str]) -> Iterator[str]:
    keys = [sf.col(_name(column)) for column in columns]
    of_key = staged.groupBy(*keys).agg(sf.count(sf.lit(1)).alias(_ROWS)).filter(sf.col(_ROWS) > 1)
    example = sf.max_by(sf.to_json(sf.struct(*keys)), _ROWS)
    [row] = of_key.agg(sf.count(sf.lit(1)).alias("keys"), sf.max(_ROWS).alias("most"), example.alias("key")).collect()
    if row["keys"]:
        several = f"{counted(row['keys'], 'value')} with several rows; {row['key']} has {row['most']:,}"
        yield f"{', '.join(columns)} is not unique: {several}"


def _name(column: str) -> str:
    return quoted(tuple(column.split(".")))
