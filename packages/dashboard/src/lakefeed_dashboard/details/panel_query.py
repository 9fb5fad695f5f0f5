"""Runs the query of one panel in the driver's Spark, and returns a bounded result."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from lakefeed.clients.iceberg.sql import quoted
from lakefeed.clients.spark import jvm
from lakefeed.clients.spark.errors import quietly
from lakefeed.clients.spark.session import activate
from lakefeed.clients.spark.statements import run
from lakefeed.errors import ConfigError, LakefeedError
from lakefeed.lazy import sf
from lakefeed.messages.printable import without_values
from lakefeed.messages.redaction import redacted
from lakefeed_dashboard.panel_settings import QueryPanel

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType

POOL = "lakefeed-panels"
"""Gets what batches leave: maintenance/pools.xml."""
LONGEST_CELL = 2_000
LONGEST_REASON = 2_000
MOST_COLUMNS = 100
EXACT = 2**53
"""A script in a browser has no larger whole numbers."""
_MISSING = re.compile(r"\[TABLE_OR_VIEW_NOT_FOUND\] The table or view (\S{1,200}) cannot be found")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class PanelSession:
    """A session for panels beside the feed's own, with its views, catalogs and secrets; for one thread at a time."""

    def __init__(self, spark: SparkSession) -> None:
        from pyspark.sql import SparkSession

        own: Any = spark
        self._main = own._jsparkSession
        self._java: Any = jvm.java(spark).query
        self._copy = self._java.PanelSession.of(self._main)
        self.spark = SparkSession(spark.sparkContext, self._copy)

    def query(self, panel: QueryPanel, *, group: str) -> dict[str, Any]:
        """Run the panel's query as jobs of this group; return columns and rows.

        Raises:
            ConfigError: it is SQL that does more than read.
        """
        context = self.spark.sparkContext
        activate(self.spark)
        context.setLocalProperty("spark.scheduler.pool", POOL)
        context.setJobGroup(group, f"panel {panel.name}", interruptOnCancel=True)
        self._java.PanelSession.takeViews(self._main, self._copy)
        with quietly():
            frame = self._frame(panel)
            names = list(frame.columns)
            rows = bounded(frame).limit(panel.limit + 1).collect()
        cells = [[cell(value) for value in row] for row in rows[: panel.limit]]
        return {"columns": names[:MOST_COLUMNS], "rows": cells, "truncated": len(rows) > panel.limit}

    def _frame(self, panel: QueryPanel) -> DataFrame:
        sql = panel.sql or statement_of(panel)
        refused = self._java.ReadOnlyQuery.refusal(self._copy, sql)
        if refused is not None:
            raise ConfigError(
                f"a panel only reads, and its SQL has {refused}",
                where=f"panel {panel.name}",
                hint="write one SELECT over tables and views",
            )
        return run(self.spark, sql)


def statement_of(panel: QueryPanel) -> str:
    """Return the SELECT of a panel over a view or a table."""
    name = quoted(tuple((panel.table or panel.view or "").split(".")))
    columns = ", ".join(quoted((column,)) for column in panel.shown) or "*"
    return f"SELECT {columns} FROM {name}"  # noqa: S608  # Names of the pipeline file, quoted.


def bounded(frame: DataFrame) -> DataFrame:
    """Return the rows with each value as a number, a truth value or a short text: a value may be many megabytes."""
    fields = frame.schema.fields[:MOST_COLUMNS]
    # By position: names may be there twice.
    numbered = frame.toDF(*(f"c{at}" for at in range(len(frame.columns))))
    return numbered.select(*(_short(sf.col(f"c{at}"), field.dataType) for at, field in enumerate(fields)))


def _short(column: Column, type_: DataType) -> Column:
    from pyspark.sql import types

    if isinstance(type_, types.NumericType | types.BooleanType | types.NullType):
        return column
    if isinstance(type_, types.TimestampType):
        return sf.struct(sf.unix_micros(column).alias("micros"))
    if isinstance(type_, types.BinaryType):
        column = sf.hex(sf.substring(column, 1, LONGEST_CELL // 2 + 1))
    elif isinstance(type_, types.StructType | types.ArrayType | types.MapType):
        column = sf.to_json(column)
    return sf.substring(column.cast("string"), 1, LONGEST_CELL + 1)


def cell(value: Any) -> Any:
    """Return a value for JSON: a number that scripts have exactly, a truth value, a text, or None."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return value if len(value) <= LONGEST_CELL else f"{value[:LONGEST_CELL]}…"
    if isinstance(value, int):
        return value if abs(value) <= EXACT else str(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, tuple):  # A time.
        return _time(value[0])
    number = float(value)  # A decimal; 0.1 is one that a script shows as it is.
    return number if Decimal(repr(number)) == value else str(value)


def _time(micros: int | None) -> str | None:
    if micros is None:
        return None
    try:
        return (EPOCH + timedelta(microseconds=micros)).isoformat().replace("+00:00", "Z")
    except OverflowError:
        return f"{micros // 1000} ms since 1970"


def cancel(spark: SparkSession, group: str) -> None:
    """End the jobs of a group, and those that its query would begin later."""
    own: Any = spark.sparkContext
    own._jsc.sc().cancelJobGroupAndFutureJobs(group)


def reason_of(error: BaseException) -> str:
    """Return why a query has failed, in a sentence without values of rows and without secrets."""
    if isinstance(error, LakefeedError):
        hint = f"; {error.hint}" if error.hint else ""
        return redacted(f"{error.what}{hint}")
    text = str(error)
    if found := _MISSING.search(text):
        hint = "a view of sink.memory is created with the first batch"
        return redacted(f"the table or view {found[1]} does not exist; {hint}")
    return redacted(without_values(text))[:LONGEST_REASON] or type(error).__name__
