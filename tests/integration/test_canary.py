"""The test puts a marker text into every setting that can hold a secret, and searches all outputs for the marker."""

import json
import signal
import socket
import uuid
from pathlib import Path
from typing import Any

import pytest
from pyarrow import fs

from lakefeed.clients.spark.session import log_path
from lakefeed.monitor.drivers import read
from tests.integration.test_session import command_lines
from tests.support.cli import Running, lakefeed
from tests.support.feed import Feed
from tests.support.openlineage import server
from tests.support.pages import answer, every_page

CANARY = f"canary{uuid.uuid4().hex}"
WRONG = {
    "broker": ["source.kafka.bootstrap_servers=127.0.0.1:1"],
    "registry": ["decode.avro.registry.url=http://127.0.0.1:1"],
    "store": ["s3.endpoint=http://127.0.0.1:1"],
    "keys of the store": ["s3.access_key=${WRONG_KEY}", "s3.secret_key=${CANARY}-s3"],
    "catalog": ["catalogs.lake.uri=jdbc:sqlite:/nowhere/at/all.db"],
    "schema": ["decode.avro.subject=none-of-this-name"],
    "a key": ["spark.oops=${CANARY}-spark"],
    "SQL": ["transform.steps.joined.sql=SELECT nothing FROM zones"],
}


def planted(feed: Feed, *, ui: int, events: Path, lineage: str) -> Path:
    """Write a pipeline file with a secret in every setting that no server verifies, so that the feed still runs."""
    (feed.folder / "own.py").write_text("def same(rows, login):\n    return rows\n")
    (feed.folder / "zones.csv").write_text("zone\na\n")
    return feed.write_file(
        source={
            "kafka": {
                "bootstrap_servers": "${KAFKA_BOOTSTRAP_SERVERS}",
                "topics": [feed.topic],
                "options": {
                    "kafka.sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required "
                    'username="u" password="${CANARY}-jaas";',
                    "kafka.ssl.key.password": "${CANARY}-key",
                    "kafka.client.rack": "${CANARY}-rack",
                },
            }
        },
        decode={
            "avro": {"registry": {"url": "${SCHEMA_REGISTRY_URL}", "username": "u", "password": "${CANARY}-registry"}}
        },
        transform={
            "tables": {
                "zones": {
                    "format": "csv",
                    "path": f"file://{feed.folder}/zones.csv",
                    "schema_ddl": "zone STRING",
                    "options": {"nullValue": "${CANARY}-option", "plain": "${CANARY}-plain"},
                }
            },
            "steps": {
                "joined": {"sql": f"SELECT t.* FROM {feed.name} t LEFT JOIN zones z ON t.zone = z.zone"},
                "last": {"python": "own:same", "options": {"login": "${CANARY}-python"}},
            },
        },
        catalogs={
            "lake": {
                "type": "jdbc",
                "uri": "${LAKEFEED_CATALOG_URI}",
                "warehouse": "${LAKEFEED_WAREHOUSE}",
                "properties": {"header.X-Sesame": "${CANARY}-catalog", "plain-name": "${CANARY}-property"},
            }
        },
        spark_ui={"port": ui},
        lineage={"url": lineage, "api_key": "${CANARY}-lineage", "every": "1 second"},
        spark={
            "spark.eventLog.enabled": True,
            "spark.eventLog.compress": False,
            "spark.eventLog.dir": f"file://{events}",
            "spark.lakefeed.sesame": "${CANARY}-spark",
            "spark.sql.catalog.lake.own": "${CANARY}-sql",
            "spark.hadoop.fs.azure.account.x": "${CANARY}-hadoop",
        },
    )


def spark_pages(port: int, query: str) -> str:
    """Return all pages and documents of Spark's UI; check that the pages of the streaming query are among them."""
    base = f"http://127.0.0.1:{port}"
    api = f"{base}/api/v1/applications"
    application = json.loads(answer(api)[1])[0]["id"]
    documents = (
        *("environment", "sql?details=true&length=100", "jobs", "stages?details=true&withSummaries=true"),
        *("executors", "allexecutors", "storage/rdd", "executors/driver/threads", "logs"),
    )
    further = [f"{api}/{application}/{name}" for name in documents]
    further += [
        f"{base}/{page}" for page in ("metrics/json/", "metrics/executors/prometheus/", "executors/threadDump/")
    ]
    pages = every_page(f"{base}/jobs/", further=further)
    streaming = pages[f"{base}/StreamingQuery/"]
    assert query in streaming
    [statistics] = [text for url, text in pages.items() if "/StreamingQuery/statistics" in url]
    assert "Input Rate" in statistics
    assert "Batch Duration" in statistics
    for tab in ("jobs", "stages", "storage", "environment", "executors", "SQL"):
        assert f"{base}/{tab}/" in pages, sorted(pages)
    assert any("/SQL/execution/" in url for url in pages)
    for address in other_addresses():
        with pytest.raises(OSError, match="refused"):
            socket.create_connection((address, port), timeout=5).close()
    return "\n".join(f"{url}\n{text}" for url, text in pages.items())


