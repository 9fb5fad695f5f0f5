"""Begins and ends a run's followers, such as alerts: lakefeed's own, and entry points of ``lakefeed.followers``."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from lakefeed import plugins
from lakefeed.clients.kafka.topics import partitions_of
from lakefeed.config.connections import Connections
from lakefeed.config.models import PipelineConfig
from lakefeed.errors import ConfigError, LakefeedError
from lakefeed.lazy import SparkSession
from lakefeed.monitor.feed_monitor import FeedMonitor
from lakefeed.offsets.ranges import Partition
from lakefeed.records.sources import SourceTopics

_log = logging.getLogger(__name__)

MOST_END_SECONDS = 90.0
"""How long a run waits for its followers at its end; the retries of an alert may take a minute."""


@dataclass(frozen=True, kw_only=True)
class FollowedRun:
    """The parts of a run that followers may use.

    Attributes:
        config: the pipeline; ``config.block(MyBlock)`` is the follower's own block.
        monitor: has the progress and the events of the run; a follower reads the monitor in a separate thread.
        spark: the session, which followers must not keep busy; None if the run has no session yet.
        folder: the folder of the pipeline file; None for a pipeline without a file.
        once: whether the run ends by itself after it has landed the present records.
        is_failed_start: whether the run failed before its followers began. If so, a follower's context is entered, the
            monitor gets the error, and the context is left.
        say: shows the run's user a line of text, such as an address.
    """

    config: PipelineConfig
    monitor: FeedMonitor
    connections: Connections
    spark: SparkSession | None = None
    folder: Path | None = None
    once: bool = False
    is_failed_start: bool = False
    say: Callable[[str], None] = lambda message: None


Follower = Callable[[FollowedRun], AbstractContextManager[None]]
"""A function that returns a context manager, which follows a run. Entering and leaving the context must be quick, so
that no batch is delayed.

The context is left after the monitor has recorded the end of the run. A LakefeedError on entering the context refuses
the start of the run.
"""


@contextmanager
def following(run: FollowedRun) -> Iterator[None]:
    """Let all followers follow the run of the ``with`` block; raise the error of a follower that refuses the start."""
    followers: list[AbstractContextManager[None]] = []
    try:
        refusals = list(_enter(run, followers))
        if refusals and not run.is_failed_start:
            run.monitor.ended(refusals[0])
            raise refusals[0]
        yield
    finally:
        # End all followers at the same time, so that a run's end takes only as long as its slowest follower. The
        # threads are daemons, so that the process does not wait for them after a second Ctrl-C.
        threads = [threading.Thread(target=partial(_leave, each), daemon=True) for each in followers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(MOST_END_SECONDS)


@contextmanager
def reporting_failed_start(config: PipelineConfig, monitor: FeedMonitor, connections: Connections) -> Iterator[None]:
    """If this block fails, start the followers only to report the error as the end of the run."""
    try:
        yield
    except Exception as error:
        run = FollowedRun(config=config, monitor=monitor, connections=connections, is_failed_start=True)
        with following(run):
            monitor.ended(error)
        raise


def _followers(run: FollowedRun) -> Iterator[tuple[str, Callable[[], Follower]]]:
    for entry in plugins.installed(plugins.FOLLOWERS_GROUP):
        yield entry.name, entry.load
    if not run.is_failed_start:
        yield "the lag of a paused feed", lambda: lambda run: observing_lag_while_paused(run.config, run.monitor)


def _enter(run: FollowedRun, entered: list[AbstractContextManager[None]]) -> Iterator[LakefeedError]:
    """Enter all followers, and yield the errors that refuse the start, so that the other followers can report them.

    If a follower fails in another way, a note names the follower, and the run continues without it; but the start is
    refused if the pipeline file has a block with the follower's name.
    """
    for name, load in _followers(run):
        try:
            follower = load()(run)
            follower.__enter__()
        except LakefeedError as error:
            yield error
        except Exception as error:
            what = f"the part '{name}' of this run cannot begin: {type(error).__name__}: {error}"
            if name in run.config.added_blocks:
                hint = f"reinstall the package of the block {name}, or remove the block"
                yield ConfigError(what, where=name, hint=hint)
            else:
                run.monitor.note(what)
                _log.warning("%s", what)
        else:
            entered.append(follower)


def _leave(follower: AbstractContextManager[None]) -> None:
    try:
        follower.__exit__(None, None, None)
    except Exception:
        _log.warning("a follower of the run has failed at its end", exc_info=True)


@contextmanager
def observing_lag_while_paused(
    config: PipelineConfig,
    monitor: FeedMonitor,
    *,
    ends: Callable[[], Mapping[Partition, int]] | None = None,
    every: float = 5.0,
) -> Iterator[None]:
    """Update a paused feed's lag during the ``with`` block, in a thread, because a paused feed has no batches."""
    if config.source.kafka is None:
        yield
        return
    over = threading.Event()

    def ends_now() -> Mapping[Partition, int]:
        parts = partitions_of(SourceTopics(config.kafka).describe())
        return {key: part.end_offset for key, part in parts.items()}

    def follow() -> None:
        while not over.wait(every):
            if monitor.control.pause is None:
                continue
            # If no broker answers, the lag remains the same; lakefeed status reports the broker.
            with suppress(LakefeedError):
                newest = (ends or ends_now)()
                # If the feed was resumed during the request, ignore the answer: the next batch reports newer end
                # offsets.
                if monitor.control.pause is not None:
                    monitor.observe_ends(newest)

    threading.Thread(target=follow, name="lakefeed-paused-lag", daemon=True).start()
    try:
        yield
    finally:
        # Do not join the thread, because a broker that hangs must not delay the end of the run.
        over.set()
