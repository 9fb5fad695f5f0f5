"""Every connection of a feed over TLS with a private authority, with logins: the whole way, and each mistake."""

from __future__ import annotations

import json
import secrets
import signal
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from lakefeed.clients.iceberg.reader import open_table
from lakefeed.clients.kafka.topics import Topics
from lakefeed.config import trust
from lakefeed.config.loading.load import load
from lakefeed.errors import ResourceMissing
from lakefeed.local import Endpoints
from lakefeed.operations.preflight.connect import preflight
from lakefeed.pipeline import Pipeline
from tests.support.cli import Running, lakefeed
from tests.support.secured import Secured, secured
from tests.support.servers.postgresql import PostgreSQL
from tests.support.servers.search import SearchServer

ROWS = 3_000


@pytest.fixture(scope="module")
def servers(
    stack: Endpoints, postgres: PostgreSQL, search: SearchServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Secured]:
    with secured(tmp_path_factory.mktemp("secured"), stack=stack, postgres=postgres, search=search) as running:
        yield running


@pytest.fixture(autouse=True)
def _trust_of_one_test() -> Iterator[None]:
    yield
    trust.forget()


def test_a_whole_feed_over_tls(servers: Secured) -> None:
    topic = name = f"trips_{uuid.uuid4().hex[:8]}"
    # What travels between driver and executors is encrypted too, their certificates among it.
    spark = {"spark.authenticate.secret": "${SPARK_SECRET}", "spark.network.crypto.enabled": "true"}
    file = servers.write({**servers.pipeline(topic, name), "spark": spark})

    environment = {**servers.environment, "SPARK_SECRET": secrets.token_hex(16)}

    def run(*arguments: str | Path) -> str:
        done = lakefeed(*arguments, environment=environment)
        assert done.returncode == 0, done.stdout + done.stderr
        assert not [
            secret
            for secret in [*servers.passwords.values(), environment["SPARK_SECRET"]]
            if secret in done.stdout + done.stderr
        ]
        return done.stdout

    run("topics", "create", topic, "--partitions", "2")
    run("produce", topic, "--generate", "taxi", "--rows", str(ROWS))
    assert servers.registry_proxy.refused == 0
    run("check", file, "--connect")
    # Executors of their own, which get the authority from the driver.
    master = "local-cluster[1,2,1024]"
    report = json.loads(run("run", file, "--once", "--master", master, "--output", "json"))
    assert report["rows"] == ROWS
    assert json.loads(run("verify", file, "--output", "json"))["findings"] == []
    pipeline = Pipeline.from_file(file, environment=environment)
    table = open_table(f"lake.secured.{name}", connections=pipeline.connections)
    assert table.scan().to_arrow().num_rows == ROWS
    assert servers.database.execute(f"SELECT count(*) FROM {name}") == [(ROWS,)]
    assert len(servers.search.documents(name)) == ROWS


def problems(servers: Secured, change: Any, *, environment: dict[str, str] | None = None) -> dict[str, str]:
    """Return what the check before a run says of a pipeline with one change, by the setting that it names."""
    name = f"wrong_{uuid.uuid4().hex[:8]}"
    pipeline = servers.pipeline("no_such_topic", name)
    change(pipeline)
    config = load(servers.write(pipeline), environment={**servers.environment, **(environment or {})})
    return {problem.key: f"{problem.what} next: {problem.hint}" for problem in preflight(config)}


def test_a_wrong_authority_is_named_for_each_server(servers: Secured) -> None:
    found = problems(servers, lambda pipeline: pipeline["tls"].update(ca_file=str(servers.stranger.file)))
    assert found.keys() == {
        "source.kafka.bootstrap_servers",
        "decode.avro.registry",
        "checkpoint",
        "catalogs.lake.uri",
        "sinks.base.jdbc.url",
        "sinks.index.elasticsearch.url",
    }
    for key, text in found.items():
        assert "signed by an authority that is not trusted" in text, (key, text)
        assert "tls.ca_file" in text, (key, text)


@pytest.mark.parametrize(
    ("variable", "key", "says"),
    [
        ("BROKER_PASSWORD", "source.kafka.bootstrap_servers", "Kafka refuses the login"),
        ("REGISTRY_SECRET", "decode.avro.registry", "refuses the credential"),
        ("AWS_SECRET_ACCESS_KEY", "checkpoint", "the secret key is wrong"),
        ("DATABASE_PASSWORD", "catalogs.lake.uri", "refuses the user or the password"),
        ("SEARCH_PASSWORD", "sinks.index.elasticsearch.username", "refuses the login"),
    ],
)
def test_a_wrong_password_is_named(servers: Secured, variable: str, key: str, says: str) -> None:
    found = problems(servers, lambda pipeline: None, environment={variable: "wrong-password"})
    assert says in found[key]
    assert "wrong-password" not in str(found)


