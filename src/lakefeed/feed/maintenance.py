"""Upkeep again and again: in a thread of a feed's driver, or in a job of its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Self

from lakefeed.clients.iceberg.reader import open_table
from lakefeed.clients.spark.errors import translated
from lakefeed.config.connections import Connections
from lakefeed.config.durations import seconds_of
from lakefeed.config.models import PipelineConfig
from lakefeed.config.upkeep import Upkeep
from lakefeed.errors import LakefeedError, ResourceMissing, TableBusy
from lakefeed.feed.progress.progress import BatchProgress
from lakefeed.maintenance.maintain import Maintenance, Report
from lakefeed.maintenance.planner import LastUpkeep

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DEFAULT_EVERY = "1 hour"


def tables_of(*configs: PipelineConfig) -> tuple[str, ...]:
    """The Iceberg tables that pipelines write to, each once: their own, the histories, those of dead letters."""
    named: list[str | None] = []
    for config in configs:
        letters = config.dead_letters
        named += config.sink.chosen.snapshot_tables.values()
        named += [letters.table] if letters is not None else []
    return tuple(dict.fromkeys(table for table in named if table is not None))


def next_time(settings: Upkeep, *, now: float) -> float:
    """When upkeep is to begin next, in seconds since 1970."""
    if settings.at is None:
        return now + seconds_of(settings.every or DEFAULT_EVERY)
    hour, minute = (int(part) for part in settings.at.split(":"))
    here = datetime.fromtimestamp(now, UTC)
    today = here.replace(hour=hour, minute=minute, second=0, microsecond=0)
    return (today if today > here else today + timedelta(days=1)).timestamp()


class UpkeepBesideFeed:
    """Looks after a feed's tables while it runs, one after the other. Use it as a context manager around the query.

    Whatever fails here is a note to the next batch, and never stops the feed.

    Args:
        config: the pipeline; without an ``upkeep`` block nothing is done.
        spark: the feed's session.
        connections: store and catalogs.
        tables: asked at each look, where the tables become more. Default: those of the pipeline.
    """

    def __init__(
        self,
        config: PipelineConfig,
        *,
        spark: SparkSession,
        connections: Connections,
        tables: Callable[[], Sequence[str]] | None = None,
    ) -> None:
        self._settings = config.upkeep
        self._tables = tables or (lambda: tables_of(config))
        self._spark = spark
        self._connections = connections
        self._stop = threading.Event()
        self._notes: list[str] = []
        self._thread = threading.Thread(target=self._run, name="lakefeed-upkeep", daemon=True)

    def __enter__(self) -> Self:
        if self._settings is not None:
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        if self._thread.is_alive():
            # After the piece at hand, which is bounded by upkeep.compact.group_mb.
            self._thread.join()

    def telling(self, on_batch: Callable[[BatchProgress], None]) -> Callable[[BatchProgress], None]:
        """``on_batch``, with what upkeep has to say among the batch's notes."""

        def tell(progress: BatchProgress) -> None:
            notes = tuple(self._notes.pop(0) for _ in range(len(self._notes)))
            on_batch(replace(progress, notes=(*progress.notes, *notes)) if notes else progress)

        return tell

    def _run(self) -> None:
        assert self._settings is not None  # Only then the thread is started.
        begin = self._first_time(self._settings)
        while not self._stop.wait(max(0.0, begin - time.time())):
            for table in self._tables():
                if self._stop.is_set():
                    return
                self._look_after(table, self._settings)
            begin = next_time(self._settings, now=time.time())

    def _first_time(self, settings: Upkeep) -> float:
        """Where a job ends before ``every`` is over, as with ``--once``, the time since the last upkeep counts."""
        if settings.at is not None:
            return next_time(settings, now=time.time())
        try:
            properties = open_table(self._tables()[0], connections=self._connections).properties
        except Exception:  # The table is not made yet, or whatever else: the first look will say it.
            return next_time(settings, now=time.time())
        return next_time(settings, now=LastUpkeep.of(properties).at or time.time())

    def _look_after(self, table: str, settings: Upkeep) -> None:
        try:
            report = Maintenance(
                table, spark=self._spark, connections=self._connections, settings=settings, stop=self._stop
            ).run(asked=False)
        except (ResourceMissing, TableBusy):
            # Not made yet, or somebody else is at it.
            return
        except Exception as error:  # The feed continues, whatever upkeep has run into.
            failure = translated(error)
            why = f"{failure.what} ({failure.where})" if failure.where else failure.what
            self._notes.append(f"upkeep of {table} failed, the feed continues: {why}")
            return
        if report.after is not None:
            self._notes.append(f"upkeep of {table} took {report.seconds:.1f} s: {report.sentence}")


def again_and_again(
    tables: Sequence[str],
    *,
    spark: SparkSession,
    connections: Connections,
    settings: Upkeep,
    stop: threading.Event,
    tell: Callable[[Report | LakefeedError], None],
    say: Callable[[str], None] = lambda line: None,
) -> None:
    """Looks after tables at once, then on schedule, until stopped; a failure is reported, and retried next time."""
    while True:
        for table in tables:
            if stop.is_set():
                return
            try:
                job = Maintenance(table, spark=spark, connections=connections, settings=settings, stop=stop, say=say)
                tell(job.run(asked=False))
            except Exception as error:  # A job that runs for weeks outlives what fails today.
                tell(translated(error))
        if stop.wait(max(0.0, next_time(settings, now=time.time()) - time.time())):
            return
