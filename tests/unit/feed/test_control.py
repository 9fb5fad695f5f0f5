"""A running feed logs and queues valid requests, and refuses invalid requests with the reason."""

import threading
from typing import Any

import pytest

from lakefeed.errors import ConfigError, Unreachable
from lakefeed.feed.control import ActionRequest, FeedControl
from lakefeed.feed.events import EventLog
from lakefeed.ledger.pauses import Pause


def opened(**refusals: str) -> tuple[FeedControl, EventLog, threading.Event]:
    events, stop = EventLog(clock=lambda: 5.0), threading.Event()
    control = FeedControl(events, clock=lambda: 5.0)
    control.open(stop, refusals=refusals)  # type: ignore[arg-type]
    return control, events, stop


def test_a_request_is_logged_with_its_author_time_and_settings() -> None:
    control, events, _ = opened()
    event = control.request("change", by="anna", reason="too many files", trigger="1 minute", max_records_per_batch=500)
    assert (event.kind, event.at) == ("action", 5.0)
    assert dict(event.details) == {
        "action": "change",
        "by": "anna",
        "reason": "too many files",
        "trigger": "1 minute",
        "max_records_per_batch": 500,
    }
    assert "anna" in event.message
    assert events.after() == (event,)
    assert control.is_pending
    taken = control.take()
    assert taken is not None
    assert taken.changes == {"trigger": "1 minute", "max_records_per_batch": 500}
    assert not control.is_pending
    assert control.take() is None


def test_a_stop_sets_the_stop_event_even_before_the_run_begins() -> None:
    control, _, stop = opened()
    control.request("stop", by="anna")
    assert stop.is_set()
    control, stop = FeedControl(EventLog()), threading.Event()
    control.request("stop", by="anna")
    control.open(stop)
    assert stop.is_set()


@pytest.mark.parametrize(
    ("action", "values", "words"),
    [
        ("halt", {}, "no action 'halt'"),
        ("resume", {}, "not paused"),
        ("change", {}, "needs a new value"),
        ("change", {"trigger": "soon"}, "a trigger is"),
        ("change", {"trigger": 5}, "a text"),
        ("change", {"trigger": "available-now"}, "another kind of run"),
        ("change", {"trigger": "real-time, 5 seconds"}, "another kind of run"),
        ("change", {"max_records_per_batch": 0}, "above 0"),
        ("change", {"max_records_per_batch": True}, "above 0"),
        ("change", {"max_records_per_batch": 2**63}, "above 0"),
        ("pause", {"trigger": "1 minute"}, "pause has no trigger"),
        ("pause", {"reason": "x" * 501}, "501 characters"),
        ("pause", {"reason": 7}, "a text"),
        ("pause", {"by": "x" * 101}, "101 characters"),
        ("upkeep", {}, "no upkeep"),
        ("replay", {}, "no replay"),
    ],
)
def test_an_invalid_request_is_refused_and_not_logged(action: str, values: dict[str, Any], words: str) -> None:
    control, events, _ = opened()
    with pytest.raises(ConfigError, match=words):
        control.request(action, **{"by": "anna", **values})
    assert events.after() == ()
    assert not control.is_pending


def test_an_action_that_the_feed_refuses_is_answered_with_its_reason() -> None:
    control, _, _ = opened(change="in real time there are no batches")
    with pytest.raises(ConfigError, match="in real time"):
        control.request("change", by="anna", trigger="1 minute")
    assert control.refusal("change") == "in real time there are no batches"
    assert control.refusal("pause") is None


def test_a_pause_is_refused_while_the_feed_is_paused_or_a_pause_is_queued() -> None:
    control, events, _ = opened()
    control.request("pause", by="anna", reason="repair")
    with pytest.raises(ConfigError, match="already paused by anna"):
        control.request("pause", by="ben")
    request = control.take()
    assert request is not None
    control.paused(request.pause)
    assert control.pause == Pause(reason="repair", by="anna", at=5.0)
    with pytest.raises(ConfigError, match="already paused by anna"):
        control.request("pause", by="ben")
    control.request("resume", by="ben")
    with pytest.raises(ConfigError, match="not paused"):
        control.request("resume", by="carl")
    control.resumed("ben")
    assert control.pause is None
    assert [event.kind for event in events.after()] == ["action", "paused", "action", "resumed"]


def test_a_starting_run_accepts_only_a_pause_and_an_ended_run_accepts_no_request() -> None:
    control = FeedControl(EventLog())
    with pytest.raises(ConfigError, match="still starting"):
        control.request("change", by="anna", trigger="1 minute")
    control.request("pause", by="anna")
    control.open(threading.Event())
    control.close()
    with pytest.raises(ConfigError, match="has ended"):
        control.request("stop", by="anna")


def test_a_request_escapes_control_characters_and_direction_marks() -> None:
    control, _, _ = opened()
    event = control.request("pause", by="an\x1bna", reason="one\ntwo\u202e<script>")
    assert "\x1b" not in event.message + event.details["by"]
    assert "\u202e" not in event.message + event.details["reason"]
    assert "\n" not in event.message


def test_upkeep_runs_while_the_feed_runs_and_a_second_upkeep_is_refused() -> None:
    control, events, _ = opened()
    begun, end = threading.Event(), threading.Event()

    def perform(request: ActionRequest) -> str:
        begun.set()
        assert end.wait(10)
        return f"3 files removed for {request.by}"

    control.offer("upkeep", perform)
    control.request("upkeep", by="anna")
    assert begun.wait(10)
    with pytest.raises(ConfigError, match="already runs"):
        control.request("upkeep", by="ben")
    end.set()
    [note] = events.wait(1, seconds=10)
    assert (note.kind, note.message) == ("note", "upkeep: 3 files removed for anna")


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (Unreachable("the catalog does not answer"), "replay failed, the feed continues: the catalog does not answer"),
        (ValueError("value 4711 of a record"), "replay failed, the feed continues: ValueError"),
    ],
)
def test_a_failed_replay_is_logged_without_values_of_records(error: Exception, message: str) -> None:
    control, events, _ = opened()

    def perform(request: ActionRequest) -> str:
        raise error

    control.offer("replay", perform)
    control.request("replay", by="anna")
    [failed] = events.wait(1, seconds=10)
    assert (failed.kind, failed.message) == ("error", message)
