"""A feed lands on each kind of catalog, is verified, and other engines read it; a wrong catalog is a clear error."""

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pytest
from pydantic import SecretStr
from pyspark.sql import SparkSession

from lakefeed.clients.iceberg.catalogs import ask_rest_catalog, log_in
from lakefeed.clients.iceberg.reader import open_table
from lakefeed.clients.spark.errors import translate
from lakefeed.clients.spark.session import session
from lakefeed.config.connections import Catalog, Connections
from lakefeed.errors import AccessDenied, LakefeedError, ResourceMissing, Unreachable
from lakefeed.ledger.iceberg import IcebergLedger
from lakefeed.operations.verify import verify_feed
from lakefeed.pipeline import Pipeline
from lakefeed_local.stack import Endpoints
from lakefeed_upkeep.maintain import Lease
from tests.integration.test_session import command_lines
from tests.support.cli import Running, lakefeed
from tests.support.feed import Feed, trips
from tests.support.servers.hive_metastore import HiveMetastore, hive_metastore
from tests.support.servers.postgresql import PostgreSQL
from tests.support.servers.rest_catalog import RestCatalog, rest_catalog_on


@pytest.fixture(scope="module")
def rest(stack: Endpoints) -> Iterator[RestCatalog]:
    """Run a REST catalog on the stack's store; it gives the store's keys to clients that request vended credentials."""
    with rest_catalog_on(stack) as server:
        yield server


@pytest.fixture(scope="module")
def hive(stack: Endpoints) -> Iterator[HiveMetastore]:
    """Run a Hive metastore that can write to the stack's store, because the metastore creates the folders of tables."""
    store = {
        "fs.s3.impl": "org.apache.hadoop.fs.s3a.S3AFileSystem",
        "fs.s3a.endpoint": stack.s3_endpoint,
        "fs.s3a.endpoint.region": stack.region,
        "fs.s3a.path.style.access": "true",
        "fs.s3a.access.key": stack.access_key,
        "fs.s3a.secret.key": stack.secret_key.get_secret_value(),
    }
    with hive_metastore(properties=store) as server:
        yield server


@pytest.fixture(scope="module")
def database(postgres: PostgreSQL) -> PostgreSQL:
    return postgres.new_database()


@dataclass(frozen=True)
class Case:
    """A catalog as a block of a pipeline file, and environment variables with the secrets of the catalog."""

    name: str
    block: dict[str, Any]
    environment: dict[str, str]


@pytest.fixture(params=["lake", "pg", "rest", pytest.param("hive", marks=pytest.mark.slow)])
def case(request: pytest.FixtureRequest, stack: Endpoints) -> Case:
    """Return each catalog: the stack's SQLite, PostgreSQL, REST with login and vended credentials, a Hive metastore."""
    if request.param == "lake":
        block: dict[str, Any] = {"uri": stack.catalog_uri, "warehouse": stack.warehouse}
        return Case("lake", block, {})
    if request.param == "pg":
        database: PostgreSQL = request.getfixturevalue("database")
        block = {"uri": database.jdbc_url, "warehouse": f"{stack.warehouse}/pg", "username": database.user}
        return Case("pg", {**block, "password": "${PG_PASSWORD}"}, {"PG_PASSWORD": database.password})
    if request.param == "hive":
        metastore: HiveMetastore = request.getfixturevalue("hive")
        return Case("hive", {"type": "hive", "uri": metastore.uri, "warehouse": f"{stack.warehouse}/hive"}, {})
    server: RestCatalog = request.getfixturevalue("rest")
    block = {"type": "rest", "uri": server.url, "warehouse": server.warehouse, "vended_credentials": True}
    return Case("rest", {**block, "credential": "${REST_CREDENTIAL}"}, {"REST_CREDENTIAL": server.credential})


def pipeline(feed: Feed, case: Case) -> Pipeline:
    decode = {"json": {"schema_ddl": "id BIGINT, zone STRING"}, "metadata": ["topic", "partition", "offset"]}
    path = feed.write_file(catalogs={case.name: case.block}, decode=decode)
    return Pipeline.from_file(path, environment={**feed.environment, **case.environment})


def land(feed: Feed, case: Case) -> SparkSession:
    """Run the pipeline once in the existing session; return the session, in which the catalog is now configured."""
    loaded = pipeline(feed, case)
    running = session(connections=loaded.connections)
    loaded.run(spark=running, once=True)
    return running


def send(feed: Feed, start: int, end: int) -> None:
    feed.send([json.dumps(row).encode() for row in trips(start, end)])


