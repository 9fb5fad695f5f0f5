"""``lakefeed status`` without servers: usage, --watch, and the printed lines."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from lakefeed.cli.main import root
from lakefeed.cli.output import Shown, show
from lakefeed.cli.status import status_lines
from lakefeed.errors import ConfigError, ResourceMissing, Unreachable
from lakefeed.feed.progress import FinishedBatch, RunningBatch
from lakefeed.json_model import iso
from lakefeed.ledger.outcomes import Reason
from lakefeed.ledger.pauses import Pause
from lakefeed.messages.redaction import remember
from lakefeed.monitor.drivers import DriverFile, announced
from lakefeed.monitor.feed_monitor import FeedMonitor, this_driver
from lakefeed.monitor.model import Failure, PartitionLag, RunTotals
from lakefeed.operations.endpoint import OwnFeed, serve
from lakefeed.operations.live_status import LiveStatus
from lakefeed.operations.status import Lag

PIPELINE = """
name: taxi
source: {kafka: {bootstrap_servers: "broker:9092", topics: [taxi]}}
decode: raw
sink: {kafka: {topic: out}}
checkpoint: s3a://lake/taxi
"""
HOSTILE = "\x1b]0;pwned\x07\x1b[2J\u202egnp.exe"


@pytest.mark.parametrize(
    "arguments",
    [
        ["status", "--group", ""],
        ["status", "--bootstrap-servers", "a:1"],
        ["status", "file.yaml", "--group", "g", "--bootstrap-servers", "a:1"],
        ["status", "--all", "--topic", "t"],
        ["status", "--all", "--group", "g"],
        ["status", "--every", "0"],
    ],
)
def test_wrong_options_of_status_are_usage_errors(arguments: list[str]) -> None:
    assert CliRunner().invoke(root, arguments).exit_code == 2


def test_the_lag_of_a_topic_that_the_feed_does_not_read_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "f.yaml"
    file.write_text(
        "name: f\nsource: {kafka: {bootstrap_servers: 127.0.0.1:1, topics: [orders]}}\n"
        "decode: {avro: {registry: http://127.0.0.1:1}}\nsink: {iceberg: {table: lake.a.b}}\ncheckpoint: s3a://bucket/path\n"
        "catalogs: {lake: {type: rest, uri: http://127.0.0.1:1, warehouse: s3://b/w}}\n"
    )
    shown = CliRunner().invoke(root, ["status", str(file), "--topic", "order"])
    assert isinstance(shown.exception, ResourceMissing)
    assert (shown.exception.what, shown.exception.hint) == (
        "the feed 'f' does not read the topic order",
        "did you mean orders?",
    )


class Looks:
    """Returns the given answers one after the other, then raises KeyboardInterrupt."""

    def __init__(self, *answers: Shown | Exception) -> None:
        self._answers = iter(answers)

    def __call__(self) -> Shown:
        answer = next(self._answers, None)
        if answer is None:
            raise KeyboardInterrupt
        if isinstance(answer, Exception):
            raise answer
        return answer


@contextmanager
def command(output: str) -> Iterator[None]:
    """Run the block as a command that has --output."""
    with click.Context(click.Command("status")) as context:
        context.meta["output"] = output
        yield


def test_watch_continues_if_a_server_does_not_answer(capsys: pytest.CaptureFixture[str]) -> None:
    looks = Looks(({"lag": 1}, ["lag 1"], 0), Unreachable("no broker answers"), ({"lag": 2}, ["lag 2"], 1))
    with command("json"):
        assert show(looks, watch=True, every=0.0) == 1
    documents = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [document.get("lag") or document["what"] for document in documents] == [1, "no broker answers", 2]
    looks = Looks(({}, [f"lag {HOSTILE}"], 0))
    with command("text"):
        assert show(looks, watch=True, every=0.0) == 0
    assert capsys.readouterr().out == "lag \\x1b]0;pwned\\x07\\x1b[2J\\u202egnp.exe\n"


def test_watch_ends_at_a_mistake_of_the_user() -> None:
    with command("text"), pytest.raises(ConfigError):
        show(Looks(ConfigError("no")), watch=True, every=0.0)


def test_status_lines_have_all_known_facts() -> None:
    now = 10_000.0
    partitions = (PartitionLag(topic="t", partition=0, end=50, committed=40, uncommitted_seconds=5.0),)
    found = LiveStatus(
        feed="taxi",
        sink="iceberg lake.nyc.trips",
        state="running",
        evidence=("process 7 on here answers",),
        lag=Lag(name="taxi", kind="feed", partitions=partitions),
        fence="7 abc\x1b[2J",
        last_commit_at=now - 3,
        last_batch=12,
        last_rows=990,
        last_error=Failure(what="it broke", hint="fix it"),
        driver=DriverFile(feed="taxi", identity="x", host="here", pid=7, started="1", since=now - 3700),
        progress=FeedMonitor("taxi")
        .snapshot()
        .model_copy(
            update={
                "running": RunningBatch(batch_id=13, began_at=0.0, seconds=60.0, tasks_done=3, tasks=8),
                "restarts": 1,
                "totals": RunTotals(dead_letters=1500, left_out=3, left_out_field="inner.b"),
                "last_dead_letters": (Reason(HOSTILE, 1200),),
                "paused_sinks": {"side": "away"},
            }
        ),
        taken_at=now,
    )
    lines = status_lines(found, partitions=True)
    assert [" ".join(line.split()) for line in lines] == [
        "taxi into iceberg lake.nyc.trips",
        "state running: process 7 on here answers",
        "driver process 7 on here, since 1970-01-01 01:45:00 UTC (1 h 01 min)",
        "fence 7 abc\\x1b[2J",
        "last commit batch 12, 3 s ago, 990 rows",
        "rate unknown",
        "lag 10, the oldest 5 s old",
        "running batch 13 has run for 1 min 00 s · 3 of 8 tasks · 1 min 40 s left",
        "restarts 1 within the run",
        "dead letters 1,500 of this run",
        "newest batch 1,200 times \\x1b]0;pwned\\x07\\x1b[2J\\u202egnp.exe",
        "left out JSON fields without a column, such as inner.b, of 3 records of this run",
        "waits the sink side: away",
        "last error it broke",
        "next fix it",
        "partition committed end lag oldest",
        "t-0 40 50 10 5 s",
    ]


def test_status_shows_a_pause_that_applies_to_the_next_start() -> None:
    found = LiveStatus(
        feed="taxi",
        sink="kafka out",
        state="ended",
        evidence=("its driver has ended its run",),
        taken_at=time.time(),
        paused=Pause(reason="repair", by="anna", at=0.0),
    )
    [line] = [line for line in status_lines(found) if "paused" in line]
    assert line.split()[:8] == ["paused", "the", "next", "start", "waits:", "paused", "by", "anna"]
    assert line.endswith(": repair")
    assert found.as_dict()["paused"] == {"reason": "repair", "by": "anna", "at": iso(0.0)}


def test_status_all_shows_the_drivers_of_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKEFEED_HOME", str(tmp_path))
    nothing = CliRunner().invoke(root, ["status", "--all"])
    assert (nothing.exit_code, nothing.output) == (0, "no driver is known on this machine\n")
    monitor = FeedMonitor("taxi")
    monitor.begin(sink="", fence=None)
    monitor.finish(FinishedBatch(batch_id=41, finished_at=1.0, seconds=1.0, records=1))
    with (
        serve(OwnFeed(monitor), port=0) as endpoint,
        announced(this_driver(), feed="taxi", identity="taxi", since=1.0, url=endpoint.url, token=endpoint.token),
    ):
        shown = CliRunner().invoke(root, ["status", "--all", "--output", "json"])
        [driver] = json.loads(shown.output)["drivers"]
        assert (shown.exit_code, driver["state"], driver["progress"]["last_batch"]["batch"]) == (0, "running", 41)
        assert str(endpoint.token) not in shown.output
        assert "41" in CliRunner().invoke(root, ["status", "--all"]).output
        monitor.ended(ValueError())
        assert CliRunner().invoke(root, ["status", "--all"]).exit_code == 1


def test_status_url_shows_the_feeds_of_a_dashboard_with_its_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command reads no files of drivers, because the drivers may run on another machine."""
    monkeypatch.setenv("LAKEFEED_HOME", str(tmp_path))
    monitor = FeedMonitor(HOSTILE)
    monitor.begin(sink="", fence=None)
    monitor.finish(FinishedBatch(batch_id=41, finished_at=time.time(), seconds=1.0, records=500))
    monitor.failed(Unreachable("it broke", where="here"))
    with serve(OwnFeed(monitor), port=0) as endpoint:
        url = ["--url", str(endpoint.url), "--output", "json"]
        for command in ("status", "top"):
            refused = CliRunner().invoke(root, [command, *url])
            assert isinstance(refused.exception, ConfigError)
            assert "requires a valid token" in refused.exception.what
        token = tmp_path / "token"
        token.write_text(f"{endpoint.token}\n")
        url += ["--token-file", str(token)]
        shown = CliRunner().invoke(root, ["status", "--all", *url])
        [driver] = json.loads(shown.output)["drivers"]
        assert (shown.exit_code, driver["state"], driver["last_batch"]) == (0, "running", 41)
        assert driver["last_error"]["what"] == "it broke"
        shown = CliRunner().invoke(root, ["top", *url])
        [feed] = json.loads(shown.output)["feeds"]
        assert (shown.exit_code, feed["state"], feed["batch"], len(feed["points"])) == (0, "waiting", 41, 1)
        assert feed["last_error"] == "it broke (here)"
        text = CliRunner().invoke(root, ["status", *url[:2], "--token-file", str(token)]).output
        assert all(line.isprintable() for line in text.splitlines())
    gone = CliRunner().invoke(root, ["top", *url])
    assert (gone.exit_code, json.loads(gone.output)["feeds"][0]["state"]) == (1, "no answer")


