"""One job lands many topics in separate tables and adds new topics; a topic that fails does not stop the others."""

import json
from typing import Any

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from lakefeed.cli.main import root
from lakefeed.errors import ConfigError, DriverReplaced, ResourceMissing
from lakefeed.pipeline import Pipeline, RunSummary
from lakefeed_repair.rewind import plan_rewind, rewind
from tests.support.background import Background, running
from tests.support.feed import Feed, until
from tests.support.shop import SCHEMAS, Shop, failures, verified


def has_rows(shop: Shop, name: str) -> bool:
    try:
        return bool(shop.rows(name))
    except ResourceMissing:
        return False


@pytest.fixture
def shop(feed: Feed) -> Shop:
    return Shop(feed)


@pytest.mark.quick
def test_each_topic_lands_in_a_separate_table_and_a_restart_resumes(lake: SparkSession, shop: Shop) -> None:
    for name in SCHEMAS:
        shop.create(name)
    shop.send("orders", [{"id": number, "total": number / 2} for number in range(50)])
    shop.send("users", [{"name": f"u{number}"} for number in range(3)])
    pipeline = shop.pipeline(limit=20)
    first = pipeline.run(spark=lake, once=True)
    assert failures(first) == {}
    assert (first.records, first.rows) == (53, 53)
    # The busy topic needs three batches; the quiet topic needs one.
    batches = {each.topic: each.batches for each in first.tables}
    assert batches[shop.topic("orders")] >= 3
    assert batches[shop.topic("users")] == 1
    shop.send("quiet.one", [{"id": 7, "on": True}])
    again = shop.pipeline().run(spark=lake, once=True)
    assert (again.records, again.batches) == (1, 1)
    assert sorted(row["id"] for row in shop.rows("orders")) == list(range(50))
    assert {row["name"] for row in shop.rows("users")} == {"u0", "u1", "u2"}
    assert [row["on"] for row in shop.rows("quiet.one")] == [True]
    assert verified(pipeline)


@pytest.mark.quick
def test_a_topic_that_fails_stops_no_other_topic_and_resumes_after_the_repair(lake: SparkSession, shop: Shop) -> None:
    for name in ("orders", "users"):
        shop.create(name)
    shop.send("orders", [{"id": 1, "total": 1.0}])
    shop.feed.send([b"poison"], topic=shop.topic("orders"), partition=0)
    shop.send("users", [{"name": "u"}])
    summary = shop.pipeline(tables={"on_failure": "stop"}).run(spark=lake, once=True)
    assert list(failures(summary)) == [shop.topic("orders")]
    assert [row["name"] for row in shop.rows("users")] == ["u"]
    healed = shop.pipeline(dead_letters={"table": f"lake.{shop.feed.name}.{{topic}}_dead"})
    again = healed.run(spark=lake, once=True)
    assert (failures(again), again.dead_letters, again.rows) == ({}, 1, 1)
    assert verified(healed)


def test_topics_that_appear_later_begin_at_the_configured_start(lake: SparkSession, shop: Shop) -> None:
    def run(**reads: str) -> dict[str, int]:
        pipeline = shop.pipeline(reads={"start": "latest", **reads})
        planned = {
            plan.topics[0]: sum(part.backlog for part in plan.partitions) for plan in pipeline.plan(spark=lake).tables
        }
        done = {table.topic: table.rows for table in pipeline.run(spark=lake, once=True).tables}
        assert done == planned
        return {topic.removeprefix(f"{shop.feed.name}."): rows for topic, rows in done.items() if rows}

    shop.create("orders")
    shop.send("orders", [{"id": number, "total": 1.0} for number in range(10)])
    assert run() == {}
    # Send new records and create a new topic while no job runs.
    shop.send("orders", [{"id": number, "total": 1.0} for number in range(10, 15)])
    shop.create("users")
    shop.send("users", [{"name": f"u{number}"} for number in range(3)])
    assert run() == {"orders": 5, "users": 3}
    shop.create("quiet.one")
    shop.send("quiet.one", [{"id": number, "on": True} for number in range(4)])
    assert run(new_topics="latest") == {}
    shop.send("quiet.one", [{"id": 4, "on": False}])
    assert run(new_topics="latest") == {"quiet.one": 1}
    assert sorted(row["id"] for row in shop.rows("orders")) == list(range(10, 15))


