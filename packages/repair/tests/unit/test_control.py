"""Commands send requests to a driver over HTTP, and pause a feed that does not run."""

import json
import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import pytest

from lakefeed.clients.environment import process_start, this_user
from lakefeed.config.connections import Connections
from lakefeed.config.models import PipelineConfig
from lakefeed.errors import AccessDenied, ConfigError, JobFailed, LakefeedError, ResourceMissing, Unreachable
from lakefeed.feed.events import Event
from lakefeed.ledger.pauses import PAUSE_FILE, UNREADABLE, CheckpointPauses, LocalPauses, Pause, pause_of, stored_pause
from lakefeed.monitor import drivers
from lakefeed.monitor.drivers import DriverFile, FeedServer
from lakefeed.operations.live_status import identity_of
from lakefeed_repair.control import RunningFeed, pause_next_start, resume_next_start, running_feed, running_feed_named
from tests.support.pipeline_text import feed_config

PAUSE = Pause(reason="the table is repaired", by="anna", at=1_000_000.0)


def config(**changes: Any) -> PipelineConfig:
    sink = {"iceberg": {"table": "lake.nyc.{topic}"}}
    return feed_config(**{"name": "taxi", "sink": sink, "checkpoint": None, **changes})


class Server:
    """A fake dashboard that gives the declared answers and records the requests."""

    url = "http://127.0.0.1:1"

    def __init__(self, *answers: tuple[int, dict[str, Any]], events: Any = ()) -> None:
        self._answers, self._events = list(answers), list(events)
        self.asked: list[tuple[str, Any, Any]] = []

    def exchange(
        self, path: str, *, body: Mapping[str, Any] | None = None, headers: Mapping[str, str] | None = None
    ) -> tuple[int, dict[str, Any]]:
        self.asked.append((path, body, headers))
        return self._answers.pop(0)

    def events(self, feed: str, *, after: int) -> tuple[Event, ...]:
        self.asked.append((f"events after {after}", None, None))
        if not self._events:
            raise Unreachable("gone")
        return tuple(event(**found) for found in self._events.pop(0))

    def feeds(self) -> list[dict[str, Any]]:
        return [{"feed": "taxi-rides"}, {"feed": "orders"}]


def event(**fields: Any) -> Event:
    return Event.model_validate({"kind": "action", "at": 0.0, "message": "", **fields})


def feed(server: Server, driver: DriverFile | None = None) -> RunningFeed:
    return RunningFeed("taxi", cast("FeedServer", server), driver)


def driver(name: str = "taxi", **changes: Any) -> DriverFile:
    own = DriverFile(
        feed=name,
        identity=identity_of(config(name=name)),
        host=socket.gethostname(),
        pid=os.getpid(),
        started=process_start(os.getpid()),
        since=1.0,
        url="http://127.0.0.1:1",
        token="a-token-of-the-driver",
    )
    return own.model_copy(update=changes)


def leave(*files: DriverFile) -> None:
    folder = drivers.drivers_folder()
    folder.mkdir(parents=True, exist_ok=True)
    for number, file in enumerate(files):
        path = drivers.path_of(f"{file.identity}{number or ''}")
        path.write_text(file.model_dump_json())
        path.chmod(0o600)


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKEFEED_HOME", str(tmp_path))


def test_a_request_names_the_user_only_to_a_driver_on_this_machine() -> None:
    server = Server((202, {"event": event(number=7).as_dict()}), (202, {"event": event(number=8).as_dict()}))
    assert feed(server, driver()).request("pause", reason="repair", trigger=None).number == 7
    feed(server).request("stop")
    (path, body, headers), (_, _, to_a_dashboard) = server.asked
    assert path == "/api/feeds/taxi/actions"
    assert body == {"action": "pause", "reason": "repair"}
    assert headers == {"X-Lakefeed-User": this_user()}
    assert to_a_dashboard == {}


@pytest.mark.parametrize(
    ("status", "error", "words"),
    [
        (409, ConfigError, "the feed is not paused"),
        (403, AccessDenied, "the feed is not paused"),
        (401, ConfigError, "requires a valid token"),
        (404, ResourceMissing, "feeds that run: orders, taxi-rides"),
        (500, Unreachable, "the feed is not paused"),
    ],
)
def test_the_http_status_of_a_refusal_decides_the_class_of_the_error(
    status: int, error: type[LakefeedError], words: str
) -> None:
    with pytest.raises(error, match=words):
        feed(Server((status, {"error": "the feed is not paused", "hint": "no"}))).request("resume")


def test_a_command_waits_until_an_event_shows_the_outcome_of_its_request() -> None:
    after_restart = [{"number": 9, "kind": "note"}, {"number": 10, "kind": "paused", "message": "paused by anna"}]
    server = Server(events=[[{"number": 8, "kind": "note"}], after_restart])
    assert feed(server).wait_for("pause", event(number=7)).message == "paused by anna"
    assert [path for path, _, _ in server.asked] == ["events after 7", "events after 8"]
    with pytest.raises(JobFailed, match="ended before the requested action: pause"):
        feed(Server(events=[[{"number": 9, "kind": "failed"}]])).wait_for("pause", event(number=7))


