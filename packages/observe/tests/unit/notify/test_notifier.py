"""The messages of a run arrive although one target hangs or refuses them, and no target delays the run."""

import json
import logging
import stat
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from lakefeed.config.base import validated
from lakefeed.errors import Unreachable
from lakefeed.messages.redaction import remember
from lakefeed.monitor.feed_monitor import FeedMonitor
from lakefeed.monitor.model import Driver
from lakefeed_observe.notify import deliver as deliver_module
from lakefeed_observe.notify import notifier as sending
from lakefeed_observe.notify.deliver import NotDelivered
from lakefeed_observe.notify.message import Message, Occurrence
from lakefeed_observe.notify.notifier import MOST_WAITING, Sender, notifying
from lakefeed_observe.notify.settings import Notify, NotifyTarget
from packages.observe.tests.receivers import web_hook
from tests.support.clock import until
from tests.support.misbehaving import misbehaving

SECRET = "canary-51aa0c7e"


def settings(*urls: str, **more: Any) -> Notify:
    targets: dict[str, Any] = {f"t{number}": {"webhook": {"url": url}} for number, url in enumerate(urls)}
    return validated(Notify, "test", **{"targets": targets, **more})


def begin_and_fail(monitor: FeedMonitor) -> None:
    monitor.begin(sink="iceberg lake.nyc.trips", fence=None)
    monitor.ended(Unreachable("the broker does not answer", where="b:9092", hint="start it"))


def test_the_message_about_a_failure_arrives_before_the_run_returns() -> None:
    monitor = FeedMonitor("taxi")
    with web_hook() as hook:
        with notifying(settings(hook.url), monitor):
            begin_and_fail(monitor)
        assert [(body["trigger"], body["hint"]) for body in hook.bodies] == [("failed", "start it")]


@pytest.mark.waits
def test_a_server_that_hangs_delays_neither_other_targets_nor_the_runs_end(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deliver_module, "ATTEMPT_SECONDS", 1.0)
    remember([SECRET])
    monitor = FeedMonitor("taxi")
    with misbehaving("silent") as address, web_hook() as hook:
        with notifying(settings(f"http://{address}/{SECRET}", hook.url), monitor, seconds=3.0):
            begin_and_fail(monitor)
            until(lambda: len(hook.bodies) == 1)
            began = time.monotonic()
        assert time.monotonic() - began < 8
    notes = [event.message for event in monitor.events.after() if event.kind == "note"]
    assert notes == ["notify: the target 't0' does not take messages: no answer in time"]
    assert "1 messages were not sent to the target 't0'" in caplog.text
    assert SECRET not in caplog.text


def test_a_run_without_messages_ends_immediately() -> None:
    monitor = FeedMonitor("taxi")
    with misbehaving("silent") as address:
        began = time.monotonic()
        with notifying(settings(f"http://{address}/", when={"stopped": False}), monitor):
            monitor.ended()
        assert time.monotonic() - began < 8


def test_a_server_error_is_retried_and_a_refusal_is_noted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sending, "FIRST_PAUSE_SECONDS", 0.05)
    monitor = FeedMonitor("taxi")
    with (
        web_hook(500, 503, 200) as shaky,
        web_hook(404) as wrong,
        notifying(settings(shaky.url, wrong.url, cool_down="0 seconds"), monitor),
    ):
        for number in range(3):
            monitor.failed(Unreachable(f"table {number} cannot be written"))
            shaky.wait(3 + number)
            wrong.wait(1 + number)
    notes = [event.message for event in monitor.events.after() if event.kind == "note"]
    assert sorted(notes) == [
        "notify: the target 't0' does not take messages: HTTP status 500: ok",
        "notify: the target 't0' takes messages again",
        "notify: the target 't1' refuses a message: HTTP status 404: ok",
    ]
    assert len({body["what"] for body in shaky.bodies[2:]}) == 3


def message(number: int = 0, trigger: str = "lag", **fields: Any) -> Message:
    finding = Occurrence(what=f"message {number}")
    given: dict[str, Any] = {"status": "happened", "feed": "taxi", "since": 0.0, "at": 0.0, "finding": finding}
    return Message(trigger=trigger, driver=Driver(host="box", pid=7), **{**given, **fields})


