"""``judge`` decides whether a feed runs."""

import os
from dataclasses import replace
from typing import Any, Literal

import pytest

from lakefeed.clients.environment import process_start
from lakefeed.config.connections import Connections
from lakefeed.errors import LakefeedError, MissingExtra, Unreachable
from lakefeed.ledger.outcomes import Counts
from lakefeed.ledger.snapshot_summary import Commit, Upserts
from lakefeed.monitor.drivers import DriverFile
from lakefeed.monitor.feed_monitor import FeedMonitor
from lakefeed.monitor.model import FeedProgress
from lakefeed.offsets.ranges import OffsetRange, OffsetRanges
from lakefeed.operations import live_status as room
from lakefeed.operations.live_status import LedgerFacts, RunState, identity_of, judge, live_status
from lakefeed.operations.status import FeedOffsets
from tests.support.pipeline_text import feed_config

NOW = 10_000.0


def ledger(*ages: float, fence: str = "1 a", records: int = 100) -> LedgerFacts:
    """Return the ledger of a feed whose commits have these ages in seconds, newest first."""
    ranges = OffsetRanges((OffsetRange("t", 0, 0, records),))
    commits = tuple(
        Commit(
            "taxi", len(ages) - number, ranges, fence=fence, counts={("t", 0): Counts(records)}, committed_at=NOW - age
        )
        for number, age in enumerate(ages)
    )
    return LedgerFacts(known=FeedOffsets(offsets={("t", 0): records}), commits=commits, fence=fence)


def by_checkpoint(age: float) -> LedgerFacts:
    """Return the facts of a feed whose ledger has no commits; the last batch of its checkpoint is `age` seconds old."""
    return LedgerFacts(known=FeedOffsets(offsets={}, batch_id=7, committed_at=NOW - age))


def driver(
    *,
    alive: bool = True,
    host: str = "here",
    fence: str | None = "1 a",
    begun: bool = True,
    url: str | None = "http://127.0.0.1:1",
    ended: Literal["ended", "failed"] | None = None,
) -> DriverFile:
    return DriverFile(
        feed="taxi",
        identity="taxi",
        host=host,
        pid=os.getpid(),
        started=process_start(os.getpid()) if alive else "another",
        since=NOW - 100,
        fence=fence,
        has_begun=begun,
        url=url,
        ended=ended,
        ended_at=NOW - 50 if ended else None,
    )


def state_of(
    facts: LedgerFacts, *, process: DriverFile | None = None, progress: FeedProgress | None = None, lag: int | None = 0
) -> RunState:
    state, evidence = judge(
        facts,
        driver=process,
        progress=progress,
        unanswered=None,
        lag=lag,
        now=NOW,
        is_here=process is not None and process.host == "here",
    )
    assert evidence
    return state


NOW_ALIVE = {"taken_at": NOW, "started_at": NOW - 100, "alive_at": NOW}
ANSWER = FeedMonitor("taxi").snapshot().model_copy(update={"state": "waiting", "fence": "1 a", **NOW_ALIVE})


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ({}, "running"),
        ({"alive_at": NOW - 90}, "hangs"),
        ({"state": "failed"}, "failed"),
        ({"state": "ended"}, "ended"),
        ({"fence": "0 b"}, "replaced"),
        ({"fence": None}, "running"),
    ],
)
def test_a_drivers_answer_decides_the_state(answer: dict[str, Any], expected: RunState) -> None:
    progress = ANSWER.model_copy(update=answer)
    assert state_of(ledger(9000), process=driver(), progress=progress, lag=5) == expected


def test_a_driver_on_this_machine_that_does_not_answer_hangs_or_was_killed() -> None:
    assert state_of(ledger(10), process=driver()) == "hangs"
    assert state_of(ledger(500), process=driver(alive=False)) == "killed"


def test_a_driver_process_without_an_endpoint_probably_runs() -> None:
    assert state_of(ledger(9000), process=driver(url=None), lag=5) == "probably running"


