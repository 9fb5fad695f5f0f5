"""The monitor turns the events that a feed's threads report into progress."""

import json
import threading

import pytest

from lakefeed.errors import ErrorBudgetExceeded, Unreachable
from lakefeed.feed.observer import TaskCounts
from lakefeed.feed.progress import FinishedBatch, RunningBatch
from lakefeed.ledger.outcomes import Reason
from lakefeed.monitor.feed_monitor import FeedMonitor
from lakefeed.monitor.model import HANGS_AFTER_SECONDS
from lakefeed.offsets.ranges import OffsetRange
from lakefeed.stopwatch import timed
from tests.support.clock import Clock


def monitor_at(clock: Clock) -> FeedMonitor:
    return FeedMonitor("taxi", clock=clock)


def finished(number: int, clock: Clock, **figures: object) -> FinishedBatch:
    known: dict[str, object] = {
        "batch_id": number,
        "finished_at": clock.now,
        "seconds": 1.0,
        "records": 100,
        "rows": 100,
    }
    return FinishedBatch(**{**known, **figures})


def test_the_lag_is_divided_into_unread_and_uncommitted_offsets() -> None:
    clock = Clock()
    monitor = monitor_at(clock)
    monitor.begin(sink="iceberg lake.a.b", fence="3 abc", position=[OffsetRange("t", 0, 50, 100)])
    monitor.observe_ends({("t", 0): 500})
    with monitor.batch(7, [OffsetRange("t", 0, 100, 300)]):
        [part] = monitor.snapshot().partitions
        assert (part.committed, part.read, part.end) == (100, 300, 500)
        assert (part.uncommitted, part.unread, part.lag) == (200, 200, 400)
        assert monitor.snapshot().state == "working"
    [part] = monitor.snapshot().partitions
    assert (part.uncommitted, part.unread) == (0, 200)
    assert monitor.snapshot().last_commit_at == clock.now
    assert monitor.snapshot().state == "waiting"


def test_a_failed_batch_does_not_change_the_lag() -> None:
    monitor = monitor_at(Clock())
    monitor.begin(sink="", fence=None, position=[OffsetRange("t", 0, 0, 100)])
    monitor.observe_ends({("t", 0): 500})

    def fail() -> None:
        with monitor.batch(7, [OffsetRange("t", 0, 100, 300)]):
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    progress = monitor.snapshot()
    assert (progress.running, progress.last_commit_at, progress.lag) == (None, None, 400)


def test_a_finished_batch_has_the_age_of_the_oldest_unread_record() -> None:
    clock = Clock()
    monitor = monitor_at(clock)
    monitor.begin(sink="", fence=None, position=[OffsetRange("t", 0, 0, 100)])
    monitor.observe_ends({("t", 0): 100})
    clock.now += 10
    with monitor.batch(1, [OffsetRange("t", 0, 100, 150)]):
        clock.now += 20
    done = monitor.finish(finished(1, clock, lag=50), ends={("t", 0): 200})
    # The monitor first saw the oldest remaining record when the batch was planned.
    assert done.lag_seconds == done.seconds
    assert monitor.snapshot().lag_seconds == done.seconds
    assert monitor.batches() == (done,)


def test_phases_are_measured_only_within_a_batch() -> None:
    monitor = monitor_at(Clock())
    with timed("write"):
        pass
    with monitor.batch(1) as stopwatch:
        with timed("write"), timed("write sink"):
            assert stopwatch.current == "write sink"
        with timed("write"):
            pass
    with timed("write"):
        pass
    assert list(stopwatch.seconds) == ["write sink", "write"]


def test_sparks_tasks_are_requested_only_in_long_batches_and_at_most_once_a_second() -> None:
    clock, asked = Clock(), []
    monitor = monitor_at(clock)

    def count() -> TaskCounts:
        asked.append(clock.now)
        return TaskCounts(10, 40, 500)

    monitor.count_tasks_by(count)
    with monitor.batch(1, [OffsetRange("t", 0, 0, 2000)]):
        monitor.tick()
        assert not asked
        for _ in range(12):
            clock.now += 0.25
            monitor.tick()
        running = monitor.snapshot().running
        assert running is not None
        assert (running.tasks_done, running.tasks, running.records, running.offsets) == (10, 40, 500, 2000)
        assert running.seconds_left == pytest.approx(9.0)
        assert len(asked) == 2
    assert monitor.snapshot().running is None


def test_the_second_job_of_a_batch_does_not_reset_the_number_of_records() -> None:
    clock = Clock()
    monitor = monitor_at(clock)
    counts = iter([TaskCounts(1, 2, 500), TaskCounts(0, 8, 0)])
    monitor.count_tasks_by(lambda: next(counts))
    with monitor.batch(1):
        for _ in range(2):
            clock.now += 3
            monitor.tick()
        assert (monitor.snapshot().running or RunningBatch(batch_id=0, began_at=0)).records == 500


