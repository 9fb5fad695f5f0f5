"""Many topics in one job: each in its own table with its own schema; one that fails is alone; new ones come in."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from lakefeed.cli.main import root
from lakefeed.errors import ConfigError, TableBusy
from lakefeed.local import Endpoints
from lakefeed.pipeline import Pipeline, RunSummary
from lakefeed.tables.reader import open_table
from lakefeed.upkeep.maintain import Maintenance
from tests.feed import Feed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def schema(**fields: str) -> dict[str, Any]:
    columns = [{"name": name, "type": kind} for name, kind in fields.items()]
    return {"type": "record", "name": "Row", "fields": columns}


SCHEMAS = {
    "orders": schema(id="long", total="double"),
    "users": schema(name="string"),
    "quiet.one": schema(id="long", on="boolean"),
}


class Shop:
    """A job of this test's own."""

    def __init__(self, feed: Feed) -> None:
        self.feed = feed

    def topic(self, name: str) -> str:
        return f"{self.feed.name}.{name}"

    def table(self, name: str) -> str:
        return f"lake.{self.feed.name}.{self.topic(name).replace('.', '_')}"

    def create(self, name: str, *, partitions: int = 2) -> None:
        self.feed.create_topic(topic=self.topic(name), partitions=partitions)

    def send(self, name: str, rows: list[dict[str, Any]]) -> None:
        self.feed.send(self.feed.avro(rows, SCHEMAS[name], topic=self.topic(name)), topic=self.topic(name))

    def rows(self, name: str) -> list[dict[str, Any]]:
        return self.feed.rows(self.table(name))

    def pipeline(self, *, limit: int = 100_000, **blocks: Any) -> Pipeline:
        source = {
            "bootstrap_servers": "${KAFKA_BOOTSTRAP_SERVERS}",
            "topics_pattern": rf"{self.feed.name}\..*",
            "max_records_per_batch": limit,
        }
        path: Path = self.feed.folder / "many.yaml"
        document = {
            "name": self.feed.name,
            "source": {"kafka": source},
            "decode": {"avro": {"registry": "${SCHEMA_REGISTRY_URL}"}, "metadata": ["partition", "offset"]},
            "sink": {"iceberg": {"table": f"lake.{self.feed.name}.{{topic}}"}},
            "trigger": "1 second",
            **blocks,
        }
        path.write_text(json.dumps(document))
        return Pipeline.from_file(path, environment=self.feed.environment)

    def run_command(self, *arguments: str, topic: str | None = None, monkeypatch: pytest.MonkeyPatch) -> Any:
        """Runs a command on the file in this process; what it said as JSON."""
        for name, value in self.feed.environment.items():
            monkeypatch.setenv(name, value)
        chosen = ["--topic", self.topic(topic)] if topic else []
        done = CliRunner().invoke(root, [*arguments, *chosen, "--output", "json"], catch_exceptions=False)
        return json.loads(done.stdout)


@pytest.fixture
def shop(feed: Feed) -> Shop:
    return Shop(feed)


def failures(summary: RunSummary) -> dict[str, str]:
    return {each.topic: each.failure for each in summary.tables if each.failure}


def verified(pipeline: Pipeline) -> bool:
    return all(not each.verify(deep=True).faults for each in pipeline.parts())


