"""Each sink supports the output modes that it lists, and a crash before Spark's commit has the documented result."""

import threading
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import lakefeed
from lakefeed.errors import LakefeedError, Unreachable
from lakefeed.feed.progress import FinishedBatch
from lakefeed.ledger.iceberg import IcebergLedger
from lakefeed.sinks.iceberg.table import IcebergTable
from lakefeed_local.stack import Endpoints
from packages.jdbc.tests.databases import DATABASES, server_of
from tests.support.background import running
from tests.support.deaths import dying
from tests.support.feed import Feed, until
from tests.support.sink_cases import (
    CASES,
    DECODE,
    OWN,
    SEARCH,
    SERVERS,
    Case,
    beside,
    blocks,
    hits,
    of_sqlite,
    of_table,
    of_topic,
    out,
    own,
    path,
    records_of,
    topic,
    values,
)

OTHER_FORMS = ("orc", "avro", "json", "csv")
QUICK = ("kafka-append",)
FULL = (
    "iceberg-update",
    "iceberg-complete",
    "mariadb-update",
    "orc-append",
    "python-ledger-append",
    "elasticsearch-append",
)


def marks(case: str) -> tuple[pytest.MarkDecorator, ...]:
    if case in QUICK:
        return (pytest.mark.quick,)
    return () if case in FULL else (pytest.mark.slow,)


@pytest.fixture
def feed(stack: Endpoints, tmp_path: Path, request: pytest.FixtureRequest) -> Feed:
    made = Feed(stack, tmp_path)
    if "orc" in request.node.name:
        made.name = f"orc_{made.name}"
    for database in DATABASES:
        if f"[{database}-" in request.node.name:
            SERVERS[made.name] = server_of(database, request.getfixturevalue)
    if "[elasticsearch-" in request.node.name:
        SEARCH[made.name] = request.getfixturevalue("search")
    made.create_topic(partitions=1)
    (tmp_path / f"own_{made.name}.py").write_text(OWN)
    return made


