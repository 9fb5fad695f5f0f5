"""All sinks in all of their modes: the settings, and a function that reads the result."""

import json
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from lakefeed.clients.kafka.topics import Topics
from packages.jdbc.tests.databases import DATABASES
from packages.jdbc.tests.jdbc_feed import TABLE, Server, sink_of
from tests.support.feed import Feed
from tests.support.servers.search import SearchServer

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
        sink: a function that returns the sink's block.
        read: a function that returns the zips and their hits; in append mode one row for each record.
        exactly_once: whether the sink claims exactly-once delivery.
        repeated: the number of rows of an interrupted batch that the run reports as possibly duplicate.
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


SEARCH: dict[str, SearchServer] = {}
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


def hits(*zips: str) -> list[bytes]:
    return [json.dumps({"zip": each, "isp": "one"}).encode() for each in zips]


def blocks(feed: Feed, case: Case) -> dict[str, Any]:
    grouped = f"SELECT zip, count(*) AS hits FROM {feed.name} GROUP BY zip"
    # In topics, headers have the source offset of each record; in search indexes, the documents' ids have it.
    placed = {"kafka", "elasticsearch"} & case.sink(feed).keys()
    position = ", kafka_topic, kafka_partition, kafka_offset" if placed else ""
    plain = f"SELECT zip{position} FROM {feed.name}"
    sql = plain if case.mode == "append" else grouped
    return {"decode": DECODE, "transform": {"sql": sql, "output_mode": case.mode}, "sink": case.sink(feed)}


def beside(feed: Feed, **sinks: Any) -> dict[str, Any]:
    return {"decode": DECODE, "transform": {"sql": f"SELECT zip FROM {feed.name}"}, "sinks": sinks}