def test_a_server_that_tasks_wait_for_is_shown_until_it_answers_or_the_batch_ends() -> None:
    clock = Clock()
    monitor = monitor_at(clock)
    waits: list[str | None] = [None, "http://r: HTTP status 503", None, "http://r: HTTP status 503"]
    answers = iter(waits)
    monitor.count_tasks_by(lambda: TaskCounts(0, 2, 0, next(answers)))
    with monitor.batch(1):
        for expected in waits:
            clock.now += 3
            monitor.tick()
            shown = monitor.snapshot()
            assert (shown.state, shown.waits_for) == ("retrying" if expected else "working", expected)
    assert (monitor.snapshot().state, monitor.snapshot().waits_for) == ("waiting", None)


def test_a_round_of_many_tables_shows_tasks_and_the_server_that_they_wait_for() -> None:
    clock = Clock()
    monitor = monitor_at(clock)
    answers = iter([TaskCounts(1, 4, 7, "http://r: HTTP status 503"), TaskCounts(1, 4, 7, "http://r: HTTP status 503")])
    monitor.count_tasks_by(lambda: next(answers))
    with monitor.round(3):
        assert (monitor.snapshot().state, monitor.snapshot().waits_for) == ("working", None)
        clock.now += 3
        monitor.tick()
        shown = monitor.snapshot()
        assert (shown.state, shown.waits_for) == ("retrying", "http://r: HTTP status 503")
        assert shown.running is not None
        assert (shown.running.batch_id, shown.running.tasks, shown.running.records) == (3, 4, 7)
    shown = monitor.snapshot()
    assert (shown.state, shown.waits_for, shown.running, shown.last_commit_at) == ("waiting", None, None, None)


def test_the_state_is_retrying_while_a_batch_is_retried() -> None:
    monitor = monitor_at(Clock())
    monitor.waits_for(Unreachable("the catalog does not answer"))
    with monitor.batch(1):
        assert monitor.snapshot().state == "retrying"
    assert (monitor.snapshot().state, monitor.snapshot().waits_for) == ("waiting", None)


def test_a_driver_counts_as_hanging_if_its_loop_has_not_run_for_a_minute() -> None:
    clock = Clock()
    monitor = monitor_at(clock)
    clock.now += 10 * HANGS_AFTER_SECONDS
    assert not monitor.snapshot().hangs  # The loop of a starting driver has not run yet.
    monitor.tick()
    clock.now += HANGS_AFTER_SECONDS - 1
    assert not monitor.snapshot().hangs
    clock.now += 2
    assert monitor.snapshot().hangs
    monitor.ended()
    assert not monitor.snapshot().hangs


def test_only_an_error_of_lakefeed_is_shown_with_its_text() -> None:
    monitor = monitor_at(Clock())

    def fail(error: Exception) -> None:
        with monitor.until_end():
            raise error

    with pytest.raises(ErrorBudgetExceeded):
        fail(ErrorBudgetExceeded("too many", where="feed taxi", hint="allow more"))
    progress = monitor.snapshot()
    assert progress.state == "failed"
    assert progress.last_error is not None
    assert (progress.last_error.what, progress.last_error.hint) == ("too many", "allow more")
    with pytest.raises(ValueError, match="secret"):
        fail(ValueError("secret value"))
    assert "secret" not in json.dumps(monitor.snapshot().as_dict())


def test_the_reasons_of_dead_letters_stay_until_the_next_batch_with_dead_letters() -> None:
    clock = Clock()
    monitor = monitor_at(clock)
    monitor.finish(finished(0, clock, dead_letters=2, reasons=(Reason("not JSON", 2),)))
    monitor.finish(finished(1, clock))
    assert [reason.reason for reason in monitor.snapshot().last_dead_letters] == ["not JSON"]
    totals = monitor.snapshot().totals
    assert (totals.batches, totals.records, totals.dead_letters) == (2, 200, 2)


def test_the_state_is_stopping_while_the_last_batch_ends() -> None:
    monitor = monitor_at(Clock())
    with monitor.batch(1):
        monitor.tick(stops=True)
    assert monitor.snapshot().state == "stopping"


