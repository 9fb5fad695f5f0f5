"""The followers of this package report a failed start, even if another follower made the start fail."""

from pathlib import Path

import pytest

from lakefeed.config.connections import Connections
from lakefeed.errors import MissingExtra, Unreachable
from lakefeed.monitor.feed_monitor import FeedMonitor
from lakefeed.operations.followers import FollowedRun, following
from lakefeed.pipeline import Pipeline
from lakefeed_observe.notify.settings import settings_of
from lakefeed_observe.runs.store import local_runs
from packages.observe.tests.receivers import web_hook
from tests.support.pipeline_text import feed_config


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKEFEED_HOME", str(tmp_path / "home"))


def test_a_start_that_another_follower_made_fail_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lakefeed_observe.otlp.collector.find_spec", lambda name: None)
    monitor = FeedMonitor("taxi")
    with web_hook() as hook:
        declared = feed_config(
            otlp={"endpoint": "http://127.0.0.1:1"}, notify={"targets": {"chat": {"webhook": {"url": hook.url}}}}
        )
        run = FollowedRun(config=declared, monitor=monitor, connections=Connections())
        with pytest.raises(MissingExtra), following(run):
            pass
        assert [body["trigger"] for body in hook.bodies] == ["failed"]
        assert "the block otlp" in hook.bodies[0]["what"]
    runs = local_runs(declared)
    assert runs is not None
    assert [trace.end for trace in runs.traces()] == ["failed"]


def test_a_session_that_cannot_start_is_reported_as_a_failed_start(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(pipeline: Pipeline) -> None:
        raise Unreachable("the broker does not answer", hint="start it")

    monkeypatch.setattr(Pipeline, "session", refused)
    with web_hook() as hook:
        declared = feed_config(notify={"targets": {"chat": {"webhook": {"url": hook.url}}}})
        with pytest.raises(Unreachable):
            Pipeline(declared, environment={}).run()
        assert [(body["trigger"], body["what"]) for body in hook.bodies] == [("failed", "the broker does not answer")]


@pytest.mark.parametrize(
    ("link", "public_url", "expected"),
    [
        (None, "https://feeds.example.org", "https://feeds.example.org"),
        ("https://other.example.org/x", "https://feeds.example.org", "https://other.example.org/x"),
        (None, None, None),
    ],
)
def test_messages_link_to_the_dashboard(link: str | None, public_url: str | None, expected: str | None) -> None:
    targets = {"chat": {"webhook": {"url": "http://127.0.0.1:1"}}}
    settings = settings_of(feed_config(notify={"targets": targets, "link": link}, dashboard={"public_url": public_url}))
    assert settings is not None
    assert settings.link == expected
