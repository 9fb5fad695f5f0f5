"""Settings of a sink that has a table for each value of a field."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated

from pydantic import Field

from lakefeed.config.base import ConfigProblem, Model, checked, spelled
from lakefeed.config.sinks import Capabilities, Refusal
from lakefeed.config.sources import require_java_pattern
from lakefeed.config.values import Count

LEDGER = "lakefeed_ledger"
"""In the template of table names, this replaces the field: the table with the position of the whole feed."""

NAME = "[a-z0-9_]{1,100}"
"""The values that may name a table: catalogs and engines differ in how they treat upper case."""

RouteName = Annotated[str, spelled(NAME, "'{}' is no value of the field that can name a table: use a-z, 0-9 and _")]

_ONE_TABLE = "name one table in sink.iceberg.table"
ROUTED = Capabilities(
    rewind=Refusal("a feed with a table for each value of a field cannot be moved: each table has its own position"),
    adopt=Refusal("a feed with a table for each value of a field cannot continue another tool's table", _ONE_TABLE),
    backfill=Refusal("a feed with a table for each value of a field cannot be backfilled", _ONE_TABLE),
    replay=Refusal("dead letters of a feed with a table for each value of a field cannot be replayed", _ONE_TABLE),
    batch=Refusal("a table for each value of a field needs a run of the feed", "use lakefeed run --once"),
    lag=Refusal("a sink with a table for each value of a field cannot lag", "write on_failure: stop"),
    stand_beside=Refusal("only the feed's own sink may have a table for each value of a field", "name one table"),
    verify=None,
    no_checkpoint=None,
)


class Routes(Model):
    """The values of the field that name a table. Rows with other values go to a default table, or are dead letters."""

    names: list[RouteName] = Field(default_factory=list)
    """The values that name a table. Default: all that have only a-z, 0-9 and _, and at most 100 characters."""
    pattern: Annotated[str, checked(require_java_pattern)] | None = None
    """A regular expression for the values that name a table; it has to match the whole value."""
    default: RouteName | None = None
    """Table for all other rows: the text that replaces the field in the table's name. Default: no table; these records
    are dead letters, or stop a feed without dead letters."""
    max_tables: Count = Field(100, description="The most tables. Rows for further tables go where other rows go.")

    def _contradictions(self) -> Iterator[ConfigProblem]:
        for key, name in (("names", LEDGER if LEDGER in self.names else None), ("default", self.default)):
            if name == LEDGER:
                yield ConfigProblem(
                    f"{LEDGER} names the table of the feed's position", key=key, hint="use another name"
                )
        if len(self.names) > self.max_tables:
            what = f"names has {len(self.names):,} tables, and max_tables is {self.max_tables:,}"
            yield ConfigProblem(what, key="max_tables", hint="raise max_tables")


def own_name(table: str, before: str, after: str) -> str | None:
    """Return the part of a table's name that replaces the field; None if the name does not match the template."""
    if not (table.casefold().startswith(before.casefold()) and table.casefold().endswith(after.casefold())):
        return None
    name = table[len(before) : len(table) - len(after)]
    return name.casefold() if re.fullmatch(NAME, name.casefold()) else None
