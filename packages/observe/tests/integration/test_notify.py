"""Real runs send messages, some to a real Alertmanager, and leave traces."""

import json
import threading
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from lakefeed.config.base import validated
from lakefeed.errors import Unreachable
from lakefeed.json_model import iso
from lakefeed.monitor.feed_monitor import FeedMonitor
from lakefeed_observe.notify.notifier import notifying
from lakefeed_observe.notify.settings import Notify
from lakefeed_observe.runs.page import page_of
from lakefeed_observe.runs.store import local_runs, traces_of
from packages.observe.tests.receivers import web_hook
from tests.support.cli import Running, lakefeed
from tests.support.clock import until
from tests.support.feed import JSON_ROWS, TRIP, Feed
from tests.support.pipeline_text import GOOD
from tests.support.servers.alertmanager import alertmanager

HOSTILE = b"<script>alert(1)</script> <!channel> \x1b[2J\xe2\x80\xae"


def test_a_real_alertmanager_shows_an_alert_and_the_resolution(tmp_path: Path) -> None:
    with alertmanager(tmp_path) as server:
        target = {"webhook": {"url": server.url, "format": "alertmanager"}}
        when = {"lag": {"records": 10, "for": "0 seconds"}}
        link = "https://dash.example/#/feed/taxi"
        settings = validated(Notify, "test", targets={"oncall": target}, when=when, link=link)
        monitor = FeedMonitor("taxi")
        with notifying(settings, monitor):
            monitor.begin(sink="iceberg lake.nyc.trips", fence=None)
            monitor.starts_at({("trips", 0): 0})
            monitor.observe_ends({("trips", 0): 500})
            until(lambda: bool(server.alerts(alertname="LakefeedLag")))
            [lag] = server.alerts(alertname="LakefeedLag", feed="taxi", severity="warning")
            assert lag["status"]["state"] == "active"
            assert "500 records are not committed" in lag["annotations"]["description"]
            assert lag["generatorURL"] == link
            monitor.observe_ends({("trips", 0): 0})
            until(lambda: not server.alerts(alertname="LakefeedLag"))
            monitor.ended(Unreachable("the broker does not answer", where="b:9092", hint=HOSTILE.decode()))
        [failed] = server.alerts(alertname="LakefeedFailed")
        assert failed["labels"]["severity"] == "critical"
        assert "the broker does not answer" in failed["annotations"]["summary"]


def test_a_start_that_fails_is_reported_and_leaves_a_trace(tmp_path: Path) -> None:
    path = tmp_path / "p.yaml"
    environment = {
        "KAFKA_BOOTSTRAP_SERVERS": "127.0.0.1:1",
        "LAKEFEED_CATALOG_URI": f"jdbc:sqlite:{tmp_path}/lake.db",
        "LAKEFEED_WAREHOUSE": "s3://lake/warehouse",
        "LAKEFEED_HOME": str(tmp_path / "home"),
        "HOOK": "canary-6c2e91d4",
    }
    with web_hook() as hook:
        block = {"targets": {"chat": {"webhook": {"url": f"{hook.url}/${{HOOK}}", "format": "slack"}}}}
        path.write_text(f"{GOOD}notify: {json.dumps(block)}\n")
        for _ in range(2):
            done = lakefeed("run", path, environment=environment, status=None)
            assert done.returncode in (1, 2), done.stderr
            assert environment["HOOK"] not in done.stdout + done.stderr
        [body] = hook.bodies  # During the cool-down, the second message is suppressed.
        assert "*taxi: failed*" in body["text"]
        assert hook.paths == ["/canary-6c2e91d4"]
        tested = lakefeed("notify", "test", path, environment=environment, status=None)
        assert (tested.returncode, tested.stdout) == (0, "chat (webhook): delivered: HTTP status 200: ok\n")
    tested = lakefeed("notify", "test", path, environment=environment, status=None)
    assert (tested.returncode, "not delivered" in tested.stdout) == (1, True)
    assert environment["HOOK"] not in tested.stdout + tested.stderr
    unknown = lakefeed("notify", "test", path, "--target", "chats", environment=environment, status=None)
    assert (unknown.returncode, "known: chat" in unknown.stderr) == (2, True)
    listed = lakefeed("runs", "list", path, "--output", "json", environment=environment, status=None)
    assert [run["end"] for run in json.loads(listed.stdout)["runs"]] == ["failed", "failed"]
    for file in (tmp_path / "home").rglob("*.json"):
        assert environment["HOOK"] not in file.read_text()


