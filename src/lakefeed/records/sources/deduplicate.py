"""Leaves out the copies that lakefeed's Kafka sink makes where it sends a batch again: ``io.lakefeed.copies``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lakefeed.clients.spark import jvm
from lakefeed.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

COPY = "lakefeed_copy"
"""Whether a record is a copy of one that came before."""
REQUIRED = ("key", "value", "topic", "partition", "headers")


def deduplicated(records: DataFrame) -> DataFrame:
    """A topic's records without copies: of those that lakefeed's Kafka sink has sent twice, each comes once.

    They are recognized by their headers; records of other writers go through as they are. A stream remembers, for each
    partition of the topic, the rows of the writer's newest batch: the state is as large as that. A query that groups
    after it runs in append mode only.

    Args:
        records: what Spark's Kafka source gives with ``includeHeaders``; a batch or a stream, in a session from
            ``lakefeed.session``.

    Raises:
        ConfigError: a column is missing.

    Example:
        >>> import lakefeed as lf
        >>> reader = lf.session("explore").readStream.format("kafka").option("includeHeaders", True)
        >>> records = reader.option("kafka.bootstrap.servers", "localhost:9092").option("subscribe", "hits").load()
        >>> lf.deduplicated(records).isStreaming
        True
    """
    return marked(records).filter(f"NOT {COPY}").drop(COPY)


def marked(records: DataFrame) -> DataFrame:
    """All records, with one boolean column more, ``COPY``; see ``deduplicated``."""
    from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame

    if missing := [name for name in REQUIRED if name not in records.columns]:
        raise ConfigError(
            f"the records lack the column {missing[0]}",
            where="deduplicated",
            hint='read them with .format("kafka").option("includeHeaders", True), and select columns after this',
        )
    frame: Any = records
    return ClassicDataFrame(jvm.java(records.sparkSession).copies.OnceOnly.marked(frame._jdf), records.sparkSession)
