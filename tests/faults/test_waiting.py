"""While a server fails for a minute, a feed of one or of many tables reports that it waits, and then resumes."""

from __future__ import annotations

import json
import re
import signal
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from lakefeed.errors import ResourceMissing
from lakefeed_local.stack import Endpoints
from tests.support.cli import Running, lakefeed
from tests.support.drivers import address
from tests.support.faults.drivers import SHORT_LIVED
from tests.support.faults.s3_fault_proxy import FaultProxy, on
from tests.support.pages import answer
from tests.support.records import avro_bytes
from tests.support.registry_in_a_thread import RegistryInAThread
from tests.support.rest_feed import RestFeed
from tests.support.servers.kafka_cluster import Cluster, kafka_cluster
from tests.support.servers.rest_catalog import RestCatalog, rest_catalog_on
from tests.support.wire_format import build

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

FOR_EVER = 100_000
BROKER = 1


@dataclass(frozen=True)
class Servers:
    """The servers of a feed, each of which a test can make fail."""

    store: FaultProxy
    catalog: RestCatalog
    registry: RegistryInAThread
    brokers: Cluster

    @contextmanager
    def without_store(self) -> Iterator[None]:
        self.store.spoil("503", on("PutObject"), times=FOR_EVER)
        yield
        self.store.heal()

    @contextmanager
    def without_catalog(self) -> Iterator[None]:
        self.catalog.fail_next(*["not-applied-503"] * FOR_EVER)
        yield
        self.catalog.fail_next()

    @contextmanager
    def without_registry(self) -> Iterator[None]:
        self.registry.failing = 503
        yield
        self.registry.failing = None

    @contextmanager
    def without_brokers(self) -> Iterator[None]:
        self.brokers.servers[BROKER].kill()
        yield
        self.brokers.servers[BROKER].start_again()


@pytest.fixture(scope="module")
def servers(stack: Endpoints, stack_proxy: FaultProxy, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    with (
        rest_catalog_on(stack) as catalog,
        RegistryInAThread() as registry,
        kafka_cluster(tmp_path_factory.mktemp("kafka"), brokers=[BROKER]) as brokers,
    ):
        yield Servers(stack_proxy, catalog, registry, brokers)


def schema(version: int) -> dict[str, Any]:
    """Return a schema whose default is the version, so that a feed must fetch each version from the registry."""
    field = {"name": "version", "type": "int", "default": version}
    return {"type": "record", "name": "Row", "fields": [{"name": "id", "type": "int"}, field]}


def framed(version: int, row: dict[str, Any]) -> bytes:
    return build(version, avro_bytes(schema(version), row))


class Job:
    """A process that runs a feed of one topic, or of several topics with separate tables."""

    def __init__(self, servers: Servers, stack: Endpoints, folder: Path, *, topics: int) -> None:
        endpoints = replace(
            stack, bootstrap_servers=servers.brokers.addresses, schema_registry_url=servers.registry.url
        )
        self.servers = servers
        self.feed = RestFeed(endpoints, folder, server=servers.catalog)
        self.topics = [f"{self.feed.name}-{number}" for number in range(topics)]
        self.tables = [f"rest.{self.feed.name}.{topic.replace('-', '_')}" for topic in self.topics]
        self.sent = 0
        for topic in self.topics:
            servers.brokers.create_topic(topic, [[BROKER]])
        self.register(1)
        many = {
            "sink": {"iceberg": {"table": f"rest.{self.feed.name}.{{topic}}"}},
            "tables": {"retry_after": "1 second"},
        }
        self.file = self.feed.write_file(
            source=self.feed.source(topics=self.topics),
            checkpoint="",
            **(many if topics > 1 else {"sink": {"iceberg": {"table": self.tables[0]}}}),
        )
        store = {"AWS_ENDPOINT_URL_S3": servers.store.endpoint}
        self.environment = {**self.feed.environment, **SHORT_LIVED, **store, "LAKEFEED_HOME": str(folder / "home")}

    def register(self, version: int) -> None:
        text = json.dumps(schema(version))
        self.servers.registry.put(version, schema(version))
        for topic in self.topics:
            found = {"id": version, "schema": text, "subject": f"{topic}-value", "version": version}
            self.servers.registry.versions[f"{topic}-value", version] = found

    def send(self, version: int = 1) -> None:
        """Send a record to each topic."""
        row = {"id": self.sent, "version": version}
        for topic in self.topics:
            self.servers.brokers.send(topic, [framed(version, row)])
        self.sent += 1

    def has_landed(self) -> bool:
        ids = list(range(self.sent))
        with suppress(ResourceMissing):
            return all(sorted(row["id"] for row in self.feed.rows(table)) == ids for table in self.tables)
        return False

    def progress(self) -> dict[str, Any]:
        """Return the progress that ``lakefeed status`` reports."""
        done = lakefeed("status", self.file, "--output", "json", environment=self.environment, status=None)
        assert done.stdout, done.stderr
        found = json.loads(done.stdout)
        feeds: list[dict[str, Any]] = found.get("feeds", [found])
        assert {each["state"] for each in feeds} == {"running"}, [each["evidence"] for each in feeds]
        progress: dict[str, Any] = feeds[0]["progress"]
        return progress

    def state(self) -> str:
        """Return the state of the feed in the metrics."""
        url, token = address(self.environment)
        status, text = answer(f"{url}/metrics", headers={"Authorization": f"Bearer {token}"})
        assert status == 200, text
        [line] = [each for each in text.splitlines() if re.match(r"lakefeed_feed_state\{.*\} 1", each)]
        return line.partition('state="')[2].partition('"')[0]


IN_THE_LOG = re.compile(r'"event":"note".*(waiting for a server: |; the next attempt is in )')
SAYS = {
    "store": "the catalog or the S3 store answers with an error",
    "catalog": "the catalog or the S3 store answers with an error",
    "registry": "HTTP status 503",
    "brokers": "no Kafka broker answers",
}


@pytest.mark.parametrize("topics", [1, 2], ids=["one table", "many tables"])
def test_a_feed_reports_that_it_waits_while_a_server_fails_and_then_resumes(
    servers: Servers, stack: Endpoints, tmp_path: Path, topics: int
) -> None:
    job = Job(servers, stack, tmp_path, topics=topics)
    job.send()
    with Running(["run", job.file, "--log-format", "json"], job.environment, tmp_path / "log") as running:
        running.wait_until(job.has_landed, timeout=240)
        for name, says in SAYS.items():
            before = len(running.said())
            away: AbstractContextManager[None] = getattr(servers, f"without_{name}")()
            with away:
                began = time.monotonic()
                if name == "registry":
                    job.register(2)
                if name != "brokers":
                    job.send(2 if name == "registry" else 1)
                running.wait_until(lambda: job.state() == "retrying", timeout=240)
                shown = job.progress()
                print(name, f"{time.monotonic() - began:.0f} s", shown["state"], shown["waits_for"], flush=True)
                assert shown["state"] == "retrying"
                assert says in shown["waits_for"]
            if name == "brokers":
                job.send()
            running.wait_until(job.has_landed, timeout=240)
            running.wait_until(lambda: job.state() == "waiting", timeout=240)
            assert job.progress()["waits_for"] is None
            lines = [line for line in running.said()[before:].splitlines() if IN_THE_LOG.search(line)]
            # A job of many tables prints a line for each table that waits, but a single line if the brokers fail.
            assert 1 <= len(lines) <= (1 if name == "brokers" else topics), lines
            assert all(says in line for line in lines), lines
        assert running.ask_to_stop(signal.SIGTERM) == 0