@pytest.mark.parametrize("alive", [True, False])
@pytest.mark.parametrize("end", ["ended", "failed"])
def test_a_run_that_ended_or_failed_is_not_running_although_its_last_commit_is_recent(
    end: Literal["ended", "failed"], alive: bool
) -> None:
    assert state_of(ledger(55), process=driver(ended=end, alive=alive)) == end
    # A rewind takes a fence, and a run with --batch takes none, so the fence does not show whether a new driver runs.
    assert state_of(ledger(55, fence="2 rewind"), process=driver(ended=end, alive=alive)) == end
    assert state_of(ledger(55), process=driver(ended=end, alive=alive, fence=None, begun=False)) == end
    assert state_of(ledger(5, fence="2 b"), process=driver(ended=end, alive=alive)) == "probably running"
    assert state_of(ledger(5), process=driver(ended=end, alive=alive, fence=None)) == "probably running"


def test_the_ledger_shows_how_the_rows_were_landed() -> None:
    assert ledger(1, 2).upserts is None
    indexed = [replace(commit, upserts=Upserts()) for commit in ledger(1, 2).commits]
    merged = replace(indexed[1], merged_because="the batch reads records again")
    assert LedgerFacts(commits=indexed).upserts == "by the index of keys"
    expected = "1 of the newest 2 commits by a MERGE: the batch reads records again"
    assert LedgerFacts(commits=[indexed[0], merged]).upserts == expected


def test_a_commit_with_a_future_time_shows_that_clocks_differ() -> None:
    assert state_of(ledger(-30)) == "probably running"
    state, evidence = judge(ledger(-3600), driver=None, progress=None, unanswered=None, lag=5, now=NOW)
    assert (state, "the clocks of the machines differ" in evidence[1]) == ("unknown", True)


def test_control_characters_in_a_fence_are_escaped() -> None:
    hostile = replace(ledger(5), fence="9 \x1b[2J\nx")
    _, [reason] = judge(hostile, driver=driver(), progress=ANSWER, unanswered=None, lag=0, now=NOW)
    assert reason.isprintable()


@pytest.mark.parametrize("error", [Unreachable("no catalog answers"), MissingExtra("no psycopg")])
def test_a_drivers_answer_is_shown_even_if_other_servers_are_unreachable(
    monkeypatch: pytest.MonkeyPatch, error: LakefeedError
) -> None:
    def fails(*given: object, **options: object) -> Any:
        raise error

    config = feed_config()
    connections = Connections()
    monkeypatch.setattr("lakefeed.monitor.drivers.find", lambda identity: driver())
    monkeypatch.setattr(room, "_ledger", fails)
    with pytest.raises(type(error)):
        live_status(config, connections=connections)
    monkeypatch.setattr(room, "_ask", lambda driver: (ANSWER, None))
    found = live_status(config, connections=connections)
    assert (found.state, found.lag, found.evidence[-1]) == ("running", None, f"the ledger is unknown: {error.what}")
    monkeypatch.setattr(room, "_ledger", lambda *given: (ledger(5), ()))
    monkeypatch.setattr(room, "_lag", fails)
    found = live_status(config, connections=connections)
    assert (found.state, found.lag, found.evidence[-1]) == ("running", None, f"the lag is unknown: {error.what}")
    assert found.last_batch == 1


def test_the_drivers_rate_is_shown_if_the_ledger_has_only_one_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    def rate_of(facts: LedgerFacts, progress: FeedProgress | None) -> float | None:
        monkeypatch.setattr(room, "_ledger", lambda *given: (facts, ()))
        monkeypatch.setattr(room, "_ask", lambda driver: (progress, None))
        return live_status(feed_config(), connections=Connections()).rate

    monkeypatch.setattr("lakefeed.monitor.drivers.find", lambda identity: driver())
    monkeypatch.setattr(room, "_lag", lambda *given, **more: None)
    answer = ANSWER.model_copy(update={"rate": 250.5})
    assert rate_of(ledger(1.0), answer) == 250.5
    assert rate_of(ledger(1.0), None) is None
    assert rate_of(ledger(1.0, 11.0), answer) == 10.0


