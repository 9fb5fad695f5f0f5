"""Runs the followers of a run, as long as it lasts: entry points of ``lakefeed.followers``, and lakefeed's own."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from functools import partial

from lakefeed import plugins
from lakefeed.clients.kafka.topics import partitions_of
from lakefeed.config.connections import Connections
from lakefeed.config.models import PipelineConfig
from lakefeed.errors import ConfigError, LakefeedError
from lakefeed.lazy import SparkSession
from lakefeed.monitor.feed_monitor import FeedMonitor
from lakefeed.monitor.metrics.spark import pushing_to_spark
from lakefeed.offsets.ranges import Partition
from lakefeed.records.sources.kafka import SourceTopics

_log = logging.getLogger(__name__)

MOST_END_SECONDS = 90.0
"""How long the end of a run waits for followers; lakefeed's longest takes a minute, if the user sets it so."""


@dataclass(frozen=True, kw_only=True)
class FollowedRun:
    """The view that followers have of a run.

    Attributes:
        config: the pipeline; ``config.block(MyBlock)`` is the follower's own block.
        monitor: has the progress and the events of the run; a follower reads it from a thread of its own.
        connections: store and catalogs.
        spark: the session, which followers must not keep busy; None if the run has none yet.
        once: whether the run ends by itself after it has read the records that are there.
        is_failed_start: whether the run failed before followers could follow it. Then a follower's context is entered,
            the monitor gets the error, and the context is left.
        say: shows the user of the run a line, such as an address.
    """

    config: PipelineConfig
    monitor: FeedMonitor
    connections: Connections
    spark: SparkSession | None = None
    once: bool = False
    is_failed_start: bool = False
    say: Callable[[str], None] = lambda message: None


Follower = Callable[[FollowedRun], AbstractContextManager[None]]
"""Returns a context that follows a run. Entering and leaving the context must be quick and must not delay a batch.

The context is left after the monitor has the run's end. A LakefeedError on entering it refuses the start.
"""


@contextmanager
def following(run: FollowedRun) -> Iterator[None]:
    """Let all followers follow a run within this block; raise the error of a follower that refuses the start."""
    with _ending_together(run):
        yield


@contextmanager
def reporting_failed_start(config: PipelineConfig, monitor: FeedMonitor, connections: Connections) -> Iterator[None]:
    """Report an error in this block as the end of the run, since it failed before followers could follow it."""
    try:
        yield
    except Exception as error:
        run = FollowedRun(config=config, monitor=monitor, connections=connections, is_failed_start=True)
        with _ending_together(run):
            monitor.ended(error)
        raise


def _followers(run: FollowedRun) -> Iterator[tuple[str, Callable[[], Follower]]]:
    """Yield the followers' names and the functions that load them."""
    for entry in plugins.installed(plugins.FOLLOWERS_GROUP):
        yield entry.name, entry.load
    if not run.is_failed_start:
        yield "the lag of a paused feed", lambda: lambda run: observing_ends(run.config, run.monitor)
        yield "Spark's metrics", lambda: lambda run: pushing_to_spark(run.config, run.monitor, run.spark)


def _enter(run: FollowedRun, entered: list[AbstractContextManager[None]]) -> Iterator[LakefeedError]:
    """Enter the followers, and yield the errors of those that refuse the start; later followers can report these.

    A follower that fails in another way is named in a note, and the run continues without it. If the pipeline file has
    a block of its name, the start is refused.
    """
    for name, load in _followers(run):
        try:
            follower = load()(run)
            follower.__enter__()
        except LakefeedError as error:
            yield error
        except Exception as error:
            what = f"what follows the run as '{name}' cannot begin: {type(error).__name__}: {error}"
            if name in run.config.added_blocks:
                hint = f"reinstall its package, or remove the block {name}"
                yield ConfigError(what, where=name, hint=hint)
            else:
                run.monitor.note(what)
                _log.warning("%s", what)
        else:
            entered.append(follower)


@contextmanager
def _ending_together(run: FollowedRun) -> Iterator[None]:
    """Enter all followers, and leave them at the same time: a run's end waits for the slowest, not for the sum."""
    entered: list[AbstractContextManager[None]] = []
    try:
        refusals = list(_enter(run, entered))
        if refusals and not run.is_failed_start:
            run.monitor.ended(refusals[0])
            raise refusals[0]
        yield
    finally:
        # Daemon threads: after another Ctrl-C the process does not wait for them.
        threads = [threading.Thread(target=partial(_leave, each), daemon=True) for each in entered]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(MOST_END_SECONDS)


def _leave(follower: AbstractContextManager[None]) -> None:
    try:
        follower.__exit__(None, None, None)
    except Exception:
        _log.warning("a follower of the run has failed at its end", exc_info=True)


EVERY_SECONDS = 5.0

Ends = Callable[[], Mapping[Partition, int]]


@contextmanager
def observing_ends(
    config: PipelineConfig, monitor: FeedMonitor, *, ends: Ends | None = None, every: float = EVERY_SECONDS
) -> Iterator[None]:
    """Update the lag of a paused feed within this block, in a thread of its own: a paused feed has no batches."""
    if config.source.kafka is None:
        yield
        return
    over = threading.Event()

    def ends_now() -> Mapping[Partition, int]:
        parts = partitions_of(SourceTopics(config.kafka).describe())
        return {key: part.end_offset for key, part in parts.items()}

    look = ends or ends_now

    def follow() -> None:
        while not over.wait(every):
            if monitor.control.pause is None:
                continue
            # If a broker does not answer, the lag stays as it was; status and lag report the broker.
            with suppress(LakefeedError):
                found = look()
                # If the feed was resumed meanwhile, a batch has newer values.
                if monitor.control.pause is not None:
                    monitor.observe_ends(found)

    threading.Thread(target=follow, name="lakefeed-paused-lag", daemon=True).start()
    try:
        yield
    finally:
        # Do not join the thread: a broker that hangs must not delay the end of the run.
        over.set()
