"""Compare rows and dead letters by their records' offsets, in Spark: only counts and examples reach Python."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from lakefeed.clients.iceberg.sql import quoted
from lakefeed.lazy import Column, DataFrame, DataType, sf, t
from lakefeed.messages.printable import counted
from lakefeed.operations.verify.row_offsets import OFFSET, PARTITION, TOPIC

KEYS, LETTER = (TOPIC, PARTITION, OFFSET), ("topic", "partition", "offset", "reason")
MOST_EXAMPLES, MOST_PAIRS, MOST_CHANGES, LONGEST_EXAMPLE, HIDDEN = 10, 100, 50, 80, "***"
JSON = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
    "ignoreNullFields": "false",
}
_NTH, _ROW, _WHY, _OLD, _NEW = "_nth", "_row", "_why", "_old", "_new"


@dataclass(frozen=True, kw_only=True)
class FoundDifference:
    """One difference. ``name`` is a column, or ``@rows``, ``@dead-letters`` and so on, by which users allow it."""

    name: str
    what: str
    count: int = 0
    examples: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Landed:
    """The rows that one pipeline file has landed in ``table``, and its dead letters.

    Attributes:
        helpers: the columns of ``KEYS`` that the comparison adds to the file's own, and does not compare.
        stopped: the error of a record at which the run ended.
    """

    table: str
    rows: DataFrame
    letters: DataFrame
    helpers: Collection[str]
    figures: dict[str, int]
    stopped: str | None
    notes: tuple[str, ...]

    @property
    def columns(self) -> dict[str, DataType]:
        return {each.name: each.dataType for each in self.rows.schema if each.name not in self.helpers}


def compare(old: Landed, new: Landed, *, masked: Collection[str] = ()) -> list[FoundDifference]:
    """Return the differences; examples have no values of the columns in ``masked``, where ``*`` means all columns."""
    from pyspark import StorageLevel

    both = [name for name in old.columns if name in new.columns]
    joined = _outcomes(old, both, _OLD).join(_outcomes(new, both, _NEW), [*KEYS, _NTH], "full_outer")
    joined = joined.persist(StorageLevel.DISK_ONLY)
    try:
        return [*_compare_columns(joined, old.columns, new.columns, masked), *_compare_outcomes(joined)]
    finally:
        joined.unpersist()


def _outcomes(side: Landed, both: list[str], name: str) -> DataFrame:
    """Return a column per record: its rows as structs, or its dead letter's reason without digits.

    The rows of one record are numbered in the order of their values, so that equal rows on both sides have the same
    number.
    """
    from pyspark.sql import Window

    order = [_comparable(sf.col(quoted((each,))), side.columns[each]) for each in both]
    number = sf.row_number().over(Window.partitionBy(*KEYS).orderBy(*order, *KEYS))
    values = sf.struct(*(sf.col(quoted((each,))) for each in side.columns))
    rows = side.rows.select(*KEYS, number.alias(_NTH), values.alias(_ROW), sf.lit("a row").alias(_WHY))
    why = sf.concat(sf.lit("dead letter: "), sf.regexp_replace("reason", "[0-9]+", "#"))
    renamed = [sf.col(one).alias(key) for one, key in zip(LETTER, KEYS, strict=False)]
    letters = side.letters.select(*renamed, sf.lit(1).alias(_NTH), why.alias(_WHY))
    outcomes = rows.unionByName(letters, allowMissingColumns=True)
    return outcomes.select(*KEYS, _NTH, sf.struct(_ROW, _WHY).alias(name))


def _compare_columns(
    joined: DataFrame, before: Mapping[str, DataType], after: Mapping[str, DataType], masked: Collection[str]
) -> Iterator[FoundDifference]:
    """Yield a difference for each column that was renamed, is gone, was added, or has another type or other values."""
    matched = joined.filter(sf.col(f"{_OLD}.{_ROW}").isNotNull() & sf.col(f"{_NEW}.{_ROW}").isNotNull())
    gone, added = ([name for name in one if name not in other] for one, other in ((before, after), (after, before)))
    pairs = [(name, name) for name in before if name in after]
    pairs += [(old, new) for old in gone for new in added if _name_of(before[old]) == _name_of(after[new])][:MOST_PAIRS]
    differs = {(old, new): ~_equal(_value(_OLD, old), _value(_NEW, new), before[old], after[new]) for old, new in pairs}
    counts: dict[Any, Column] = {pair: sf.count_if(condition) for pair, condition in differs.items()}
    counts |= {name: sf.count(_value(_OLD, name)) for name in gone}
    counts |= {name: sf.count(_value(_NEW, name)) for name in added}
    [totals] = matched.agg(sf.count("*"), *(each.alias(f"c{at}") for at, each in enumerate(counts.values()))).collect()
    found: Mapping[Any, int] = dict(zip(counts, totals[1:], strict=True))
    renamed: dict[str, str] = {}
    for old, new in pairs:
        if old != new and not found[old, new] and found[old] and not {old, new} & {*renamed, *renamed.values()}:
            renamed[old] = new
            yield FoundDifference(name=old, what=f"renamed to {new}, with the same values", count=found[old])
    for name in (*gone, *added):
        if name not in renamed and name not in renamed.values():
            what = f"is gone ({_name_of(before[name])})" if name in before else f"was added ({_name_of(after[name])})"
            yield FoundDifference(name=name, what=f"{what}, with {counted(found[name], 'value')}", count=found[name])
    for name in (old for old, new in pairs if old == new):
        types, count = (_name_of(before[name]), _name_of(after[name])), found[name, name]
        if not count and types[0] == types[1]:
            continue
        what = "" if types[0] == types[1] else f"type {types[0]} → {types[1]}; "
        what += f"{counted(count, 'row')} of {totals[0]:,} have another value"
        shown = [_text(_value(_OLD, name), before[name]), _text(_value(_NEW, name), after[name])]
        if {name, "*"} & set(masked):
            shown = [sf.lit(HIDDEN), sf.lit(HIDDEN)]
        shown = [sf.substring(sf.coalesce(each, sf.lit("null")), 1, LONGEST_EXAMPLE) for each in shown]
        first = matched.filter(differs[name, name]).orderBy(*KEYS, _NTH).limit(MOST_EXAMPLES if count else 0)
        examples = first.select(sf.concat(_position(), sf.lit("  "), sf.concat_ws(" → ", *shown))).collect()
        yield FoundDifference(name=name, what=what, count=count, examples=tuple(row[0] for row in examples))


def _compare_outcomes(joined: DataFrame) -> Iterator[FoundDifference]:
    """Yield, for each pair of outcomes (row, dead letter, neither), the records that changed from one to the other."""
    pair = [sf.coalesce(sf.col(f"{side}.{_WHY}"), sf.lit("no row")).alias(side) for side in (_OLD, _NEW)]
    changed = joined.select(*pair, *KEYS, _position().alias("at")).filter(sf.col(_OLD) != sf.col(_NEW))
    groups = changed.groupBy(_OLD, _NEW).agg(sf.count("*").alias("count"), sf.min_by("at", sf.struct(*KEYS)))
    for was, now, count, at in groups.orderBy(sf.desc("count"), _OLD, _NEW).limit(MOST_CHANGES).collect():
        name = "@dead-letters" if "dead letter" in f"{was} {now}" else "@rows"
        yield FoundDifference(name=name, what=f"{count:,} times {was} → {now}", count=count, examples=(at,))


def _position() -> Column:
    return sf.concat_ws(":", *(sf.col(key).cast("string") for key in KEYS))


def _value(side: str, name: str) -> Column:
    return sf.col(side).getField(_ROW).getField(name)


def _equal(old: Column, new: Column, before: DataType, after: DataType) -> Column:
    """Return the condition that two values are equal; values of different types are compared as texts."""
    if _name_of(before) == _name_of(after):
        return _comparable(old, before).eqNullSafe(_comparable(new, after))
    if isinstance(before, t.NumericType) and isinstance(after, t.NumericType):
        return old.eqNullSafe(new)
    return _text(old, before).eqNullSafe(_text(new, after))


def _comparable(value: Column, kind: DataType) -> Column:
    """Return a column that Spark can compare: maps and variants as texts, other values unchanged."""
    return _text(value, kind) if "map<" in _name_of(kind) or "variant" in _name_of(kind) else value


def _text(value: Column, kind: DataType) -> Column:
    if isinstance(kind, t.StructType | t.ArrayType | t.MapType | t.VariantType):
        return sf.to_json(value, JSON)
    return sf.hex(value) if isinstance(kind, t.BinaryType) else value.cast("string")


def _name_of(kind: DataType) -> str:
    return kind.simpleString()
