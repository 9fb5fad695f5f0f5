"""Followers of a run while it lasts: entry points of ``lakefeed.followers``, and lakefeed's own."""

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
"""So long the end of a run waits for its followers; the longest of ours takes a minute, if the user sets it so."""


@dataclass(frozen=True, kw_only=True)
class FollowedRun:
    """A run, as its followers see it.

    Attributes:
        config: the pipeline; ``config.block(MyBlock)`` is the follower's own block.
        monitor: knows the progress and the events of the run; a follower reads it from a thread of its own.
        connections: store and catalogs.
        spark: the session, which followers must not keep busy; None where the run has none yet.
        once: whether the run ends by itself when it has read what is there.
        is_failed_start: whether the run has failed before anything could follow it: the follower is entered, the
            monitor takes the error, and the follower is left.
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
"""Follows a run within the context that it returns. Neither may take long, nor delay a batch.

The context is left after the monitor knows how the run has ended. A LakefeedError on entering it refuses the start.
"""


@contextmanager
def following(run: FollowedRun) -> Iterator[None]:
    """Let all followers follow a run within this block; raises the error of one that refuses the start."""
    with _ending_together(run):
        yield


@contextmanager
def reporting_failed_start(config: PipelineConfig, monitor: FeedMonitor, connections: Connections) -> Iterator[None]:
    """Report an error in this block as the end of the run: it never came so far that anything follows it."""
    try:
        yield
    except Exception as error:
        run = FollowedRun(config=config, monitor=monitor, connections=connections, is_failed_start=True)
        with _ending_together(run):
            monitor.ended(error)
        raise


def _followers(run: FollowedRun) -> Iterator[tuple[str, Callable[[], Follower]]]:
    """Yield each follower's name and what loads it."""
    for entry in plugins.installed(plugins.FOLLOWERS_GROUP):
        yield entry.name, entry.load
    if not run.is_failed_start:
        yield "the lag of a paused feed", lambda: lambda run: observing_ends(run.config, run.monitor)
        yield "Spark's metrics", lambda: lambda run: pushing_to_spark(run.config, run.monitor, run.spark)


def _enter(run: FollowedRun, entered: list[AbstractContextManager[None]]) -> Iterator[LakefeedError]:
    """Enter the followers, and yield the error of each that refuses the start; those after it can report that.

    One that is broken is named, and the run continues without it; if the file has a block of its name, the start is
    refused.
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
    """Enter each follower, and leave all at the same time: the end of a run waits for the slowest, not for the sum."""
    entered: list[AbstractContextManager[None]] = []
    try:
        refusals = list(_enter(run, entered))
        if refusals and not run.is_failed_start:
            run.monitor.ended(refusals[0])
            raise refusals[0]
        yield
    finally:
        # Daemons: after another Ctrl-C the process waits for none of them.
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
    """Keep the lag of a paused feed up to date within this block, in a thread of its own: no batch does so then."""
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
            # A broker that does not answer leaves the lag as it was; status and lag report the broker.
            with suppress(LakefeedError):
                found = look()
                # Of a feed that was resumed meanwhile, a batch knows better.
                if monitor.control.pause is not None:
                    monitor.observe_ends(found)

    threading.Thread(target=follow, name="lakefeed-paused-lag", daemon=True).start()
    try:
        yield
    finally:
        # Not joined: a broker that hangs is not to delay the end of the run.
        over.set()
