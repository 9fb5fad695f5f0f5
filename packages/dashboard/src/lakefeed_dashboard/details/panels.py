"""Run a feed's query panels in the driver's Spark while a user looks, with bounded results and one query per panel."""

from __future__ import annotations

import itertools
import math
import queue
import re
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from lakefeed.clients.iceberg.sql import quoted
from lakefeed.clients.spark import jvm
from lakefeed.clients.spark.errors import quietly
from lakefeed.clients.spark.session import activate
from lakefeed.clients.spark.statements import run
from lakefeed.config.values import seconds_of
from lakefeed.errors import ConfigError, LakefeedError
from lakefeed.json_model import iso
from lakefeed.lazy import SparkSession, sf
from lakefeed.messages.printable import without_values
from lakefeed.messages.redaction import redacted
from lakefeed_dashboard.settings import QueryPanel

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType

POOL = "lakefeed-panels"
"""The scheduler pool whose jobs get only the cores that batches leave free: maintenance/pools.xml."""
LONGEST_CELL = 2_000
LONGEST_REASON = 2_000
MOST_COLUMNS = 100
EXACT = 2**53
"""The largest integer that JavaScript represents exactly."""
_MISSING = re.compile(r"\[TABLE_OR_VIEW_NOT_FOUND\] The table or view (\S{1,200}) cannot be found")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class PanelSession:
    """A copy of the feed's Spark session, with its views, catalogs and secrets; only one thread may use the copy."""

    def __init__(self, spark: SparkSession) -> None:
        from pyspark.sql import SparkSession

        own: Any = spark
        self._main = own._jsparkSession
        self._java: Any = jvm.java(spark).dashboard
        self._copy = self._java.PanelSession.of(self._main)
        self.spark = SparkSession(spark.sparkContext, self._copy)

    def query(self, panel: QueryPanel, *, group: str) -> dict[str, Any]:
        """Run the panel's query as jobs of this job group; return columns and rows.

        Raises:
            ConfigError: the SQL does more than read.
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
                f"a panel may only read, but its SQL has {refused}",
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
    """Shorten all values, which may have megabytes: long and nested values become short texts."""
    fields = frame.schema.fields[:MOST_COLUMNS]
    # Columns get unique names, because the query may return the same name twice.
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
    """Return a value for JSON: a number that JavaScript represents exactly, a boolean, a text, or None."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return value if len(value) <= LONGEST_CELL else f"{value[:LONGEST_CELL]}…"
    if isinstance(value, int):
        return value if abs(value) <= EXACT else str(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, tuple):  # `_short` has converted the time into a struct.
        return _time(value[0])
    number = float(value)  # The value is a decimal.
    return number if Decimal(repr(number)) == value else str(value)


def _time(micros: int | None) -> str | None:
    if micros is None:
        return None
    try:
        return (EPOCH + timedelta(microseconds=micros)).isoformat().replace("+00:00", "Z")
    except OverflowError:
        return f"{micros // 1000} ms since 1970"


def cancel(spark: SparkSession, group: str) -> None:
    """Cancel the running jobs of a group, and the jobs that its query would still begin."""
    own: Any = spark.sparkContext
    own._jsc.sc().cancelJobGroupAndFutureJobs(group)


def reason_of(error: BaseException) -> str:
    """Return the reason of a query's failure as a sentence without values of rows and without secrets."""
    if isinstance(error, LakefeedError):
        hint = f"; {error.hint}" if error.hint else ""
        return redacted(f"{error.what}{hint}")
    text = str(error)
    if found := _MISSING.search(text):
        hint = "a view of sink.memory is created with the first batch"
        return redacted(f"the table or view {found[1]} does not exist; {hint}")
    return redacted(without_values(text))[:LONGEST_REASON] or type(error).__name__


AT_ONCE = 2
"""The most panels that are queried at the same time: two, so that one slow query does not delay all other panels."""
IDLE_SECONDS = 60.0
"""A thread without queries ends after this many seconds."""

Query = Callable[..., dict[str, Any]]
"""Takes a panel and the name of a job group, and returns columns and rows."""


@dataclass
class _State:
    panel: QueryPanel
    result: dict[str, Any] = field(default_factory=lambda: {"columns": [], "rows": [], "truncated": False})
    taken_at: float | None = None
    error: str | None = None
    began: float | None = None
    is_queued: bool = False
    group: str | None = None
    is_cancelled: bool = False


