"""A feed lands a topic in PostgreSQL, MariaDB and MySQL, and a check finds mistakes before a run."""

from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import SparkSession

from lakefeed.config.loading.load import read
from lakefeed.config.problem import errors_of
from lakefeed.errors import CheckpointMismatch, ConfigError, RowsRefused
from lakefeed.ledger.checkpoint import StoredCheckpoint
from lakefeed.operations.preflight.connect import preflight
from lakefeed_repair.rewind import plan_rewind
from packages.jdbc.tests.databases import EACH_DATABASE, server_of
from packages.jdbc.tests.jdbc_feed import TABLE, Server, environment_of, ids, pipeline_of, sink_of, staging_tables
from tests.support.feed import Feed


@pytest.fixture(params=EACH_DATABASE)
def server(request: pytest.FixtureRequest) -> Server:
    return server_of(request.param, request.getfixturevalue)


def trips(count: int, *, start: int = 0) -> list[dict[str, Any]]:
    return [{"id": number, "zone": f"z{number}"} for number in range(start, start + count)]


def test_a_feed_resumes_at_the_position_of_the_database_and_passes_verify(
    feed: Feed, server: Server, lake: SparkSession
) -> None:
    feed.create_topic()
    letters = {"dead_letters": {"table": f"lake.{feed.name}.letters"}}
    feed.send([*feed.avro(trips(300)), b"\x07no"])
    pipeline = pipeline_of(feed, server, **letters)
    [planned] = pipeline.plan(spark=lake).tables
    assert planned.refusal is None
    assert [each.split()[:2] for each in planned.tables[-1].statements] == [["CREATE", "TABLE"]] * 3
    first = pipeline.run(spark=lake, once=True)
    assert (first.rows, first.dead_letters) == (300, 1)
    feed.send(feed.avro(trips(200, start=300)))
    files = StoredCheckpoint(feed.checkpoint, s3=feed.connections.s3)
    assert files.names()
    notes: list[str] = []
    pipeline.feed.claim(lake).discard()
    assert pipeline.run(spark=lake, once=True, on_note=notes.append).rows == 200
    assert "resumes at the table's position" in notes[0]
    assert ids(server) == list(range(500))
    assert staging_tables(server) == []
    found = pipeline.verify(deep=True)
    assert found.findings == ()
    assert (found.rows, found.dead_letters, found.records, found.commits) == (500, 1, 501, 2)
    assert {(each.table, each.lag) for each in pipeline.status().partitions if each.lag} == set()
    with pytest.raises(ConfigError, match="cannot be rewound"):
        plan_rewind(pipeline, "earliest")
    # No secret is in any setting that Spark shows.
    shown = [value for _, value in lake.sparkContext.getConf().getAll()]
    shown += [str(row) for row in lake.sql("SET -v").collect()]
    assert not any(server.password in each for each in shown)
    # Another client deletes a row, then restores the database to its state before the last batch.
    server.execute(f"DELETE FROM {TABLE} WHERE id = 7")
    assert [each.kind for each in pipeline.verify(deep=True).faults] == ["missing"]
    server.execute("DELETE FROM lakefeed_commits WHERE number = 2", f"DELETE FROM {TABLE} WHERE id >= 300")
    with pytest.raises(CheckpointMismatch, match="remove the checkpoint"):
        pipeline.run(spark=lake, once=True)


def test_a_feed_without_a_checkpoint_resumes_at_the_position_of_the_database(
    feed: Feed, server: Server, lake: SparkSession
) -> None:
    feed.create_topic(partitions=2)
    feed.send(feed.avro(trips(10)))
    kafka = {"bootstrap_servers": "${KAFKA_BOOTSTRAP_SERVERS}", "topics": [feed.topic], "start": "latest"}
    pipeline = pipeline_of(feed, server, source={"kafka": kafka}, checkpoint="")
    assert pipeline.run(spark=lake, once=True).rows == 0
    for start in (10, 15):
        feed.send(feed.avro(trips(5, start=start)))
        assert pipeline.run(spark=lake, once=True).rows == 5
    assert ids(server) == list(range(10, 20))
    assert pipeline.verify(deep=True).faults == ()