def with_oauth(servers: Secured, listener: str = "oauth") -> Any:
    """Return the change that logs in to the broker with tokens."""

    def change(pipeline: dict[str, Any]) -> None:
        client = {"client_id": "lakefeed", "client_secret": "${REGISTRY_SECRET}"}
        pipeline["source"]["kafka"] |= {
            "bootstrap_servers": servers.kafka.servers(listener),
            "login": {"oauth": {"token_url": servers.tokens.token_url, **client}},
        }

    return change


def test_a_token_that_has_expired_is_named(servers: Secured, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "there is no topic" in problems(servers, with_oauth(servers))["source.kafka.topics.0"]
    monkeypatch.setattr(servers.tokens, "seconds", -60)
    found = problems(servers, with_oauth(servers))
    assert "Kafka refuses the login" in found["source.kafka.bootstrap_servers"]
    assert "refuses the credentials (HTTP status 401)" in found["decode.avro.registry"]


def test_a_certificate_for_another_host_is_named(servers: Secured) -> None:
    def change(pipeline: dict[str, Any]) -> None:
        pipeline["source"]["kafka"]["bootstrap_servers"] = servers.kafka.servers("misnamed")
        pipeline["s3"]["endpoint"] = servers.misnamed_s3

    found = problems(servers, change)
    for key in ("source.kafka.bootstrap_servers", "checkpoint"):
        assert "is for another host" in found[key], found


def test_a_broker_that_asks_for_a_certificate_gets_it(servers: Secured) -> None:
    own = servers.authority.sign("a-feed")

    def change(pipeline: dict[str, Any]) -> None:
        del pipeline["source"]["kafka"]["login"]
        pipeline["source"]["kafka"]["bootstrap_servers"] = servers.kafka.servers("mutual")
        pipeline["source"]["kafka"]["options"] = {"kafka.security.protocol": "SSL"}

    def with_certificate(pipeline: dict[str, Any]) -> None:
        change(pipeline)
        pipeline["tls"] |= {"certificate": str(own.certificate), "key": str(own.key)}

    assert "tls.certificate" in problems(servers, change)["source.kafka.bootstrap_servers"]
    found = problems(servers, with_certificate)
    assert [key for key in found if key.startswith("source")] == ["source.kafka.topics.0"]


def test_tokens_are_renewed_while_a_feed_runs(
    servers: Secured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker ends a connection whose token has expired: a feed that still reads has fetched another."""
    name = topic = f"renewed_{uuid.uuid4().hex[:8]}"
    seconds = 10
    monkeypatch.setattr(servers.tokens, "seconds", seconds)
    pipeline = servers.pipeline(topic, name)
    with_oauth(servers)(pipeline)
    pipeline |= {"decode": {"json": {"schema_ddl": "id BIGINT"}}, "sinks": {}}
    Topics(servers.kafka.address).create(topic, partitions=1)
    producer = Producer({"bootstrap.servers": servers.kafka.address})

    def produce(value: bytes) -> None:
        producer.produce(topic, value)
        assert producer.flush(20) == 0

    def rows() -> int:
        with suppress(ResourceMissing):
            opened = open_table(f"lake.secured.{name}", connections=connections)
            return int(opened.scan().to_arrow().num_rows)
        return 0

    produce(b'{"id": 1}')
    file = servers.write(pipeline)
    connections = Pipeline.from_file(file, environment=servers.environment).connections
    feed = Running(("run", file), servers.environment, tmp_path / "log")
    try:
        wait_for(lambda: rows() == 1, feed)
        fetched = len(servers.tokens.given)
        time.sleep(seconds + 2)
        produce(b'{"id": 2}')
        wait_for(lambda: rows() == 2, feed)
        assert len(servers.tokens.given) > fetched
    finally:
        assert feed.ask_to_stop(signal.SIGTERM) == 0, feed.said()


def wait_for(is_done: Callable[[], bool], feed: Running) -> None:
    deadline = time.monotonic() + 120
    while not is_done():
        assert feed.process.poll() is None, feed.said()
        assert time.monotonic() < deadline, feed.said()
        time.sleep(0.5)