def test_a_running_job_adds_new_topics_and_resumes_a_paused_table(lake: SparkSession, shop: Shop) -> None:
    shop.create("users")
    shop.create("orders")
    # The topic users has no registered schema yet, so its table cannot start.
    shop.feed.send([b"early"], topic=shop.topic("users"))
    shop.send("orders", [{"id": 1, "total": 1.0}])
    pipeline = shop.pipeline(
        tables={"on_failure": "pause", "retry_after": "1 second"}, dead_letters={"table": f"lake.{shop.feed.name}.dead"}
    )
    with running(pipeline, lake) as run:
        until(lambda: any("users" in note for note in run.notes))
        shop.create("quiet.one")
        shop.send("quiet.one", [{"id": 7, "on": True}])
        shop.send("users", [{"name": "late"}])
        until(lambda: f"{shop.topic('users')}: resumes" in run.notes)
        until(lambda: has_rows(shop, "quiet.one"))
    summary = run.end()
    assert failures(summary) == {}
    assert [row["name"] for row in shop.rows("users")] == ["late"]
    assert summary.dead_letters == 1
    assert verified(pipeline)


def test_a_job_resumes_a_rewound_table_and_ends_when_another_job_takes_over(lake: SparkSession, shop: Shop) -> None:
    """If a job resumed after it lost its table to another job, the two would take the table from each other forever."""
    shop.create("orders")
    shop.send("orders", [{"id": 1, "total": 1.0}])
    pipeline = shop.pipeline(tables={"on_failure": "pause", "retry_after": "1 second"})
    run = Background(pipeline, lake)
    try:
        until(lambda: has_rows(shop, "orders"))
        topic = shop.topic("orders")
        table = pipeline.of_topic(topic)
        rewind(table, plan_rewind(table, "earliest", delete_rows=False), spark=lake)
        shop.send("orders", [{"id": 2, "total": 2.0}])
        until(lambda: f"{topic}: resumes" in run.notes)
        until(lambda: len(shop.rows("orders")) == 3)
        assert run.failure is None

        other = shop.pipeline().run(spark=lake, once=True)
        assert failures(other) == {}
        shop.send("orders", [{"id": 3, "total": 3.0}])
        run.thread.join(120)
        assert isinstance(run.failure, DriverReplaced)
    finally:
        run.stop.set()
        run.thread.join(120)
    shop.pipeline().run(spark=lake, once=True)
    assert sorted(row["id"] for row in shop.rows("orders")) == [1, 1, 2, 3]


def test_topics_do_not_write_to_a_table_of_another_feed_or_topic(lake: SparkSession, shop: Shop) -> None:
    def send(name: str, number: int) -> None:
        shop.feed.send_ids([number], topic=shop.topic(name))

    def run(**blocks: Any) -> RunSummary:
        plain = {"json": {"schema_ddl": "id BIGINT"}}
        return shop.pipeline(decode=plain, **blocks).run(spark=lake, once=True)

    for name in ("a_b", "legacy", "Upper", "well"):
        shop.create(name, partitions=1)
        send(name, 1)
    lake.sql(f"CREATE NAMESPACE IF NOT EXISTS lake.{shop.feed.name}")
    lake.sql(f"CREATE TABLE {shop.table('legacy')} (name STRING) USING iceberg")
    letters: dict[str, Any] = {"dead_letters": {"table": shop.table("letters")}}
    first = run(**letters)
    assert list(failures(first)) == [shop.topic("legacy")]
    assert "this feed has not created it" in failures(first)[shop.topic("legacy")]
    assert lake.table(shop.table("legacy")).columns == ["name"]

    # The tables of these new topics would be those of older topics. 'a-b' and 'UPPER' come first by name, but the older
    # topics must keep their tables.
    for name in ("a-b", "UPPER", "letters"):
        shop.create(name, partitions=1)
        send(name, 2)
    send("a_b", 3)
    named = {shop.topic("legacy"): {"table": shop.table("legacy")}}
    second = run(**letters, tables={"topics": named})
    message = failures(second)
    assert sorted(message) == sorted(shop.topic(name) for name in ("a-b", "UPPER", "letters"))
    assert {"would share one table" in each for each in message.values()} == {True}
    assert [row["id"] for row in shop.rows("legacy")] == [1]
    assert sorted(row["id"] for row in shop.rows("a_b")) == [1, 3]
    plans = shop.pipeline(decode={"json": {"schema_ddl": "id BIGINT"}}, **letters, tables={"topics": named}).plan(
        spark=lake
    )
    assert sorted(each.topics[0] for each in plans.tables if each.refusal) == sorted(message)


def test_a_table_of_rows_is_refused_for_dead_letters_and_a_table_of_dead_letters_for_rows(
    lake: SparkSession, feed: Feed
) -> None:
    feed.create_topic(partitions=1)
    feed.send([b"1", b'{"id": 1}'])
    decode = {"json": {"schema_ddl": "id BIGINT"}}
    dead = f"lake.{feed.name}.dead"
    feed.pipeline(decode=decode, dead_letters={"table": dead}).run(spark=lake, once=True)

    def refused(name: str, **blocks: Any) -> str:
        other = {"name": f"{feed.name}_{name}", "checkpoint": f"{feed.checkpoint}-{name}", "decode": decode}
        path = feed.write_file(**{**other, **blocks})
        checked = CliRunner(env=feed.environment).invoke(root, ["check", str(path), "--connect"])
        with pytest.raises(ConfigError) as stopped:
            Pipeline.from_file(path, environment=feed.environment).run(spark=lake, once=True)
        assert stopped.value.what in checked.output
        assert checked.exit_code == 2
        return stopped.value.what

    assert "is not a table of dead letters" in refused(
        "letters", sink={"iceberg": {"table": f"lake.{feed.name}.more"}}, dead_letters={"table": feed.table}
    )
    assert "is a table of dead letters" in refused("rows", sink={"iceberg": {"table": dead}})