def test_a_run_with_a_new_schema_and_dead_letters_sends_messages_and_leaves_a_trace(
    lake: SparkSession, feed: Feed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAKEFEED_HOME", str(tmp_path / "home"))
    feed.create_topic(partitions=1)
    wider: dict[str, Any] = {
        **TRIP,
        "fields": [*TRIP["fields"], {"name": "tip", "type": ["null", "long"], "default": None}],
    }
    feed.send(feed.avro([{"id": number, "zone": "a"} for number in range(10)]), partition=0)
    feed.send([HOSTILE] * 5, partition=0)
    monitor, stop = FeedMonitor(feed.name), threading.Event()
    with web_hook() as hook:
        kafka = {"bootstrap_servers": "${KAFKA_BOOTSTRAP_SERVERS}", "topics": [feed.topic], "max_records_per_batch": 10}
        pipeline = feed.pipeline(
            source={"kafka": kafka},
            dead_letters={"table": f"lake.{feed.name}.letters"},
            notify={"targets": {"own": {"webhook": {"url": hook.url}}}, "when": {"dead_letters": {"count": 2}}},
            runs={"keep": "checkpoint"},
        )
        thread = threading.Thread(target=pipeline.run, kwargs={"spark": lake, "monitor": monitor, "stop": stop})
        thread.start()
        until(lambda: monitor.snapshot().totals.records == 15, seconds=120)
        feed.send(feed.avro([{"id": number, "zone": "a", "tip": 1} for number in range(10)], wider), partition=0)
        until(lambda: monitor.snapshot().totals.records == 25, seconds=120)
        stop.set()
        thread.join(60)
        bodies = {body["trigger"]: body for body in hook.bodies}
    assert bodies.keys() >= {"stopped", "schema", "dead_letters"}, hook.bodies
    assert "25 records" in bodies["stopped"]["what"]
    [whole] = traces_of(pipeline.config, connections=pipeline.connections)
    local = local_runs(pipeline.config)
    assert local is not None
    [path] = local.folder.iterdir()
    path.unlink()
    [stored] = traces_of(pipeline.config, connections=pipeline.connections)
    trace = whole.as_dict()
    assert stored.as_dict() == {**trace, "written_at": iso(stored.written_at), "ended_at": iso(stored.ended_at)}
    assert (trace["end"], trace["totals"]["records"], trace["totals"]["dead_letters"]) == ("ended", 25, 5)
    assert trace["start"]["reason"] == "the feed begins where its source says"
    assert sum(reason["count"] for reason in trace["dead_letters"]) == 5
    assert trace["schema_changes"]
    assert trace["requests"]["total"] == sum(trace["requests"]["by_class"].values()) > 0
    assert sum(batch["records"] for batch in trace["batches"]) == 25
    html = page_of(whole)
    assert "<script" not in html
    assert "Changes of the schema" in html


def test_a_killed_run_leaves_a_trace(feed: Feed, tmp_path: Path) -> None:
    environment = {**feed.environment, "LAKEFEED_HOME": str(tmp_path / "home")}
    feed.create_topic(partitions=1)
    feed.send([b'{"id": 1}'] * 100)
    path = feed.write_file(decode=JSON_ROWS)

    def runs() -> list[dict[str, Any]]:
        done = lakefeed("runs", "list", path, "--output", "json", environment=environment, status=None)
        found: list[dict[str, Any]] = json.loads(done.stdout)["runs"]
        return found

    running = Running(["run", path, "--log-format", "json"], environment, tmp_path / "log")
    try:
        running.wait_until_it_says('"event":"batch"')
        until(lambda: any(run["end"] == "running" for run in runs()), seconds=60)
    finally:
        running.kill()
    [run] = runs()
    assert (run["end"], run["ended_at"]) == ("cut", None)
    shown = lakefeed("runs", "show", path, "--output", "json", environment=environment, status=None)
    assert json.loads(shown.stdout)["start"]["reason"] == "the feed begins where its source says"
