"""What every sink promises: the modes that it claims, and what a crash between its commit and Spark's leaves."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import lakefeed
from lakefeed.analysis import analysed
from lakefeed.assembly import Assembly
from lakefeed.config.connect import preflight
from lakefeed.errors import ConfigError, LakefeedError
from lakefeed.kafka.topics import Topics
from lakefeed.landing import Sink
from lakefeed.local import Endpoints
from lakefeed.observe.progress import BatchProgress
from lakefeed.sinks.iceberg import IcebergTable
from tests.feed import Feed
from tests.jdbc_feed import TABLE, Server, sink_of
from tests.servers.opensearch import OpenSearch
from tests.spark.databases import DATABASES, server_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DECODE = {"json": {"schema_ddl": "zip STRING, isp STRING"}}
OWN = """
import sqlite3


class Table:
    modes = ("append", "update")

    def __init__(self, path):
        self.path = path
        with sqlite3.connect(path) as table:
            table.execute("CREATE TABLE IF NOT EXISTS hits (zip TEXT, hits INT)")
            table.execute("CREATE TABLE IF NOT EXISTS batches (ranges TEXT)")

    def write(self, rows, batch):
        with sqlite3.connect(self.path) as table:
            for row in rows.collect():
                if "hits" in rows.columns:
                    table.execute("DELETE FROM hits WHERE zip = ?", (row.zip,))
                table.execute("INSERT INTO hits VALUES (?, ?)", (row.zip, row.asDict().get("hits", 1)))
            table.execute("INSERT INTO batches VALUES (?)", (batch.ranges,))


class Ledger(Table):
    def last(self):
        with sqlite3.connect(self.path) as table:
            found = table.execute("SELECT ranges FROM batches ORDER BY rowid DESC LIMIT 1").fetchone()
        return found and found[0]
