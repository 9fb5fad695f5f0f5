"""A job of many topics: a command or the job itself maintains the table of one topic, or all tables."""

import time
from typing import Any

import pytest
from pyspark.sql import SparkSession

from lakefeed.clients.iceberg.reader import open_table
from lakefeed.errors import TableBusy
from lakefeed_upkeep.maintain import Maintenance
from tests.support.background import running
from tests.support.feed import Feed, until
from tests.support.shop import Shop, failures, verified


@pytest.fixture
def shop(feed: Feed) -> Shop:
    return Shop(feed)


@pytest.mark.slow
def test_upkeep_and_dead_letter_commands_apply_to_one_topic_or_to_all(
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
            if job.table == shop.table("orders"):
                raise TableBusy("another upkeep job is at work", where=job.table)
            return whole(job, **how)

        broken.setattr(Maintenance, "run", fails_on_one)
        message = run(*compact)
    assert [each["table"] for each in message["failed"]] == [shop.table("orders")]
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
def test_upkeep_of_all_tables_runs_one_table_after_the_other_while_the_job_runs(
    lake: SparkSession, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_work: list[str] = []
    looked: set[str] = set()
    run = Maintenance.run

    def watched(job: Maintenance, **how: Any) -> Any:
        at_work.append(job.table)
        assert len(at_work) == 1, at_work
        try:
            return run(job, **how)
        finally:
            looked.add(at_work.pop())

    monkeypatch.setattr(Maintenance, "run", watched)
    for name in ("orders", "users"):
        shop.create(name)
    pipeline = shop.pipeline(
        upkeep={"every": "2 seconds", "compact": {"min_files": 3}}, trigger="1 second", tables={"on_failure": "stop"}
    )
    sent = 0

    def every_table_has_been_maintained() -> bool:
        nonlocal sent
        for name in ("orders", "users"):
            shop.send(name, [{"id": sent, "total": 1.0} if name == "orders" else {"name": f"u{sent}"}])
        sent += 1
        time.sleep(1)
        assert not [note for note in job.notes if "failed" in note or "stopped" in note], job.notes
        names = ("orders", "users")
        return all(any(f"upkeep of {shop.table(name)} took" in note for note in job.notes) for name in names)

    with running(pipeline, lake) as job:
        until(every_table_has_been_maintained, seconds=400)
    assert looked == {shop.table(name) for name in ("orders", "users")}
    assert failures(job.end()) == {}
    pipeline.run(spark=lake, once=True)
    assert sorted(row["id"] for row in shop.rows("orders")) == list(range(sent))
    assert len(open_table(shop.table("orders"), connections=shop.feed.connections).inspect.files()) < sent
    assert verified(pipeline)
