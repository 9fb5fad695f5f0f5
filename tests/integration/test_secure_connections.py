"""All connections use logins and TLS with a private authority: a run works, and the error of each mistake names it."""

import signal
import time
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from lakefeed.clients.iceberg.reader import open_table
from lakefeed.clients.kafka.topics import Topics
from lakefeed.config import trust
from lakefeed.errors import ResourceMissing
from lakefeed.pipeline import Pipeline
from lakefeed_local.stack import Endpoints
from tests.support.cli import Running
from tests.support.feed import TRIP, Feed
from tests.support.secured import Secured, secured
from tests.support.secured_feed import EACH_SERVER, Change, land, problems, with_certificate
from tests.support.servers.postgresql import PostgreSQL
from tests.support.servers.search import SearchServer


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


def test_a_feed_runs_with_tls_on_all_connections(servers: Secured) -> None:
    land(servers, lambda pipeline: None)
    assert servers.registry_proxy.refused == 0


def test_each_servers_error_names_a_wrong_certificate_authority(servers: Secured) -> None:
    found = problems(servers, lambda pipeline: pipeline["tls"].update(ca_file=str(servers.stranger.file)))
    assert found.keys() == EACH_SERVER
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
def test_the_error_of_a_wrong_password_names_the_server_and_hides_the_password(
    servers: Secured, variable: str, key: str, says: str
) -> None:
    found = problems(servers, lambda pipeline: None, environment={variable: "wrong-password"})
    assert says in found[key]
    assert "wrong-password" not in str(found)


def with_oauth(servers: Secured, listener: str = "oauth") -> Change:
    """Return a function that makes a pipeline log in to the broker with OAuth tokens."""

    def change(pipeline: dict[str, Any]) -> None:
        client = {"client_id": "lakefeed", "client_secret": "${REGISTRY_SECRET}"}
        pipeline["source"]["kafka"] |= {
            "bootstrap_servers": servers.kafka.servers(listener),
            "login": {"oauth": {"token_url": servers.tokens.token_url, **client}},
        }

    return change


def test_the_error_names_an_expired_token(servers: Secured, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "there is no topic" in problems(servers, with_oauth(servers))["source.kafka.topics.0"]
    monkeypatch.setattr(servers.tokens, "seconds", -60)
    found = problems(servers, with_oauth(servers))
    assert "Kafka refuses the login" in found["source.kafka.bootstrap_servers"]
    assert "refuses the credentials (HTTP status 401)" in found["decode.avro.registry"]


def test_the_error_names_a_certificate_for_another_host(servers: Secured) -> None:
    def change(pipeline: dict[str, Any]) -> None:
        pipeline["source"]["kafka"]["bootstrap_servers"] = servers.kafka.servers("misnamed")
        pipeline["s3"]["endpoint"] = servers.misnamed_s3

    found = problems(servers, change)
    for key in ("source.kafka.bootstrap_servers", "checkpoint"):
        assert "is for another host" in found[key], found


def test_a_feed_sends_a_client_certificate_to_a_broker_that_requires_it(servers: Secured) -> None:
    own = with_certificate(servers.authority.sign("a-feed"))

    def change(pipeline: dict[str, Any]) -> None:
        del pipeline["source"]["kafka"]["login"]
        pipeline["source"]["kafka"]["bootstrap_servers"] = servers.kafka.servers("mutual")
        pipeline["source"]["kafka"]["options"] = {"kafka.security.protocol": "SSL"}

    def answered(pipeline: dict[str, Any]) -> None:
        change(pipeline)
        own(pipeline)

    assert "tls.certificate" in problems(servers, change)["source.kafka.bootstrap_servers"]
    found = problems(servers, answered)
    assert [key for key in found if key.startswith("source")] == ["source.kafka.topics.0"]


def test_a_running_feed_renews_its_tokens(servers: Secured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker closes a connection whose token has expired, and the registry refuses an expired token.

    So a feed that still reads records of new schemas has fetched new tokens for both servers.
    """
    name = topic = f"renewed_{uuid.uuid4().hex[:8]}"
    seconds = 10
    monkeypatch.setattr(servers.tokens, "seconds", seconds)
    pipeline = servers.pipeline(topic, name)
    with_oauth(servers)(pipeline)
    pipeline |= {"sinks": {}}
    Topics(servers.kafka.address).create(topic, partitions=1)
    producer = Producer({"bootstrap.servers": servers.kafka.address})
    beside = Feed(servers.stack, tmp_path)

    def produce(row: dict[str, Any], schema: dict[str, Any]) -> None:
        for value in beside.avro([row], schema, topic=topic):
            producer.produce(topic, value)
        assert producer.flush(20) == 0

    def rows() -> int:
        with suppress(ResourceMissing):
            opened = open_table(f"lake.secured.{name}", connections=connections)
            return int(opened.scan().to_arrow().num_rows)
        return 0

    produce({"id": 1, "zone": "a"}, TRIP)
    file = servers.write(pipeline)
    connections = Pipeline.from_file(file, environment=servers.environment).connections
    feed = Running(("run", file), servers.environment, tmp_path / "log")
    try:
        feed.wait_until(lambda: rows() == 1)
        fetched, refused = len(servers.tokens.given), servers.registry_proxy.refused
        time.sleep(seconds + 2)
        note = {"name": "note", "type": ["null", "string"], "default": None}
        produce({"id": 2, "zone": "b", "note": "new"}, {**TRIP, "fields": [*TRIP["fields"], note]})
        feed.wait_until(lambda: rows() == 2)
        assert len(servers.tokens.given) > fetched
        assert servers.registry_proxy.refused == refused
    finally:
        assert feed.ask_to_stop(signal.SIGTERM) == 0, feed.said()


@pytest.fixture(scope="module")
def asking(
    stack: Endpoints, postgres: PostgreSQL, search: SearchServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("asking")
    with secured(folder, stack=stack, postgres=postgres, search=search, mutual=True) as running:
        yield running


@pytest.mark.slow
def test_a_feed_runs_with_a_client_certificate_of_its_own(asking: Secured) -> None:
    own = asking.authority.sign("the-feed")
    files = {"LAKEFEED_CLIENT_CERTIFICATE": str(own.certificate), "LAKEFEED_CLIENT_KEY": str(own.key)}
    land(asking, with_certificate(own), environment=files)


@pytest.mark.slow
def test_each_servers_error_names_a_missing_or_untrusted_client_certificate(asking: Secured) -> None:
    stranger = asking.stranger.sign("a-stranger")
    for change in (lambda pipeline: None, with_certificate(stranger)):
        found = problems(asking, change)
        assert found.keys() == EACH_SERVER
        for key, text in found.items():
            assert "requests a client certificate" in text, (key, text)
            assert "tls.certificate" in text, (key, text)
