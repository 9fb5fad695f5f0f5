"""Repeats the upkeep of tables: in a thread of a feed's driver, or in a job of its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Self

from lakefeed.clients.iceberg.reader import open_table
from lakefeed.clients.spark.errors import translate
from lakefeed.config.connections import Connections
from lakefeed.config.models import PipelineConfig
from lakefeed.config.upkeep import Upkeep
from lakefeed.config.values import seconds_of
from lakefeed.errors import LakefeedError, ResourceMissing, TableBusy
from lakefeed.feed.progress import BatchProgress
from lakefeed.maintenance.maintain import Maintenance, Report
from lakefeed.maintenance.planner import LastUpkeep

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DEFAULT_EVERY = "1 hour"


def tables_of(*configs: PipelineConfig) -> tuple[str, ...]:
    """List the Iceberg tables that pipelines write to, once: their own, the histories, those of dead letters."""
    named: list[str | None] = []
    for config in configs:
        named += config.sink.chosen.snapshot_tables.values()
        if config.dead_letters is not None:
            named.append(config.dead_letters.table)
    return tuple(dict.fromkeys(table for table in named if table is not None))


def next_time(settings: Upkeep, *, now: float) -> float:
    """Return when upkeep begins next, in seconds since 1970."""
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
    say: Callable[[str], None] = lambda line: None,
) -> None:
    """Look after tables at once, then on schedule, until stopped; a failure is reported, and retried next time."""
    while True:
        for table in tables():
            if stop.is_set():
                return
            try:
                job = Maintenance(table, spark=spark, connections=connections, settings=settings, stop=stop, say=say)
                report(table, job.run(asked=False))
            except Exception as error:  # A job that runs for weeks outlives what fails today.
                report(table, translate(error))
        if stop.wait(max(0.0, next_time(settings, now=time.time()) - time.time())):
            return


class UpkeepBesideFeed:
    """Looks after a feed's tables while it runs, one after the other. Use it as a context manager around the query.

    A failure here becomes a note of the next batch, and never stops the feed. Without an ``upkeep`` block nothing is
    done. ``tables`` is called at each look, where the number of tables grows.
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

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        if self._thread.is_alive():
            # After the current piece, which is bounded by upkeep.compact.group_mb.
            self._thread.join()

    def add_notes(self, on_batch: Callable[[BatchProgress], None]) -> Callable[[BatchProgress], None]:
        """Return ``on_batch`` with the notes of the upkeep added to the batch's."""

        def report(progress: BatchProgress) -> None:
            notes = tuple(self._notes.pop(0) for _ in range(len(self._notes)))
            on_batch(replace(progress, notes=(*progress.notes, *notes)) if notes else progress)

        return report

    def _run(self) -> None:
        assert self._settings is not None  # Only then the thread is started.
        if not self._stop.wait(max(0.0, self._first_time(self._settings) - time.time())):
            repeat_upkeep(
                self._tables,
                spark=self._spark,
                connections=self._connections,
                settings=self._settings,
                stop=self._stop,
                report=self._note,
            )

    def _first_time(self, settings: Upkeep) -> float:
        """Where a job ends before ``every`` is over, as with ``--once``, the time since the last upkeep counts."""
        now = time.time()
        if settings.at is None:
            try:
                properties = open_table(self._tables()[0], connections=self._connections).properties
                now = LastUpkeep.of(properties).at or now
            except Exception:  # The table does not exist yet, or cannot be read: the first look will report that.
                return next_time(settings, now=now)
        return next_time(settings, now=now)

    def _note(self, table: str, result: Report | LakefeedError) -> None:
        if isinstance(result, ResourceMissing | TableBusy):
            # The table does not exist yet, or another job looks after it.
            return
        if isinstance(result, LakefeedError):
            why = f"{result.what} ({result.where})" if result.where else result.what
            self._notes.append(f"upkeep of {table} failed, the feed continues: {why}")
        elif result.after is not None:
            self._notes.append(f"upkeep of {table} took {result.seconds:.1f} s: {result.sentence}")