def eventually(met: Callable[[], bool], *, seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not met():
        assert time.monotonic() < deadline
        time.sleep(0.2)


def test_each_topic_lands_in_a_table_of_its_own_and_a_restart_goes_on(lake: SparkSession, shop: Shop) -> None:
    for name in SCHEMAS:
        shop.create(name)
    shop.send("orders", [{"id": number, "total": number / 2} for number in range(50)])
    shop.send("users", [{"name": f"u{number}"} for number in range(3)])
    pipeline = shop.pipeline(limit=20)
    first = pipeline.run(spark=lake, once=True)
    assert failures(first) == {}
    assert (first.records, first.rows) == (53, 53)
    # The loud one needs three batches, and the quiet one was done after the first.
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


def test_a_poisoned_topic_is_alone_and_goes_on_when_it_is_healed(lake: SparkSession, shop: Shop) -> None:
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


def test_new_topics_and_a_paused_table_that_goes_on_while_the_job_runs(lake: SparkSession, shop: Shop) -> None:
    shop.create("users")
    shop.create("orders")
    # No schema is registered for it yet: it cannot begin.
    shop.feed.send([b"early"], topic=shop.topic("users"))
    shop.send("orders", [{"id": 1, "total": 1.0}])
    stop = threading.Event()
    notes: list[str] = []
    results: list[RunSummary] = []
    pipeline = shop.pipeline(
        tables={"on_failure": "pause", "retry_after": "1 second"},
        dead_letters={"table": f"lake.{shop.feed.name}.dead"},
    )
    job = threading.Thread(
        target=lambda: results.append(
            pipeline.run(spark=lake, stop=stop, on_batch=lambda progress: notes.extend(progress.notes))
        )
    )
    job.start()
    try:
        eventually(lambda: any("users" in note for note in notes))
        shop.create("quiet.one")
        shop.send("quiet.one", [{"id": 7, "on": True}])
        shop.send("users", [{"name": "late"}])
        eventually(lambda: f"{shop.topic('users')}: goes on" in notes)
        eventually(lambda: _landed(shop, "quiet.one"))
    finally:
        stop.set()
        job.join(120)
    [summary] = results
    assert failures(summary) == {}
    assert [row["name"] for row in shop.rows("users")] == ["late"]
    assert summary.dead_letters == 1
    assert verified(pipeline)


def _landed(shop: Shop, name: str) -> bool:
    from lakefeed.errors import ResourceMissing

    try:
        return bool(shop.rows(name))
    except ResourceMissing:
        return False


def test_a_table_that_is_not_the_topics_is_left_alone(lake: SparkSession, shop: Shop) -> None:
    def send(name: str, number: int) -> None:
        shop.feed.send([json.dumps({"id": number}).encode()], topic=shop.topic(name))

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

    # Topics that come later; 'a-b' and 'UPPER' come before those that have the tables.
    for name in ("a-b", "UPPER", "letters"):
        shop.create(name, partitions=1)
        send(name, 2)
    send("a_b", 3)
    named = {shop.topic("legacy"): {"table": shop.table("legacy")}}
    second = run(**letters, tables={"topics": named})
    told = failures(second)
    assert sorted(told) == sorted(shop.topic(name) for name in ("a-b", "UPPER", "letters"))
    assert {"would go to one table" in each for each in told.values()} == {True}
    assert [row["id"] for row in shop.rows("legacy")] == [1]
    assert sorted(row["id"] for row in shop.rows("a_b")) == [1, 3]
    plans = shop.pipeline(decode={"json": {"schema_ddl": "id BIGINT"}}, **letters, tables={"topics": named}).plan(
        spark=lake
    )
    assert sorted(each.topics[0] for each in plans.tables if each.refusal) == sorted(told)


def test_letters_and_rows_of_two_feeds_do_not_mix(lake: SparkSession, feed: Feed) -> None:
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

    assert "is no table of dead letters" in refused(
        "letters", sink={"iceberg": {"table": f"lake.{feed.name}.more"}}, dead_letters={"table": feed.table}
    )
    assert "is a table of dead letters" in refused("rows", sink={"iceberg": {"table": dead}})


def test_a_topic_that_was_made_again_is_alone_until_its_loss_is_accepted(
    lake: SparkSession, shop: Shop, stack: Endpoints
) -> None:
    from lakefeed.kafka.topics import Topics

    for name in ("orders", "users"):
        shop.create(name)
        shop.send(name, [{"id": 1, "total": 1.0} if name == "orders" else {"name": "u"}])
    shop.pipeline().run(spark=lake, once=True)
    Topics(stack.bootstrap_servers).delete(shop.topic("orders"))
    shop.create("orders")
    shop.send("orders", [{"id": 2, "total": 2.0}])
    shop.send("users", [{"name": "v"}])
    refused = shop.pipeline().run(spark=lake, once=True)
    assert "made again" in failures(refused)[shop.topic("orders")]
    assert len(shop.rows("users")) == 2
    accepted = shop.pipeline().run(spark=lake, once=True, accept_loss=True)
    assert failures(accepted) == {}
    assert sorted(row["id"] for row in shop.rows("orders")) == [1, 2]


CHANGES = [
    {"id": 1, "city": "amsterdam", "op": "u"},
    {"id": 2, "city": "berlin", "op": "u"},
    {"id": 1, "city": "cairo", "op": "u"},
    {"id": 2, "city": "berlin", "op": "d"},
]


def test_each_topic_is_upserted_by_keys_of_its_own_beside_a_history(lake: SparkSession, shop: Shop) -> None:
    names = ("a", "b", "c", "d")
    for at, name in enumerate(names):
        shop.create(name, partitions=1)
        changes = [{**each, "city": f"{each['city']}-{name}"} for each in CHANGES]
        shop.feed.send([json.dumps(each).encode() for each in changes[: len(changes) - at % 2]], topic=shop.topic(name))
    table = f"lake.{shop.feed.name}.{{topic}}"
    pipeline = shop.pipeline(
        decode={"json": {"schema_ddl": "id BIGINT, city STRING, op STRING"}},
        # One name for the rows of all topics: what is written at the same time must not see each other's.
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


def test_commands_take_the_table_of_one_topic_or_all(
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
    assert run("dead-letters", "show", file, position, topic="users")["topic"] == shop.topic("users")
    assert run("schema", "show", file, topic="users")["table"] == shop.table("users")
    assert run("schema", "history", file, topic="users")["table"] == shop.table("users")
    assert run("schema", "diff", file, topic="users")["ddl"] == []
    described = [each["table"] for each in run("tables", "describe", file)["tables"]]
    expected = [f"{shop.table(name)}{suffix}" for name in ("orders", "users") for suffix in ("", "_dead")]
    assert described == expected
    [table, dead] = run("tables", "describe", file, topic="orders")["tables"]
    assert (table["table"], dead["records"]) == (shop.table("orders"), 1)
    refused = CliRunner().invoke(root, ["schema", "show", file])
    assert "--topic says which one is meant" in refused.output


@pytest.mark.slow
def test_upkeep_and_letters_of_one_topic_or_all(
    lake: SparkSession, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = shop.pipeline(dead_letters={"table": f"lake.{shop.feed.name}.{{topic}}_dead"})
    for name in ("orders", "users"):
        shop.create(name)
    for number in range(3):
        for name in ("orders", "users"):
            shop.send(name, [{"id": number, "total": 1.0} if name == "orders" else {"name": "u"}])
            shop.feed.send([b"poison"], topic=shop.topic(name), partition=1)
        pipeline.run(spark=lake, once=True)
    file = str(shop.feed.folder / "many.yaml")

    def run(*arguments: str, topic: str | None = None) -> Any:
        return shop.run_command(*arguments, topic=topic, monkeypatch=monkeypatch)

    def files(table: str) -> int:
        return len(open_table(table, connections=shop.feed.connections).inspect.files())

    compact = ("tables", "maintain", file, "--only", "compact", "--target-mb", "1")
    only = shop.pipeline(
        dead_letters={"table": f"lake.{shop.feed.name}.{{topic}}_dead"}, upkeep={"compact": {"min_files": 3}}
    )
    [table, dead] = run(*compact, topic="orders")["tables"]
    assert (table["table"], dead["table"]) == (shop.table("orders"), f"{shop.table('orders')}_dead")
    assert (files(shop.table("orders")), files(shop.table("users"))) == (1, 3)
    with monkeypatch.context() as broken:
        whole = Maintenance.run

        def fails_on_one(job: Maintenance, **how: Any) -> Any:
            if job._table == shop.table("orders"):
                raise TableBusy("another upkeep job is at work", where=job._table)
            return whole(job, **how)

        broken.setattr(Maintenance, "run", fails_on_one)
        told = run(*compact)
    assert [each["table"] for each in told["failed"]] == [shop.table("orders")]
    assert files(shop.table("users")) == 1
    assert verified(only)

    dropped = run("dead-letters", "drop", file, "--yes", topic="orders")
    assert dropped == {"dropped": 3}
    [replayed] = run("dead-letters", "replay", file)["tables"]
    assert (replayed["feed"], replayed["still_dead"]) == (
        f"{shop.feed.name}__{shop.topic('users').replace('.', '_')}",
        3,
    )
    assert run("dead-letters", "replay", file, topic="users")["still_dead"] == 3
    assert run("dead-letters", "drop", file, "--yes") == {"dropped": 3}
    assert verified(only)


@pytest.mark.slow
def test_upkeep_of_all_tables_beside_the_job_one_after_the_other(
    lake: SparkSession, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_work: list[str] = []
    looked: set[str] = set()
    run = Maintenance.run

    def watched(job: Maintenance, **how: Any) -> Any:
        at_work.append(job._table)
        assert len(at_work) == 1, at_work
        try:
            return run(job, **how)
        finally:
            looked.add(at_work.pop())

    monkeypatch.setattr(Maintenance, "run", watched)
    for name in ("orders", "users"):
        shop.create(name)
    stop = threading.Event()
    notes: list[str] = []
    results: list[RunSummary] = []
    pipeline = shop.pipeline(
        upkeep={"every": "2 seconds", "compact": {"min_files": 3}}, trigger="1 second", tables={"on_failure": "stop"}
    )
    job = threading.Thread(
        target=lambda: results.append(
            pipeline.run(spark=lake, stop=stop, on_batch=lambda progress: notes.extend(progress.notes))
        )
    )
    job.start()
    sent = 0

    def kept() -> bool:
        nonlocal sent
        for name in ("orders", "users"):
            shop.send(name, [{"id": sent, "total": 1.0} if name == "orders" else {"name": f"u{sent}"}])
        sent += 1
        time.sleep(1)
        assert not [note for note in notes if "failed" in note or "stopped" in note], notes
        return all(any(f"upkeep of {shop.table(name)} took" in note for note in notes) for name in ("orders", "users"))

    try:
        eventually(kept, seconds=400)
    finally:
        stop.set()
        job.join(120)
    assert looked == {shop.table(name) for name in ("orders", "users")}
    assert failures(results[0]) == {}
    pipeline.run(spark=lake, once=True)
    assert sorted(row["id"] for row in shop.rows("orders")) == list(range(sent))
    assert len(open_table(shop.table("orders"), connections=shop.feed.connections).inspect.files()) < sent
    assert verified(pipeline)