def test_status_all_shows_the_error_of_a_failed_feed_until_the_next_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAKEFEED_HOME", str(tmp_path))
    remember(["canary-word"])
    with pytest.raises(Unreachable), announced(this_driver(), feed="taxi", identity="taxi", since=1.0):
        raise Unreachable("no broker answers canary-word \x1b[2J", where="b:9092")
    for command, name in ((["status", "--all"], "drivers"), (["top"], "feeds")):
        shown = CliRunner().invoke(root, [*command, "--output", "json"])
        [found] = json.loads(shown.output)[name]
        assert (shown.exit_code, found["state"]) == (1, "failed")
        assert "no broker answers" in str(found["last_error"])
        assert "canary-word" not in shown.output
        text = CliRunner().invoke(root, command).output
        assert "no broker answers" in text
        assert all(line.isprintable() for line in text.splitlines())
    with announced(this_driver(), feed="taxi", identity="taxi", since=2.0):
        pass
    assert CliRunner().invoke(root, ["status", "--all"]).exit_code == 0


@pytest.mark.parametrize("arguments", [["--all"], ["--url", "http://127.0.0.1:1"]])
def test_status_refuses_a_pipeline_file_together_with_all_or_url(arguments: list[str], tmp_path: Path) -> None:
    file = tmp_path / "p.yaml"
    file.write_text(PIPELINE)
    assert CliRunner().invoke(root, ["status", str(file), *arguments]).exit_code == 2


