"""Repeats the upkeep of tables: in a thread of a feed's driver, or in a separate job."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from lakefeed.clients.iceberg.reader import open_table
from lakefeed.clients.spark.errors import translate
from lakefeed.config.connections import Connections
from lakefeed.config.models import PipelineConfig
from lakefeed.config.operation import Upkeep
from lakefeed.config.values import seconds_of
from lakefeed.errors import LakefeedError, ResourceMissing, TableBusy
from lakefeed.feed.control import ActionRequest
from lakefeed.feed.observer import RunObserver
from lakefeed.feed.progress import FinishedBatch
from lakefeed.lazy import SparkSession
from lakefeed.maintenance.maintain import Maintenance, Report
from lakefeed.maintenance.planner import LastUpkeep

if TYPE_CHECKING:
    from lakefeed.feed.feed import Feed

DEFAULT_EVERY = "1 hour"
END_SECONDS = 0.25
OnBatch = Callable[[FinishedBatch], None]


def tables_of(*configs: PipelineConfig, beside: bool = False) -> tuple[str, ...]:
    """Return the Iceberg tables that the upkeep of pipelines maintains: rows, histories and dead letters, each once.

    With ``beside``, add the tables of additional ``sinks``, which the feed's upkeep leaves alone.
    """
    named: list[str | None] = []
    for config in configs:
        for _, sink in config.sink_blocks if beside else config.sink_blocks[:1]:
            named += sink.chosen.snapshot_tables.values()
        if config.dead_letters is not None:
            named.append(config.dead_letters.table)
    return tuple(dict.fromkeys(table for table in named if table is not None))


def next_time(settings: Upkeep, *, now: float) -> float:
    """Return the time of the next upkeep, in seconds since 1970."""
    if settings.at is None:
        return now + seconds_of(settings.every or DEFAULT_EVERY)
    hour, minute = (int(part) for part in settings.at.split(":"))
    here = datetime.fromtimestamp(now, UTC)
    today = here.replace(hour=hour, minute=minute, second=0, microsecond=0)
    return (today if today > here else today + timedelta(days=1)).timestamp()


def repeat_upkeep(
    tables: Callable[[], Sequence[str]],
    *,
    spark: SparkSession,
    connections: Connections,
    settings: Upkeep,
    stop: threading.Event,
    report: Callable[[str, Report | LakefeedError], None],
    ignored: tuple[type[LakefeedError], ...] = (),
    say: Callable[[str], None] = lambda line: None,
) -> None:
    """Maintain tables now, and then on schedule until ``stop`` is set; report a failure, and try again next time."""
    while True:
        for table in tables():
            if stop.is_set():
                return
            try:
                job = Maintenance(table, spark=spark, connections=connections, settings=settings, stop=stop, say=say)
                report(table, job.run(asked=False))
            except ignored:
                continue
            except Exception as error:  # The job runs for weeks: one failure must not end it.
                report(table, translate(error))
        if stop.wait(max(0.0, next_time(settings, now=time.time()) - time.time())):
            return


@contextmanager
def upkeep_beside_feed(
    feed: Feed,
    spark: SparkSession,
    *,
    tables: Callable[[], Sequence[str]] | None = None,
    monitor: RunObserver | None = None,
) -> Iterator[Callable[[OnBatch], OnBatch]]:
    """Maintain a feed's tables one by one in a thread while the feed runs.

    Yield a function that adds the results as notes to batches; a failure also becomes a note, and never stops the feed.
    Without an ``upkeep`` block, nothing runs on schedule. An operator's request by ``monitor.control`` runs
    immediately. Every upkeep calls ``tables``, because there may be new tables.
    """
    settings, connections, stop, notes = feed.config.upkeep, feed.connections, threading.Event(), deque[str]()
    tables = tables or (lambda: tables_of(feed.config))

    def add_notes(on_batch: OnBatch) -> OnBatch:
        def report(batch: FinishedBatch) -> None:
            new = tuple(notes.popleft() for _ in range(len(notes)))
            on_batch(batch.model_copy(update={"notes": (*batch.notes, *new)}))

        return report

    def note(table: str, result: Report | LakefeedError) -> None:
        if isinstance(result, LakefeedError):
            why = f"{result.what} ({result.where})" if result.where else result.what
            notes.append(f"upkeep of {table} failed, the feed continues: {why}")
        elif result.after is not None:
            notes.append(f"upkeep of {table} took {result.seconds:.1f} s: {result.sentence}")

    def run(settings: Upkeep) -> None:
        now = time.time()
        if settings.at is None:
            # Count from the last upkeep, because many short runs may each end before ``every`` has passed.
            with suppress(Exception):  # The table is missing or unreadable: the first upkeep reports that.
                now = LastUpkeep.of(open_table(tables()[0], connections=connections).properties).at or now
        if not stop.wait(max(0.0, next_time(settings, now=now) - time.time())):
            repeat_upkeep(
                tables,
                spark=spark,
                connections=connections,
                settings=settings,
                stop=stop,
                report=note,
                ignored=(ResourceMissing, TableBusy),  # The table does not exist yet, or another job maintains it.
            )

    def run_now(request: ActionRequest) -> str:
        chosen = settings or Upkeep()
        done = [look_after(table, spark, connections, chosen, stop) for table in tables()]
        return "; ".join(done) or "there is no table yet"

    control = None if monitor is None else monitor.control
    if control is not None and (feed.config.has_many_tables or tables()):
        control.offer("upkeep", run_now)
    thread = threading.Thread(target=run, args=(settings,), name="lakefeed-upkeep", daemon=True)
    if settings is not None:
        thread.start()
    try:
        yield add_notes
    finally:
        stop.set()
        while thread.is_alive() or (control is not None and control.is_at_work("upkeep")):
            # The upkeep ends after its current group of files; upkeep.compact.group_mb limits the group's size.
            if thread.is_alive():
                thread.join(END_SECONDS)
            else:
                time.sleep(END_SECONDS)
            if monitor is not None:
                monitor.tick()


def look_after(
    table: str, spark: SparkSession, connections: Connections, settings: Upkeep, stop: threading.Event
) -> str:
    """Maintain one table now; return the result as text."""
    if stop.is_set():
        return f"{table}: the run ended before its turn"
    try:
        job = Maintenance(table, spark=spark, connections=connections, settings=settings, stop=stop)
        return f"{table}: {job.run().sentence}"
    except Exception as error:
        return f"{table} failed: {translate(error).what}"
