"""Everything that follows a run as the pipeline file says, while the run lasts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from lakefeed.config.connections import Connections
from lakefeed.config.models import PipelineConfig
from lakefeed.config.values import AVAILABLE_NOW
from lakefeed.monitor.feed_monitor import FeedMonitor
from lakefeed.monitor.notify.notifier import notifying
from lakefeed.monitor.runs.follower import tracing
from lakefeed.operations.lineage.events import LineageRun
from lakefeed.operations.lineage.follower import reporting
from lakefeed.operations.live_status import own_path
from lakefeed.operations.metrics import pushing_metrics
from lakefeed.operations.paused_lag import observing_ends
from lakefeed.operations.runs import local_runs, upload_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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
    with ExitStack() as stack:
        if config.lineage is not None:
            stays = not once and config.trigger != AVAILABLE_NOW
            run = LineageRun(config=config, connections=connections, lineage=config.lineage, stays=stays)
            stack.enter_context(reporting(run, monitor))
        upload = upload_of(config, connections=connections)
        stack.enter_context(tracing(local_runs(config), monitor, upload=upload))
        stack.enter_context(observing_ends(config, monitor))
        stack.enter_context(notifying(config.notify, monitor, memory=own_path("notify", config)))
        stack.enter_context(pushing_metrics(config, monitor, spark))
        yield


@contextmanager
def reporting_failed_start(config: PipelineConfig, monitor: FeedMonitor) -> Iterator[None]:
    """Report an error in this block as the end of the run: it never came so far that anything follows it."""
    try:
        yield
    except Exception as error:
        with tracing(local_runs(config), monitor), notifying(config.notify, monitor, memory=own_path("notify", config)):
            monitor.ended(error)
        raise
