"""Commands pause, resume, change and stop a feed; a pause remains when the driver dies."""

import json
import signal
import socket
from pathlib import Path
from typing import Any

import pytest

from lakefeed.clients.environment import this_user
from lakefeed.ledger.checkpoint import StoredCheckpoint
from lakefeed.ledger.pauses import PAUSE_FILE
from tests.support.cli import Running, lakefeed
from tests.support.feed import JSON_ROWS, Feed, records, until

TOKENS = {"OPERATOR_TOKEN": "operator-" + "0123456789" * 3, "VIEWER_TOKEN": "viewer-" + "9876543210" * 3}
REASON = "the <b>table</b> is repaired"


@pytest.fixture
def environment(feed: Feed, tmp_path: Path) -> dict[str, str]:
    return {**feed.environment, "LAKEFEED_HOME": str(tmp_path / "home")}


def dashboard(port: int) -> dict[str, Any]:
    tokens = [{"name": role, "token": f"${{{role.upper()}_TOKEN}}", "role": role} for role in ("operator", "viewer")]
    return {"port": port, "tokens": tokens}


class Shell:
    """A user's second shell, with other environment variables, which runs commands."""

    def __init__(self, environment: dict[str, str]) -> None:
        self.environment = environment

    def do(self, *arguments: str | Path, status: int = 0) -> dict[str, Any]:
        done = lakefeed(*arguments, "--output", "json", environment=self.environment, status=status)
        document: dict[str, Any] = json.loads(done.stdout)
        return document

    def progress(self, path: Path) -> dict[str, Any]:
        document: dict[str, Any] = self.do("status", path)["progress"]
        return document

    def pauses(self, path: Path) -> bool:
        return bool(self.progress(path)["paused"])


def test_a_pause_survives_the_death_of_the_driver_and_each_row_lands_once(
    feed: Feed, tmp_path: Path, environment: dict[str, str]
) -> None:
    feed.create_topic(partitions=1)
    feed.send(records(100))
    path, shell = feed.write_file(decode=JSON_ROWS), Shell(environment)
    with Running(["run", path, "--log-format", "json"], environment, tmp_path / "first") as running:
        running.wait_until_it_says('"event":"batch"')
        paused = shell.do("feed", "pause", feed.name, "--reason", REASON, "--wait")
        assert (paused["feed"], paused["carried_out"], paused["event"]["kind"]) == (feed.name, True, "paused")
        feed.send(records(50, first=100))
        progress = shell.progress(path)
        assert (progress["state"], progress["totals"]["records"]) == ("paused", 100)
        assert (progress["paused"]["reason"], progress["paused"]["by"]) == (REASON, this_user())
        assert shell.do("feed", "pause", path, status=2)["what"].startswith("the feed is already paused by ")
    # On another machine, which does not have the file of the pause, run --once is refused with the reason of the pause,
    # too.
    elsewhere = {**environment, "LAKEFEED_HOME": str(tmp_path / "elsewhere")}
    refused = Shell(elsewhere).do("run", path, "--once", status=1)
    assert refused["error"] == "FeedPaused"
    assert REASON in refused["what"]
    shell = Shell(elsewhere)
    with Running(["run", path, "--log-format", "json"], elsewhere, tmp_path / "second") as running:
        running.wait_until_it_says(REASON)
        until(lambda: shell.pauses(path))
        assert '"event":"batch"' not in running.said()
        shell.do("feed", "change", path, "--max-records-per-batch", "20", "--trigger", "2 seconds")
        shell.do("feed", "resume", path, "--reason", "repaired", "--wait")
        running.wait_until_it_says('"event":"batch"', times=3)
        batches = [event for event in events(running) if event["event"] == "batch"]
        assert [batch["records"] for batch in batches] == [20, 20, 10]
        shell.do("feed", "stop", feed.name, "--wait")
        assert running.process.wait(30) == 0
        actions = [event for event in events(running) if event["event"] == "action"]
        assert [event["action"] for event in actions] == ["change", "resume", "stop"]
        assert {event["by"] for event in actions} == {this_user()}
    verified = shell.do("verify", path, "--deep")
    assert verified["rows"] == 150
    assert len(feed.rows()) == 150


