"""A dashboard for many drivers answers quickly while some drivers hang, and sends actions in its user's name."""

import json
import socket
import statistics
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import pytest
from click.testing import CliRunner

from lakefeed.cli.main import root
from lakefeed.monitor.drivers import FeedServer, announced
from lakefeed.monitor.feed_monitor import FeedMonitor, this_driver
from lakefeed.operations.endpoint import OwnFeed, serve
from lakefeed_dashboard.remote import RemoteFeeds, WatchedServer, sources_of
from packages.dashboard.tests.dashboards import (
    OPERATOR_TOKEN,
    VIEWER_TOKEN,
    bearer,
    browser,
    dashboard,
    log_in,
    monitor_of,
    with_login,
    without_login,
)
from tests.support.clock import until

FEEDS = 50
HANGING = 5


@contextmanager
def hanging() -> Iterator[str]:
    """Yield the address of a server that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0), backlog=100) as silent:
        yield f"http://127.0.0.1:{silent.getsockname()[1]}"


@contextmanager
def many(sources: list[WatchedServer]) -> Iterator[tuple[RemoteFeeds, list[str]]]:
    notes: list[str] = []
    feeds = RemoteFeeds(lambda: sources, note=lambda message, **details: notes.append(message))
    try:
        yield feeds, notes
    finally:
        feeds.close()


@pytest.mark.waits
def test_the_list_of_fifty_feeds_answers_within_200_ms_while_five_hang() -> None:
    with ExitStack() as stack:
        sources = []
        for number in range(FEEDS - HANGING):
            served = stack.enter_context(serve(OwnFeed(monitor_of(f"feed_{number:02}")), port=0))
            sources.append(WatchedServer(key=str(number), server=FeedServer(served.url or "", served.token)))
        for number in range(HANGING):
            row = {**dict.fromkeys(("lag", "rate")), "feed": f"hangs_{number}", "state": "unknown", "hangs": False}
            server = FeedServer(stack.enter_context(hanging()), "token")
            sources.append(WatchedServer(key=f"hangs_{number}", server=server, row={**row, "reachable": False}))
        feeds, _ = stack.enter_context(many(sources))
        client = stack.enter_context(browser(stack.enter_context(dashboard(feeds, without_login()))))
        client.get("/static/login.css")
        began = time.monotonic()
        first = client.get("/api/feeds").json()["feeds"]
        seconds = [time.monotonic() - began]
        end = time.monotonic() + 15
        while time.monotonic() < end:
            began = time.monotonic()
            rows = client.get("/api/feeds").json()["feeds"]
            seconds.append(time.monotonic() - began)
            hung = [row["feed"] for row in rows if row["hangs"]]
            if len(rows) == FEEDS and sum(row["reachable"] for row in rows) == FEEDS - HANGING and len(hung) == HANGING:
                break
            time.sleep(0.1)
        else:
            pytest.fail(f"{len(rows)} feeds, of which {hung} hang")
        assert {row["feed"] for row in first} <= {row["feed"] for row in rows}
        # Compare the median, because the 50 servers share this process with the client, which makes some reads slow.
        assert statistics.median(seconds) < 0.2, seconds
        for path in ("progress", "history", "events", "panels"):
            began = time.monotonic()
            assert client.get(f"/api/feeds/hangs_0/{path}").status_code == 503
            # The dashboard does not wait for a feed as long as the feed's own time-out is.
            assert time.monotonic() - began < 2.0
        assert client.get("/api/feeds/feed_07/progress").json()["feed"] == "feed_07"
        assert len(client.get("/api/feeds/feed_07/history?most=1").json()["points"]) == 1
        is_well = client.get("/health")
        assert (is_well.status_code, len(is_well.json()["not_well"])) == (503, HANGING)
        text = client.get("/metrics").text
        assert text.count("\nlakefeed_feed_up{") == FEEDS


def test_an_action_is_logged_at_the_driver_with_the_user_of_the_dashboard() -> None:
    monitor = monitor_of()
    with serve(OwnFeed(monitor), port=0) as driver:
        server = FeedServer(driver.url or "", driver.token)
        with (
            many([WatchedServer(key="1", server=server)]) as (feeds, notes),
            dashboard(feeds, with_login()) as served,
            browser(served) as client,
        ):
            csrf = log_in(client)
            body = {"action": "pause", "reason": "repair"}
            answer = client.post("/api/feeds/hidden-name/actions", json=body, headers=csrf)
            assert (answer.status_code, answer.json()["event"]["kind"]) == (202, "action")
            misfit = client.post("/api/feeds/hidden-name/actions", json={"action": "change"}, headers=csrf)
            assert (misfit.status_code, "change" in misfit.json()["error"]) == (409, True)
            path, viewer = "/api/feeds/hidden-name/actions", bearer(VIEWER_TOKEN)
            stops = client.post(path, json={"action": "stop"}, headers=viewer)
            assert stops.status_code == 403
    messages = [event.message for event in monitor.events.after() if event.kind == "action"]
    assert messages == ["anna from 127.0.0.1 requests: pause, reason: repair"]
    assert notes == ["anna has logged in from 127.0.0.1", "prometheus may not stop hidden-name: refused from 127.0.0.1"]


def test_a_dashboard_ignores_the_header_that_names_the_acting_user() -> None:
    monitor = monitor_of()
    with dashboard(monitor, with_login()) as served:
        headers = {**bearer(OPERATOR_TOKEN), "X-Lakefeed-User": "anna"}
        path = f"{served}/api/feeds/hidden-name/actions"
        answer = httpx.post(path, json={"action": "stop"}, headers=headers, trust_env=False)
        assert "robot from 127.0.0.1 requests: stop" in answer.json()["event"]["message"]


def test_the_drivers_of_this_user_are_found_and_have_different_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAKEFEED_HOME", str(tmp_path))
    with ExitStack() as stack:
        for number in range(2):
            served = stack.enter_context(serve(OwnFeed(monitor_of("taxi")), port=0))
            stack.enter_context(
                announced(
                    this_driver(), feed="taxi", identity=str(number), since=1.0, url=served.url, token=served.token
                )
            )
        stack.enter_context(announced(this_driver(), feed="quiet", identity="quiet", since=1.0))
        feeds = RemoteFeeds(sources_of([]), note=lambda message, **details: None)
        stack.callback(feeds.close)
        until(lambda: sum(row["reachable"] for row in feeds.rows()) == 2)
        rows = feeds.rows()
        names = [row["feed"] for row in rows]
        assert (names[:2], names[2].startswith("taxi~")) == (["quiet", "taxi"], True)
        assert rows[0]["state"] == "probably running"
        for name in names[1:]:
            view = feeds.find(name)
            assert view is not None
            assert view.progress()["feed"] == "taxi"
        assert feeds.find("none") is None


def test_a_feed_is_listed_only_after_its_driver_has_answered() -> None:
    monitor = FeedMonitor("brief")
    with serve(OwnFeed(monitor), port=0) as driver:
        source = WatchedServer(key="1", server=FeedServer(driver.url or "", driver.token))
        with many([source]) as (feeds, _):
            until(lambda: [row for row in feeds.rows() if row["reachable"]])
    with many([source]) as (feeds, _):
        assert feeds.rows() == []


@pytest.mark.parametrize("command", ["status", "top"])
def test_status_and_top_show_no_answer_for_a_driver_that_the_dashboard_cannot_reach(
    command: str, tmp_path: Path
) -> None:
    """The dashboard answers with an error, which must not look like the progress of a feed that has just begun."""
    token = tmp_path / "token"
    token.write_text(VIEWER_TOKEN)
    row = {**dict.fromkeys(("lag", "rate")), "feed": "taxi", "state": "unknown", "hangs": False, "reachable": False}
    with hanging() as url:
        source = WatchedServer(key="1", server=FeedServer(url, "token", seconds=0.2), row=row)
        with many([source]) as (feeds, _), dashboard(feeds, with_login()) as served:
            words = [command, "--url", served, "--token-file", str(token), "--output", "json"]
            shown = CliRunner().invoke(root, words)
    [found] = next(iter(json.loads(shown.output).values()))
    assert (shown.exit_code, found["feed"], found["state"]) == (1, "taxi", "no answer")
