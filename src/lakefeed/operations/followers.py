"""Everything that follows a run as the pipeline file says, while the run lasts."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager

from lakefeed.config.connections import Connections
from lakefeed.config.models import PipelineConfig
from lakefeed.config.values import AVAILABLE_NOW
from lakefeed.lazy import SparkSession
from lakefeed.monitor.feed_monitor import FeedMonitor
from lakefeed.monitor.notify.notifier import notifying
from lakefeed.monitor.runs.follower import tracing
from lakefeed.operations.lineage.events import LineageRun
from lakefeed.operations.lineage.follower import reporting
from lakefeed.operations.live_status import own_path
from lakefeed.operations.metrics import pushing_metrics
from lakefeed.operations.paused_lag import observing_ends
from lakefeed.operations.runs import local_runs, upload_of

Follower = AbstractContextManager[None]


@contextmanager
def following(
    config: PipelineConfig,
    monitor: FeedMonitor,
    *,
    connections: Connections,
    once: bool = False,
    spark: SparkSession | None = None,
) -> Iterator[None]:
    """Let the followers read the monitor within this block, in threads of their own; none can stop or delay the run.

    The block is left after the monitor knows how the run has ended, so that a follower reports that too.
    """

    def followers() -> Iterator[Follower]:
        if config.lineage is not None:
            stays = not once and config.trigger != AVAILABLE_NOW
            run = LineageRun(config=config, connections=connections, lineage=config.lineage, stays=stays)
            yield reporting(run, monitor)
        yield tracing(local_runs(config), monitor, upload=upload_of(config, connections=connections))
        yield observing_ends(config, monitor)
        yield _notifying(config, monitor)
        yield pushing_metrics(config, monitor, spark)

    with _ending_together(followers(), monitor):
        yield


@contextmanager
def reporting_failed_start(config: PipelineConfig, monitor: FeedMonitor) -> Iterator[None]:
    """Report an error in this block as the end of the run: it never came so far that anything follows it."""
    try:
        yield
    except Exception as error:
        with _ending_together([tracing(local_runs(config), monitor), _notifying(config, monitor)], monitor):
            monitor.ended(error)
        raise


def _notifying(config: PipelineConfig, monitor: FeedMonitor) -> Follower:
    return notifying(config.notified, monitor, memory=own_path("notify", config))


@contextmanager
def _ending_together(followers: Iterable[Follower], monitor: FeedMonitor) -> Iterator[None]:
    """Enter each follower, and leave all at the same time: the end of a run waits for the slowest, not for the sum.

    One that cannot be entered ends the run with its error, which those before it report.
    """
    entered: list[Follower] = []
    try:
        try:
            for follower in followers:
                follower.__enter__()
                entered.append(follower)
        except Exception as error:
            monitor.ended(error)
            raise
        yield
    finally:
        # Daemons: after another Ctrl-C the process waits for none of them.
        threads = [threading.Thread(target=each.__exit__, args=(None, None, None), daemon=True) for each in entered]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