def test_a_command_waits_for_another_process_until_its_last_event_or_the_end_of_its_dashboard() -> None:
    feed(Server(events=[[], [{"number": 3, "kind": "ended"}]])).wait_for_end()
    feed(Server(events=[[]])).wait_for_end()
    with pytest.raises(JobFailed, match="no disk"):
        feed(Server(events=[[{"number": 3, "kind": "failed", "message": "no disk"}]])).wait_for_end()


@pytest.mark.parametrize(
    ("changes", "failure"),
    [
        ({"ended": "ended", "ended_at": 2.0}, None),
        ({"ended": "failed", "ended_at": 2.0}, "ended with an error"),
        ({"started": "another process"}, "was killed or has crashed"),
        # The later start time shows that another driver has replaced the first.
        ({"since": 3.0, "ended": "failed"}, None),
    ],
)
def test_the_file_of_a_driver_on_this_machine_shows_how_the_run_ended(
    changes: dict[str, Any], failure: str | None
) -> None:
    leave(driver(**changes))
    waiting = feed(Server(), driver())
    if failure is None:
        waiting.wait_for_end()
        return
    with pytest.raises(JobFailed, match=failure):
        waiting.wait_for_end()


def test_a_driver_that_ends_while_its_file_is_read_is_not_reported_as_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    files = iter([driver(started="gone"), driver(started="gone", ended="ended"), driver(started="gone", ended="ended")])
    monkeypatch.setattr(drivers, "find", lambda _: next(files))
    feed(Server(), driver()).wait_for_end()


def test_a_driver_is_found_by_the_pipeline_file_or_the_name_of_the_feed() -> None:
    assert running_feed(config()) is None
    with pytest.raises(ResourceMissing, match="no driver of a feed 'taxi' runs on this machine"):
        running_feed_named("taxi")
    leave(driver(), driver("orders"))
    found = running_feed(config())
    assert found is not None
    assert (found.name, found.server.url) == ("taxi", "http://127.0.0.1:1")
    assert running_feed_named("orders").name == "orders"
    assert "a-token-of-the-driver" not in repr(found)
    with pytest.raises(ResourceMissing) as missing:
        running_feed_named("taxy")
    assert missing.value.hint == "feeds that run: taxi"


def test_the_error_for_a_driver_without_an_endpoint_names_the_command_that_ends_it() -> None:
    leave(driver(url=None, token=None), driver("two"), driver("two"))
    with pytest.raises(ConfigError, match="without an endpoint") as refused:
        running_feed_named("taxi")
    assert f"kill -TERM {os.getpid()}" in str(refused.value.hint)
    with pytest.raises(ConfigError, match="2 feeds on this machine are named 'two'"):
        running_feed_named("two")


def test_the_pause_of_a_feed_with_many_tables_is_stored_in_the_users_own_folder() -> None:
    connections = Connections.from_environment({})
    kept = pause_next_start(config(), connections, reason="repair\x1b")
    assert (kept.by, kept.reason) == (this_user(), r"repair\x1b")
    [file] = (drivers.drivers_folder().parent / "pauses").iterdir()
    assert file.stat().st_mode & 0o777 == 0o600
    assert LocalPauses.of(config()).read() == pause_of(kept.model_dump_json())
    assert LocalPauses.of(config(name="orders")).read() is None
    with pytest.raises(ConfigError, match="already paused by"):
        pause_next_start(config(), connections, reason="")
    assert resume_next_start(config(), connections).by == this_user()
    with pytest.raises(ConfigError, match="not paused"):
        resume_next_start(config(), connections)


def test_a_feed_without_checkpoint_and_ledger_cannot_be_paused_before_it_starts() -> None:
    printed = config(sink={"console": {}})
    with pytest.raises(ConfigError, match="has no checkpoint"):
        stored_pause(printed, Connections.from_environment({}))


class Files:
    def __init__(self) -> None:
        self.texts = {"lakefeed.json": "{}"}

    def names(self) -> list[str]:
        return list(self.texts)

    def read(self, name: str) -> str:
        return self.texts[name]

    def write(self, name: str, text: str) -> None:
        self.texts[name] = text

    def remove(self, name: str) -> None:
        self.texts.pop(name, None)


def test_the_pause_of_a_feed_with_a_checkpoint_is_a_file_beside_it() -> None:
    files = Files()
    pauses = CheckpointPauses(files)
    assert pauses.read() is None
    pauses.write(PAUSE)
    assert json.loads(files.texts[PAUSE_FILE]) == {
        "reason": "the table is repaired",
        "by": "anna",
        "at": "1970-01-12T13:46:40.000Z",
    }
    assert pauses.read() == PAUSE
    pauses.clear()
    pauses.clear()
    assert files.names() == ["lakefeed.json"]


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"by": "a"}', '{"by": "a", "reason": "", "at": "5"}'])
def test_an_unreadable_pause_file_counts_as_a_pause(text: str) -> None:
    assert pause_of(text).reason == UNREADABLE
