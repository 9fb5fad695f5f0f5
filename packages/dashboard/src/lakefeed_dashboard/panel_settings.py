"""Query panels of a feed's dashboard, and the tariff by which it shows the price of requests."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from lakefeed.config.base import ConfigProblem, Model, checked, raise_problems, spelled
from lakefeed.config.sql import Sql, without_texts
from lakefeed.config.values import Identifier, Period, TableName, seconds_of

Chart: TypeAlias = Literal["bar", "line", "table", "map"]
MOST_PANELS = 20
LEAST_SECONDS = {"view": 1, "sql": 5, "table": 10}
"""A view costs some milliseconds of the driver, a table requests to S3; SQL may read either."""
_READS = re.compile(r"[\s(]*(SELECT|WITH|FROM|VALUES|TABLE)\b", re.IGNORECASE)
_WRITES = re.compile(r"\b(INSERT\s+(?:INTO|OVERWRITE)|SELECT\s+TRANSFORM|EXECUTE\s+IMMEDIATE)\b", re.IGNORECASE)


def _require_query(sql: str) -> None:
    bare = without_texts(sql)
    written = _WRITES.search(bare)
    if written is not None or _READS.match(bare) is None:
        first = written[1] if written else (bare.split() or ["nothing"])[0][:40]
        raise ValueError(f"a panel only reads: SELECT is required, and {first.upper()} is there")
    if "${" in sql:
        raise ValueError("Spark would replace ${…} by a setting, which may be a secret")


class QueryPanel(Model):
    """A chart or a table over a view, an Iceberg table or SQL, queried by the driver while a user looks at it."""

    name: Annotated[str, spelled(r"[A-Za-z0-9_-]{1,60}", "a panel's name has letters, digits, '_' and '-'")]
    """Identifies the panel on the page and in the API."""
    title: str | None = Field(None, max_length=200, description="Stands above the panel. Default: its name.")
    chart: Chart = "table"
    """bar and line need x and y, map needs lat and lon."""
    view: Annotated[str, spelled(Identifier, "a view's name has letters, digits and underscores")] | None = None
    """A view of the session, such as that of sink.memory."""
    table: TableName | None = Field(None, description="An Iceberg table: catalog.namespace.table.")
    sql: Annotated[Sql, checked(_require_query)] | None = None
    """One SELECT over tables and views. Exactly one of view, table and sql is required."""
    columns: list[str] = Field(default_factory=list)
    """Of a view or a table, in this order. Default: those that the chart needs, or all for chart: table."""
    x: str | None = Field(None, description="The column along a chart's axis: a category, a number or a time.")
    y: str | list[str] = Field(default_factory=list, description="A column of numbers, or several: a series each.")
    label: str | None = Field(None, description="The column that names a point of a map.")
    lat: str | None = Field(None, description="The column with the latitude of a point, in degrees.")
    lon: str | None = Field(None, description="The column with the longitude of a point, in degrees.")
    every: Period = "10 seconds"
    """Time between two queries while a user looks: 1 second at least for a view, 5 for SQL, 10 for a table."""
    limit: int = Field(500, ge=1, le=10_000, description="Rows shown at most.")
    time_limit: Period = "30 seconds"
    """A query that takes longer is cancelled; 10 minutes at most."""

    def _contradictions(self) -> Iterator[str | ConfigProblem]:
        given = [name for name in LEAST_SECONDS if getattr(self, name) is not None]
        if len(given) != 1:
            yield f"exactly one of view, table and sql is required; this panel has {' and '.join(given) or 'none'}"
            return
        required = {"bar": ("x", "y"), "line": ("x", "y"), "map": ("lat", "lon")}.get(self.chart, ())
        if missing := [name for name in required if not getattr(self, name)]:
            yield ConfigProblem(f"chart: {self.chart} needs {' and '.join(required)}", key=missing[0])
        if self.columns and self.sql is not None:
            yield ConfigProblem("columns is for a view or a table; SQL names its own", key="columns")
        if seconds_of(self.every) < LEAST_SECONDS[given[0]]:
            least = LEAST_SECONDS[given[0]]
            yield ConfigProblem(f"a panel over {given[0]} is queried every {least} seconds at most", key="every")
        if seconds_of(self.time_limit) > 600:
            yield ConfigProblem("10 minutes at most", key="time_limit")

    @property
    def series(self) -> list[str]:
        """The columns of numbers."""
        return [self.y] if isinstance(self.y, str) else list(self.y)

    @property
    def shown(self) -> list[str]:
        """The columns to read of a view or a table; empty for all of them."""
        if self.columns:
            return list(self.columns)
        if self.chart == "table":
            return []
        named = [self.x, *self.series, self.label, self.lat, self.lon]
        return list(dict.fromkeys(name for name in named if name is not None))


def _require_names_once(panels: list[QueryPanel]) -> None:
    names = [panel.name for panel in panels]
    twice = [at for at, name in enumerate(names) if name in names[:at]]
    raise_problems(ConfigProblem(f"there is another panel '{names[at]}'", key=at) for at in twice)


QueryPanels = Annotated[list[QueryPanel], Field(max_length=MOST_PANELS), checked(_require_names_once)]
"""The panels of one feed, in the order of the page."""

Preset: TypeAlias = Literal["aws-us-east-1", "aws-eu-central-1", "cloudflare-r2"]
_PRESETS: dict[Preset, tuple[str, float, float]] = {
    # Of docs/query-panels.md, with source and date.
    "aws-us-east-1": ("USD", 0.005, 0.0004),
    "aws-eu-central-1": ("USD", 0.0054, 0.00043),
    "cloudflare-r2": ("USD", 0.0045, 0.00036),
}


class Tariff(Model):
    """The price of requests to S3. Deletions are free, as with every store of the presets."""

    currency: Annotated[str, spelled("[A-Z]{3}", "a currency has three letters, such as USD")] = "USD"
    """The currency of the prices."""
    per_1000_writes: float = Field(ge=0, le=1e6, description="For 1,000 PUT, COPY, POST and LIST.")
    per_1000_reads: float = Field(ge=0, le=1e6, description="For 1,000 GET, HEAD and all others.")

    @classmethod
    def of(cls, given: Tariff | Preset | None) -> Tariff | None:
        """Return the prices of a preset, or those that are given."""
        if not isinstance(given, str):
            return given
        currency, writes, reads = _PRESETS[given]
        return cls(currency=currency, per_1000_writes=writes, per_1000_reads=reads)

    def price(self, *, writes: float, reads: float) -> float:
        """Return the price of so many requests."""
        return (writes * self.per_1000_writes + reads * self.per_1000_reads) / 1000