def other_addresses() -> list[str]:
    """Return the addresses at which other machines reach this machine."""
    found = {str(entry[4][0]) for entry in socket.getaddrinfo(socket.gethostname(), None, family=socket.AF_INET)}
    return sorted(address for address in found if not address.startswith("127."))


def driver_answers(home: Path, feed: Feed) -> str:
    """Return the file of the running driver, and the answers of the driver's endpoint with and without the token."""
    [file] = (home / "run" / "drivers").iterdir()
    driver = read(file)
    assert driver is not None
    assert driver.url is not None
    own = f"/api/feeds/{feed.name}"
    names = ("progress", "history", "events", "graph", "table", "schemas", "dead-letters", "costs", "panels")
    paths = ("/progress", "/history", "/health", "/metrics", "/", "/api/session", "/api/feeds", "/login")
    texts = [file.read_text()]
    for path in (*paths, *(f"{own}/{name}" for name in names)):
        status, text = answer(driver.url + path, headers={"Authorization": f"Bearer {driver.token}"})
        assert status < 500, (path, text)
        assert str(driver.token) not in text
        texts += [text, answer(driver.url + path)[1]]
    assert json.loads(texts[1])["driver"]["spark_ui"]
    return "\n".join(texts)


def objects(feed: Feed) -> str:
    """Return the content of the feed's objects: checkpoint, data, and the table's metadata."""
    store, texts = feed.store(), []
    for each in store.get_file_info(fs.FileSelector(feed.stack.bucket, recursive=True)):
        if feed.name in each.path and each.type == fs.FileType.File:
            with store.open_input_stream(each.path) as stream:
                texts.append(each.path + "\n" + stream.read().decode("latin-1"))
    return "\n".join(texts)


def files_of(*folders: Path) -> str:
    files = [each for folder in folders for each in folder.rglob("*") if each.is_file()]
    return "\n".join(each.read_bytes().decode("latin-1") for each in files)


@pytest.mark.slow
def test_secrets_are_in_no_output(feed: Feed) -> None:
    events = feed.folder / "events"
    events.mkdir()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    home = feed.folder / "home"
    environment = {
        **feed.environment,
        "LAKEFEED_HOME": str(home),
        "CANARY": CANARY,
        "WRONG_KEY": "nobody",
        "LAKEFEED_DEBUG": "1",
        "PYTHONPATH": str(feed.folder),
    }
    feed.create_topic()
    feed.send(feed.avro([{"id": 1, "zone": "a"}, {"id": 2, "zone": "b"}]))

    places: dict[str, str] = {}
    with server() as (lineage, sent, keys):
        path = planted(feed, ui=port, events=events, lineage=lineage)
        with Running(["run", path], environment, feed.folder / "run.out") as running:
            running.wait_until_it_says("batch 0")
            places["command lines"] = command_lines()
            places["Spark's UI"] = spark_pages(port, feed.name)
            places["the driver's endpoint"] = driver_answers(home, feed)
            places["lakefeed status"] = lakefeed(
                "status", path, "--output", "json", environment=environment, status=None
            ).stdout
            assert running.ask_to_stop(signal.SIGTERM) == 0, running.said()
    places["output of run"] = running.said()
    places["lineage"] = json.dumps(sent)
    assert set(keys) == {f"Bearer {CANARY}-lineage"}
    places["files in the home of lakefeed"] = files_of(home)
    places["event log"] = files_of(events)
    places["objects"] = objects(feed)
    leaks = [place for place, text in places.items() if CANARY in text]
    assert leaks == [], [text[max(0, text.index(CANARY) - 200) :][:400] for text in (places[each] for each in leaks)]
    # The search of an empty output would pass, too, so check that each output contains the feed's name.
    for place, text in places.items():
        assert feed.name in text, f"{place} was not looked at"

    def said(*arguments: Any) -> str:
        done = lakefeed(*arguments, environment=environment, status=None)
        return f"{done.returncode}\n{done.stdout}{done.stderr}"

    for command in (
        ["deploy", "conf", path],
        ["deploy", "conf", path, "--output", "json"],
        ["verify", path],
        ["plan", path],
    ):
        places[f"lakefeed {command[0]}"] = said(*command)
        assert places[f"lakefeed {command[0]}"].startswith("0\n"), places[f"lakefeed {command[0]}"]
    for name, settings in WRONG.items():
        overrides = [each for setting in settings for each in ("--set", setting)]
        message = said("run", path, "--once", *overrides)
        assert not message.startswith("0\n"), (name, message)
        places[f"run with another {name}"] = message
    overrides = ["--set", "source.kafka.bootstrap_servers=127.0.0.1:1", "--set", "s3.endpoint=http://127.0.0.1:1"]
    places["check"] = said("check", path, "--connect", "--output", "json", *overrides)
    assert len(json.loads(places["check"].partition("\n")[2])) == 2
    places["logs"] = files_of(log_path("check").parent)
    assert [place for place, text in places.items() if CANARY in text] == []
    secret = feed.environment["AWS_SECRET_ACCESS_KEY"]
    assert [place for place, text in places.items() if secret in text] == []