def has_batch(path: Path, environment: dict[str, str]) -> bool:
    """Return whether a driver is writing a batch; False if no driver has started yet."""
    document = json.loads(lakefeed("status", path, "--output", "json", environment=environment, status=None).stdout)
    return bool((document.get("progress") or {}).get("running"))


def events(running: Running) -> list[dict[str, Any]]:
    return [json.loads(line) for line in running.said().splitlines() if line.startswith('{"time"')]


def test_a_pause_requested_during_a_batch_survives_the_death_of_the_driver(
    feed: Feed, tmp_path: Path, environment: dict[str, str]
) -> None:
    feed.create_topic(partitions=1)
    feed.send(records(1))
    sql = f"SELECT * FROM {feed.name} WHERE reflect('java.lang.Thread', 'sleep', 120000L + id) IS NULL"
    path, shell = feed.write_file(decode=JSON_ROWS, transform={"sql": sql}), Shell(environment)
    with Running(["run", path, "--log-format", "json"], environment, tmp_path / "log") as running:
        until(lambda: has_batch(path, environment))
        shell.do("feed", "pause", path, "--reason", REASON)
        until(lambda: PAUSE_FILE in StoredCheckpoint(feed.checkpoint, s3=feed.connections.s3).names())
        assert '"event":"batch"' not in running.said()
    refused = shell.do("run", path, "--once", status=1)
    assert refused["error"] == "FeedPaused"
    assert REASON in refused["what"]


def test_a_feed_can_be_paused_before_its_driver_starts(feed: Feed, tmp_path: Path, environment: dict[str, str]) -> None:
    feed.create_topic(partitions=1)
    feed.send(records(10))
    path, shell = feed.write_file(decode=JSON_ROWS), Shell(environment)
    assert "no driver of a feed" in shell.do("feed", "pause", "no-such-feed", status=2)["what"]
    assert shell.do("feed", "pause", path, "--reason", REASON)["paused"]["reason"] == REASON
    assert shell.do("feed", "pause", path, status=2)["error"] == "ConfigError"
    assert shell.do("feed", "stop", path, status=2)["error"] == "ResourceMissing"
    with Running(["run", path], environment, tmp_path / "log") as running:
        running.wait_until_it_says(REASON)
        # A paused driver ends immediately at SIGTERM, and the pause remains.
        assert running.ask_to_stop(signal.SIGTERM, timeout=60) == 0
    assert shell.do("feed", "resume", path)["paused"] is None
    assert shell.do("feed", "resume", path, status=2)["what"] == "the feed is not paused"
    shell.do("feed", "pause", path)
    assert shell.do("run", path, "--once", "--resume")["records"] == 10
    assert shell.do("run", path, "--once")["records"] == 0


def test_a_dashboard_accepts_requests_from_another_machine_with_a_token(
    feed: Feed, tmp_path: Path, environment: dict[str, str]
) -> None:
    feed.create_topic(partitions=1)
    feed.send(records(10))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    path = feed.write_file(decode=JSON_ROWS, dashboard=dashboard(port))
    elsewhere = {"LAKEFEED_HOME": str(tmp_path / "elsewhere")}
    url = ("--url", f"http://127.0.0.1:{port}")
    with Running(["run", path, "--dashboard"], {**environment, **TOKENS}, tmp_path / "log") as running:
        running.wait_until_it_says("batch 0")
        operator = Shell({**elsewhere, "LAKEFEED_TOKEN": TOKENS["OPERATOR_TOKEN"]})
        viewer = Shell({**elsewhere, "LAKEFEED_TOKEN": TOKENS["VIEWER_TOKEN"]})
        assert viewer.do("feed", "pause", feed.name, *url, status=2)["error"] == "AccessDenied"
        assert Shell(elsewhere).do("feed", "pause", feed.name, *url, status=2)["error"] == "ConfigError"
        assert operator.do("feed", "pause", feed.name, *url, "--wait")["event"]["kind"] == "paused"
        assert operator.do("feed", "resume", feed.name, *url, "--wait")["event"]["kind"] == "resumed"
        assert feed.name in str(operator.do("feed", "stop", f"{feed.name}x", *url, status=2)["hint"])
        operator.do("feed", "stop", feed.name, *url, "--wait")
        assert running.process.wait(60) == 0
        assert not any(secret in running.said() for secret in TOKENS.values())
