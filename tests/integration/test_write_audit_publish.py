"""Feeds that land in a branch: what readers see, what commands print, and how an operator resolves a failed audit."""

import json
from typing import Any

import pytest
from click.testing import CliRunner, Result
from pyspark.sql import SparkSession

from lakefeed.errors import AuditFailed
from lakefeed.pipeline import Pipeline
from lakefeed_upkeep.commands import publish as command
from tests.support.deaths import dying
from tests.support.feed import Feed
from tests.support.feed import ids as seen


def audited(feed: Feed, expect: dict[str, Any], **publish: Any) -> Pipeline:
    block = {"table": feed.table, "branch": "staging", "publish": {"expect": expect, **publish}}
    decode = {"avro": {"registry": "${SCHEMA_REGISTRY_URL}"}, "metadata": ["topic", "partition", "offset"]}
    return feed.pipeline(sink={"iceberg": block}, decode=decode)


def send(feed: Feed, *ids: int) -> None:
    feed.send(feed.avro({"id": each, "zone": "a"} for each in ids))


def run(feed: Feed, *arguments: str) -> Result:
    file = str(feed.folder / f"{feed.name}.yaml")
    return CliRunner().invoke(command, [file, "--yes", *arguments], env=feed.environment)


def test_a_failed_audit_hides_the_rows_from_readers_and_after_a_discard_the_records_are_read_again(
    lake: SparkSession, feed: Feed
) -> None:
    feed.create_topic(partitions=2)
    send(feed, 1, 2, 3)
    unique = {"unique": [["id"]], "rows": {"at_least": 1}}
    pipeline = audited(feed, unique)
    plan = pipeline.plan(spark=lake).tables[0]
    assert any("CREATE BRANCH IF NOT EXISTS `staging`" in statement for statement in plan.statements)
    pipeline.run(spark=lake, once=True)
    assert seen(feed) == [1, 2, 3]

    send(feed, 3)
    with pytest.raises(AuditFailed, match="id is not unique: 1 value with several rows") as failed:
        pipeline.run(spark=lake, once=True)
    assert "lakefeed tables publish --discard" in str(failed.value.hint)
    assert seen(feed) == [1, 2, 3]
    proof = pipeline.verify(deep=True)
    assert proof.faults == ()
    assert proof.rows == 4
    again = run(feed)
    assert (again.exit_code, "is not unique" in again.output) == (1, True), again.output

    # The audit of the same records would fail again, so discard the rows and change the expectation.
    assert run(feed, "--discard").exit_code == 0
    assert pipeline.verify().rows == 3
    lenient = audited(feed, {"rows": {"at_least": 1}})
    lenient.run(spark=lake, once=True)
    assert seen(feed) == [1, 2, 3, 3]
    assert lenient.verify(deep=True).faults == ()
    assert "nothing in branch staging" in run(feed).output


@pytest.mark.slow
def test_a_feed_may_continue_after_a_failed_audit_until_a_command_publishes_its_rows(
    lake: SparkSession, feed: Feed
) -> None:
    feed.create_topic(partitions=1)
    send(feed, 1)
    waiting = audited(feed, {"rows": {"at_least": 3}}, on_failure="continue")
    notes: list[str] = []
    waiting.run(spark=lake, once=True, on_note=notes.append)
    assert any("the table has 1 row, at least 3 are expected" in note for note in notes), notes
    send(feed, 2, 3)
    waiting.run(spark=lake, once=True)
    assert seen(feed) == [1, 2, 3]
    by_hand = audited(feed, {}, when="command")
    send(feed, 4)
    by_hand.run(spark=lake, once=True)
    assert seen(feed) == [1, 2, 3]
    assert json.loads(run(feed, "--dry-run", "--output", "json").output)["tables"][0]["audit"]["new_rows"] == 1
    assert seen(feed) == [1, 2, 3]
    assert run(feed).exit_code == 0
    assert seen(feed) == [1, 2, 3, 4]
    seldom = audited(feed, {}, when="1 hour")
    send(feed, 5)
    # At its end, a run publishes all rows.
    seldom.run(spark=lake, once=True)
    assert seen(feed) == [1, 2, 3, 4, 5]


@pytest.mark.slow
def test_the_next_start_publishes_the_commit_of_a_driver_that_died(
    lake: SparkSession, feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    feed.create_topic(partitions=1)
    send(feed, 1)
    pipeline = audited(feed, {"unique": [["id"]]})
    pipeline.run(spark=lake, once=True)
    send(feed, 2)
    with monkeypatch.context() as patched:
        dying(patched)
        with pytest.raises(Exception, match="the driver dies"):
            pipeline.run(spark=lake, once=True)
    assert seen(feed) == [1]
    pipeline.run(spark=lake, once=True)
    assert seen(feed) == [1, 2]
    assert pipeline.verify(deep=True).faults == ()


@pytest.mark.slow
def test_each_table_of_a_job_of_many_topics_has_its_own_branch(lake: SparkSession, feed: Feed) -> None:
    topics = [f"{feed.name}-{name}" for name in "ab"]
    for topic in topics:
        feed.create_topic(partitions=1, topic=topic)
        feed.send([b'{"id": 1}'], topic=topic)
    pipeline = feed.pipeline(
        source=feed.source(topics=topics),
        decode={"json": {"schema_ddl": "id BIGINT"}},
        sink={"iceberg": {"table": f"lake.{feed.name}.{{topic}}", "branch": "staging", "publish": {"when": "command"}}},
        checkpoint="",
    )
    pipeline.run(spark=lake, once=True)
    tables = [part.config.sink.ledger_table for part in pipeline.parts()]
    assert [len(feed.rows(table)) for table in tables] == [0, 0]
    assert run(feed).exit_code == 0
    assert [len(feed.rows(table)) for table in tables] == [1, 1]
