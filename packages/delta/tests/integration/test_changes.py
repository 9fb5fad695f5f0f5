"""Columns of a Delta table are added, and widened where the table allows it."""

import pytest
from pyspark.sql import SparkSession

from lakefeed.errors import ConfigError, SchemaIncompatible
from packages.delta.tests.delta_feed import path_of, pipeline_of, table_of
from tests.support.feed import Feed


def test_columns_are_added_and_types_widened_where_the_table_allows_it(feed: Feed, lake: SparkSession) -> None:
    feed.create_topic(partitions=1)
    feed.send([b'{"id": 1, "n": 2, "a": {"x": 1}}'])
    first = pipeline_of(feed, columns="id BIGINT, n INT, a STRUCT<x: INT>", sink={"partition_by": ["id"]})
    first.run(spark=lake, once=True)
    feed.send([b'{"id": 2, "n": 3, "a": {"x": 2, "y": "new"}, "city": "Bern"}'])
    more = pipeline_of(feed, columns="id BIGINT, n INT, a STRUCT<x: INT, y: STRING>, city STRING")
    [planned] = more.plan(spark=lake).tables
    assert any("ADD COLUMNS (`city` string)" in each for each in planned.tables[-1].statements)
    more.run(spark=lake, once=True)
    rows = lake.read.format("delta").load(path_of(feed)).orderBy("id").select("id", "a", "city").collect()
    assert [(row.id, row.a.x, row.a.y, row.city) for row in rows] == [(1, 1, None, None), (2, 2, "new", "Bern")]
    assert table_of(feed).metadata().partition_columns == ["id"]
    wider = pipeline_of(feed, columns="id BIGINT, n BIGINT")
    with pytest.raises(SchemaIncompatible, match="n"):
        wider.run(spark=lake, once=True)
    with pytest.raises(ConfigError, match="partitioned by id, not by n"):
        pipeline_of(feed, columns="id BIGINT, n INT", sink={"partition_by": ["n"]}).run(spark=lake, once=True)


def test_a_table_with_type_widening_takes_a_wider_column(feed: Feed, lake: SparkSession) -> None:
    feed.create_topic(partitions=1)
    feed.send([b'{"id": 1, "n": 2}'])
    sink = {"properties": {"delta.enableTypeWidening": "true"}}
    pipeline_of(feed, columns="id BIGINT, n INT", sink=sink).run(spark=lake, once=True)
    feed.send([b'{"id": 2, "n": 5000000000}'])
    pipeline_of(feed, columns="id BIGINT, n BIGINT", sink=sink).run(spark=lake, once=True)
    # Rows of a narrower type fit into the wider column.
    feed.send([b'{"id": 3, "n": 4}'])
    pipeline_of(feed, columns="id BIGINT, n INT", sink=sink).run(spark=lake, once=True)
    rows = lake.read.format("delta").load(path_of(feed)).orderBy("id").collect()
    assert [row.n for row in rows] == [2, 5_000_000_000, 4]