def plainly(spark: SparkSession, loaded: Pipeline, table: str) -> list[tuple[Any, ...]]:
    """Return the rows that a Spark session with plain Iceberg reads, without lakefeed's catalog classes."""
    name = table.split(".")[0]
    plain, s3 = spark.newSession(), loaded.connections.s3
    catalog = loaded.connections.catalogs[name]
    assert s3.access_key is not None
    assert s3.secret_key is not None
    keys = {"s3.access-key-id": s3.access_key, "s3.secret-access-key": s3.secret_key}
    settings = {
        "": "org.apache.iceberg.spark.SparkCatalog",
        ".io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
        ".http-client.type": "urlconnection",
        ".s3.endpoint": s3.endpoint or "",
        ".s3.path-style-access": "true",
        ".client.region": s3.region,
    }
    settings |= {f".{key}": value for key, value in catalog.settings().items()}
    secrets = {**({} if catalog.vended_credentials else keys), **catalog.secrets()}
    settings |= {f".{key}": secret.get_secret_value() for key, secret in secrets.items()}
    for key, value in settings.items():
        plain.conf.set(f"spark.sql.catalog.{name}{key}", value)
    rows = plain.sql(f"SELECT id, zone, kafka_partition, kafka_offset FROM {table} ORDER BY id").collect()
    return [tuple(row) for row in rows]


def test_a_feed_lands_on_each_catalog_and_other_engines_read_the_rows(
    lake: SparkSession, feed: Feed, case: Case
) -> None:
    feed.catalog = case.name
    feed.create_topic()
    for start, end in ((0, 60), (60, 100)):
        send(feed, start, end)
        running = land(feed, case)
    loaded = pipeline(feed, case)
    done = verify_feed(loaded.config, connections=loaded.connections, deep=True)
    assert (done.faults, done.commits, done.rows) == ((), 2, 100)
    assert [each.kind for each in done.notes] == []

    # Read with pyiceberg, with DuckDB on pyiceberg's rows, and with DuckDB on the snapshot's files.
    found = open_table(feed.table, connections=loaded.connections)
    arrow = found.scan(selected_fields=("id", "zone", "kafka_partition", "kafka_offset")).to_arrow()
    with duckdb.connect() as engine:
        engine.register("rows", arrow)
        by_duckdb = engine.execute("SELECT id, zone, kafka_partition, kafka_offset FROM rows ORDER BY id").fetchall()
    assert [{"id": row[0], "zone": row[1]} for row in by_duckdb] == trips(0, 100)
    with duckdb.connect() as engine:
        files = [local_copy(found, str(each.file.file_path), feed.folder) for each in found.scan().plan_files()]
        of_files = engine.execute(
            "SELECT id, zone, kafka_partition, kafka_offset FROM read_parquet(?) ORDER BY id", [files]
        ).fetchall()
    assert of_files == by_duckdb
    assert plainly(running, loaded, feed.table) == by_duckdb

    # Spark's settings and the command lines show the catalog's name, but none of its secrets.
    seen = command_lines() + str(running.sparkContext.getConf().getAll()) + str(running.sql("SET").collect())
    assert f"spark.sql.catalog.{case.name}" in seen
    assert [name for name, value in case.environment.items() if value in seen] == []


@pytest.mark.slow
def test_a_second_upkeep_process_waits_or_is_refused(lake: SparkSession, feed: Feed, case: Case) -> None:
    feed.catalog = case.name
    feed.create_topic(partitions=1)
    for start in (0, 10, 20):
        send(feed, start, start + 10)
        land(feed, case)
    path = feed.folder / f"{feed.name}.yaml"
    path.write_text(json.dumps({**json.loads(path.read_text()), "upkeep": {"compact": {"min_files": 3}}}))
    environment = {**feed.environment, **case.environment}
    with Lease(lake, IcebergLedger(lake, feed.table, feed.name).loaded(), name=feed.table):
        left = lakefeed("tables", "maintain", path, environment=environment, status=1)
        assert "another upkeep job is at work" in left.stderr
        waiting = Running(["tables", "maintain", path, "--wait", "300"], environment, feed.folder / "waiting.log")
        waiting.wait_until_it_says("starting")
        time.sleep(5)
        assert waiting.process.poll() is None, waiting.said()
    assert waiting.process.wait(300) == 0, waiting.said()
    assert "3 files" in waiting.said()
    loaded = pipeline(feed, case)
    assert verify_feed(loaded.config, connections=loaded.connections, deep=True).faults == ()


def local_copy(table: Any, location: str, folder: Path) -> str:
    target = folder / location.rpartition("/")[2]
    with table.io.new_input(location).open() as file:
        target.write_bytes(file.read())
    return str(target)


def of_postgresql(database: PostgreSQL, **other: Any) -> Catalog:
    settings = {"uri": database.jdbc_url, "username": database.user, "password": database.password}
    return Catalog.model_validate({**settings, "warehouse": "s3://lake/warehouse", **other})


POSTGRESQL: dict[str, tuple[Callable[[PostgreSQL], dict[str, Any]], type[LakefeedError], str]] = {
    "wrong port": (lambda _: {"uri": "jdbc:postgresql://127.0.0.1:1/lake"}, Unreachable, "does not answer"),
    "wrong host": (lambda _: {"uri": "jdbc:postgresql://nowhere.invalid/lake"}, Unreachable, "does not answer"),
    "wrong password": (lambda _: {"password": "wrong"}, AccessDenied, "refuses the user or the password"),
    "no password": (lambda _: {"password": None}, AccessDenied, "refuses the user or the password"),
    "wrong user": (lambda _: {"username": "nobody"}, AccessDenied, "refuses the user or the password"),
    "no database": (lambda db: {"uri": f"{db.jdbc_url}x"}, ResourceMissing, "has no database"),
}


