"""After a day with a batch each second, a driver has used limited memory, even if open pages never read."""

import asyncio
import gc
import tracemalloc

import pytest

from lakefeed.feed.events import MOST_EVENTS
from lakefeed.feed.progress import FinishedBatch
from lakefeed.feed.s3_requests import BatchRequests
from lakefeed.ledger.outcomes import Reason
from lakefeed.monitor.feed_monitor import FeedMonitor
from lakefeed.offsets.ranges import OffsetRange
from lakefeed.operations.endpoint import OwnFeed
from lakefeed_dashboard import stream
from lakefeed_dashboard.stream import Hub
from lakefeed_dashboard.workers import Workers

DAY = 24 * 3600
SATURATED = 1200
"""This many batches fill every list of limited length (events, newest batches, reasons)."""
LONG = "x" * 300


def batch(number: int, *, at: float) -> FinishedBatch:
    """Return a batch in which every field has a value, with reasons and notes that no other batch has."""
    return FinishedBatch(
        batch_id=number,
        finished_at=at,
        seconds=0.5,
        records=1000,
        rows=990,
        offsets=1000,
        lag=number,
        dead_letters=10,
        reasons=tuple(Reason(f"{number} {part} {LONG}", 2, f"{LONG} {number}") for part in range(5)),
        phases={f"write sink {part}": 0.1 for part in range(20)},
        requests=BatchRequests(total=12, budget=10, by_class={f"class {part}": 1 for part in range(10)}),
        schema_id=number,
        notes=(f"{LONG} {number}",),
        ranges=tuple(OffsetRange("trips", part, number * 100, number * 100 + 100) for part in range(50)),
    )


@pytest.mark.waits
def test_a_day_of_batches_takes_less_than_50_megabytes_even_if_pages_never_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stream, "EVERY_SECONDS", 0.0)
    clock = [1_800_000_000.0]
    gc.collect()
    tracemalloc.start()
    try:
        monitor = FeedMonitor("taxi", clock=lambda: clock[0])
        for second in range(DAY - SATURATED):
            clock[0] += 1
            monitor.history.add(FinishedBatch(batch_id=second, finished_at=clock[0], seconds=1.0, records=second))
        for number in range(DAY - SATURATED, DAY):
            clock[0] += 1
            found = batch(number, at=clock[0])
            with monitor.batch(number, found.ranges):
                pass
            monitor.finish(found, ends={span.key: span.end + number for span in found.ranges})
        asyncio.run(_pages(monitor, clock))
        metrics = OwnFeed(monitor).metrics(accept="").body
        gc.collect()
        used, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert used < 50_000_000
    # The peak includes the time in which pages and /metrics read the monitor.
    assert most < 100_000_000
    assert len(monitor.events.after()) == MOST_EVENTS
    assert DAY <= len(monitor.history) <= DAY + 1024
    points = monitor.points(most=500)
    assert len(points) <= 500
    assert points[-1].batch == DAY + 29
    assert len(metrics) < 100_000


async def _pages(monitor: FeedMonitor, clock: list[float]) -> None:
    """While batches end, keep fifty pages open that never read their queues."""
    workers = Workers()
    hub = Hub(OwnFeed(monitor), workers)
    clients = [hub.open("taxi") for _ in range(50)]
    for number in range(DAY, DAY + 30):
        clock[0] += 1
        monitor.finish(batch(number, at=clock[0]))
        await asyncio.sleep(0.05)
    assert all(client.queue.qsize() <= stream.MOST_QUEUED for client in clients)
    assert any(client.queue.qsize() for client in clients)
    hub.close()
    await asyncio.sleep(0)
    workers.close()
