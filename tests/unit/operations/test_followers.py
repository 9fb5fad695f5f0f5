"""Packages add followers of a run; a broken follower is named, and all followers end at the same time."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lakefeed import plugins
from lakefeed.config.connections import Connections
from lakefeed.errors import ConfigError, LakefeedError, Unreachable
from lakefeed.monitor.feed_monitor import FeedMonitor
from lakefeed.operations.followers import FollowedRun, following
from lakefeed.pipeline import Pipeline
from tests.support.pipeline_text import feed_config
from tests.support.plugin import forget_blocks, put_on_path

PAGER = '''
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from lakefeed.config.blocks import Block
from lakefeed.errors import ConfigError
from lakefeed.operations.followers import FollowedRun

SEEN = []
BOTH = threading.Barrier(2, timeout=20)


class Pager(Block):
    """A pager, called at the end."""

    number: int


@contextmanager
def call(run: FollowedRun) -> Iterator[None]:
    pager = run.config.block(Pager)
    try:
        yield
    finally:
        progress = run.monitor.snapshot()
        SEEN.append((pager and pager.number, run.is_failed_start, progress.state))


@contextmanager
def wait(run: FollowedRun) -> Iterator[None]:
    try:
        yield
    finally:
        BOTH.wait()


@contextmanager
def refuse(run: FollowedRun) -> Iterator[None]:
    raise ConfigError("no pager has this number")
    yield


@contextmanager
def fail(run: FollowedRun) -> Iterator[None]:
    yield
    raise KeyError("a defect at the end")
'''


@pytest.fixture
def put(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setenv("LAKEFEED_HOME", str(tmp_path / "home"))

    def install(followers: str) -> Any:
        groups = {plugins.SETTINGS_GROUP: "pager = stranger_pager:Pager", plugins.FOLLOWERS_GROUP: followers}
        put_on_path(tmp_path, groups, monkeypatch, stranger_pager=PAGER)
        import stranger_pager  # type: ignore[import-not-found]

        return stranger_pager

    yield install
    monkeypatch.undo()
    forget_blocks()


def run_of(monitor: FeedMonitor, **blocks: Any) -> FollowedRun:
    config = feed_config(name="taxi", sink="memory", checkpoint=None, **blocks)
    return FollowedRun(config=config, monitor=monitor, connections=Connections())


def notes(monitor: FeedMonitor) -> list[str]:
    return [event.message for event in monitor.events.after() if event.kind == "note"]


def test_a_follower_sees_its_block_and_the_end_of_the_run(put: Any) -> None:
    module = put("pager = stranger_pager:call")
    monitor = FeedMonitor("taxi")
    with following(run_of(monitor, pager={"number": 7})), monitor.until_end():
        assert module.SEEN == []
    assert module.SEEN == [(7, False, "ended")]


@pytest.mark.waits
def test_followers_end_at_the_same_time(put: Any) -> None:
    """Each of the two followers ends only while the other ends, so they cannot end one after the other."""
    module = put("one = stranger_pager:wait\ntwo = stranger_pager:wait")
    with following(run_of(FeedMonitor("taxi"))):
        pass
    assert not module.BOTH.broken


@pytest.mark.parametrize(
    ("follower", "why"), [("stranger_pager:nothing", "has no attribute 'nothing'"), ("no_such_module:call", "no_such")]
)
def test_a_follower_that_cannot_be_loaded_is_named_once_and_the_run_continues(
    put: Any, caplog: pytest.LogCaptureFixture, follower: str, why: str
) -> None:
    module = put(f"alarm = {follower}\npager = stranger_pager:call")
    monitor = FeedMonitor("taxi")
    with following(run_of(monitor)), monitor.until_end():
        pass
    [note] = notes(monitor)
    assert "'alarm'" in note
    assert why in note
    assert [record.getMessage() for record in caplog.records] == [note]
    assert module.SEEN == [(None, False, "ended")]


def test_the_start_fails_if_the_follower_of_a_block_in_the_file_cannot_be_loaded(put: Any) -> None:
    module = put("pager = stranger_pager:nothing\nreport = stranger_pager:call")
    monitor = FeedMonitor("taxi")
    with pytest.raises(ConfigError, match="'pager'") as error, following(run_of(monitor, pager={"number": 7})):
        pass
    assert error.value.where == "pager"
    assert module.SEEN == [(7, False, "failed")]


def test_if_one_follower_refuses_the_start_the_other_followers_report_it(put: Any) -> None:
    module = put("a = stranger_pager:call\nb = stranger_pager:refuse\nc = stranger_pager:call")
    with pytest.raises(LakefeedError, match="no pager has this number"), following(run_of(FeedMonitor("taxi"))):
        pass
    assert module.SEEN == [(None, False, "failed")] * 2


def test_a_follower_that_fails_at_its_end_does_not_fail_the_run(put: Any, caplog: pytest.LogCaptureFixture) -> None:
    put("pager = stranger_pager:fail")
    with following(run_of(FeedMonitor("taxi"))):
        pass
    assert [record.getMessage() for record in caplog.records] == ["a follower of the run has failed at its end"]


def test_followers_report_that_the_spark_session_cannot_start(put: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(pipeline: Pipeline) -> None:
        raise Unreachable("the broker does not answer", hint="start it")

    module = put("pager = stranger_pager:call")
    monkeypatch.setattr(Pipeline, "session", refused)
    with pytest.raises(Unreachable):
        Pipeline(run_of(FeedMonitor("taxi"), pager={"number": 7}).config, environment={}).run()
    assert module.SEEN == [(7, True, "failed")]