"""


@dataclass(frozen=True)
class Case:
    """A sink in one of its modes.

    Attributes:
        mode: the output mode.
        sink: its block.
        read: what is in it now, each zip with its hits; one row for each record in append mode.
        exactly_once: whether it claims that.
        repeated: rows of the batch that was cut off, which the run tells that they may be there twice.
    """

    mode: str
    sink: Callable[[Feed], dict[str, Any]]
    read: Callable[[Feed, SparkSession], list[tuple[str, int]]]
    exactly_once: bool = True
    repeated: int = 0


def of_table(feed: Feed, lake: SparkSession) -> list[tuple[str, int]]:
    return [(each["zip"], each.get("hits", 1)) for each in feed.rows()]


def of_files(feed: Feed, lake: SparkSession) -> list[tuple[str, int]]:
    rows = lake.read.format("orc" if "orc" in feed.name else "parquet").load(path(feed)).collect()
    return [(str(each["zip"]), each.asDict().get("hits", 1)) for each in rows]


def of_sqlite(feed: Feed, lake: SparkSession) -> list[tuple[str, int]]:
    with sqlite3.connect(feed.folder / "own.db") as table:
        return list(table.execute("SELECT zip, hits FROM hits"))


SERVERS: dict[str, Server] = {}
"""The database of each feed that has one."""


def of_database(feed: Feed, lake: SparkSession) -> list[tuple[str, int]]:
    return [(row[0], int(row[1]) if row[1:] else 1) for row in SERVERS[feed.name].execute(f"SELECT * FROM {TABLE}")]


def database_of(**settings: Any) -> Callable[[Feed], dict[str, Any]]:
    def block(feed: Feed) -> dict[str, Any]:
        server = SERVERS[feed.name]
        sink = sink_of(server, **settings)
        sink["jdbc"]["password"] = server.password
        return sink

    return block


SEARCH: dict[str, OpenSearch] = {}
"""The search server of each feed that has one."""


def of_index(feed: Feed, lake: SparkSession) -> list[tuple[str, int]]:
    return [(each["zip"], each.get("hits", 1)) for each in SEARCH[feed.name].documents(feed.name).values()]


def index_of(**settings: Any) -> Callable[[Feed], dict[str, Any]]:
    return lambda feed: {"elasticsearch": {"url": SEARCH[feed.name].url, "index": feed.name, **settings}}


def path(feed: Feed) -> str:
    return f"s3a://{feed.stack.bucket}/files/{feed.name}"


def out(feed: Feed) -> str:
    return f"{feed.topic}-out"


def topic(**settings: Any) -> Callable[[Feed], dict[str, Any]]:
    def block(feed: Feed) -> dict[str, Any]:
        Topics(feed.stack.bootstrap_servers).create(out(feed), partitions=2, exist_ok=True)
        return {"kafka": {"topic": out(feed), **settings}}

    return block


def records_of(feed: Feed, lake: SparkSession) -> DataFrame:
    reader = lake.read.format("kafka").option("kafka.bootstrap.servers", feed.stack.bootstrap_servers)
    return reader.option("subscribe", out(feed)).option("includeHeaders", "true").load()


def values(records: DataFrame) -> list[tuple[str, int]]:
    rows = [json.loads(each.value) for each in records.orderBy("offset").collect()]
    return [(each["zip"], each.get("hits", 1)) for each in rows]


def of_topic(feed: Feed, lake: SparkSession) -> list[tuple[str, int]]:
    return values(records_of(feed, lake))


def newest_of_topic(feed: Feed, lake: SparkSession) -> list[tuple[str, int]]:
    return list(dict(of_topic(feed, lake)).items())


def iceberg(**settings: Any) -> Callable[[Feed], dict[str, Any]]:
    return lambda feed: {"iceberg": {"table": feed.table, **settings}}


def own(name: str) -> Callable[[Feed], dict[str, Any]]:
    return lambda feed: {"python": {"path": f"own_{feed.name}:{name}", "options": {"path": f"{feed.folder}/own.db"}}}


def orc(feed: Feed) -> dict[str, Any]:
    return {"format": {"name": "orc", "path": path(feed)}}


CASES = {
    "iceberg-append": Case("append", iceberg(), of_table),
    "iceberg-update": Case("update", iceberg(mode="upsert", keys=["zip"]), of_table),
    "iceberg-complete": Case("complete", iceberg(mode="overwrite"), of_table),
    "parquet-append": Case("append", lambda feed: {"parquet": {"path": path(feed)}}, of_files),
    "kafka-append": Case("append", topic(), of_topic, exactly_once=False, repeated=2),
    "kafka-update": Case("update", topic(key="zip"), newest_of_topic, repeated=2),
    "kafka-complete": Case("complete", topic(key="zip"), newest_of_topic, repeated=3),
    "orc-append": Case("append", orc, of_files, exactly_once=False, repeated=2),
    "orc-complete": Case("complete", orc, of_files),
    "elasticsearch-append": Case("append", index_of(), of_index),
    "elasticsearch-update": Case("update", index_of(mode="upsert", keys=["zip"]), of_index),
    "python-append": Case("append", own("Table"), of_sqlite, exactly_once=False, repeated=2),
    "python-ledger-append": Case("append", own("Ledger"), of_sqlite),
    "python-ledger-update": Case("update", own("Ledger"), of_sqlite),
}
for database in DATABASES:
    CASES |= {
        f"{database}-append": Case("append", database_of(), of_database),
        f"{database}-update": Case("update", database_of(mode="upsert", keys=["zip"]), of_database),
        f"{database}-complete": Case("complete", database_of(mode="overwrite"), of_database),
    }
OTHER_FORMS = ("orc", "avro", "json", "csv")
QUICK = (
    "iceberg-update",
    "kafka-append",
    "mariadb-update",
    "iceberg-complete",
    "orc-append",
    "python-ledger-append",
    "elasticsearch-append",
)


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


def hits(*zips: str) -> list[bytes]:
    return [json.dumps({"zip": each, "isp": "one"}).encode() for each in zips]


def blocks(feed: Feed, case: Case) -> dict[str, Any]:
    grouped = f"SELECT zip, count(*) AS hits FROM {feed.name} GROUP BY zip"
    # A topic's records tell in their headers where they come from, documents by their ids.
    placed = {"kafka", "elasticsearch"} & case.sink(feed).keys()
    position = ", kafka_topic, kafka_partition, kafka_offset" if placed else ""
    plain = f"SELECT zip{position} FROM {feed.name}"
    sql = plain if case.mode == "append" else grouped
    return {"decode": DECODE, "transform": {"sql": sql, "output_mode": case.mode}, "sink": case.sink(feed)}


@pytest.mark.parametrize(
    "name", [pytest.param(each, marks=() if each in QUICK else pytest.mark.slow) for each in CASES]
)
def test_a_crash_between_the_sinks_commit_and_sparks(
    feed: Feed, lake: SparkSession, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = CASES[name]
    settings = blocks(feed, case)
    feed.send(hits("8001", "3011"))
    feed.pipeline(**settings).run(spark=lake, once=True)

    made = Assembly.sink

    def dying(self: Assembly, *arguments: Any, **named: Any) -> Sink:
        sink = made(self, *arguments, **named)
        land = sink.land

        def once(*of: Any, **also: Any) -> int | None:
            land(*of, **also)
            raise ConnectionError("the driver dies")

        monkeypatch.setattr(sink, "land", once)
        return sink

    feed.send(hits("8001", "6003"))
    with monkeypatch.context() as crash:
        crash.setattr(Assembly, "sink", dying)
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
def test_the_result_in_memory_is_asked_by_sql(feed: Feed, lake: SparkSession, mode: str) -> None:
    sink = {"memory": {"view": f"seen_{feed.name}", "keys": ["zip"] if mode == "update" else []}}
    case = Case(mode, lambda _: sink, of_table)
    pipeline = feed.pipeline(
        **blocks(feed, case),
        source={
            "kafka": {
                "bootstrap_servers": feed.stack.bootstrap_servers,
                "topics": [feed.topic],
                "max_records_per_batch": 2,
            }
        },
        checkpoint="",
    )
    feed.send(hits("8001", "3011", "8001"))
    summary = pipeline.run(spark=lake, once=True)
    assert summary.records == 3
    hits_of = "1 AS hits" if mode == "append" else "hits"
    found = lake.sql(f"SELECT zip, {hits_of} FROM seen_{feed.name}").collect()
    expected = [("3011", 1), ("8001", 1), ("8001", 1)] if mode == "append" else [("3011", 1), ("8001", 2)]
    assert sorted((each.zip, each.hits) for each in found) == expected


@pytest.mark.parametrize("form", ["parquet", *(pytest.param(each, marks=pytest.mark.slow) for each in OTHER_FORMS)])
def test_a_table_over_the_directories_sees_new_data_at_once(feed: Feed, lake: SparkSession, form: str) -> None:
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


def test_files_count_the_rows_that_were_written(feed: Feed, lake: SparkSession) -> None:
    sql = f"SELECT zip, explode(sequence(1, 3)) AS n FROM {feed.name} WHERE zip <> '3011'"
    pipeline = feed.pipeline(decode=DECODE, transform={"sql": sql}, sink={"parquet": {"path": path(feed)}})
    feed.send(hits("8001", "3011", "6003"))
    progress: list[BatchProgress] = []
    first = pipeline.run(spark=lake, once=True, on_batch=progress.append)
    assert (first.records, first.rows, [each.rows for each in progress]) == (3, 6, [6])
    assert lake.read.parquet(path(feed)).count() == 6

    # Spark's log has the batch that comes again after a crash.
    gateway: Any = lake._jvm
    done = gateway.org.apache.hadoop.fs.Path(f"{feed.checkpoint}/commits/0")
    session: Any = lake
    assert done.getFileSystem(session._jsc.hadoopConfiguration()).delete(done, False)
    feed.send(hits("3011"))
    again = pipeline.run(spark=lake, once=True)
    assert (again.batches, again.records, again.rows) == (1, 1, 0)
    assert lake.read.parquet(path(feed)).count() == 6


@pytest.mark.slow
@pytest.mark.parametrize("form", ["avro", "protobuf", "json_schema"])
def test_values_in_a_topic_are_what_their_registered_schema_says(feed: Feed, lake: SparkSession, form: str) -> None:
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


def test_a_topic_and_a_registry_that_are_not_there_are_found_before_a_run(feed: Feed) -> None:
    sink = {"kafka": {"topic": "no-such-topic", "value": {"avro": {"registry": "http://127.0.0.1:1"}}}}
    config = feed.pipeline(decode=DECODE, sinks={"copy": sink}).config
    found = {each.key: each.what for each in preflight(config, connections=feed.connections)}
    assert "no-such-topic" in found["sinks.copy.kafka.topic"]
    assert "sinks.copy.kafka.value.avro.registry" in found


@pytest.mark.slow
def test_a_run_as_a_batch_into_a_topic_makes_copies_when_it_is_made_again(feed: Feed, lake: SparkSession) -> None:
    feed.send(hits("8001", "8001", "3011"))
    pipeline = feed.pipeline(decode=DECODE, sink=topic()(feed))
    assert pipeline.run_batch(spark=lake).rows == pipeline.run_batch(spark=lake).rows == 3
    records = records_of(feed, lake)
    assert records.count() == 6
    once = sorted(values(lakefeed.deduplicated(records)))
    assert once == [("3011", 1), ("8001", 1), ("8001", 1)]


def beside(feed: Feed, **sinks: Any) -> dict[str, Any]:
    return {"decode": DECODE, "transform": {"sql": f"SELECT zip FROM {feed.name}"}, "sinks": sinks}


def test_several_sinks_have_the_same_rows_of_one_read(feed: Feed, lake: SparkSession) -> None:
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


def test_a_sink_that_pauses_catches_up_and_the_others_go_on(
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

    told: list[str] = []
    feed.send(hits("3011", "6003"))
    with monkeypatch.context() as outage:
        outage.setattr(IcebergTable, "land", away)
        summary = feed.pipeline(**settings).run(spark=lake, once=True, on_note=told.append)
    assert list(summary.paused) == ["slow"]
    assert any("'slow' waits" in each for each in told)
    assert (len(feed.rows()), len(feed.rows(slow))) == (3, 1)

    # Nothing new has come: the next start alone lets it catch up.
    assert feed.pipeline(**settings).run(spark=lake, once=True).paused == {}
    assert sorted(each["zip"] for each in feed.rows(slow)) == ["3011", "6003", "8001"]
    feed.send(hits("7000"))
    feed.pipeline(**settings).run(spark=lake, once=True)
    assert sorted(each["zip"] for each in feed.rows(slow)) == sorted(each["zip"] for each in feed.rows())


def test_a_sink_that_stops_the_feed_leaves_no_row_twice(
    feed: Feed, lake: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = beside(feed, other={"iceberg": {"table": f"lake.{feed.name}.other"}})
    feed.send(hits("8001"))
    land = IcebergTable.land

    def dying(self: IcebergTable, *arguments: Any, **named: Any) -> int | None:
        if self.name == feed.table:
            raise ConnectionError("the driver dies between two sinks")
        return land(self, *arguments, **named)

    with monkeypatch.context() as crash:
        crash.setattr(IcebergTable, "land", dying)
        with pytest.raises(LakefeedError):
            feed.pipeline(**settings).run(spark=lake, once=True)
    assert (len(feed.rows()), len(feed.rows(f"lake.{feed.name}.other"))) == (0, 1)
    feed.pipeline(**settings).run(spark=lake, once=True)
    assert (len(feed.rows()), len(feed.rows(f"lake.{feed.name}.other"))) == (1, 1)


@pytest.mark.parametrize(
    ("sinks", "told"),
    [
        ({"a": {"console": {}, "on_failure": "pause"}}, "keeps no ledger"),
        ({"a": {"parquet": {"path": "s3a://lake/x"}}}, "cannot be beside another sink"),
        ({"a": {"iceberg": {"table": "{table}"}}}, "goes where another sink goes"),
        ({"a": {"iceberg": {"table": "nowhere.a.b"}}}, "no catalog is called"),
    ],
)
def test_what_cannot_be_beside_another_sink(feed: Feed, sinks: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        feed.pipeline(**beside(feed, **json.loads(json.dumps(sinks).replace("{table}", feed.table))))


def test_the_console_shows_the_first_rows(feed: Feed, lake: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    feed.send(hits("8001", "3011"))
    feed.pipeline(decode=DECODE, sink={"console": {"rows": 1}}, checkpoint="").run(spark=lake, once=True)
    said = capsys.readouterr().out
    assert "batch 0" in said
    assert "8001" in said
    assert "3011" not in said


@pytest.mark.parametrize(
    ("changed", "what"),
    [
        ({"transform": {"steps": {"a": {"python": "no_such_module:f"}}}}, "no Python module no_such_module"),
        ({"sink": {"python": {"path": "own_{name}:Tabel"}}}, "has no Tabel"),
        ({"sink": {"kafka": {"topic": "x", "value": {"column": "zipp"}}}}, "names the column 'zipp'"),
    ],
)
def test_what_needs_no_session_is_refused_when_the_file_is_read(feed: Feed, changed: dict[str, Any], what: str) -> None:
    named = json.loads(json.dumps(changed).replace("{name}", feed.name))
    with pytest.raises(ConfigError, match=what):
        feed.pipeline(**{"decode": DECODE, **named})


@pytest.mark.parametrize(
    ("changed", "told", "key"),
    [
        ({"transform": {"sql": "SELEC zip FROM {name}"}}, "SELEC", "transform.sql"),
        ({"transform": {"sql": "SELECT zipp FROM {name}"}}, "zipp", "transform.sql"),
        (
            {"transform": {"sql": "SELECT window(at, '1 minute') AS w, count(*) AS n FROM {name} GROUP BY 1"}},
            "at",
            "transform.sql",
        ),
        ({"transform": {"steps": {"a": {"python": "json:dumpz"}}}}, "dumpz", "transform.steps.a"),
        ({"sink": {"kafka": {"topic": "x", "key": "zipp"}}}, "zipp", "sink.kafka.key"),
        ({"sink": {"python": {"path": "own_{name}:Table", "options": {"file": "x"}}}}, "file", "sink.python.path"),
        (
            {"transform": {"sql": "SELECT zip, count(*) AS n FROM {name} GROUP BY zip"}},
            "watermark",
            "transform.sql",
        ),
    ],
)
def test_check_tells_what_only_spark_knows(
    feed: Feed, lake: SparkSession, changed: dict[str, Any], told: str, key: str
) -> None:
    named = json.loads(json.dumps(changed).replace("{name}", feed.name))
    pipeline = feed.pipeline(**{"decode": DECODE, **named})
    found = analysed(
        pipeline.config, connections=feed.connections, spark=lambda: lake, folder=feed.folder, connect=False
    )
    assert [each.key for each in found] == [key]
    assert told in f"{found[0].what} {found[0].hint}"


def test_a_sink_that_does_not_take_the_output_mode_is_refused_by_the_file_alone(feed: Feed) -> None:
    case = Case("update", lambda feed: {"parquet": {"path": path(feed)}}, of_files)
    with pytest.raises(ConfigError, match=r"does not fit sink\.parquet, which takes append"):
        feed.pipeline(**blocks(feed, case))
    with pytest.raises(ConfigError, match="mode: overwrite"):
        feed.pipeline(**blocks(feed, Case("complete", iceberg(), of_table)))