CHANGES = [
    {"id": 1, "city": "amsterdam", "op": "u"},
    {"id": 2, "city": "berlin", "op": "u"},
    {"id": 1, "city": "cairo", "op": "u"},
    {"id": 2, "city": "berlin", "op": "d"},
]


def test_each_topic_is_upserted_by_its_own_keys_with_a_history(lake: SparkSession, shop: Shop) -> None:
    names = ("a", "b", "c", "d")
    for at, name in enumerate(names):
        shop.create(name, partitions=1)
        changes = [{**each, "city": f"{each['city']}-{name}"} for each in CHANGES]
        shop.feed.send([json.dumps(each).encode() for each in changes[: len(changes) - at % 2]], topic=shop.topic(name))
    table = f"lake.{shop.feed.name}.{{topic}}"
    pipeline = shop.pipeline(
        decode={"json": {"schema_ddl": "id BIGINT, city STRING, op STRING"}},
        # The transforms of all topics read a view of the same name, and run in parallel.
        transform={"sql": f"SELECT *, upper(city) AS loud FROM {shop.feed.name}"},
        sink={
            "iceberg": {
                "table": table,
                "mode": "upsert",
                "keys": ["id"],
                "delete": {"column": "op", "equals": ["d"]},
                "history": f"{table}_history",
            }
        },
        tables={"on_failure": "stop", "topics": {shop.topic("c"): {"keys": ["id", "city"]}}},
    )
    assert failures(pipeline.run(spark=lake, once=True)) == {}

    def rows(name: str) -> list[tuple[int, str]]:
        return sorted((row["id"], row["loud"]) for row in shop.rows(name))

    assert rows("a") == [(1, "CAIRO-A")]
    assert rows("b") == [(1, "CAIRO-B"), (2, "BERLIN-B")]
    assert rows("c") == [(1, "AMSTERDAM-C"), (1, "CAIRO-C")]
    shop.feed.send([json.dumps({"id": 1, "city": "delhi", "op": "u"}).encode()], topic=shop.topic("a"))
    assert failures(pipeline.run(spark=lake, once=True)) == {}
    assert rows("a") == [(1, "DELHI")]
    histories = [len(shop.feed.rows(f"{shop.table(name)}_history")) for name in names]
    assert histories == [5, 3, 4, 3]
    assert verified(pipeline)


def test_commands_work_on_the_table_of_one_topic_or_on_all_tables(
    lake: SparkSession, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("orders", "users"):
        shop.create(name)
        shop.send(name, [{"id": 1, "total": 1.0} if name == "orders" else {"name": "u"}])
        shop.feed.send([b"poison"], topic=shop.topic(name), partition=1)
    shop.create("quiet.one")
    pipeline = shop.pipeline(dead_letters={"table": f"lake.{shop.feed.name}.{{topic}}_dead"})
    pipeline.run(spark=lake, once=True)
    file = str(shop.feed.folder / "many.yaml")

    def run(*arguments: str, topic: str | None = None) -> Any:
        return shop.run_command(*arguments, topic=topic, monkeypatch=monkeypatch)

    letters = run("dead-letters", "list", file)["tables"]
    assert [each["table"] for each in letters] == [f"{shop.table(name)}_dead" for name in ("orders", "users")]
    one = run("dead-letters", "list", file, topic="users")
    assert (one["table"], one["count"]) == (f"{shop.table('users')}_dead", 1)
    assert run("dead-letters", "list", file, topic="quiet.one")["count"] == 0
    position = f"1:{one['dead_letters'][0]['offset']}"
    assert run("dead-letters", "show", position, file, topic="users")["topic"] == shop.topic("users")
    assert run("schema", "show", file, topic="users")["table"] == shop.table("users")
    assert run("schema", "history", file, topic="users")["table"] == shop.table("users")
    assert run("schema", "diff", file, topic="users")["ddl"] == []
    described = [each["table"] for each in run("tables", "describe", file)["tables"]]
    expected = [f"{shop.table(name)}{suffix}" for name in ("orders", "users") for suffix in ("", "_dead")]
    assert described == expected
    [table, dead] = run("tables", "describe", file, topic="orders")["tables"]
    assert (table["table"], dead["records"]) == (shop.table("orders"), 1)
    refused = CliRunner().invoke(root, ["schema", "show", file])
    assert "choose one with --topic" in refused.output
