"""Pass SQL to Spark. Only in this module may a statement be anything but a literal (``tools/check_sql.py``).

Spark would replace ``${name}`` in SQL by settings and by variables of the driver's environment; ``Statements.java``
prevents that in every session. Values are passed as parameters. Names of columns and tables are quoted.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

from lakefeed.clients.spark import jvm

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_MARK = re.compile(r":(\w+)")


class Statement(str):
    """A statement with values. As a string, it shows the values as literals, for people.

    Attributes:
        sql: the statement that Spark parses; ``:name`` stands for a value.
        values: the values by name.
    """

    sql: str
    values: Mapping[str, str]

    @classmethod
    def of(cls, sql: str, values: Mapping[str, str]) -> Self:
        shown = cls(_MARK.sub(lambda mark: _shown(values[mark[1]]) if mark[1] in values else mark[0], sql))
        shown.sql, shown.values = sql, values
        return shown


def run(spark: SparkSession, sql: str, values: Mapping[str, Any] | None = None) -> DataFrame:
    """Run a statement with values for its parameters; a query only runs when its rows are read."""
    from pyspark.sql import DataFrame

    session: Any = spark
    text, known = parts(sql)
    return DataFrame(
        jvm.java(spark).query.Statements.run(session._jsparkSession, text, {**known, **(values or {})}), spark
    )


def parts(sql: str) -> tuple[str, Mapping[str, str]]:
    return (sql.sql, sql.values) if isinstance(sql, Statement) else (sql, {})


def expression(spark: SparkSession, sql: str) -> Column:
    from pyspark.sql.classic.column import Column

    session: Any = spark
    return Column(jvm.java(spark).query.Statements.expression(session._jsparkSession, sql))


def _shown(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
