"""The log of a run numbers its events, keeps only the newest ones, and lets readers wait for new events."""

import threading
import time

from lakefeed.errors import ConfigError
from lakefeed.feed.events import EventLog
from lakefeed.monitor.feed_monitor import FeedMonitor


def test_the_event_log_drops_the_oldest_events() -> None:
    log = EventLog(most=3)
    for i in range(5):
        log.add("note", f"message {i}")
    assert [event.number for event in log.after()] == [3, 4, 5]
    assert [event.message for event in log.after(4)] == ["message 4"]


def test_a_reader_waits_for_the_next_event() -> None:
    log = EventLog()
    threading.Timer(0.1, log.add, ["note", "late"]).start()
    assert [event.message for event in log.wait(0, seconds=10)] == ["late"]
    began = time.monotonic()
    assert log.wait(1, seconds=0.05) == ()
    assert time.monotonic() - began < 5


def test_a_run_logs_its_start_its_pauses_and_its_end() -> None:
    monitor = FeedMonitor("taxi")
    monitor.begin(sink="iceberg lake.nyc.trips", fence="7 d4")
    monitor.note("a new column")
    monitor.paused({"search": "it refuses connections"})
    monitor.paused({})
    monitor.restarted("the schema has changed")
    monitor.ended(ConfigError("the topic is not there", where="trips"))
    assert [(event.kind, event.message) for event in monitor.events.after()] == [
        ("started", "started into iceberg lake.nyc.trips"),
        ("note", "a new column"),
        ("sink_paused", "the sink 'search' waits: it refuses connections"),
        ("sink_resumed", "the sink 'search' resumes"),
        ("restarted", "the schema has changed"),
        ("failed", "the topic is not there (trips)"),
    ]
