"""Upkeep runs while real feeds write: no writer fails, and ``verify --deep`` finds each record in the table once."""

import json
import time
from typing import Any

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from lakefeed.errors import ConfigError
from lakefeed.operations.verify import verify_feed
from lakefeed.pipeline import Pipeline
from lakefeed.sinks.dead_letters.store import DeadLetterFilter
from lakefeed_repair.replay import replay
from lakefeed_upkeep import actions as due
from lakefeed_upkeep.commands import tables
from lakefeed_upkeep.maintain import Maintenance, Report
from lakefeed_upkeep.settings import Upkeep
from lakefeed_upkeep.table_stats import read_health
from tests.support.background import Background
from tests.support.cli import lakefeed
from tests.support.feed import Feed, trips

DECODE: dict[str, Any] = {"avro": {"registry": "${SCHEMA_REGISTRY_URL}"}, "metadata": ["topic", "partition", "offset"]}
OFTEN: dict[str, Any] = {
    "every": "3 seconds",
    "compact": {"min_files": 3},
    "manifests": {"more_than": 4},
    "expire": {"older_than": "1 second", "keep": 10},
}


def every_record_once(pipeline: Pipeline) -> None:
    done = verify_feed(pipeline.config, connections=pipeline.connections, deep=True)
    assert done.faults == ()
    assert [each.lag for each in done.partitions] == [0] * len(done.partitions)


def look_after(feed: Feed, spark: SparkSession, table: str | None = None, **blocks: Any) -> Report:
    settings = Upkeep.model_validate({**OFTEN, **blocks})
    return Maintenance(table or feed.table, spark=spark, connections=feed.connections, settings=settings).run(wait=180)


def nothing_is_too_young(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let upkeep ignore the age of files, because the table has no other writer."""
    monkeypatch.setattr(due, "seconds_of", lambda duration: 0)


def test_a_feed_continues_during_the_upkeep_of_its_tables(lake: SparkSession, feed: Feed) -> None:
    dead = f"lake.{feed.name}.dead_letters"
    feed.create_topic()
    blocks: dict[str, Any] = {
        "decode": DECODE,
        "dead_letters": {"table": dead},
        "sink": {"iceberg": {"table": feed.table, "partition_by": ["bucket(2, id)"]}},
        "upkeep": OFTEN,
    }
    pipeline = feed.pipeline(**blocks)
    running = Background(pipeline, lake)
    sent = 0
    for start in range(0, 300, 50):
        feed.send([*feed.avro(trips(start, start + 50)), b"broken"])
        sent += 51
        running.until_records(sent)
    deadline = time.monotonic() + 240
    while not any("files of 2 partitions became" in note for note in running.notes):
        assert time.monotonic() < deadline, running.notes
        feed.send(feed.avro(trips(sent, sent + 1)))
        sent += 1
        running.until_records(sent)
    summary = running.end()
    assert not [note for note in running.notes if "failed" in note]
    every_record_once(pipeline)
    found = read_health(feed.table, connections=feed.connections)
    assert summary.files is not None
    assert found.files < summary.files

    # After the upkeep of the dead-letter table, a replay still finds all letters.
    before = read_health(dead, connections=feed.connections).files
    assert look_after(feed, lake, dead, compact={"min_files": 2}).did.files_after <= 1
    assert read_health(dead, connections=feed.connections).files <= before
    assert replay(pipeline, DeadLetterFilter(feed=feed.name), spark=lake).still_dead == 6
    every_record_once(pipeline)


def test_upkeep_between_a_kill_and_the_restart_loses_no_row(
    lake: SparkSession, feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver dies between the commits of table and checkpoint; upkeep runs before the batch is repeated."""
    feed.create_topic(partitions=1)
    pipeline = feed.pipeline(decode=DECODE)
    for start in range(0, 40, 10):
        feed.send(feed.avro(trips(start, start + 10)))
        pipeline.run(spark=lake, once=True)
    feed.forget("commits/3")
    nothing_is_too_young(monkeypatch)
    report = look_after(feed, lake, manifests={"more_than": 1})
    assert (report.did.files_before, report.did.files_after) == (4, 1)
    # Another writer commits until upkeep would expire this feed's snapshots.
    for _ in range(12):
        loaded(lake, feed).newAppend().commit()
    look_after(feed, lake)
    feed.send(feed.avro(trips(40, 50)))
    feed.pipeline(decode=DECODE).run(spark=lake, once=True)
    assert sorted(row["id"] for row in feed.rows()) == list(range(50))
    every_record_once(pipeline)


def test_the_position_is_still_known_if_only_the_last_snapshot_is_left(lake: SparkSession, feed: Feed) -> None:
    """Another writer removes all snapshots with commits of the feed; lakefeed's upkeep would keep the newest."""
    feed.create_topic(partitions=1)
    pipeline = feed.pipeline(decode=DECODE)
    for start in (0, 10):
        feed.send(feed.avro(trips(start, start + 10)))
        pipeline.run(spark=lake, once=True)
    feed.forget("commits/1")
    table = loaded(lake, feed)
    table.newAppend().commit()
    table.expireSnapshots().expireOlderThan(int(time.time() * 1000) + 60_000).retainLast(1).commit()
    feed.send(feed.avro(trips(20, 30)))
    feed.pipeline(decode=DECODE).run(spark=lake, once=True)
    assert sorted(row["id"] for row in feed.rows()) == list(range(30))


def test_the_upkeep_commands_show_the_due_steps_and_run_them(
    lake: SparkSession, feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    feed.export(monkeypatch)
    feed.create_topic(partitions=1)
    for start in range(0, 30, 10):
        feed.send(feed.avro(trips(start, start + 10)))
        feed.pipeline(decode=DECODE).run(spark=lake, once=True)
    file = str(feed.write_file(decode=DECODE, upkeep={"compact": {"min_files": 3}}))
    shown = CliRunner().invoke(tables, ["describe", file])
    assert "3 of" in shown.output
    assert f"lakefeed tables maintain {file} --only compact" in shown.output
    [document] = json.loads(CliRunner().invoke(tables, ["describe", feed.table, "--output", "json"]).stdout)["tables"]
    assert (document["files"], document["snapshots"], document["records"]) == (3, 3, 30)
    assert document["growth_a_day"]["rows"] > 0
    with pytest.raises(ConfigError, match="at least 1 day"):
        CliRunner().invoke(tables, ["maintain", feed.table, "--orphans-older-than", "1 hour"], catch_exceptions=False)
    arguments = ["tables", "maintain", file, "--only", "compact,orphans", "--measure-scan", "--output", "json"]
    done = lakefeed(*arguments, environment=feed.environment)
    [report] = json.loads(done.stdout)["tables"]
    assert (report["before"]["files"], report["after"]["files"]) == (3, 1)
    assert len(report["scan_seconds"]) == 2
    assert sorted(row["id"] for row in feed.rows()) == list(range(30))


def loaded(spark: SparkSession, feed: Feed) -> Any:
    """Return Iceberg's Java table; its ``newAppend().commit()`` makes a commit of another writer, without rows."""
    gateway: Any = spark._jvm
    return gateway.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(spark._jsparkSession, feed.table)
