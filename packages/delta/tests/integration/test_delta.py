"""A feed from a topic into a Delta table: each command works, and a lost checkpoint loses and doubles nothing."""

import json
from typing import Any

import duckdb
import pytest
from pyspark.sql import SparkSession

from lakefeed.errors import ConfigError
from lakefeed.lazy import sf
from lakefeed.operations.preflight.connect import preflight
from lakefeed_repair.rewind import plan_rewind
from packages.delta.tests.delta_feed import POSITIONS, ids_of, path_of, pipeline_of, table_of
from tests.support.cli import lakefeed
from tests.support.feed import Feed


@pytest.mark.quick
def test_a_feed_resumes_at_the_position_of_the_table_and_passes_verify(feed: Feed, lake: SparkSession) -> None:
    feed.create_topic(partitions=2)
    letters: dict[str, Any] = {"dead_letters": {"table": f"{feed.catalog}.{feed.name}.letters"}}
    feed.send_ids(range(300))
    feed.send([b"no JSON"])
    pipeline = pipeline_of(feed, **letters)
    assert [each.what for each in preflight(pipeline.config, connections=pipeline.connections)] == []
    [planned] = pipeline.plan(spark=lake).tables
    assert planned.refusal is None
    [statement] = planned.tables[-1].statements
    assert statement.startswith(f"CREATE TABLE delta.`{path_of(feed)}` (`id` bigint, `kafka_topic` string")
    first = pipeline.run(spark=lake, once=True)
    assert (first.rows, first.dead_letters) == (300, 1)
    feed.send_ids(range(300, 500))
    pipeline.feed.claim(lake).discard()
    notes: list[str] = []
    assert pipeline.run(spark=lake, once=True, on_note=notes.append).rows == 200
    assert "resumes at the table's position" in notes[0]
    assert ids_of(feed) == list(range(500))
    # Spark, DuckDB and deltalake read the same rows.
    assert lake.read.format("delta").load(path_of(feed)).agg(sf.sum("id"), sf.count("id")).first() == (124_750, 500)
    with duckdb.connect() as database:
        database.register("rows", table_of(feed).to_pyarrow_table())
        assert database.execute("SELECT sum(id), count(*) FROM rows").fetchone() == (124_750, 500)
    found = pipeline.verify(deep=True)
    assert found.findings == ()
    assert (found.rows, found.dead_letters, found.records, found.commits) == (500, 1, 501, 2)
    assert {each.lag for each in pipeline.status().partitions} == {0}
    assert pipeline.plan(spark=lake).tables[0].tables[-1].statements == ()
    with pytest.raises(ConfigError, match=r"sink\.delta cannot be rewound"):
        plan_rewind(pipeline, "earliest")
    # The feed's number of the last commit is where other tools look for it, too.
    assert table_of(feed).transaction_version(f"lakefeed.{feed.name}") == 4


def test_commands_read_the_table_without_spark(feed: Feed, lake: SparkSession) -> None:
    feed.create_topic(partitions=1)
    pipeline = pipeline_of(feed)
    blocks = {"decode": {"json": {"schema_ddl": "id BIGINT"}, **POSITIONS}, "sink": {"delta": {"path": path_of(feed)}}}
    file = feed.write_file(**blocks)
    # A command that starts Spark fails without Java.
    environment = {**feed.environment, "PATH": "/nonexistent", "JAVA_HOME": ""}
    assert "no mistakes" in lakefeed("check", file, environment=environment).stdout
    assert "no mistakes" in lakefeed("check", file, "--connect", environment=environment).stdout
    feed.send_ids(range(5))
    pipeline.run(spark=lake, once=True)
    feed.send_ids(range(5, 7))
    assert "no mistakes" in lakefeed("check", file, "--connect", environment=environment).stdout
    shown = lakefeed("offsets", "show", file, "--output", "json", environment=environment).stdout
    [partition] = json.loads(shown)["partitions"]
    assert (partition["checkpoint"], partition["table"], partition["lag"]) == (5, 5, 2)
    status = lakefeed("status", file, "--output", "json", environment=environment, status=None).stdout
    [partition] = json.loads(status)["lag"]["partitions"]
    assert (partition["committed"], partition["end"]) == (5, 7)