def test_the_error_for_a_refused_row_names_its_record(feed: Feed, server: Server, lake: SparkSession) -> None:
    feed.create_topic(partitions=2)
    pipeline = pipeline_of(feed, server)
    feed.send(feed.avro(trips(20)), partition=1)
    pipeline.run(spark=lake, once=True)
    server.execute(f"ALTER TABLE {TABLE} ADD CONSTRAINT shorter CHECK (id <> 33)")
    feed.send(feed.avro(trips(20, start=20)), partition=1)
    with pytest.raises(RowsRefused, match=rf"the row comes from {feed.topic}-1 offset 33"):
        pipeline.run(spark=lake, once=True)
    assert ids(server) == list(range(20))
    assert staging_tables(server) == []
    server.execute(f"ALTER TABLE {TABLE} DROP CONSTRAINT shorter")
    assert pipeline.run(spark=lake, once=True).rows == 20


@pytest.mark.slow
def test_upserts_and_deletes_change_the_rows_with_the_same_keys(feed: Feed, server: Server, lake: SparkSession) -> None:
    feed.create_topic(partitions=1)
    sink = {"mode": "upsert", "keys": ["id"], "delete": {"column": "zone", "equals": ["gone"]}}
    pipeline = pipeline_of(feed, server, sink=sink)
    feed.send(feed.avro([*trips(50), {"id": 3, "zone": "gone"}, {"id": 4, "zone": "moved"}]))
    assert pipeline.run(spark=lake, once=True).rows == 49
    feed.send(feed.avro([{"id": 3, "zone": "back"}, {"id": 5, "zone": "gone"}]))
    pipeline.run(spark=lake, once=True)
    rows = dict(server.execute(f"SELECT id, zone FROM {TABLE}"))
    assert (rows[3], rows[4], 5 in rows, len(rows)) == ("back", "moved", False, 49)
    found = pipeline.verify(deep=True)
    assert found.findings == ()
    assert found.upserts is not None
    assert (found.upserts.inserted, found.upserts.deleted) == (50, 1)


def test_a_check_finds_mistakes_before_a_run(feed: Feed, server: Server) -> None:
    feed.create_topic()
    feed.send(feed.avro(trips(1)))
    quote = '"' if server.jdbc_url.startswith("jdbc:postgresql") else "`"
    server.execute(f"CREATE TABLE {TABLE} (id INT PRIMARY KEY, zone DATE, {quote}kafka_offset{quote} BIGINT)")

    def problem(change: Callable[[dict[str, Any]], None], *, password: str | None = None, connect: bool = False) -> str:
        sink = sink_of(server)
        change(sink["jdbc"])
        environment = environment_of(feed, server)
        if password is not None:
            environment["DATABASE_PASSWORD"] = password
        reading = read(feed.write_file(sink=sink), environment=environment)
        found = list(reading.problems)
        if connect and reading.config is not None:
            found += preflight(reading.config, connections=reading.config.connections(environment))
        assert errors_of(found)
        text = " ".join(map(str, found))
        assert server.password not in text
        return text

    assert "keys" in (misspelt := problem(lambda sink: sink.update(mode="upsert", kyes=["id"]))).replace("kyes", "")
    assert "kyes" in misspelt
    assert "requires keys" in problem(lambda sink: sink.update(mode="upsert"))
    joined = "&" if "?" in server.jdbc_url else "?"
    assert "credentials do not belong in a URL" in problem(
        lambda sink: sink.update(url=f"{server.jdbc_url}{joined}password=x")
    )
    assert "refuses the user or the password" in problem(lambda sink: None, connect=True, password="wrong")
    away = server.jdbc_url.replace(f":{server.port}", ":1")
    assert "does not answer" in problem(lambda sink: sink.update(url=away), connect=True)
    other = server.jdbc_url.replace(f"/{server.database}", f"/{server.database}_not")
    assert "no such database" in problem(lambda sink: sink.update(url=other), connect=True)
    misfits = problem(lambda sink: None, connect=True)
    assert "column id is bigint" in misfits
    assert "column zone is string" in misfits
    keyless = problem(lambda sink: sink.update(mode="upsert", keys=["zone"]), connect=True)
    assert "no unique index" in keyless