class Panels:
    """The panels of one feed; any thread may call ``document``, which never waits for a query.

    Args:
        open_query: returns a function that runs queries; called in the thread that uses the function.
        cancel_group: cancels the jobs of a query.
    """

    def __init__(
        self,
        panels: Sequence[QueryPanel],
        *,
        open_query: Callable[[], Query],
        cancel_group: Callable[[str], None],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._states = [_State(panel) for panel in panels]
        self._open = open_query
        self._cancel_group = cancel_group
        self._clock = clock
        self._lock = threading.Lock()
        self._due: queue.SimpleQueue[_State | None] = queue.SimpleQueue()
        self._threads = 0
        self._idle = 0
        self._numbers = itertools.count()
        self._closed = False

    @classmethod
    def of(cls, panels: Sequence[QueryPanel], spark: SparkSession) -> Panels:
        """Return panels that query the driver's Spark."""
        return cls(
            panels, open_query=lambda: PanelSession(spark).query, cancel_group=lambda group: cancel(spark, group)
        )

    def document(self) -> dict[str, Any]:
        """Return the newest results, and start the queries that are due."""
        with self._lock:
            self._start_due()
            return {"panels": [self._shown(state) for state in self._states]}

    def close(self) -> None:
        """Cancel the running queries, and start no new queries."""
        with self._lock:
            self._closed = True
            groups = [state.group for state in self._states if state.group is not None]
            for _ in range(self._threads):
                self._due.put(None)
        for group in groups:
            with suppress(Exception):  # Spark may have stopped already.
                self._cancel_group(group)

    def _start_due(self) -> None:
        now = self._clock()
        for state in self._states:
            every = seconds_of(state.panel.every)
            if self._closed or state.is_queued or (state.began is not None and now - state.began < every):
                continue
            state.is_queued, state.began = True, now
            self._due.put(state)
            if self._idle == 0 and self._threads < AT_ONCE:
                self._threads += 1
                threading.Thread(target=self._work, name="lakefeed-panels", daemon=True).start()

    def _work(self) -> None:
        query: Query | None = None
        while True:
            with self._lock:
                self._idle += 1
            try:
                state = self._due.get(timeout=IDLE_SECONDS)
            except queue.Empty:
                state = None
            with self._lock:
                self._idle -= 1
                if state is None or self._closed:
                    self._threads -= 1
                    return
                state.began, state.is_cancelled = self._clock(), False
                state.group = f"lakefeed-panel-{state.panel.name}-{next(self._numbers)}"
            result, error = None, None
            limit = seconds_of(state.panel.time_limit)
            watch = threading.Timer(limit, self._cancel, [state, state.group])
            watch.daemon = True
            watch.start()
            try:
                query = query or self._open()
                result = query(state.panel, group=state.group)
            except BaseException as failure:  # The panel shows the error, and the thread continues.
                error = reason_of(failure)
            finally:
                watch.cancel()
            self._note(state, result, error)

    def _note(self, state: _State, result: dict[str, Any] | None, error: str | None) -> None:
        with self._lock:
            if state.is_cancelled:
                hint = "read fewer rows, or raise time_limit"
                result, error = None, f"the query was cancelled after {state.panel.time_limit}; {hint}"
            state.error = error
            if result is not None:
                state.result, state.taken_at = result, self._clock()
            state.group, state.is_queued = None, False

    def _cancel(self, state: _State, group: str) -> None:
        with self._lock:
            if state.group != group:
                return
            state.is_cancelled = True
            state.error = f"the query takes longer than {state.panel.time_limit} and is being cancelled"
        with suppress(Exception):
            self._cancel_group(group)

    def _shown(self, state: _State) -> dict[str, Any]:
        panel = state.panel
        return {
            "name": panel.name,
            "title": panel.title or panel.name,
            "chart": panel.chart,
            "x": panel.x,
            "y": panel.series,
            "label": panel.label,
            "lat": panel.lat,
            "lon": panel.lon,
            "every_seconds": seconds_of(panel.every),
            **state.result,
            "taken_at": iso(state.taken_at),
            "running": state.group is not None,
            "error": state.error,
        }
