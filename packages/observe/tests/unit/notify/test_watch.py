"""The watch decides which messages are due; the tests set its clock."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from lakefeed.config.base import validated
from lakefeed.errors import ErrorBudgetExceeded, LakefeedError, SchemaIncompatible, Unreachable
from lakefeed.feed.progress import FinishedBatch
from lakefeed.feed.s3_requests import BatchRequests
from lakefeed.ledger.pauses import Pause
from lakefeed.monitor.feed_monitor import FeedMonitor
from lakefeed.offsets.ranges import OffsetRange
from lakefeed_observe.notify.message import Message
from lakefeed_observe.notify.settings import Notify
from lakefeed_observe.notify.watch import Watch

TARGETS = {"own": {"command": {"run": ["true"]}}}


@dataclass
class Feed:
    """A monitor and its watch, which use the same clock."""

    when: dict[str, Any] = field(default_factory=dict)
    memory: dict[str, Any] = field(default_factory=dict)
    now: float = 1e9
    last_number: int = 0

    def __post_init__(self) -> None:
        self.monitor = FeedMonitor("taxi", clock=lambda: self.now)
        self.watch = Watch(validated(Notify, "test", targets=TARGETS, when=self.when), memory=self.memory)

    def after(self, seconds: float = 0) -> list[Message]:
        """Run the watch each second for this time, or once; return the messages."""
        found = []
        for _ in range(int(seconds) or 1):
            self.now += 1 if seconds else 0
            self.monitor.tick()
            found += self.look()
        return found

    def look(self) -> list[Message]:
        events = self.monitor.events.after(self.last_number)
        self.last_number = events[-1].number if events else self.last_number
        progress = self.monitor.snapshot()
        return self.watch.look(progress, events, progress.taken_at)

    def begin(self) -> Feed:
        self.monitor.begin(sink="iceberg lake.nyc.trips", fence="7")
        return self

    def batch(self, number: int, *, records: int = 100, **fields: Any) -> None:
        with self.monitor.batch(number, [OffsetRange("trips", 0, number * 100, number * 100 + records)]):
            pass
        self.monitor.finish(
            FinishedBatch(batch_id=number, finished_at=self.now, seconds=1.0, records=records, **fields)
        )

    def lag(self, records: int) -> None:
        self.monitor.reached([OffsetRange("trips", 0, 0, 0)])
        self.monitor.observe_ends({("trips", 0): records})


def kinds(messages: list[Message]) -> list[tuple[str, str]]:
    return [(message.trigger, message.status) for message in messages]


def test_a_lag_alert_fires_and_is_resolved_after_the_configured_time() -> None:
    feed = Feed({"lag": {"records": 1000, "for": "60 seconds"}}).begin()
    feed.lag(5000)
    assert feed.after(59) == []
    feed.lag(10)
    assert feed.after(120) == []
    feed.lag(5000)
    [fires] = feed.after(300)
    assert (fires.trigger, fires.status, fires.severity) == ("lag", "firing", "warning")
    assert fires.finding.what == "5,000 records are not committed, more than 1,000"
    feed.lag(10)
    assert feed.after(30) == []
    feed.lag(5000)
    assert feed.after(30) == []
    feed.lag(10)
    [is_over] = feed.after(120)
    assert (is_over.status, is_over.since) == ("resolved", fires.since)


def test_a_lag_in_seconds_is_the_age_of_the_oldest_record() -> None:
    feed = Feed({"lag": {"seconds": 60, "for": "0 seconds"}}).begin()
    feed.lag(0)
    feed.now += 10
    feed.monitor.observe_ends({("trips", 0): 5})
    assert feed.after(45) == []
    [fires] = feed.after(20)
    assert "is 1 min" in fires.finding.what


@pytest.mark.waits
def test_a_lag_that_rises_and_falls_for_ten_hours_sends_one_message_per_cool_down() -> None:
    feed = Feed({"lag": {"records": 10, "for": "5 seconds"}}).begin()
    found = []
    for _ in range(600):
        feed.lag(100)
        found += feed.after(30)
        feed.lag(0)
        found += feed.after(30)
    fires = [message for message in found if message.status == "firing"]
    assert len(fires) <= 60
    assert len(found) <= 120
    assert sum(message.more for message in fires) > 400


def test_events_during_the_cool_down_are_counted_in_the_next_message() -> None:
    feed = Feed().begin()
    assert feed.after() == []
    requests = BatchRequests(total=90, budget=50)
    found = []
    for number in range(100):
        feed.batch(number, requests=requests)
        found += feed.after(10)
    assert kinds(found) == [("request_budget", "happened"), ("request_budget", "happened")]
    assert [message.more for message in found] == [0, 59]
    assert "made 90 S3 requests, its budget is 50" in found[0].finding.what


def test_a_failed_audit_sends_a_message_and_a_publication_sends_none() -> None:
    feed = Feed().begin()
    assert feed.after() == []
    feed.monitor.audited("branch staging of lake.ns.t with +3 rows is published", is_published=True)
    assert feed.after() == []
    feed.monitor.audited("branch staging of lake.ns.t is not published: id is not unique", is_published=False)
    [message] = feed.after()
    assert kinds([message]) == [("audit", "happened")]
    assert "id is not unique" in message.finding.what


@pytest.mark.parametrize(
    ("error", "trigger"),
    [
        (Unreachable("the broker does not answer", where="b:9092", hint="start it"), "failed"),
        (ErrorBudgetExceeded("12 of 100 records are dead letters"), "error_budget"),
        (ValueError("secret of a record"), "failed"),
    ],
)
def test_a_failed_run_sends_a_message_with_the_error(error: Exception, trigger: str) -> None:
    feed = Feed().begin()
    feed.after()
    feed.monitor.ended(error)
    [message] = feed.after()
    assert (message.trigger, message.severity) == (trigger, "critical")
    expected = error.what if isinstance(error, LakefeedError) else "ValueError"
    assert message.finding.what == expected
    assert feed.after(5) == []


def test_an_ended_run_sends_a_message_with_totals_unless_the_trigger_stopped_is_off() -> None:
    feed = Feed().begin()
    feed.batch(0)
    feed.monitor.ended()
    [message] = feed.after()
    assert message.finding.what == "the run has ended as requested: 1 batch, 100 records"
    quiet = Feed({"stopped": False}).begin()
    quiet.monitor.ended()
    assert quiet.after() == []


def test_a_feed_that_fails_at_every_start_sends_one_message_per_cool_down() -> None:
    memory: dict[str, Any] = {}
    found = []
    for start in range(60):
        feed = Feed(memory=memory, now=1e9 + 30 * start)
        feed.monitor.ended(Unreachable("the broker does not answer"))
        found += feed.after()
        memory = feed.watch.memory
    assert [message.more for message in found] == [0, 19, 19]


def test_a_failure_is_resolved_after_a_run_has_lasted_for_the_cool_down() -> None:
    first = Feed().begin()
    first.monitor.ended(Unreachable("the broker does not answer"))
    first.after()
    second = Feed(memory=first.watch.memory, now=1e9 + 20).begin()
    second.batch(0)
    assert second.after(500) == []
    assert kinds(second.after(200)) == [("failed", "resolved")]
    assert second.after(700) == []
    # The cool-down of the error Unreachable does not suppress an error of another class.
    third = Feed(memory=first.watch.memory, now=1e9 + 20).begin()
    third.monitor.ended(SchemaIncompatible("a field has another type"))
    assert kinds(third.after()) == [("failed", "happened")]


def test_failures_of_many_tables_send_one_message_per_cool_down() -> None:
    feed = Feed().begin()
    for number in range(200):
        feed.monitor.failed(Unreachable(f"table {number} cannot be written", where=f"t{number}"))
    found = feed.after()
    feed.monitor.failed(Unreachable("table 200 cannot be written"))
    found += feed.after(700)
    assert [message.more for message in found] == [199, 0]


def test_the_next_record_resolves_the_trigger_no_data() -> None:
    feed = Feed({"no_data": "5 minutes"}).begin()
    feed.batch(0)
    assert feed.after(290) == []
    [fires] = feed.after(60)
    assert fires.finding.what == "no record has come for 5 min 00 s"
    feed.batch(1)
    assert kinds(feed.after(1)) == [("no_data", "resolved")]


def test_the_trigger_no_commit_fires_only_while_there_are_unread_records() -> None:
    feed = Feed({"no_commit": "5 minutes"}).begin()
    feed.batch(0)
    assert feed.after(3600) == []  # There are no unread records.
    feed.monitor.observe_ends({("trips", 0): 500})
    assert feed.after(290) == []
    [fires] = feed.after(60)
    assert fires.finding.what.startswith("no commit for 5 min")
    assert fires.severity == "critical"
    feed.batch(1)
    feed.batch(4)
    assert kinds(feed.after(1)) == [("no_commit", "resolved")]


def test_the_trigger_no_commit_fires_even_during_the_start() -> None:
    feed = Feed({"no_commit": "5 minutes"})
    assert kinds(feed.after(400)) == [("no_commit", "firing")]


def test_a_pause_sends_a_message_and_suppresses_the_triggers_no_commit_and_no_data() -> None:
    feed = Feed({"no_commit": "1 minute", "no_data": "1 minute"}).begin()
    feed.batch(0)
    feed.monitor.observe_ends({("trips", 0): 500})
    feed.after(1)
    feed.monitor.control.paused(Pause(reason="the table is repaired", by="anna", at=feed.now))
    [paused] = feed.after(600)
    assert paused.trigger == "paused"
    assert "paused by anna" in paused.finding.what
    feed.monitor.control.resumed("anna")
    assert kinds(feed.after(2)) == [("paused", "resolved")]


def test_a_message_is_sent_for_each_paused_sink() -> None:
    feed = Feed().begin()
    feed.monitor.paused({"search": "it refuses connections", "copy": "no such table"})
    found = feed.after(5)
    assert [(message.trigger, message.key) for message in found] == [("paused", "copy"), ("paused", "search")]
    feed.monitor.paused({"copy": "no such table"})
    assert [(message.key, message.status) for message in feed.after(5)] == [("search", "resolved")]


def test_the_trigger_dead_letters_fires_above_the_count_or_the_share() -> None:
    feed = Feed({"dead_letters": {"count": 10, "within": "5 minutes"}}).begin()
    feed.after(1)
    for number in range(4):
        feed.batch(number, dead_letters=3)
        found = feed.after(10)
    assert [message.finding.what for message in found] == ["12 dead letters of 400 records within 5 minutes"]
    assert kinds(feed.after(400)) == [("dead_letters", "resolved")]
    share = Feed({"dead_letters": {"share": 0.02}}).begin()
    share.after(1)
    share.batch(0, dead_letters=2)
    assert share.after(1) == []
    share.batch(1, dead_letters=3)
    assert kinds(share.after(1)) == [("dead_letters", "firing")]


@pytest.mark.waits
def test_the_samples_of_dead_letters_take_limited_memory() -> None:
    feed = Feed({"dead_letters": {"count": 10**9, "within": "1 day"}}).begin()
    for number in range(3000):
        feed.batch(number, dead_letters=1)
        feed.after(1)
    assert len(feed.watch._samples) <= 601


def test_a_changed_schema_sends_a_message() -> None:
    feed = Feed().begin()
    feed.batch(0, schema_id=1)
    feed.batch(1, schema_id=2)
    assert kinds(feed.after(1)) == [("schema", "happened")]


def test_the_trigger_hangs_is_resolved_when_the_drivers_loop_runs_again() -> None:
    feed = Feed().begin()
    feed.now += 1
    feed.monitor.tick()
    assert feed.look() == []
    feed.now += 61
    [hangs] = feed.look()
    assert hangs.finding.what == "the driver's loop has not turned for 1 min 01 s"
    feed.monitor.tick()
    assert kinds(feed.look()) == [("hangs", "resolved")]


def test_the_message_about_a_lasting_state_is_repeated() -> None:
    feed = Feed({"lag": {"records": 10, "for": "0 seconds"}}).begin()
    feed.lag(100)
    [fires] = feed.after(1)
    [again] = feed.watch.repeats(feed.monitor.snapshot(), feed.now + 60)
    assert (again.status, again.since, again.repeated) == ("firing", fires.since, True)
    feed.lag(0)
    feed.after(1)
    assert feed.watch.repeats(feed.monitor.snapshot(), feed.now + 60) == []


@pytest.mark.parametrize(
    "memory",
    [{"lag": 1}, {"lag": {"sent_at": "x"}}, {"lag": {"sent_at": 2e9}}, {"lag": {"fires": 1, "held": None}}, {"x": {}}],
)
def test_an_invalid_or_future_memory_suppresses_no_message(memory: dict[str, Any]) -> None:
    feed = Feed({"lag": {"records": 10, "for": "0 seconds"}}, memory=memory).begin()
    feed.lag(100)
    assert kinds(feed.after(1)) == [("lag", "firing")]
