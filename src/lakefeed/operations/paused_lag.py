"""Looks how far the topics reach while a feed is paused: no batch does so then, and its lag grows unseen."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress

from lakefeed.clients.kafka.topics import partitions_of
from lakefeed.config.models import PipelineConfig
from lakefeed.errors import LakefeedError
from lakefeed.monitor.feed_monitor import FeedMonitor
from lakefeed.offsets.ranges import Partition
from lakefeed.records.sources.kafka import SourceTopics

EVERY_SECONDS = 5.0

Ends = Callable[[], Mapping[Partition, int]]


@contextmanager
def observing_ends(
    config: PipelineConfig, monitor: FeedMonitor, *, ends: Ends | None = None, every: float = EVERY_SECONDS
) -> Iterator[None]:
    """Keep the lag of a paused feed up to date within this block, in a thread of its own."""
    if config.source.kafka is None:
        yield
        return
    over = threading.Event()
    look = ends or ends_of(config)

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


def ends_of(config: PipelineConfig) -> Ends:
    """Return what asks the brokers for the ends of the feed's topics."""

    def look() -> dict[Partition, int]:
        parts = partitions_of(SourceTopics(config.kafka).describe())
        return {key: part.end_offset for key, part in parts.items()}

    return look
