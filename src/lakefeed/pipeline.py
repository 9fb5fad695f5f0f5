"""A pipeline, and the operations on it; docs/architecture.md is the map of the code behind them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from copy import copy
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from lakefeed.clients.environment import default_environment
from lakefeed.clients.kafka.selection import Selection, offset_ranges
from lakefeed.clients.spark.connect import classic
from lakefeed.clients.spark.errors import translating
from lakefeed.clients.spark.jars import cache_directory
from lakefeed.clients.spark.session import pools, session, with_own
from lakefeed.clients.spark.start_checks import StartChecks
from lakefeed.config.addresses import is_local
from lakefeed.config.checks import function_modules
from lakefeed.config.loading.load import load
from lakefeed.config.models import PipelineConfig
from lakefeed.config.places import stored_at
from lakefeed.config.problem import raise_first_error
from lakefeed.config.secrets import keys_of
from lakefeed.errors import ConfigError
from lakefeed.feed.bounded import BatchSummary, run_bounded
from lakefeed.feed.feed import Feed
from lakefeed.feed.multi_table import run_multi_table
from lakefeed.feed.progress import FinishedBatch
from lakefeed.feed.run import RunOptions, RunSummary
from lakefeed.feed.streaming import run_stream
from lakefeed.lazy import DataFrame, SparkSession
from lakefeed.monitor.feed_monitor import FeedMonitor
from lakefeed.offsets.ranges import OffsetRange
from lakefeed.operations.followers import FollowedRun, following, reporting_failed_start
from lakefeed.operations.plan import Plans, plan_run
from lakefeed.operations.preflight.connect import preflight
from lakefeed.operations.status import FeedStatus, feed_status
from lakefeed.operations.verify import Verification, verify_feed
from lakefeed.records.decode.resolve import put_credentials
from lakefeed.records.sources import SourceTopics, newest_per_key, read_batch
from lakefeed.sinks.dead_letters.store import DeadLetterReader, DeadLetterStore

if TYPE_CHECKING:
    from lakefeed.operations.endpoint import Served

__all__ = ["Pipeline", "RunSummary"]


class Pipeline:
    """A declared pipeline.

    Methods that take ``spark`` start a session by default (see ``session``). They refuse a session of Spark Connect.

    Example:
        >>> import lakefeed as lf
        >>> pipeline = lf.Pipeline.from_file("pipeline.yaml", overrides=["trigger=5 seconds"])
        >>> pipeline.run(spark=lf.session("explore"), once=True).rows
        10000
    """

    def __init__(
        self,
        config: PipelineConfig,
        *,
        environment: Mapping[str, str] | None = None,
        folder: Path | None = None,
    ) -> None:
        self.config = config
        self.connections = config.connections(default_environment() if environment is None else environment)
        self.feed = Feed(config=config, connections=self.connections, view=config.name, folder=folder)

    @classmethod
    def from_file(
        cls,
        path: str | Path,
        *,
        overrides: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        to_run: bool = True,
    ) -> Pipeline:
        """Read a pipeline file.

        Args:
            path: the file.
            overrides: settings that replace the file's, such as ``source.kafka.start=latest``.
            environment: the variables for ``${NAME}`` in the file, and for connections that the file omits. Default:
                the variables of this process, with the endpoints of the running local stack for those that are not set.
            to_run: False ignores the blocks that only a run needs, such as ``dashboard``, so that their variables need
                no value.

        Raises:
            ConfigError: the file has mistakes; the error lists all of them with their lines.
        """
        known = default_environment() if environment is None else environment
        config = load(Path(path), overrides=overrides, environment=known, to_run=to_run)
        return cls(config, environment=known, folder=Path(path).absolute().parent)

    def read(self, spark: SparkSession, *, starting: Mapping[str, Mapping[int, int]] | None = None) -> DataFrame:
        """Return a stream of the topics' records, undecoded; for ``starting`` see ``read_stream``."""
        return self.feed.source.read_stream(classic(spark), starting=starting)

    def rows(self, records: DataFrame) -> DataFrame:
        """Decode and transform the records of a stream or batch; an unreadable record fails the query."""
        return self.feed.rows(classic(records))

    def read_batch(
        self,
        spark: SparkSession,
        *,
        ranges: Sequence[OffsetRange] | None = None,
        since: str | datetime | None = None,
        until: str | datetime | None = None,
        latest_per_key: bool = False,
    ) -> DataFrame:
        """Read chosen records of the topics as a batch, decoded and transformed; an unreadable record fails the read.

        Arguments and errors are as in ``lakefeed.read_topic``.
        """
        self.require_one_table()
        source, decode = self.config.kafka, self.config.decode
        put_credentials(classic(spark), decode)
        chosen = offset_ranges(source, Selection.of(ranges, since=since, until=until))
        records = read_batch(classic(spark), source, ranges=chosen, headers=decode.reads_headers)
        return self.rows(newest_per_key(records) if latest_per_key else records)

    def of_topic(self, topic: str) -> Pipeline:
        """Return the pipeline of one topic; raise a ConfigError unless each topic has its own table."""
        part = copy(self)
        part.feed = self.feed.for_topic(topic)
        part.config = part.feed.config
        return part

    def require_one_table(self) -> None:
        """Raise a ConfigError if each topic has its own table."""
        if self.config.has_many_tables:
            raise ConfigError(
                f"pipeline '{self.config.name}' has a table for each topic, and this operation needs one topic",
                hint="name the topic: --topic TOPIC, or from Python pipeline.of_topic(…)",
            )

    def require_one_sink(self) -> None:
        """Raise a ConfigError if the pipeline has further sinks."""
        if self.config.sinks:
            raise ConfigError(
                f"pipeline '{self.config.name}' has several sinks, and this operation changes only one of them",
                where="sinks",
                hint="remove the block 'sinks' from the file, run this operation, and restore the block; then write "
                "the records that those sinks lack with 'lakefeed read'",
            )

    def parts(self) -> list[Pipeline]:
        """Return a pipeline for each existing topic if each topic has its own table; otherwise this pipeline."""
        if not self.config.has_many_tables:
            return [self]
        return [self.of_topic(topic) for topic in SourceTopics(self.config.kafka).names()]

    def session(self, *, master: str | None = None, log_file: str | Path | None = None) -> SparkSession:
        """Start a session with this pipeline's store, catalogs and Spark settings.

        The JVM writes its log to ``log_file``, or to this process's stderr.

        Raises:
            LakefeedError: a broker, topic, registry, bucket or catalog is missing; raised before Spark starts.
        """
        ui = self.config.spark_ui
        with StartChecks(lambda: raise_first_error(preflight(self.config, connections=self.connections))) as checks:
            return session(
                self.config.name,
                connections=self.connections,
                master=master,
                conf=spark_settings(self.config),
                log_file=log_file,
                secret_keys=keys_of(self.config),
                ui_host=ui.host if ui else None,
                folder=self.feed.folder,
                modules=function_modules(self.config),
                checks=checks,
                on_disk={key: at for key, at in stored_at(self.config, self.connections).items() if is_local(at)},
            )

    def run(
        self,
        *,
        spark: SparkSession | None = None,
        once: bool = False,
        stop: threading.Event | None = None,
        on_batch: Callable[[FinishedBatch], None] | None = None,
        on_note: Callable[[str], None] | None = None,
        accept_loss: bool = False,
        monitor: FeedMonitor | None = None,
        resume: bool = False,
    ) -> RunSummary:
        """Run until ``stop`` is set; with ``once``, until all records that the topics have now are committed.

        A restart resumes where the last commit in the table ended; the checkpoint is derived from that commit.

        Args:
            once: use the available-now trigger instead of the file's.
            stop: set it to finish the current batch and return.
            on_note: receives each message for the user, such as a recreated checkpoint.
            accept_loss: resume although unread records are lost or a topic was recreated, and record the gap in the
                table's ledger. By default such a start is refused.
            monitor: stores the run's progress for other threads; ``monitor.control`` takes their requests.
            resume: end a pause that an operator began in an earlier run; by default the run reports it and waits.

        Raises:
            FeedPaused: the feed is paused, and a run with ``once`` does not wait.
        """
        monitor = monitor or FeedMonitor(self.config.name)
        if (spark := classic(spark)) is None:
            with reporting_failed_start(self.config, monitor, self.connections):
                spark = self.session()
        monitor.note_spark_ui(spark.sparkContext.uiWebUrl)

        def note(message: str) -> None:
            monitor.note(message)
            if on_note is not None:
                on_note(message)

        options = RunOptions(
            once=once,
            stop=stop or threading.Event(),
            on_batch=on_batch or (lambda progress: None),
            on_note=note,
            accept_loss=accept_loss,
            monitor=monitor,
            resume=resume,
            say=on_note or (lambda message: None),
        )
        run = FollowedRun(
            config=self.config,
            monitor=monitor,
            connections=self.connections,
            folder=self.feed.folder,
            once=once,
            spark=spark,
            say=note,
        )
        with following(run), monitor.until_end(), translating():
            if self.config.has_many_tables:
                return run_multi_table(self.feed, spark, options)
            if self.config.checkpoint:
                return run_stream(self.feed, spark, options)
            with TemporaryDirectory(prefix="lakefeed-") as folder:
                return run_stream(self.feed.with_scratch(f"file:{folder}/checkpoint"), spark, options)

    def serve(
        self, monitor: FeedMonitor, *, port: int | None = 0, probe_port: int | None = None
    ) -> AbstractContextManager[Served]:
        """Return a context in which ``lakefeed status`` and other programs can read the monitor of a run.

        Args:
            monitor: the run's monitor; pass it to ``run`` within the block.
            port: the port of the driver's endpoint on this machine; 0 for a free port, None for no endpoint.
            probe_port: the port that answers /health/live, /health/ready, /health and /metrics to all machines.

        Raises:
            PortTaken: another process listens on the port.
        """
        from lakefeed.operations.endpoint import reachable

        return reachable(self.config, monitor, port=port, probe_port=probe_port)

    def run_batch(
        self,
        *,
        spark: SparkSession | None = None,
        since: str | datetime | None = None,
        until: str | datetime | None = None,
    ) -> BatchSummary:
        """Write the records that the topics have now in one commit, without a streaming query.

        The default is to write all records from the feed's position to the end of the topics; before the first commit,
        from the topics' beginning.
        """
        self.require_one_table()
        self.require_one_sink()
        spark = classic(spark) or self.session()
        with translating(), TemporaryDirectory(prefix="lakefeed-") as folder:
            feed = self.feed.with_scratch(f"file:{folder}/checkpoint")
            return run_bounded(feed, spark, Selection.of(since=since, until=until))

    def status(self, *, spark: SparkSession | None = None, log_file: str | Path | None = None) -> FeedStatus:
        """Return the feed's position, and what a start would do now: resume, begin or refuse.

        Starts Spark only if the transform has changed since the last start, because only Spark knows whether the
        transform keeps state.
        """
        with translating():
            return feed_status(self.feed, lambda: classic(spark) or self.session(log_file=log_file))

    def plan(
        self,
        *,
        topic: str | None = None,
        spark: SparkSession | None = None,
        master: str | None = None,
        log_file: str | Path | None = None,
    ) -> Plans:
        """Predict the actions and the cost of ``run`` without changing anything; the feed may run meanwhile.

        The plan reports a start that would be refused, instead of raising the error. Spark starts only if at least one
        table would start.
        """
        parts = [self.of_topic(topic)] if topic is not None else self.parts()
        return plan_run(
            self.config.name,
            # New feeds have no cached schemas, so the plan asks the registry for the latest schemas.
            [part.feed.renewed() for part in parts],
            many=self.config.has_many_tables,
            spark=lambda: classic(spark) or self.session(master=master, log_file=log_file),
        )

    def verify(self, *, deep: bool = False) -> Verification:
        """Verify without Spark that each record is in the table once; see ``lakefeed.operations.verify``."""
        return verify_feed(self.config, connections=self.connections, deep=deep)

    def dead_letters(self) -> DeadLetterReader:
        """Open the dead letters for reading, without Spark; raise a ConfigError for a pipeline without dead letters."""
        return self.feed.dead_letters()

    def dead_letter_store(self, spark: SparkSession) -> DeadLetterStore:
        """Open the dead letters for writing, replay and deletion; raise a ConfigError if the pipeline keeps none."""
        return self.feed.dead_letter_store(classic(spark))


WAREHOUSE, CATALOG = "spark.sql.warehouse.dir", "spark.sql.catalogImplementation"


def spark_settings(config: PipelineConfig) -> dict[str, str]:
    """Return the Spark settings of a pipeline; its ``spark`` block overrides all others."""
    own = {key: str(value) for key, value in config.spark.items()}
    settings = pools() if config.shares_its_session else {}
    if config.spark_ui is not None:
        settings |= config.spark_ui.settings()
    if own.get(CATALOG) != "hive":
        # Spark creates this folder, by default spark-warehouse/ in the current directory. Without Hive it stays empty:
        # the session's catalog ends with the session, and tables over files have their own locations.
        settings[WAREHOUSE] = (cache_directory() / "spark-warehouse").as_uri()
    for _, sink in config.sink_blocks:
        settings = with_own(settings, sink.chosen.spark_settings)
    return with_own(settings, own)
