"""Find the table of each row by the value of a column or header, and refuse values that name no table."""

from __future__ import annotations

from lakefeed.clients.iceberg.sql import quoted
from lakefeed.config.routes import LEDGER, NAME, Routes
from lakefeed.config.values import TableField
from lakefeed.errors import ConfigError
from lakefeed.lazy import Column, DataFrame, DataType, StructField, StructType, sf, t
from lakefeed.records.schema.fit import find_field

HEADERS = "kafka_headers"


class TableRoutes:
    """Knows which values name a table of a feed, and finds the table of each row.

    Attributes:
        known: the values whose tables exist, or will exist once the current batch is written.
        foreign: the values whose tables belong to other feeds or tools.
    """

    def __init__(self, by: TableField, settings: Routes) -> None:
        self.by = by
        self.settings = settings
        self.known: set[str] = set()
        self.foreign: set[str] = set()

    @property
    def is_full(self) -> bool:
        """Return True if no further table may be added."""
        return len(self.known) >= self.settings.max_tables

    def refusal(self, rows: DataFrame) -> Column | None:
        """Return a column with the reason why a row's value names no table, or null; None if every value is accepted.

        ``rows`` lacks columns that the transform adds; if the value is in one of them, the sink checks it.
        """
        if self.settings.default is not None or _field(rows.schema, self._path) is None:
            return None
        value = self._value(rows)
        field = f"{{{self.by.field}}} in sink.iceberg.table"
        most = f"{field} names more tables than sink.iceberg.routes.max_tables: {self.settings.max_tables}"
        bad = sf.when(
            ~sf.coalesce(self._names_table(value), sf.lit(False)), f"the value of {field} names no table of the feed"
        )
        return bad.when(~self._has_room(value), most) if self.is_full else bad

    def target(self, rows: DataFrame) -> Column:
        """Return the column with the name of each row's table: its value, or the default, or null without a default."""
        value = self._value(rows)
        fits = sf.coalesce(self._names_table(value) & self._has_room(value), sf.lit(False))
        return sf.when(fits, value).otherwise(sf.lit(self.settings.default))

    def require_value(self, rows: StructType) -> StructField:
        """Return the column with the value, or the headers column; raise ConfigError if the rows lack it."""
        found = _field(rows, self._path)
        if found is None:
            what = f"the rows have no column {self._path}, by which sink.iceberg.table finds their table"
            hint = "keep the column in the transform, or name another one"
            raise ConfigError(what, where="sink.iceberg.table", hint=hint)
        if self.by.header is None and not isinstance(found.dataType, t.StringType | t.IntegralType):
            what = f"the column {self._path} is of type {found.dataType.simpleString()}, which names no table"
            raise ConfigError(what, where="sink.iceberg.table", hint="name a column of texts or whole numbers")
        return found

    @property
    def _path(self) -> str:
        return self.by.field if self.by.header is None else HEADERS

    def _value(self, rows: DataFrame) -> Column:
        self.require_value(rows.schema)
        column = sf.col(quoted(tuple(self._path.split("."))))
        if (header := self.by.header) is None:
            return column.cast("string")
        # If several headers have the name, the last one counts, as in Kafka's lastHeader.
        found = sf.filter(column, lambda each: each["key"] == sf.lit(header))
        return sf.try_element_at(found, sf.lit(-1))["value"].cast("string")

    def _names_table(self, value: Column) -> Column:
        first = "" if self.by.before.rpartition(".")[2] else "(?![0-9])"
        fits = value.rlike(rf"\A{first}{NAME}\z")
        if self.settings.names:
            fits = fits & value.isin(*self.settings.names)
        if self.settings.pattern is not None:
            fits = fits & value.rlike(rf"\A(?:{self.settings.pattern})\z")
        if self.settings.default is not None:
            fits = fits | (value == self.settings.default)
        return fits & ~value.isin(LEDGER, *sorted(self.foreign))

    def _has_room(self, value: Column) -> Column:
        return value.isin(*sorted(self.known)) if self.is_full else sf.lit(True)


def _field(rows: StructType, path: str) -> StructField | None:
    found: StructField | None = None
    inner: DataType = rows
    for name in path.split("."):
        if not isinstance(inner, t.StructType) or (found := find_field(inner, name)) is None:
            return None
        inner = found.dataType
    return found
