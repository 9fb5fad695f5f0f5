"""Spark SQL over the decoded rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakefeed.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def select(rows: DataFrame, sql: str, *, view: str) -> DataFrame:
    """The result of one SELECT over ``rows``, which it sees under the name ``view``.

    Raises:
        ConfigError: with Spark's reason, if the statement does not fit the rows.
    """
    from pyspark.errors import AnalysisException

    rows.createOrReplaceTempView(view)
    try:
        return rows.sparkSession.sql(sql)
    except AnalysisException as error:
        raise ConfigError(
            f"transform.sql does not fit the rows: {str(error).splitlines()[0]}",
            where=f"columns of {view}: {', '.join(rows.columns)}",
        ) from None