def test_the_json_document_has_fixed_keys() -> None:
    clock = Clock()
    monitor = monitor_at(clock)
    monitor.begin(sink="iceberg a.b.c", fence="1 x", position=[OffsetRange("t", 0, 0, 5)])
    monitor.finish(finished(0, clock), ends={("t", 0): 9})
    with monitor.batch(1, [OffsetRange("t", 0, 5, 9)]):
        document = json.loads(json.dumps(monitor.snapshot().as_dict()))
    assert sorted(document) == sorted([
        "feed", "sink", "state", "hangs", "driver", "taken_at", "started_at", "alive_at", "progress_at", "fence",
        "restarts", "last_commit_at", "last_error", "lag", "unread", "lag_seconds", "rate", "last_batch", "running",
        "partitions", "last_dead_letters", "paused", "waits_for", "paused_sinks", "failed_tables", "totals",
    ])  # fmt: skip
    assert sorted(document["partitions"][0]) == sorted([
        "topic", "partition", "end", "read", "committed", "unread", "uncommitted", "lag", "unread_seconds",
        "uncommitted_seconds",
    ])  # fmt: skip
    assert sorted(document["last_batch"]) == sorted([
        "batch", "finished_at", "seconds", "records", "rows", "offsets", "input_rate", "processing_rate", "lag",
        "lag_seconds", "dead_letters", "skipped", "left_out", "left_out_field", "reasons", "phases", "requests",
        "state", "schema_id", "replayed", "ranges", "notes",
    ])  # fmt: skip
    assert document["taken_at"] == "2027-01-15T08:00:00.000Z"


def test_many_threads_may_read_while_the_feed_reports() -> None:
    clock = Clock()
    monitor = monitor_at(clock)
    ends, failures = threading.Event(), []

    def read() -> None:
        try:
            while not ends.is_set():
                monitor.snapshot().as_dict()
                monitor.points()
                monitor.snapshot()
        except Exception as error:
            failures.append(error)

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    for number in range(300):
        with monitor.batch(number, [OffsetRange("t", part, number, number + 1) for part in range(5)]):
            monitor.tick()
        monitor.finish(finished(number, clock), ends={("t", part): number + 5 for part in range(5)})
    ends.set()
    for reader in readers:
        reader.join()
    assert not failures
    assert monitor.snapshot().totals.batches == 300


def test_the_age_of_the_lag_counts_from_the_planning_of_the_batch() -> None:
    clock = Clock()
    monitor = monitor_at(clock)
    monitor.begin(sink="", fence=None, position=[OffsetRange("t", 0, 0, 0)])
    monitor.finish(finished(0, clock, lag=0), ends={("t", 0): 0})
    clock.now += 10
    with monitor.batch(1, [OffsetRange("t", 0, 0, 999)]):
        clock.now += 600
    batch = monitor.finish(
        finished(1, clock, seconds=600.0, lag=1, ranges=(OffsetRange("t", 0, 0, 999),)), ends={("t", 0): 1000}
    )
    assert batch.lag_seconds is not None
    assert batch.lag_seconds >= 600


def test_a_batch_has_its_own_lag_although_the_next_batch_has_begun() -> None:
    clock = Clock()
    monitor = monitor_at(clock)
    monitor.observe_ends({("t", 0): 0})
    clock.now += 100
    ranges = (OffsetRange("t", 0, 0, 100),)
    with monitor.batch(0, ranges):
        pass
    with monitor.batch(1, [OffsetRange("t", 0, 100, 5000)]):
        batch = monitor.finish(finished(0, clock, lag=4900, ranges=ranges), ends={("t", 0): 5000})
    assert batch.lag_seconds is not None


def test_a_topic_without_records_has_no_lag() -> None:
    monitor = monitor_at(Clock())
    monitor.starts_at({("empty", 0): 0, ("t", 0): 7})
    monitor.reached([OffsetRange("t", 0, 0, 100)])
    monitor.starts_at({("empty", 0): 0, ("t", 0): 7})
    monitor.observe_ends({("empty", 0): 0, ("t", 0): 150})
    assert monitor.snapshot().lag == 50
    monitor.observe_ends({("t", 0): 150})  # The topic was deleted.
    assert monitor.snapshot().lag == 50


def test_a_changed_system_clock_affects_neither_hangs_nor_durations() -> None:
    wall, steady = Clock(), Clock()
    monitor = FeedMonitor("taxi", clock=wall, steady=steady)
    monitor.tick()
    with monitor.batch(1):
        wall.now += 7200
        steady.now += 5
        progress = monitor.snapshot()
        assert progress.running is not None
        assert (progress.hangs, progress.running.seconds) == (False, 5)
        # The wall clock is set back; the monitor still sees that the loop hangs.
        wall.now -= 10_000
        steady.now += 61
        assert monitor.snapshot().hangs
        monitor.tick()
        assert not monitor.snapshot().hangs


def test_failed_tables_are_listed_until_they_continue() -> None:
    monitor = FeedMonitor("many")
    monitor.tables_failed({"orders": Unreachable("the catalog does not answer", where="lake")})
    assert monitor.snapshot().as_dict()["failed_tables"] == {"orders": "the catalog does not answer"}
    monitor.tables_failed({})
    assert monitor.snapshot().failed_tables == {}
