"""A pipeline from end to end, and the map of the code: read → land (decode, judge, transform, write) → observe."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lakefeed.backfill import Backfilled, BackfillJob, Portion
from lakefeed.commit.checkpoint import Claim, Owner
from lakefeed.commit.missing import Wanted
from lakefeed.commit.opening import Opening
from lakefeed.commit.outcomes import ZERO
from lakefeed.commit.ranges import OffsetRange
from lakefeed.commit.rewinding import RewindPlan, carry_out, plan
from lakefeed.commit.survey import Survey, surveyed
from lakefeed.commit.verify import Verification, verified
from lakefeed.config.connect import preflight
from lakefeed.config.failures import DeadLetters
from lakefeed.config.load import load
from lakefeed.config.models import AVAILABLE_NOW, KafkaSource, PipelineConfig
from lakefeed.config.names import catalog_of
from lakefeed.config.problem import raise_first_error
from lakefeed.config.upserts import kept_metadata, tombstones_delete
from lakefeed.dead_letters.letters import Choice, TableReader
from lakefeed.dead_letters.place import DeadLetterPlace, DeadLetterReader
from lakefeed.dead_letters.replay import Replay, Replayed
from lakefeed.dead_letters.table import DeadLetterTable
from lakefeed.dead_letters.topic import DeadLetterTopic
from lakefeed.dead_letters.topic_reader import TopicReader
from lakefeed.decode import Expectation, Policy, decoded, rows
from lakefeed.decode.deletes import delete_rule
from lakefeed.decode.resolve import Decoding, decoding_of, key_spec_of, put_credentials
from lakefeed.errors import ConfigError, LakefeedError
from lakefeed.kafka.monitoring import MonitoringGroup
from lakefeed.kafka.selection import Selection, offset_ranges
from lakefeed.kafka.source import batch_ranges, read_stream
from lakefeed.kafka.topic_ids import SourceTopics
from lakefeed.landing import Landed, Landing, Sink
from lakefeed.many.rounds import Rounds
from lakefeed.many.settings import config_of
from lakefeed.many.table import TableSummary
from lakefeed.observe.progress import BatchProgress
from lakefeed.observe.requests import FeedRequests, S3Requests, s3_requests
from lakefeed.query import MicroBatches, trigger_of, watch
from lakefeed.reading import BatchRead
from lakefeed.schema.reader import ReaderSchema
from lakefeed.session import default_environment, pools, session
from lakefeed.sinks.iceberg import IcebergTable
from lakefeed.sinks.parquet import ParquetFiles
from lakefeed.sinks.upsert import UpsertTable
from lakefeed.spark_errors import translated
from lakefeed.transform import sql
from lakefeed.upkeep.schedule import UpkeepBesideFeed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter


@dataclass(frozen=True)
class RunSummary:
    """What one run of a pipeline did.

    Attributes:
        batches: micro-batches landed, those that only found their rows in the table already not counted.
        records: records read from the topics.
        rows: rows landed; for Parquet those that went into the transform, since Spark's file sink does not say.
        dead_letters: records that became dead letters.
        skipped: records left out because the pipeline says so.
        files: data files written; None where the sink does not say.
        seconds: from the start of the query to its end.
        s3_requests: all requests of driver and executors in that time by S3 operation, other queries' too.
        requests: this feed's own requests to S3, by operation and key class.
        startup_requests: those of them that were made before the first batch.
        batches_over_budget: batches that made more requests than the pipeline's budget.
        tables: by topic, where each topic goes to a table of its own.
    """

    batches: int
    records: int
    rows: int
    dead_letters: int
    skipped: int
    files: int | None
    seconds: float
    s3_requests: Mapping[str, int]
    requests: S3Requests
    startup_requests: S3Requests
    batches_over_budget: int
    tables: tuple[TableSummary, ...] = ()

    @property
    def rows_per_second(self) -> float:
        """Over the whole run, the cold start included."""
        return self.rows / self.seconds if self.seconds > 0 else 0.0

    def as_dict(self) -> dict[str, Any]:
        """For ``--output json``."""
        return {
            **asdict(self),
            "requests": self.requests.as_dict(),
            "startup_requests": self.startup_requests.as_dict(),
            "rows_per_second": round(self.rows_per_second),
        }


class Pipeline:
    """A declared pipeline.

    Example:
        >>> import lakefeed as lf
        >>> pipeline = lf.Pipeline.from_file("pipeline.yaml", overrides=["trigger=5 seconds"])
        >>> pipeline.run(spark=lf.session("explore"), once=True).rows
        10000
    """

    def __init__(
        self, config: PipelineConfig, *, environment: Mapping[str, str] | None = None, view: str | None = None
    ) -> None:
        self.config = config
        self._environment = default_environment() if environment is None else environment
        self.connections = config.connections(self._environment)
        self._view = view or config.name
        self._resolved: Decoding | None = None

    @classmethod
    def from_file(
        cls,
        path: str | Path,
        *,
        overrides: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> Pipeline:
        """Reads a pipeline file.

        Args:
            path: the YAML file.
            overrides: settings that win over the file's, as ``source.kafka.start=latest``.
            environment: where ``${NAME}`` in the file and connections that it leaves out come from. Default:
                this process's, with the endpoints of the local stack that is running where it names none.

        Raises:
            ConfigError: naming every mistake in the file with its line.
        """
        known = default_environment() if environment is None else environment
        return cls(load(Path(path), overrides=overrides, environment=known), environment=known)

    def read(self, spark: SparkSession, *, starting: Mapping[str, Mapping[int, int]] | None = None) -> DataFrame:
        """The topics' records as a stream, undecoded.

        Args:
            spark: the session.
            starting: where a query without a checkpoint begins: see ``read_stream``.
        """
        return read_stream(spark, self._kafka, headers="headers" in self.config.decode.metadata, starting=starting)

    def read_batch(
        self,
        spark: SparkSession,
        *,
        ranges: Sequence[OffsetRange] | None = None,
        since: str | datetime | None = None,
        until: str | datetime | None = None,
        latest_per_key: bool = False,
    ) -> DataFrame:
        """Chosen records of the topics, decoded and transformed, as a batch; one that cannot be read stops it.

        Args:
            spark: a session from ``session``.
            ranges: the offset ranges. Default: all that the topics hold now.
            since: or from this time on, in ISO 8601; UTC if it does not say otherwise.
            until: up to this time.
            latest_per_key: only the newest record of each key in each partition, and none of those whose value is null.

        Raises:
            ConfigError: ranges and times together, ranges that overlap, or no point in time.
            ResourceMissing: the topics do not hold all of these offsets.
        """
        selection = Selection.of(ranges, since=since, until=until)
        read = self.batch_read()
        put_credentials(spark, read.decode)
        return self.rows(read.records(spark, offset_ranges(read.source, selection), latest=latest_per_key))

    def batch_read(self) -> BatchRead:
        """How this pipeline reads records, to read some of them into something else than its sink.

        Raises:
            ConfigError: each topic has a table of its own, and this is not the pipeline of one of them.
        """
        self._require_one_table()
        return BatchRead(
            name=self.config.name,
            source=self._kafka,
            decode=self.config.decode,
            policy=self._policy(),
            on_change=self.config.schema_.on_change,
            transform=self._transformed,
        )

    def rows(self, records: DataFrame) -> DataFrame:
        """Records decoded and transformed, to look at: one that cannot be read stops it. Stream and batch alike."""
        policy = self._policy()
        return self._transformed(
            rows(
                decoded(records, self._decoding().spec, key=key_spec_of(self.config.decode, self._kafka)),
                keep=kept_metadata(self.config),
                on_null="fail" if policy.on_null == "dead_letter" else policy.on_null,
                envelope=policy.envelope,
                deletes=policy.deletes,
            )
        )

    def of_topic(self, topic: str) -> Pipeline:
        """Where each topic goes to a table of its own, the pipeline of one of them.

        Raises:
            ConfigError: all topics go to one table, or this one is not among them.
        """
        if not self.config.has_many_tables:
            raise ConfigError(f"pipeline '{self.config.name}' has one table for all its topics")
        if not self.config.kafka.reads(topic):
            raise ConfigError(f"pipeline '{self.config.name}' does not read the topic {topic}")
        return Pipeline(config_of(self.config, topic), environment=self._environment, view=self.config.name)

    def _require_one_table(self) -> None:
        if self.config.has_many_tables:
            raise ConfigError(
                f"in pipeline '{self.config.name}' each topic has a table of its own",
                hint="say which topic: --topic, or from Python of_topic",
            )

    def parts(self) -> list[Pipeline]:
        """The pipelines of all topics that there are now, where each goes to a table of its own; else itself alone.

        Raises:
            Unreachable: no broker answers.
        """
        if not self.config.has_many_tables:
            return [self]
        return [self.of_topic(topic) for topic in sorted(SourceTopics(self._kafka).described())]

    def session(self, *, master: str | None = None, log_file: Path | None = None) -> SparkSession:
        """A session with this pipeline's store, catalogs and Spark settings.

        Args:
            master: Spark master. Default: ``local[*]``.
            log_file: where the JVM writes its log, instead of this process's stderr.

        Raises:
            LakefeedError: broker, topics, registry, buckets or catalog are not there; found before a JVM starts.
        """
        raise_first_error(preflight(self.config, connections=self.connections))
        return session(
            self.config.name,
            connections=self.connections,
            master=master,
            conf={
                **(pools() if self.config.upkeep else {}),
                **{key: str(value) for key, value in self.config.spark.items()},
            },
            log_file=log_file,
        )

    def run(
        self,
        *,
        spark: SparkSession | None = None,
        once: bool = False,
        stop: threading.Event | None = None,
        on_batch: Callable[[BatchProgress], None] | None = None,
        on_note: Callable[[str], None] | None = None,
        accept_loss: bool = False,
    ) -> RunSummary:
        """Runs until stopped, or with ``once`` until all records that are there now have landed.

        A restart goes on where the last commit ended, as the table tells it; the checkpoint is derived from that.

        Args:
            spark: the session to run in. Default: a new one.
            once: use the available-now trigger, whatever the file says.
            stop: set it to finish the batch at hand and return.
            on_batch: called after each batch.
            on_note: told what the user should hear of the start, such as a checkpoint that was made anew.
            accept_loss: go on although records are lost that were not read yet, or a topic was made again; the gap is
                recorded in the table's ledger. Without it such a start is refused.

        Raises:
            LakefeedError: see ``lakefeed.errors``.
        """
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        spark = spark or self.session()
        run = self._run_many if self.config.has_many_tables else self._run
        try:
            return run(
                spark,
                once=once,
                stop=stop or threading.Event(),
                on_batch=on_batch or (lambda progress: None),
                on_note=on_note or (lambda note: None),
                accept_loss=accept_loss,
            )
        except LakefeedError:
            raise
        except (Py4JError, PySparkException) as error:
            raise translated(error) from error

    def replay(
        self,
        choice: Choice,
        *,
        spark: SparkSession | None = None,
        step: Callable[[str], None] = lambda done: None,
    ) -> Replayed:
        """Decodes dead letters with today's schema and policy, and lands those that can be rows now; each once.

        Args:
            choice: which letters.
            spark: the session to run in. Default: a new one.
            step: told when the letters are ``marked`` and when their rows are ``landed``.

        Raises:
            ConfigError: the pipeline keeps no dead letters, or its sink takes batches only.
        """
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        self.dead_letters()
        spark = spark or self.session()
        try:
            sink = self._sink(spark, self._claim(spark))
            if not isinstance(sink, IcebergTable):
                raise ConfigError("dead letters can be replayed into an Iceberg table only", where=sink.location())
            letters = self.dead_letter_place(spark)
            landing = self.landing(spark, sink, letters.records(choice), fenced=False)
            return Replay(letters, feed=self.config.name).run(landing, sink, choice, step=step)
        except (Py4JError, PySparkException) as error:
            raise translated(error) from error

    def backfill(
        self,
        wanted: Wanted | None = None,
        *,
        spark: SparkSession | None = None,
        dry_run: bool = False,
        stop: threading.Event | None = None,
        on_commit: Callable[[Portion], None] = lambda portion: None,
        step: Callable[[str], None] = lambda done: None,
    ) -> Backfilled:
        """Lands old records that the table has not and the feed will never read; may run beside the feed.

        Args:
            wanted: which of them. Default: all that the topics still have.
            spark: the session to run in. Default: a new one.
            dry_run: only say what there is to do.
            stop: set it to end after the commit at hand.
            on_commit: called after each commit.
            step: told when a commit's rows are ``landed``; for tests that cut a backfill off.

        Raises:
            ConfigError: the sink keeps no offsets, or a range is the feed's own to read.
            CheckpointMismatch: another backfill has begun, or it is not known what the table has.
            ResourceMissing: neither the table nor the topic has all of a range.
        """
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        self._require_one_table()
        if self.config.sink.iceberg is None:
            raise ConfigError(
                "a Parquet feed cannot be backfilled: its log knows batch ids, not offsets, and nothing would keep "
                "records from landing twice",
                where=self.config.name,
                hint="lakefeed read writes old records to a path of their own; or land the feed in an Iceberg table",
            )
        spark = spark or self.session()
        try:
            sink = self.iceberg_table(spark)
            job = BackfillJob(
                spark=spark,
                feed=self.config.name,
                source=self._kafka,
                table=sink,
                headers="headers" in self.config.decode.metadata,
                dead_letters=self.dead_letter_place(spark) if self.config.dead_letters else None,
            )
            if dry_run:
                return job.tell(wanted or Wanted())
            job.plan(wanted or Wanted())  # Before anything is made or changed.
            landing = self.landing(spark, sink, job.records(), fenced=False)
            return job.run(landing, wanted or Wanted(), stop=stop or threading.Event(), on_commit=on_commit, step=step)
        except (Py4JError, PySparkException) as error:
            raise translated(error) from error

    def survey(self) -> Survey:
        """Where the feed stands, and what a start would do now, without Spark; see ``lakefeed.commit.survey``."""
        return surveyed(self.config, connections=self.connections)

    def plan_rewind(
        self,
        to: str,
        *,
        topic: str | None = None,
        partition: int | None = None,
        delete_rows: bool | None = None,
        accept_loss: bool = False,
    ) -> RewindPlan:
        """What moving the feed would do, without Spark; changes nothing. See ``lakefeed.commit.rewinding.plan``."""
        return plan(
            self.config,
            connections=self.connections,
            to=to,
            topic=topic,
            partition=partition,
            delete_rows=delete_rows,
            accept_loss=accept_loss,
        )

    def rewind(self, agreed: RewindPlan, *, spark: SparkSession | None = None) -> str | None:
        """Moves the feed: ledger, rows, dead letters, checkpoint and monitoring group. A driver that runs is stopped.

        Args:
            agreed: what to do.
            spark: the session to run in. Default: a new one.

        Returns:
            What the user should hear, if anything.

        Raises:
            CheckpointMismatch: the feed has gone on since this was planned.
        """
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        spark = spark or self.session()
        try:
            sink = self.iceberg_table(spark)
            return carry_out(
                self.config,
                agreed,
                sink=sink,
                claim=self._claim(spark) if self.config.checkpoint else None,
                fence=sink.take_fence() if spark.catalog.tableExists(agreed.table) else None,
                letters=self.dead_letter_place(spark) if self.config.dead_letters else None,
            )
        except (Py4JError, PySparkException) as error:
            raise translated(error) from error

    def verify(self, *, deep: bool = False) -> Verification:
        """Proves, without Spark, that each record has landed once; see ``lakefeed.commit.verify``."""
        return verified(self.config, connections=self.connections, deep=deep)

    def dead_letters(self) -> DeadLetterReader:
        """The dead letters, to look at without Spark.

        Raises:
            ConfigError: the pipeline keeps none.
        """
        kept = self._kept
        if kept.table is not None:
            return TableReader(kept.table, connections=self.connections)
        return TopicReader(kept.topic or "", cluster=self._kafka)

    def dead_letter_place(self, spark: SparkSession) -> DeadLetterPlace:
        """Where the dead letters are kept: to write them, replay them or drop them.

        Raises:
            ConfigError: the pipeline keeps none, or the table's catalog is not declared.
        """
        kept = self._kept
        if kept.table is not None:
            self.connections.catalog(catalog_of(kept.table))
            return DeadLetterTable(spark, kept.table, feed=self.config.name, source=self._kafka)
        return DeadLetterTopic(spark, kept.topic or "", feed=self.config.name, source=self._kafka)

    @property
    def _kept(self) -> DeadLetters:
        if self.config.dead_letters is None:
            raise ConfigError(
                f"pipeline '{self.config.name}' keeps no dead letters",
                hint="dead_letters: {table: catalog.namespace.table}, or {topic: name}",
            )
        return self.config.dead_letters

    def _run(
        self,
        spark: SparkSession,
        *,
        once: bool,
        stop: threading.Event,
        on_batch: Callable[[BatchProgress], None],
        on_note: Callable[[str], None],
        accept_loss: bool,
    ) -> RunSummary:
        before = s3_requests(spark)
        batches = MicroBatches(stop)
        topics = SourceTopics(self._kafka)
        claim = self._claim(spark)
        sink = self._sink(spark, claim)
        opening = Opening(
            self.config.name, claim, sink, Owner.of(self.config).sink, topics.described(), accept_loss=accept_loss
        )
        opening.look()
        lost = {(each.topic, each.partition) for each in opening.start.lost}
        landing = self.landing(spark, sink, self.read(spark), lost=lost)
        # Again: now no other driver can move the table.
        if told := opening.look().told:
            on_note(told)
        opening.prepare(fence=landing.fence)
        landing.follow()

        named = self.config.kafka.monitoring_group
        group = MonitoringGroup(self.config.kafka, named) if named is not None else None

        def land(batch: DataFrame, batch_id: int) -> Landed:
            ranges = topics.identify(batch_ranges(spark, self.config.name))
            landed = landing.land(batch, ranges, batch_id)
            told = group.publish(ranges.ranges) if group is not None else None
            return landed if told is None else replace(landed, notes=(*landed.notes, told))

        writer = self.read(spark, starting=opening.starting).writeStream.foreachBatch(batches.guarded(land))
        budget = self.config.budget.s3_requests_per_batch if self.config.budget else None
        with (
            FeedRequests(spark, checkpoint=self.config.checkpoint, sink=sink.location(), since=before) as requests,
            UpkeepBesideFeed(self.config, spark=spark, connections=self.connections) as upkeep,
        ):
            seconds = watch(
                self._started(writer, once=once),
                batches,
                on_batch=upkeep.telling(on_batch),
                requests=requests,
                request_budget=budget,
            )
            startup, total = requests.of_startup(), requests.total()
        landed = [each for each in batches.landed if not each.replayed]
        counts = sum((each.counts for each in landed), ZERO)
        return RunSummary(
            batches=len(landed),
            records=batches.records,
            rows=sum(each.counts.rows if each.rows is None else each.rows for each in landed),
            dead_letters=counts.dead_letters,
            skipped=counts.skipped,
            files=sink.files_of(each.batch_id for each in landed) if isinstance(sink, IcebergTable) else None,
            seconds=round(seconds, 3),
            s3_requests=(s3_requests(spark) - before).by_operation,
            requests=total,
            startup_requests=startup,
            batches_over_budget=batches.over_budget,
        )

    def _run_many(
        self,
        spark: SparkSession,
        *,
        once: bool,
        stop: threading.Event,
        on_batch: Callable[[BatchProgress], None],
        on_note: Callable[[str], None],
        accept_loss: bool,
    ) -> RunSummary:
        before, began = s3_requests(spark), time.monotonic()
        rounds = Rounds(self, spark, once=once, stop=stop, on_batch=on_batch, accept_loss=accept_loss)
        rounds.run()
        tables = tuple(each.summary() for each in rounds.tables.values())
        requests = s3_requests(spark) - before
        counts = sum((each.counts for each in tables), ZERO)
        return RunSummary(
            batches=sum(each.batches for each in tables),
            records=counts.records,
            rows=sum(each.rows for each in tables),
            dead_letters=counts.dead_letters,
            skipped=counts.skipped,
            files=None,
            seconds=round(time.monotonic() - began, 3),
            s3_requests=requests.by_operation,
            requests=requests,
            startup_requests=S3Requests(),
            batches_over_budget=rounds.over_budget,
            tables=tables,
        )

    def landing(
        self,
        spark: SparkSession,
        sink: Sink,
        records: DataFrame,
        *,
        fenced: bool = True,
        lost: Collection[tuple[str, int]] = (),
    ) -> Landing:
        """What lands the feed's batches, begun.

        Args:
            spark: the session.
            sink: where rows go.
            records: as they come from the source; only their columns count here.
            fenced: take the feed's fence. Not for work beside a driver that runs.
            lost: partitions whose records cannot be read again.
        """
        config = self.config
        dead_letters = None
        if config.dead_letters is not None:
            dead_letters = self.dead_letter_place(spark)
            dead_letters.ensure()
        decoding = self._decoding(sink)
        schema = ReaderSchema(
            decoding.spec,
            policy=config.schema_.on_change,
            latest_id=decoding.latest_id,
            writer_schema=decoding.writer_schema,
            keeper=sink,
        )
        landing = Landing(
            spark,
            feed=config.name,
            sink=sink,
            schema=schema,
            policy=self._policy(),
            keep=kept_metadata(config),
            transform=self._transformed,
            key=key_spec_of(config.decode, self._kafka),
            dead_letters=dead_letters,
            budget=config.dead_letters.budget if config.dead_letters else None,
        )
        landing.begin(records, fenced=fenced, lost=lost)
        return landing

    def _policy(self) -> Policy:
        return Policy(
            on_error="fail" if self.config.dead_letters is None else "dead_letter",
            on_null="keep" if tombstones_delete(self.config) else self.config.decode.on_null,
            envelope=self.config.decode.envelope,
            deletes=delete_rule(self.config),
            expect=tuple(Expectation(name, each.rule, each.on_violation) for name, each in self.config.expect.items()),
        )

    def _transformed(self, decoded_rows: DataFrame) -> DataFrame:
        if self.config.transform is None:
            return decoded_rows
        return sql.select(decoded_rows, self.config.transform.sql, view=self._view)

    def _started(self, writer: DataStreamWriter, *, once: bool) -> Any:
        return (
            writer.queryName(self.config.name)
            .option("checkpointLocation", self.config.checkpoint)
            .trigger(**trigger_of(AVAILABLE_NOW if once else self.config.trigger))
            .start()
        )

    def _claim(self, spark: SparkSession) -> Claim:
        return Claim(spark, self.config.checkpoint, Owner.of(self.config))

    def _sink(self, spark: SparkSession, claim: Claim) -> IcebergTable | ParquetFiles:
        sink = self.config.sink
        if sink.iceberg is not None:
            return self.iceberg_table(spark)
        assert sink.parquet is not None  # The model holds exactly one kind.
        put_credentials(spark, self.config.decode)
        return ParquetFiles(spark, sink.parquet, claim)

    def iceberg_table(self, spark: SparkSession) -> IcebergTable:
        """The sink, where it is an Iceberg table.

        Raises:
            ConfigError: its catalog is not declared.
        """
        sink = self.config.sink.iceberg
        assert sink is not None
        put_credentials(spark, self.config.decode)
        self.connections.catalog(sink.catalog)
        if sink.history is not None:
            self.connections.catalog(catalog_of(sink.history))
        table = UpsertTable if sink.mode == "upsert" else IcebergTable
        return table(spark, sink, feed=self.config.name, evolves=self.config.schema_.on_change == "evolve")

    def _decoding(self, sink: Sink | None = None) -> Decoding:
        if self._resolved is None:
            recorded = sink.recorded_schema() if sink is not None and self.config.decode.is_sampled else None
            sampled = recorded.schema if recorded else None
            self._resolved = decoding_of(self.config.decode, self._kafka, sampled=sampled)
        return self._resolved

    @property
    def _kafka(self) -> KafkaSource:
        return self.config.kafka