@pytest.mark.parametrize("name", [pytest.param(case, marks=marks(case)) for case in CASES])
def test_a_crash_after_the_sinks_commit_and_before_sparks_has_the_documented_result(
    feed: Feed, lake: SparkSession, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = CASES[name]
    settings = blocks(feed, case)
    feed.send(hits("8001", "3011"))
    feed.pipeline(**settings).run(spark=lake, once=True)

    feed.send(hits("8001", "6003"))
    with monkeypatch.context() as crash:
        dying(crash)
        with pytest.raises(LakefeedError):
            feed.pipeline(**settings).run(spark=lake, once=True)

    feed.send(hits("3011"))
    assert feed.pipeline(**settings).run(spark=lake, once=True).repeated == case.repeated
    found = sorted(case.read(feed, lake))
    if case.mode != "append":
        assert found == [("3011", 2), ("6003", 1), ("8001", 2)]
        return
    records = ["8001", "3011", "8001", "6003", "3011"]
    again = [] if case.exactly_once else ["8001", "6003"]
    assert found == sorted((each, 1) for each in (*records, *again))
    if name == "kafka-append":
        once = lakefeed.deduplicated(records_of(feed, lake))
        assert sorted(values(once)) == sorted((each, 1) for each in records)


@pytest.mark.parametrize("mode", ["append", "update", "complete"])
def test_sql_queries_the_result_of_a_memory_sink(feed: Feed, lake: SparkSession, mode: str) -> None:
    sink = {"memory": {"view": f"seen_{feed.name}", "keys": ["zip"] if mode == "update" else []}}
    case = Case(mode, lambda _: sink, of_table)
    pipeline = feed.pipeline(**blocks(feed, case), source=feed.source(max_records_per_batch=2), checkpoint="")
    feed.send(hits("8001", "3011", "8001"))
    summary = pipeline.run(spark=lake, once=True)
    assert summary.records == 3
    hits_of = "1 AS hits" if mode == "append" else "hits"
    found = lake.sql(f"SELECT zip, {hits_of} FROM seen_{feed.name}").collect()
    expected = [("3011", 1), ("8001", 1), ("8001", 1)] if mode == "append" else [("3011", 1), ("8001", 2)]
    assert sorted((each.zip, each.hits) for each in found) == expected


@pytest.mark.parametrize("form", ["parquet", *(pytest.param(each, marks=pytest.mark.slow) for each in OTHER_FORMS)])
def test_a_table_that_reads_the_sinks_folders_shows_new_data_immediately(
    feed: Feed, lake: SparkSession, form: str
) -> None:
    table = f"{feed.name}_db.hits"
    sink = {"files": {"path": path(feed), "format": form, "partition_by": ["zip", "day"], "table": table}}
    sql = f"SELECT zip, isp, DATE '2024-01-01' AS day FROM {feed.name}"
    pipeline = feed.pipeline(decode=DECODE, transform={"sql": sql}, sink=sink)
    for zips in (("8001", "3011"), ("8001", "a'b=c/d")):
        feed.send(hits(*zips))
        pipeline.run(spark=lake, once=True)
        assert lake.table(table).filter(f"zip = '{zips[0]}'").count() >= 1
    assert sorted(str(each.zip) for each in lake.table(table).collect()) == ["3011", "8001", "8001", "a'b=c/d"]
    reader = lake.read.format(form).schema(lake.table(table).schema).option("header", "true")
    assert reader.load(path(feed)).count() == 4


def test_a_file_sink_counts_the_rows_that_it_has_written(feed: Feed, lake: SparkSession) -> None:
    sql = f"SELECT zip, explode(sequence(1, 3)) AS n FROM {feed.name} WHERE zip <> '3011'"
    pipeline = feed.pipeline(decode=DECODE, transform={"sql": sql}, sink={"parquet": {"path": path(feed)}})
    feed.send(hits("8001", "3011", "6003"))
    progress: list[FinishedBatch] = []
    first = pipeline.run(spark=lake, once=True, on_batch=progress.append)
    assert (first.records, first.rows, [each.rows for each in progress]) == (3, 6, [6])
    assert lake.read.parquet(path(feed)).count() == 6

    # Simulate a crash before Spark's commit: Spark repeats the batch, which is already in the sink's log.
    feed.forget("commits/0")
    feed.send(hits("3011"))
    again = pipeline.run(spark=lake, once=True)
    assert (again.batches, again.records, again.rows) == (1, 1, 0)
    assert lake.read.parquet(path(feed)).count() == 6


@pytest.mark.slow
@pytest.mark.parametrize("form", ["avro", "protobuf", "json_schema"])
def test_values_in_the_topic_of_a_sink_decode_with_their_registered_schema(
    feed: Feed, lake: SparkSession, form: str
) -> None:
    registry = feed.stack.schema_registry_url
    sql = f"SELECT zip, named_struct('isp', isp) AS of, kafka_topic, kafka_partition, kafka_offset FROM {feed.name}"
    sink = topic(value={form: {"registry": registry}}, key=["zip"], headers={"kind": "upper('hit')"})(feed)
    feed.send(hits("8001", "3011"))
    feed.pipeline(decode=DECODE, transform={"sql": sql}, sink=sink).run(spark=lake, once=True)
    read = lakefeed.read_topic(
        lake,
        out(feed),
        stream=False,
        bootstrap_servers=feed.stack.bootstrap_servers,
        decode={form: {"registry": registry}, "metadata": ["key", "headers"]},
    ).collect()
    found = [(each.zip, each["of"].isp, bytes(each.kafka_key)) for each in read]
    assert sorted(found) == [("3011", "one", b'{"zip":"3011"}'), ("8001", "one", b'{"zip":"8001"}')]
    headers = {each.key: bytes(each.value).decode() for each in read[0].kafka_headers}
    assert headers["kind"] == "HIT"
    assert headers["lakefeed.source"].startswith(f"{feed.topic}/0/")
    assert "lakefeed.row" not in headers


@pytest.mark.slow
def test_a_batch_run_that_is_repeated_into_a_topic_sends_the_records_twice(feed: Feed, lake: SparkSession) -> None:
    feed.send(hits("8001", "8001", "3011"))
    pipeline = feed.pipeline(decode=DECODE, sink=topic()(feed))
    assert pipeline.run_batch(spark=lake).rows == pipeline.run_batch(spark=lake).rows == 3
    records = records_of(feed, lake)
    assert records.count() == 6
    once = sorted(values(lakefeed.deduplicated(records)))
    assert once == [("3011", 1), ("8001", 1), ("8001", 1)]


@pytest.mark.quick
def test_several_sinks_get_the_same_rows_and_the_topic_is_read_once(feed: Feed, lake: SparkSession) -> None:
    seen = {"memory": {"view": f"seen_{feed.name}"}}
    pipeline = feed.pipeline(**beside(feed, own=own("Ledger")(feed), seen=seen, copy=topic()(feed)))
    for zips in (("8001", "3011"), ("6003",)):
        feed.send(hits(*zips))
        assert pipeline.run(spark=lake, once=True).records == len(zips)
    rows = [("3011", 1), ("6003", 1), ("8001", 1)]
    assert sorted(of_table(feed, lake)) == sorted(of_sqlite(feed, lake)) == rows
    assert sorted(of_topic(feed, lake)) == rows
    assert [each.zip for each in lake.table(f"seen_{feed.name}").collect()] == ["6003"]
    assert pipeline.verify().faults == ()


def test_a_paused_sink_catches_up_while_the_other_sinks_continue(
    feed: Feed, lake: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = f"lake.{feed.name}.slow"
    settings = beside(feed, slow={"iceberg": {"table": slow}, "on_failure": "pause"})
    feed.send(hits("8001"))
    feed.pipeline(**settings).run(spark=lake, once=True)

    land = IcebergTable.land

    def away(self: IcebergTable, *arguments: Any, **named: Any) -> int | None:
        if self.name == slow:
            raise ConnectionError("the store is away")
        return land(self, *arguments, **named)

    notes: list[str] = []
    feed.send(hits("3011", "6003"))
    with monkeypatch.context() as outage:
        outage.setattr(IcebergTable, "land", away)
        summary = feed.pipeline(**settings).run(spark=lake, once=True, on_note=notes.append)
    assert list(summary.paused) == ["slow"]
    assert any("'slow' waits" in each for each in notes)
    assert (len(feed.rows()), len(feed.rows(slow))) == (3, 1)

    # At the next start the paused sink catches up, even without new records in the topic.
    assert feed.pipeline(**settings).run(spark=lake, once=True).paused == {}
    assert sorted(each["zip"] for each in feed.rows(slow)) == ["3011", "6003", "8001"]
    feed.send(hits("7000"))
    feed.pipeline(**settings).run(spark=lake, once=True)
    assert sorted(each["zip"] for each in feed.rows(slow)) == sorted(each["zip"] for each in feed.rows())


def test_a_sink_that_is_unreachable_at_the_start_catches_up_and_its_requests_are_counted(
    feed: Feed, lake: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = f"lake.{feed.name}.slow"
    settings = beside(feed, slow={"iceberg": {"table": slow}, "on_failure": "pause"})
    feed.send(hits("8001"))
    feed.pipeline(**settings).run(spark=lake, once=True)
    monkeypatch.setattr("lakefeed.sinks.factory.PAUSE_SECONDS", 0)
    is_away, loaded = threading.Event(), IcebergLedger.loaded

    def loaded_unless_away(ledger: IcebergLedger) -> Any:
        if ledger._table == slow and is_away.is_set():
            raise ConnectionError("the catalog is away")
        return loaded(ledger)

    monkeypatch.setattr(IcebergLedger, "loaded", loaded_unless_away)
    is_away.set()
    feed.send(hits("8002"))
    with running(feed.pipeline(**settings), lake) as run:

        def counted() -> set[str]:
            """Return the classes of keys of the counted requests to the second table."""
            found = (batch.requests for batch in list(run.batches) if batch.requests is not None)
            return {count.key_class for each in found for count in each.counts if count.location.endswith("/slow")}

        until(lambda: run.batches)
        is_away.clear()
        feed.send(hits("3011"))
        until(lambda: len(run.batches) >= 2)
        feed.send(hits("6003"))
        until(lambda: counted() >= {"data", "metadata"})
    assert sorted(each["zip"] for each in feed.rows(slow)) == ["3011", "6003", "8001", "8002"]


def test_a_start_is_refused_if_a_new_sink_is_unreachable(
    feed: Feed, lake: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new sink has no position to catch up from, so its first records would silently be missing."""
    slow = f"lake.{feed.name}.slow"
    settings = beside(feed, slow={"iceberg": {"table": slow}, "on_failure": "pause"})
    feed.send(hits("8001"))

    def away(*_: Any) -> None:
        raise ConnectionError("Connection refused")

    with monkeypatch.context() as outage:
        outage.setattr(IcebergTable, "apply_schema", away)
        with pytest.raises(Unreachable, match="the sink 'slow' cannot begin"):
            feed.pipeline(**settings).run(spark=lake, once=True)
    feed.pipeline(**settings).run(spark=lake, once=True)
    assert [each["zip"] for each in feed.rows(slow)] == ["8001"]


def test_no_row_is_doubled_after_an_error_of_a_sink_has_stopped_the_feed(
    feed: Feed, lake: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = beside(feed, other={"iceberg": {"table": f"lake.{feed.name}.other"}})
    feed.send(hits("8001"))
    land = IcebergTable.land

    def fails(self: IcebergTable, *arguments: Any, **named: Any) -> int | None:
        if self.name == feed.table:
            raise ConnectionError("the driver dies between two sinks")
        return land(self, *arguments, **named)

    with monkeypatch.context() as crash:
        crash.setattr(IcebergTable, "land", fails)
        with pytest.raises(LakefeedError):
            feed.pipeline(**settings).run(spark=lake, once=True)
    assert (len(feed.rows()), len(feed.rows(f"lake.{feed.name}.other"))) == (0, 1)
    feed.pipeline(**settings).run(spark=lake, once=True)
    assert (len(feed.rows()), len(feed.rows(f"lake.{feed.name}.other"))) == (1, 1)


@pytest.mark.quick
def test_the_console_sink_prints_the_first_rows(
    feed: Feed, lake: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    feed.send(hits("8001", "3011"))
    feed.pipeline(decode=DECODE, sink={"console": {"rows": 1}}, checkpoint="").run(spark=lake, once=True)
    said = capsys.readouterr().out
    assert "batch 0" in said
    assert "8001" in said
    assert "3011" not in said