def test_status_all_does_not_show_a_driver_of_another_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKEFEED_HOME", str(tmp_path))
    there = this_driver().model_copy(update={"host": "there", "started": "another"})
    with announced(there, feed="taxi", identity="taxi", since=1.0):
        shown = CliRunner().invoke(root, ["status", "--all"])
    assert (shown.exit_code, shown.output) == (0, "no driver is known on this machine\n")


def test_a_port_in_use_is_logged_as_a_structured_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKEFEED_HOME", str(tmp_path))
    file = tmp_path / "pipeline.yaml"
    file.write_text(PIPELINE)
    with serve(OwnFeed(FeedMonitor("other")), port=0) as other:
        port = str(other.url).rsplit(":", 1)[1]
        run = CliRunner().invoke(root, ["run", str(file), "--log-format", "json", "--endpoint-port", port])
    [line] = run.stderr.splitlines()
    document = json.loads(line)
    assert (run.exit_code, document["event"], document["error"]) == (1, "error", "PortTaken")


def test_top_exits_with_status_1_if_a_feed_does_not_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKEFEED_HOME", str(tmp_path))
    over = threading.Event()
    monkeypatch.setattr("lakefeed_dashboard.top.feed_watch.live_status", lambda *given, **more: over.wait(30))
    monkeypatch.setattr("lakefeed_dashboard.command.SETTLE_SECONDS", 0.5)
    file = tmp_path / "p.yaml"
    file.write_text(PIPELINE)
    shown = CliRunner().invoke(root, ["top", str(file), "--output", "json"])
    over.set()
    [feed] = json.loads(shown.output)["feeds"]
    assert (shown.exit_code, feed["state"]) == (1, "asking")