@pytest.mark.parametrize("name", POSTGRESQL)
def test_wrong_settings_of_a_postgresql_catalog_are_named(database: PostgreSQL, name: str) -> None:
    change, error, what = POSTGRESQL[name]
    catalog = of_postgresql(database, **change(database))
    with pytest.raises(error, match=what) as before_the_run:
        log_in(catalog, timeout=5)
    with pytest.raises(error, match=what) as reading:
        open_table("pg.a.b", connections=Connections(catalogs={"pg": catalog}))
    assert database.password not in f"{before_the_run.value} {reading.value}"


def test_a_wrong_password_is_an_access_error_in_spark(lake: SparkSession, database: PostgreSQL) -> None:
    for key, value in {
        "": "io.lakefeed.commit.FeedCatalog",
        ".type": "jdbc",
        ".uri": database.jdbc_url,
        ".jdbc.user": database.user,
        ".jdbc.password": "wrong",
        ".warehouse": "s3://lake/warehouse",
    }.items():
        lake.conf.set(f"spark.sql.catalog.wrong{key}", value)
    with pytest.raises(Exception, match="password authentication failed") as raised:
        lake.sql("SHOW NAMESPACES IN wrong")
    assert isinstance(translate(raised.value), AccessDenied)


def of_rest(server: RestCatalog, **other: Any) -> Catalog:
    settings = {"type": "rest", "uri": server.url, "credential": server.credential, "warehouse": server.warehouse}
    return Catalog.model_validate({**settings, **other})


REST: dict[str, tuple[Callable[[RestCatalog], dict[str, Any]], type[LakefeedError], str]] = {
    "wrong port": (lambda _: {"uri": "http://127.0.0.1:1"}, Unreachable, "does not answer"),
    "wrong secret": (lambda _: {"credential": "lakefeed:wrong"}, AccessDenied, "refuses the credential"),
    "wrong token": (lambda _: {"credential": None, "token": "wrong"}, AccessDenied, "is wrong or has expired"),
    "expired token": (
        lambda server: {"credential": None, "token": server.token(seconds=0)},
        AccessDenied,
        "is wrong or has expired",
    ),
    "no login": (lambda _: {"credential": None}, AccessDenied, "requires a login"),
    "no warehouse": (lambda _: {"warehouse": "elsewhere"}, ResourceMissing, "has no warehouse elsewhere"),
}


@pytest.mark.parametrize("name", REST)
def test_wrong_settings_of_a_rest_catalog_are_named(rest: RestCatalog, name: str) -> None:
    change, error, what = REST[name]
    with pytest.raises(error, match=what) as raised:
        ask_rest_catalog(of_rest(rest, **change(rest)))
    assert rest.client_secret not in str(raised.value)


@pytest.mark.parametrize("name", ["wrong port", "wrong secret", "wrong token", "expired token"])
def test_wrong_settings_of_a_rest_catalog_are_named_without_spark(rest: RestCatalog, name: str) -> None:
    change, error, _ = REST[name]
    with pytest.raises(error):
        open_table("rest.a.b", connections=Connections(catalogs={"rest": of_rest(rest, **change(rest))}))


def test_check_opens_a_rest_catalog(rest: RestCatalog) -> None:
    ask_rest_catalog(of_rest(rest, scope="everything"))
    assert rest.asked_for[-1] == "client_credentials everything"
    ask_rest_catalog(of_rest(rest, credential=None, token=SecretStr(rest.token())))


@pytest.mark.slow
def test_a_running_feed_renews_tokens_that_expire(
    lake: SparkSession, feed: Feed, rest: RestCatalog, stack: Endpoints, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rest, "token_seconds", 30)
    # Clients renew a token after nine tenths of the lifetime that the server announces, here 4 s. The token is really
    # valid for longer, in case the machine is busy.
    monkeypatch.setattr(rest, "announced_seconds", 4)
    block = {"type": "rest", "uri": rest.url, "vended_credentials": True, "credential": "${REST_CREDENTIAL}"}
    # Use a new catalog name, because the session keeps a catalog that it has opened, with its token.
    case = Case("short", block, {"REST_CREDENTIAL": rest.credential})
    feed.catalog = case.name
    feed.create_topic()
    before = rest.asked_for.count("client_credentials catalog")
    for turn in range(3):
        send(feed, 10 * turn, 10 * turn + 10)
        land(feed, case)
        time.sleep(12)
    loaded = pipeline(feed, case)
    assert sorted(
        row["id"] for row in open_table(feed.table, connections=loaded.connections).scan().to_arrow().to_pylist()
    ) == list(range(30))
    assert rest.asked_for.count("client_credentials catalog") > before + 2
