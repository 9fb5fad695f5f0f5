"""A run carries out operators' requests between two batches: pause, resume, change, stop."""

import threading
import time
from typing import Any, cast

import pytest

from lakefeed.config.models import PipelineConfig
from lakefeed.errors import ConfigError, FeedPaused
from lakefeed.feed.control import ActionRequest
from lakefeed.feed.run import RunOptions
from lakefeed.feed.steering import Steering, with_batches_of
from lakefeed.ledger.pauses import Pause
from lakefeed.monitor.feed_monitor import FeedMonitor
from tests.support.pipeline_text import feed_config

EARLIER = Pause(reason="the table is repaired", by="anna", at=0.0)


class Store:
    def __init__(self, pause: Pause | None = None, *, fails: bool = False) -> None:
        self.pause, self._fails = pause, fails

    def read(self) -> Pause | None:
        return self.pause

    def write(self, pause: Pause) -> None:
        self._change(pause)

    def clear(self) -> None:
        self._change(None)

    def _change(self, pause: Pause | None) -> None:
        if self._fails:
            raise OSError("secret text")
        self.pause = pause


class Run:
    """A run's steering with its messages and changes."""

    def __init__(self, store: Store | None = None, *, config: PipelineConfig | None = None, **options: Any) -> None:
        self.monitor, self.stop, self.store = FeedMonitor("taxi"), threading.Event(), store or Store()
        self.said: list[str] = []
        self.changes: list[dict[str, Any]] = []
        chosen = RunOptions(
            once=options.get("once", False),
            stop=self.stop,
            on_batch=lambda progress: None,
            on_note=lambda note: None,
            accept_loss=False,
            monitor=self.monitor,
            resume=options.get("resume", False),
            say=self.said.append,
        )
        change = cast("Any", lambda request: self.changes.append(request.changes))
        self.steering = Steering(config or pipeline(), chosen, self.store, change=change)

    def ask(self, action: str, **values: Any) -> None:
        self.monitor.control.request(action, by="ben", **values)

    @property
    def kinds(self) -> list[str]:
        return [event.kind for event in self.monitor.events.after()]


def pipeline(*, trigger: str = "10 seconds", **kafka: Any) -> PipelineConfig:
    source = {"kafka": {"bootstrap_servers": "localhost:9092", "topics": ["a"], **kafka}}
    return feed_config(name="taxi", source=source, trigger=trigger)


def later(*actions: Any, seconds: float = 0.3) -> threading.Thread:
    """In another thread, call the ``actions`` one after the other, `seconds` apart."""

    def act() -> None:
        for action in actions:
            time.sleep(seconds)
            action()

    thread = threading.Thread(target=act)
    thread.start()
    return thread


def test_a_paused_run_waits_for_a_resume_and_reports_that_it_is_alive() -> None:
    run = Run()
    run.ask("pause", reason="too many files")
    assert run.steering.interrupts
    seen: list[Any] = []

    def look() -> None:
        seen.extend((run.monitor.snapshot(), run.store.pause))

    thread = later(look, lambda: run.ask("resume"))
    assert run.steering.settle() == "resumed"
    thread.join()
    progress, stored = seen
    assert (progress.state, progress.paused.reason, progress.paused.by) == ("paused", "too many files", "ben")
    assert progress.taken_at - progress.alive_at < 1
    assert stored == progress.paused
    assert run.store.pause is None
    assert run.kinds == ["action", "paused", "action", "resumed"]
    assert "too many files" in run.said[0]
    assert run.steering.settle() == "go"


def test_a_stop_ends_a_paused_run_immediately_and_the_pause_stays_stored() -> None:
    run = Run()
    run.ask("pause", reason="repair")
    thread = later(run.stop.set)
    began = time.monotonic()
    assert run.steering.settle() == "stop"
    assert time.monotonic() - began < 2
    thread.join()
    assert run.store.pause is not None


def test_a_pause_and_a_resume_in_one_batch_count_as_a_pause() -> None:
    run = Run()
    run.ask("pause")
    run.ask("resume")
    assert run.steering.settle() == "resumed"


@pytest.mark.parametrize("run", [{"once": True}, {"config": pipeline(trigger="available-now")}])
def test_a_run_with_once_is_refused_while_the_feed_is_paused(run: dict[str, Any]) -> None:
    started = Run(Store(EARLIER), **run)
    with pytest.raises(FeedPaused, match=r"paused by anna since .*: the table is repaired") as refused:
        started.steering.wait_for_start(sink="iceberg a.b.c")
    assert refused.value.exit_status == 1
    assert started.store.pause == EARLIER


def test_a_pause_that_cannot_be_stored_still_pauses_the_feed_with_a_message() -> None:
    run = Run(Store(fails=True))
    run.ask("pause")
    thread = later(lambda: run.ask("resume"))
    assert run.steering.settle() == "resumed"
    thread.join()
    assert "the next start will not know the pause" in run.said[0]
    assert "the next start will still be paused" in run.said[1]
    assert "secret" not in "".join(run.said)


def test_a_pause_requested_in_the_last_batch_is_stored_even_after_an_error() -> None:
    run = Run()

    def fail() -> None:
        with run.steering:
            run.ask("pause", reason="it fails again and again")
            run.ask("change", trigger="1 minute")
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        fail()
    assert run.store.pause is not None
    assert run.store.pause.reason == "it fails again and again"
    assert run.changes == []


@pytest.mark.parametrize(
    ("config", "once", "values", "words"),
    [
        (pipeline(), True, {"trigger": "1 minute"}, "ends by itself"),
        (pipeline(trigger="available-now"), False, {"trigger": "1 minute"}, "ends by itself"),
        (pipeline(min_records_per_batch=100), False, {"max_records_per_batch": 99}, "which is 100"),
    ],
)
def test_a_change_that_does_not_suit_the_feed_is_refused(
    config: PipelineConfig, once: bool, values: dict[str, Any], words: str
) -> None:
    run = Run(config=config, once=once)
    with pytest.raises(ConfigError, match=words):
        run.ask("change", **values)
    assert not run.steering.interrupts


def test_a_new_batch_size_gives_a_changed_copy_of_the_settings() -> None:
    before = pipeline(max_records_per_batch=1000)
    assert with_batches_of(before, 7).kafka.max_records_per_batch == 7
    assert before.kafka.max_records_per_batch == 1000
    assert isinstance(ActionRequest(action="change", by="a", at=0.0).changes, dict)


def test_a_pause_is_stored_before_the_end_of_the_current_batch() -> None:
    run = Run()
    run.ask("pause", reason="repair")
    run.steering.keep()
    assert run.store.pause is not None
    assert run.store.pause.reason == "repair"
    assert "paused" not in run.kinds
    run.ask("resume")
    run.steering.keep()
    assert run.store.pause is None
    assert run.steering.settle() == "resumed"
    assert (run.store.pause, run.monitor.control.pause) == (None, None)


def test_a_request_is_stored_once() -> None:
    store = Store(fails=True)
    run = Run(store)
    run.ask("pause")
    run.steering.keep()
    run.steering.keep()
    run.ask("stop")
    run.steering.settle()
    assert [text for text in run.said if "will not know the pause" in text] == run.said
    assert len(run.said) == 1