class Blocked:
    """A target that accepts a message only after the gate opens."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.got: list[Message] = []
        self.begun = 0

    def __call__(self, target: NotifyTarget, message: Message, **options: Any) -> str:
        self.begun += 1
        self.gate.wait(20)
        self.got.append(message)
        return "ok"


def sender(deliver: Any, **options: Any) -> Sender:
    target = validated(NotifyTarget, "test", command={"run": ["true"]})
    return Sender("own", target, report=lambda what: None, deliver=deliver, **options)


def close(own: Sender) -> None:
    own.close(time.monotonic() + 5)
    own.join()


def test_a_full_queue_drops_and_counts_the_oldest_messages() -> None:
    slow = Blocked()
    own = sender(slow, most_per_hour=1000)
    own.put(message(0))
    until(lambda: slow.begun == 1)
    began = time.monotonic()
    for number in range(1, 301):
        own.put(message(number))
    assert time.monotonic() - began < 5  # No call of put() has waited.
    slow.gate.set()
    until(lambda: len(slow.got) == MOST_WAITING + 1)
    assert slow.got[1].left_out == 200
    assert [each.finding.what for each in slow.got][-1] == "message 300"
    close(own)


def test_at_the_end_of_a_run_the_newest_message_is_sent_first() -> None:
    slow = Blocked()
    own = sender(slow)
    for number in range(5):
        own.put(message(number))
    until(lambda: slow.begun == 1)
    own.put(message(9, trigger="failed"))
    own.close(time.monotonic() + 5)
    slow.gate.set()
    own.join()
    assert [each.finding.what for each in slow.got][:2] == ["message 0", "message 9"]
    assert len(slow.got) == 6


def test_most_per_hour_drops_messages_but_not_the_message_about_the_end_of_the_run() -> None:
    target = Blocked()
    target.gate.set()
    own = sender(target, most_per_hour=3)
    for number in range(10):
        own.put(message(number))
    own.put(message(10, trigger="failed"))
    close(own)
    assert len(target.got) == 4
    assert max(each.left_out for each in target.got) == 7


def test_a_target_gets_only_messages_of_the_listed_triggers() -> None:
    slow = Blocked()
    slow.gate.set()
    target = validated(NotifyTarget, "test", command={"run": ["true"]}, only=["failed"])
    own = Sender("own", target, report=lambda what: None, deliver=slow)
    own.put(message(0))
    own.put(message(1, trigger="failed"))
    close(own)
    assert [each.finding.what for each in slow.got] == ["message 1"]


def test_a_bug_in_a_delivery_does_not_end_the_thread() -> None:
    calls: list[Message] = []

    def deliver(target: NotifyTarget, message: Message, **options: Any) -> str:
        calls.append(message)
        if len(calls) == 1:
            raise RuntimeError("a defect")
        return "ok"

    own = sender(deliver)
    own.put(message(0))
    own.put(message(1))
    close(own)
    assert len(calls) == 2


def test_retries_of_a_message_end_after_ten_minutes() -> None:
    now = [0.0]
    attempts: list[float] = []

    def deliver(target: NotifyTarget, message: Message, **options: Any) -> str:
        attempts.append(now[0])
        now[0] += 700
        raise NotDelivered("no answer in time", is_transient=True)

    own = sender(deliver, clock=lambda: now[0])
    own.put(message(0))
    until(lambda: own._left_out == 1)
    assert len(attempts) == 1
    own.close(now[0])
    own.join()


@pytest.mark.waits
def test_at_the_end_of_a_run_a_running_command_is_killed_so_that_the_newest_message_is_sent(tmp_path: Path) -> None:
    written = tmp_path / "written"
    script = 'case $LAKEFEED_TRIGGER in failed) cat > "$0";; *) sleep 250;; esac'
    targets = {"own": {"command": {"run": ["/bin/sh", "-c", script, str(written)], "timeout": "5 minutes"}}}
    monitor = FeedMonitor("taxi")
    with notifying(validated(Notify, "test", targets=targets), monitor, seconds=6.5):
        monitor.begin(sink="iceberg t", fence=None)
        monitor.failed(Unreachable("table 1 cannot be written"))
        time.sleep(1.0)
        monitor.ended(Unreachable("the broker does not answer"))
        began = time.monotonic()
    assert time.monotonic() - began < 8
    assert json.loads(written.read_text())["what"] == "the broker does not answer"


def messages_of_runs(count: int, memory: Path) -> int:
    with web_hook() as hook:
        for _ in range(count):
            monitor = FeedMonitor("taxi")
            with notifying(settings(hook.url), monitor, memory=memory):
                begin_and_fail(monitor)
        return len(hook.bodies)


def test_the_next_run_repeats_no_message_unless_the_memory_file_is_unreadable(tmp_path: Path) -> None:
    memory = tmp_path / "run" / "notify" / "x.json"
    assert messages_of_runs(5, memory) == 1
    assert stat.S_IMODE(memory.stat().st_mode) == 0o600
    memory.write_text("no json")
    assert messages_of_runs(1, memory) == 1
    assert messages_of_runs(1, Path("/dev/null/x.json")) == 1


def test_the_feed_does_not_wait_for_a_target_that_hangs(caplog: pytest.LogCaptureFixture) -> None:
    monitor = FeedMonitor("taxi")
    caplog.set_level(logging.ERROR)
    with misbehaving("silent") as address, notifying(settings(f"http://{address}/"), monitor, seconds=0.5):
        began = time.monotonic()
        for number in range(5000):
            monitor.failed(Unreachable(f"table {number} cannot be written"))
        assert time.monotonic() - began < 20
