"""A feed lands a topic in a search server, and a check finds mistakes before a run."""

from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from lakefeed.cli.check import check
from lakefeed.config.loading.load import read
from lakefeed.config.problem import errors_of
from lakefeed.errors import AccessDenied, CheckpointMismatch, ConfigError, Unreachable
from lakefeed.operations.preflight.analysis import analyze
from lakefeed.operations.preflight.connect import preflight
from lakefeed_repair.rewind import plan_rewind
from packages.elasticsearch.tests.search_pipeline import environment_of, pipeline_of, sink_of
from tests.support.feed import Feed
from tests.support.servers.search import Gate, SearchServer, gate


@pytest.fixture
def opened(search: SearchServer) -> Iterator[Gate]:
    with gate(search) as made:
        yield made


def trips(count: int, *, start: int = 0) -> list[dict[str, Any]]:
    return [{"id": number, "zone": f"z{number}"} for number in range(start, start + count)]


@pytest.mark.slow
def test_a_feed_resumes_at_the_position_of_the_index(
    feed: Feed, search: SearchServer, opened: Gate, lake: SparkSession
) -> None:
    feed.create_topic()
    letters = {"dead_letters": {"table": f"lake.{feed.name}.letters"}}
    feed.send([*feed.avro(trips(30)), b"\x07no"])
    pipeline = pipeline_of(feed, opened, **letters)
    [planned] = pipeline.plan(spark=lake).tables
    assert planned.refusal is None
    assert planned.tables[-1].is_new
    [made] = planned.tables[-1].statements
    assert made.startswith(f'PUT /{feed.name} {{"mappings"')
    assert f"/{feed.name}" not in search.ask("GET", "/_cat/indices?format=json")
    first = pipeline.run(spark=lake, once=True)
    assert (first.rows, first.dead_letters) == (30, 1)
    feed.send(feed.avro(trips(20, start=30)))
    notes: list[str] = []
    pipeline.feed.claim(lake).discard()
    assert pipeline.run(spark=lake, once=True, on_note=notes.append).rows == 20
    assert "resumes at the table's position" in notes[0]
    found = search.documents(feed.name)
    assert sorted(each["id"] for each in found.values()) == list(range(50))
    assert all(name.startswith(f"{feed.topic}/") and set(each) == {"id", "zone"} for name, each in found.items())
    assert pipeline.plan(spark=lake).tables[0].tables[-1].statements == ()
    assert {each.lag for each in pipeline.status().partitions} == {0}
    for refused in (pipeline.verify, lambda: plan_rewind(pipeline, "earliest")):
        with pytest.raises(ConfigError):
            refused()
    # No secret is in any setting that Spark shows.
    shown = [value for _, value in lake.sparkContext.getConf().getAll()]
    shown += [str(row) for row in lake.sql("SET -v").collect()]
    assert not any(opened.password in each or opened.login in each for each in shown)
    # Another client removes the index, although the checkpoint has the batches as committed.
    search.ask("DELETE", f"/{feed.name}")
    feed.send(feed.avro(trips(1)))
    with pytest.raises(CheckpointMismatch):
        pipeline.run(spark=lake, once=True)


def test_check_connect_exits_with_the_status_of_the_problem(feed: Feed, opened: Gate, lake: SparkSession) -> None:
    feed.create_topic()
    feed.send(feed.avro(trips(1)))

    def status(**environment: str) -> int:
        pipeline = feed.write_file(sink=sink_of(feed, opened, url="${SEARCH_URL}"))
        known = {**environment_of(feed, opened), "SEARCH_URL": opened.url, **environment}
        return CliRunner().invoke(check, [str(pipeline), "--connect"], env=known).exit_code

    assert status() == 0
    assert status(SEARCH_PASSWORD="wrong") == 2
    assert status(SEARCH_URL="http://127.0.0.1:1") == 1


def test_a_check_finds_mistakes_before_a_run(
    feed: Feed, search: SearchServer, opened: Gate, lake: SparkSession
) -> None:
    feed.create_topic()
    feed.send(feed.avro(trips(1)))

    def problem(
        change: dict[str, Any], *, password: str | None = None, status: type[Exception] = ConfigError, sql: str = ""
    ) -> str:
        environment = environment_of(feed, opened)
        if password is not None:
            environment["SEARCH_PASSWORD"] = password
        blocks = {"sink": sink_of(feed, opened, **change), **({"transform": {"sql": sql}} if sql else {})}
        reading = read(feed.write_file(**blocks), environment=environment)
        found = list(reading.problems)
        if (config := reading.config) is not None:
            connections = config.connections(environment)
            found += preflight(config, connections=connections)
            found += analyze(config, connections=connections, spark=lambda: lake, connect=True)
        assert [each.error for each in errors_of(found)][:1] == [status]
        text = " ".join(map(str, found))
        assert opened.password not in text
        return text

    assert "did you mean 'keys'" in problem({"mode": "upsert", "keys": ["id"], "kyes": ["id"]})
    assert "refuses the login" in problem({}, password="wrong", status=AccessDenied)
    assert "does not answer" in problem({"url": "http://127.0.0.1:1"}, status=Unreachable)
    assert "not as Elasticsearch" in problem({"url": feed.stack.schema_registry_url})
    assert "rows lack kafka_topic" in problem({}, sql=f"SELECT zone FROM {feed.name}")
    assert "several of one" in problem({}, sql=f"SELECT *, explode(array(1, 2)) AS n FROM {feed.name}")
    assert "which the rows do not have" in problem({"mode": "upsert", "keys": ["ids"]})
    search.ask("PUT", f"/{feed.name}", {"settings": {"index.translog.durability": "async"}})
    assert "before they are on disk" in problem({})
