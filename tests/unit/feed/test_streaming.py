"""After a pause, a feed's query restarts only if a new start of the feed would resume at the same offsets."""

import threading
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any, cast

import pytest

from lakefeed.errors import (
    CheckpointInUse,
    CheckpointMismatch,
    DriverReplaced,
    FeedMoved,
    LakefeedError,
    RecordsLost,
    Unreachable,
)
from lakefeed.feed.batch_writer import BatchWriter
from lakefeed.feed.run import MicroBatches
from lakefeed.feed.streaming import RIVAL_TRIES, StreamRun
from lakefeed.ledger.continuity import REWIND
from lakefeed.ledger.feed_position import Position
from lakefeed.offsets.ranges import OffsetRange, OffsetRanges


class Started(Exception):
    """The error that this test raises instead of starting the query."""


class Run(StreamRun):
    """A run after a pause; `decided` is the decision that a start would make now."""

    def __init__(
        self, decided: Any, *, reached: int | None = 50, outcome: str = "resumed", fence: str | None = "1 own"
    ) -> None:
        owner = SimpleNamespace(feed="taxi", sink="iceberg lake.nyc.trips")
        self.feed = cast(
            "Any",
            SimpleNamespace(config=SimpleNamespace(budget=None, name="taxi"), identity=SimpleNamespace(owner=owner)),
        )
        self.steering = cast("Any", SimpleNamespace(settle=lambda: outcome))
        self.checkpoint = cast("Any", SimpleNamespace(refresh=lambda: None))
        self.observer = cast("Any", nullcontext())
        self.outage = cast("Any", SimpleNamespace(wait=lambda error: False, has_landed=False))
        self.batches, self.by_ledger, self._tries = MicroBatches(threading.Event()), False, RIVAL_TRIES
        self.notes: list[str] = []
        stop = cast("Any", SimpleNamespace(wait=lambda seconds: False))
        self.options = cast("Any", SimpleNamespace(stop=stop, on_note=self.notes.append))
        self.sink = cast("Any", SimpleNamespace(fence_taken=lambda: fence))
        self._decided = decided
        self._reached = None if reached is None else {("trips", 0): reached}

    def start_query(self, writer: Any, requests: Any) -> Any:
        raise Started

    def _decide(self, *, accept_loss: bool = False) -> Any:
        if isinstance(self._decided, Exception):
            raise self._decided
        return self._decided


def decided(*, at: int | None = 50, leaves_checkpoint: bool = False) -> Any:
    position = None if at is None else Position(OffsetRanges((OffsetRange("trips", 0, 0, at),)), snapshot_id=1)
    decision = SimpleNamespace(message="resumes where the feed was moved to")
    return SimpleNamespace(position=position, leaves_checkpoint=leaves_checkpoint, decision=decision)


def run_on(run: Run) -> None:
    writer = BatchWriter(
        cast("Any", None), feed="taxi", sink=run.sink, rows=cast("Any", None), reader=cast("Any", None), fence="1 own"
    )
    run.run_queries(writer, cast("Any", None), on_batch=lambda progress: None)


@pytest.mark.parametrize(("at", "reached"), [(50, 50), (None, 50), (50, None), (None, None)])
def test_a_paused_feed_resumes_at_an_unchanged_position(at: int | None, reached: int | None) -> None:
    with pytest.raises(Started):
        run_on(Run(decided(at=at), reached=reached))


def test_a_resume_is_refused_if_a_start_would_be_refused() -> None:
    with pytest.raises(RecordsLost):
        run_on(Run(RecordsLost("the topic was recreated")))
    with pytest.raises(CheckpointMismatch, match="moved while it was paused"):
        run_on(Run(decided(leaves_checkpoint=True)))


def test_a_driver_that_was_replaced_during_its_pause_does_not_touch_the_checkpoint() -> None:
    with pytest.raises(DriverReplaced, match="another driver has taken over"):
        run_on(Run(decided(at=70), fence="2 other"))
    with pytest.raises(CheckpointMismatch, match="was rolled back while it was paused"):
        run_on(Run(decided(at=20)))
    # A start would resume at the moved offsets, so a cluster may restart the driver.
    with pytest.raises(FeedMoved, match="moved to other offsets"):
        run_on(Run(decided(at=20), fence=f"2 {REWIND}other"))


def test_a_change_of_settings_without_a_pause_needs_no_new_decision() -> None:
    with pytest.raises(Started):
        run_on(Run(RecordsLost("not asked"), outcome="go"))


IN_USE = CheckpointInUse("another driver works on the same checkpoint")


class Ends(Run):
    """A run whose query always ends with ``error``."""

    def __init__(self, error: LakefeedError, *, fence: str | None, in_batch: bool = False) -> None:
        self.applied: list[str | None] = []
        start = decided()
        start.apply = lambda *, fence: self.applied.append(fence)
        super().__init__(start, outcome="go", fence=fence)
        self._error, self._in_batch = error, in_batch

    def start_query(self, writer: Any, requests: Any) -> Any:
        self.batches.failure = self._error if self._in_batch else None
        raise self._error


def test_if_a_new_driver_uses_the_checkpoint_the_old_driver_reports_that_it_was_replaced() -> None:
    with pytest.raises(DriverReplaced, match="fence 2 other, this driver's 1 own"):
        run_on(Ends(IN_USE, fence="2 other"))
    with pytest.raises(Unreachable):
        run_on(Ends(Unreachable("no broker answers"), fence="2 other"))


@pytest.mark.parametrize("fence", ["1 own", None], ids=["own fence", "table removed"])
def test_a_driver_that_an_older_driver_disturbs_decides_again_a_few_times(fence: str | None) -> None:
    run = Ends(IN_USE, fence=fence)
    with pytest.raises(CheckpointInUse):
        run_on(run)
    assert run.applied == ["1 own"] * RIVAL_TRIES
    # The last error is raised, and the errors before it are notes.
    assert len(run.notes) == RIVAL_TRIES


@pytest.mark.parametrize(
    ("error", "in_batch", "has_landed", "again"),
    [
        (IN_USE, False, True, True),
        (CheckpointMismatch("batch 0 does not continue where the feed ended"), True, False, True),
        # The feed has landed batches in this run, so the table was rolled back.
        (CheckpointMismatch("batch 9 does not continue where the feed ended"), True, True, False),
        (CheckpointMismatch("the feed was moved while it was paused"), False, False, False),
        (FeedMoved("the feed was moved to other offsets"), True, False, False),
    ],
)
def test_an_error_that_an_older_driver_may_have_caused_leads_to_a_new_decision(
    error: LakefeedError, in_batch: bool, has_landed: bool, again: bool
) -> None:
    run = Ends(error, fence="1 own", in_batch=in_batch)
    run.outage.has_landed = has_landed
    with pytest.raises(type(error)):
        run_on(run)
    assert bool(run.applied) is again


def test_a_run_without_a_checkpoint_is_not_retried_if_a_checkpoint_is_in_use() -> None:
    run = Ends(IN_USE, fence="1 own")
    run.by_ledger = True
    with pytest.raises(CheckpointInUse):
        run_on(run)
    assert run.applied == []