def test_feeds_with_different_brokers_have_different_identities() -> None:
    first, second = (
        feed_config(source={"kafka": {"bootstrap_servers": f"{name}:9092", "topics": ["hits"]}})
        for name in ("staging", "production")
    )
    assert identity_of(first) != identity_of(second)


def test_newer_commits_of_another_driver_count_more_than_a_driver_killed_on_this_machine() -> None:
    # The killed driver made a commit just before its end.
    assert state_of(ledger(5), process=driver(alive=False)) == "killed"
    assert state_of(ledger(5), process=driver(alive=False, fence=None)) == "killed"
    assert state_of(ledger(5, fence="2 b"), process=driver(alive=False)) == "probably running"
    # The other driver idles or has stopped; the driver that was killed here does not count.
    assert state_of(ledger(4000, fence="2 b"), process=driver(alive=False)) == "unknown"
    assert state_of(ledger(4000, fence="2 b"), process=driver(alive=False), lag=5) == "probably stopped"
    early = driver(alive=False, fence=None, begun=False)
    assert state_of(ledger(5, fence="2 b"), process=early) == "probably running"
    assert state_of(ledger(500), process=early) == "killed"


@pytest.mark.parametrize(
    ("ages", "lag", "expected"),
    [
        ((5.0,), 0, "probably running"),
        ((5.0,), 500, "probably running"),
        ((300.0, 600.0, 900.0), 500, "probably running"),  # The feed commits every five minutes.
        ((700.0, 705.0, 710.0), 500, "probably stopped"),
        ((700.0, 705.0, 710.0), 0, "unknown"),  # The ledger does not show whether the feed idles or has stopped.
        ((300.0, 301.0), 500, "unknown"),
        ((700.0,), None, "unknown"),
        ((), 500, "unknown"),
    ],
)
def test_commits_and_lag_decide_the_state_without_a_driver(
    ages: tuple[float, ...], lag: int | None, expected: RunState
) -> None:
    assert state_of(ledger(*ages), lag=lag) == expected
    # Machines may share a home folder; the file of a driver on another machine says nothing about processes here.
    assert state_of(ledger(*ages), process=driver(alive=False, host="there"), lag=lag) == expected


def test_the_rate_counts_only_commits_of_the_newest_driver() -> None:
    assert ledger(0, 10, 20).rate == 10.0
    assert ledger(5).rate is None
    assert ledger().rate is None
    mixed = LedgerFacts(commits=(*ledger(0, 10, fence="2 b").commits, *ledger(5000).commits))
    assert mixed.rate == 10.0


def test_a_commit_after_the_death_of_a_driver_without_a_fence_comes_from_another_driver() -> None:
    gone = driver(alive=False, fence=None).model_copy(update={"alive_at": NOW - 60})
    # The killed driver may have committed after the last update of its file, within one update interval.
    assert state_of(ledger(80), process=gone) == "killed"
    assert state_of(ledger(55), process=gone) == "killed"
    assert state_of(ledger(20), process=gone) == "probably running"
    assert state_of(by_checkpoint(20), process=gone) == "probably running"
    assert state_of(by_checkpoint(70), process=gone) == "killed"


def test_the_checkpoint_decides_the_state_if_the_sink_stores_no_commits() -> None:
    assert state_of(by_checkpoint(20)) == "probably running"
    assert state_of(by_checkpoint(2000), lag=5) == "probably stopped"


def test_a_failed_table_is_shown_as_failed_although_the_driver_runs_other_tables() -> None:
    answer = ANSWER.model_copy(update={"fence": None, "failed_tables": {"orders": "the table\x1b[2J is gone"}})

    def seen(topic: str) -> tuple[RunState, str]:
        state, [why] = judge(ledger(5), driver=driver(), progress=answer, unanswered=None, lag=0, now=NOW, topic=topic)
        return state, why

    assert seen("trips")[0] == "running"
    state, why = seen("orders")
    assert (state, "has failed: the table" in why, why.isprintable()) == ("failed", True, True)
