"""Repeats the upkeep of tables: in a thread of a feed's driver, or in a separate job."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta

from lakefeed import open_table
from lakefeed.clients.spark.errors import translate
from lakefeed.config.connections import Connections
from lakefeed.config.topic_tables import config_of
from lakefeed.config.values import seconds_of
from lakefeed.errors import LakefeedError, ResourceMissing, TableBusy
from lakefeed.feed.control import ActionRequest
from lakefeed.lazy import SparkSession
from lakefeed.operations.followers import FollowedRun
from lakefeed_upkeep.actions import LastUpkeep
from lakefeed_upkeep.maintain import Maintenance, Report
from lakefeed_upkeep.settings import Upkeep

DEFAULT_EVERY = "1 hour"
WAIT_SECONDS = 0.25


def next_time(settings: Upkeep, *, now: float) -> float:
    """Return the time of the next upkeep after ``last``, in seconds since 1970."""
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
    """Maintain tables now, and then on schedule until ``stop`` is set; after a failure, report it and continue."""
    while True:
        for table in tables():
            if stop.is_set():
                return
            try:
                job = Maintenance(table, spark=spark, connections=connections, settings=settings, stop=stop, say=say)
                report(table, job.run(asked=False))
            except ignored:
                continue
            except Exception as error:  # The job runs for weeks: a failure must not end it.
                report(table, translate(error))
        if stop.wait(max(0.0, next_time(settings, now=time.time()) - time.time())):
            return


@contextmanager
def follow(run: FollowedRun) -> Iterator[None]:
    """Maintain a feed's tables, one by one, in a thread while the feed runs; events report the results.

    Without an ``upkeep`` block, nothing runs on schedule. An operator's request runs immediately.
    """
    if run.spark is None or not run.config.iceberg_tables():
        yield
        return
    beside = UpkeepBesideFeed(run, run.spark)
    beside.begin()
    yield
    beside.end()


class UpkeepBesideFeed:
    """The upkeep of a running feed. A failure becomes an event of the feed, and never stops it."""

    def __init__(self, run: FollowedRun, spark: SparkSession) -> None:
        self._run, self._spark = run, spark
        self._settings = run.config.block(Upkeep)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, name="lakefeed-upkeep", daemon=True)

    def begin(self) -> None:
        self._run.monitor.control.offer("upkeep", self._maintain_now)
        if self._settings is not None:
            self._thread.start()

    def end(self) -> None:
        """Wait until the upkeep has ended its current rewrite, whose size ``upkeep.compact.group_mb`` limits."""
        self._stop.set()
        while self._thread.is_alive() or self._run.monitor.control.is_at_work("upkeep"):
            time.sleep(WAIT_SECONDS)

    def tables(self) -> Sequence[str]:
        """Return the feed's present tables; a pipeline with a table for each topic may get new ones."""
        config = self._run.config
        if not config.has_many_tables:
            return config.iceberg_tables()
        topics = sorted({partition.topic for partition in self._run.monitor.snapshot().partitions})
        return tuple(dict.fromkeys(table for topic in topics for table in config_of(config, topic).iceberg_tables()))

    def _work(self) -> None:
        assert self._settings is not None
        # A feed that has not begun may wait in a pause, in which an operator repairs the table.
        while self._run.monitor.snapshot().state in ("starting", "paused"):
            if self._stop.wait(WAIT_SECONDS):
                return
        now = time.time()
        if self._settings.at is None:
            # Count from the last upkeep of any run: each of many short runs may end before ``every`` has passed.
            with suppress(Exception):  # If the table is unreadable, the first upkeep reports it.
                first = open_table(self.tables()[0], connections=self._run.connections)
                now = LastUpkeep.of(first.properties).at or now
        if not self._stop.wait(max(0.0, next_time(self._settings, now=now) - time.time())):
            repeat_upkeep(
                self.tables,
                spark=self._spark,
                connections=self._run.connections,
                settings=self._settings,
                stop=self._stop,
                report=self._report,
                ignored=(ResourceMissing, TableBusy),  # The table does not exist yet, or another job maintains it.
            )

    def _report(self, table: str, result: Report | LakefeedError) -> None:
        if isinstance(result, LakefeedError):
            why = f"{result.what} ({result.where})" if result.where else result.what
            self._run.say(f"upkeep of {table} failed, the feed continues: {why}")
        elif result.after is not None:
            self._run.say(f"upkeep of {table} took {result.seconds:.1f} s: {result.sentence}")

    def _maintain_now(self, request: ActionRequest) -> str:
        settings, connections = self._settings or Upkeep(), self._run.connections
        done = [look_after(table, self._spark, connections, settings, self._stop) for table in self.tables()]
        return "; ".join(done) or "there is no table yet"


def look_after(
    table: str, spark: SparkSession, connections: Connections, settings: Upkeep, stop: threading.Event
) -> str:
    """Maintain one table now; return the result as text."""
    if stop.is_set():
        return f"{table}: the run ended before the upkeep of this table"
    try:
        job = Maintenance(table, spark=spark, connections=connections, settings=settings, stop=stop)
        return f"{table}: {job.run().sentence}"
    except Exception as error:
        return f"{table} failed: {translate(error).what}"
