"""Reads a batch's rows, and counts what becomes of its records; ``Feed.batch_writer`` chooses one of three ways.

``BatchReader`` builds the rows from the records that Spark's source has handed over, and counts each attempt by itself.
``DirectReader`` leaves Spark's frame of the batch unread: a second source, ``io.lakefeed.kafka.DecodedRecords``, reads
the batch's offset ranges, and decodes and counts each record in one step. Otherwise Spark's source hands every record
to the decoder, and that to the counter, as a row of Spark's. Rows, verdicts and counts are the same.

``QueryReader`` takes rows: a query with state builds them itself, and its batches are windows that have closed or
groups that have changed. So one counter is part of its plan, and is reset for each batch. Its schema is fixed while it
runs: another one ends the query before anything is written (``PlannedRestart``). A source without offsets runs like a
query with state: only the checkpoint knows its position.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import KW_ONLY, dataclass, field
from heapq import heapreplace
from typing import TYPE_CHECKING, Any

from lakefeed.clients.spark.errors import BAD_TIMESTAMP_REASON, UNKNOWN_SCHEMA
from lakefeed.clients.spark.jvm import java
from lakefeed.config.decoding import ExpressionFormat
from lakefeed.config.sources import KafkaSource
from lakefeed.errors import SchemaChanged
from lakefeed.feed.row_builder import RowBuilder
from lakefeed.ledger.outcomes import BatchOutcomes
from lakefeed.ledger.snapshot_summary import Commit, SnapshotProperties
from lakefeed.offsets.ranges import OffsetRange, OffsetRanges
from lakefeed.records.decode.formats import decoder_options
from lakefeed.records.decode.verdict import METADATA_PREFIX, TOMBSTONE, VERDICTS
from lakefeed.records.sources.kafka import RECORDS_PER_TASK, client_options, coalesce_small, task_count
from lakefeed.records.spec import ID_HEADERS, ID_IN_HEADER, Raw, RegisteredFormat
from lakefeed.sinks.definition import RowSink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession

FORMAT = "io.lakefeed.kafka.DecodedRecords"
TOKENS = "spark.kafka.clusters"
"""Spark's settings of delegation tokens, which only Spark's own consumers use."""


class PlannedRestart(SchemaChanged):
    """The query has to restart, as for another schema or new leaders; nothing of the batch is written."""


@dataclass
class BatchReader:
    """Builds the rows of a plain query's batch from its records, once for each attempt to write it.

    Attributes:
        most_records: of a batch; a smaller one is read and written in fewer tasks.
    """

    spark: SparkSession
    rows: RowBuilder
    sink: RowSink
    _: KW_ONLY
    most_records: int | None = None
    is_part_of_query = False
    """Whether the query's plan has the counter, so that another schema needs another query."""

    def begin(self, records: DataFrame) -> None:
        """Take the source's records, before the first batch."""

    def bound_batches(self, most: int) -> None:
        """Let later batches have at most so many records."""
        self.most_records = most

    def query_frame(self, records: DataFrame) -> DataFrame:
        """Return what the streaming query hands to the writer, batch by batch: its records."""
        return records

    def is_committed(self, batch: DataFrame, commit: Commit) -> bool:
        """Ask the sink whether it has the batch."""
        return self.sink.has(commit)

    @contextmanager
    def attempt(self, batch: DataFrame, commit: SnapshotProperties) -> Iterator[tuple[DataFrame, BatchOutcomes]]:
        """Give the rows of one attempt to write the batch, and their counter."""
        if self.most_records is not None and isinstance(commit, Commit):
            batch = coalesce_small(batch, commit.ranges, most=self.most_records)
        with self.rows.counted(batch, self.spark) as counted:
            yield counted

    def template(self, batch: DataFrame) -> DataFrame:
        """Return records that the rows' columns can be derived from."""
        return batch

    def end_batch(self) -> None:
        """Reset the counter: the next record belongs to the next batch. Here each attempt has ended its own."""

    def discard_fetched(self) -> None:
        """Let no record be used that was fetched ahead: its partition has another leader, with others perhaps."""
        raise PlannedRestart("partitions have new leaders; resumes with new consumers")

    def close(self) -> None:
        """End the reading of the query or run that has stopped. Here nothing outlives an attempt."""


@dataclass
class DirectReader(BatchReader):
    """Reads the records of a batch's offset ranges itself, and decodes and counts each as it reads it."""

    _: KW_ONLY
    source: KafkaSource
    most_records: int
    _run: str = field(default_factory=lambda: uuid.uuid4().hex, init=False)
    _kept: tuple[Any, DataFrameReader] | None = field(default=None, init=False)

    @staticmethod
    def refusal(spark: SparkSession, source: KafkaSource | None, rows: RowBuilder) -> str | None:
        """Return why the rows of this feed cannot be read so; None if they can."""
        policy = rows.policy
        reasons = {
            "the source is not Kafka": source is None,
            f"{TOKENS}: delegation tokens": uses_tokens(spark),
            "source.kafka.deduplicate": source is not None and source.deduplicate,
            "transform.streams": bool(rows.streams),
            "decode.key": rows.key is not None,
            "decode.envelope": policy.envelope is not None,
            "decode.unavailable_value": policy.unavailable is not None,
            "expect": bool(policy.expect),
            "rows that delete": policy.deletes is not None,
            "decode.on_bad_timestamp": policy.on_bad_timestamp is not None,
            "decode.raw": isinstance(rows.schema.spec, Raw),
            "a format that is an expression": isinstance(rows.schema.spec, ExpressionFormat),
        }
        return next((reason for reason, applies in reasons.items() if applies), None)

    @contextmanager
    def attempt(self, batch: DataFrame, commit: SnapshotProperties) -> Iterator[tuple[DataFrame, BatchOutcomes]]:
        # Other commits have some records of their ranges only, and isolated records are left out of the general way.
        if not isinstance(commit, Commit) or self.rows.isolated or self.rows.takes:
            with super().attempt(batch, commit) as counted:
                yield counted
        else:
            with BatchOutcomes(self.spark) as outcomes:
                yield self.read(batch.sparkSession, commit.ranges, outcomes), outcomes

    def read(self, spark: SparkSession, ranges: OffsetRanges, outcomes: BatchOutcomes) -> DataFrame:
        """Return the rows of these records; each record is counted while it is read."""
        tasks = [
            [(each.topic, each.partition, each.start, each.end) for each in task] for task in self._tasks(spark, ranges)
        ]
        reader = self._reader(spark).option("tasks", json.dumps(tasks)).option("commit-id", outcomes.commit_id)
        return self.rows.from_decoded(reader.load())

    def discard_fetched(self) -> None:
        """Read the next batch with new consumers, on each executor: the kept ones have records of another leader."""
        self.close()
        self._run, self._kept = uuid.uuid4().hex, None

    def close(self) -> None:
        """End the run: the consumers that this JVM has kept for its next batch, with all that they have fetched."""
        with suppress(Exception):  # A JVM that has ended keeps none.
            java(self.spark).kafka.DecodedRecords.endRun(self._run)

    def _reader(self, spark: SparkSession) -> DataFrameReader:
        """Return a reader that lacks only the options of one batch; kept while the others stay as they are."""
        schema, policy = self.rows.schema, self.rows.policy
        session: Any = spark
        # Each batch has a Python object of its own for the query's session.
        key = session._jsparkSession, schema.spec, dict(schema.refused_ids)
        if self._kept is not None and self._kept[0] == key:
            return self._kept[1]
        options: dict[str, Any] = {
            "decoder": decoder_options(spark, schema.spec),
            "policy": {
                "onError": VERDICTS[policy.on_error],
                "onNull": VERDICTS[policy.on_null],
                "nullReason": TOMBSTONE if policy.on_null in ("fail", "dead_letter") else None,
                "refused": schema.refused_ids,
                "unknownSchema": UNKNOWN_SCHEMA,
                "badTimestamp": BAD_TIMESTAMP_REASON if "timestamp" in self.rows.keep else None,
                "keep": self.rows.keep,
                "prefix": METADATA_PREFIX,
                "idHeaders": ID_HEADERS["value"] if isinstance(schema.spec, RegisteredFormat) else (),
                "idInHeader": ID_IN_HEADER,
            },
        }
        reader = spark.read.format(FORMAT).options(**client_options(self.source), consumers=self._run)
        reader = reader.options(**{name: json.dumps(value) for name, value in options.items()})
        self._kept = key, reader
        return reader

    def _tasks(self, spark: SparkSession, ranges: OffsetRanges) -> list[list[OffsetRange]]:
        """Share the ranges out to as few tasks as the general way, or to one for each core if there are fewer."""
        filled = [span for span in ranges.ranges if span.records > 0]
        count = task_count(ranges, most=self.most_records)
        cores = spark.sparkContext.defaultParallelism
        while filled and count < cores and (largest := max(filled, key=_records)).records >= 2 * RECORDS_PER_TASK:
            filled.remove(largest)
            filled += halves(largest)
            count += 1
        return share_out(filled, count)


@dataclass
class QueryReader(BatchReader):
    """Takes the rows of one streaming query with state, whose plan has the counter of their records."""

    is_part_of_query = True

    def __post_init__(self) -> None:
        self._records: DataFrame | None = None
        self._outcomes: BatchOutcomes | None = None
        self._logged: int | None = None

    def begin(self, records: DataFrame) -> None:
        """Keep the records for their columns, and read which batches the sink's log has."""
        self._records, self._logged = records, self.sink.logged()

    def bound_batches(self, most: int) -> None:
        """Leave the batch as it is: the rows of a query with state cannot be built from a part of its records."""

    def query_frame(self, records: DataFrame) -> DataFrame:
        """Return the rows of the stream, with a new counter in their plan."""
        self.close()
        self._outcomes = BatchOutcomes(self.spark)
        return self.rows.accepted_rows(records, self._outcomes.__enter__())

    def is_committed(self, batch: DataFrame, commit: Commit) -> bool:
        """Ask the sink whether it has the batch; if so, compute the batch, because its state has to advance."""
        is_logged = self._logged is not None and commit.batch_id <= self._logged
        if not (is_logged or self.sink.has(commit)):
            return False
        batch.write.format("noop").mode("overwrite").save()
        return True

    @contextmanager
    def attempt(self, batch: DataFrame, commit: SnapshotProperties) -> Iterator[tuple[DataFrame, BatchOutcomes]]:
        """Give the batch, which has rows already, and the query's counter."""
        # Not reset for another attempt: Spark keeps the shuffles of this one, and reads no record again.
        assert self._outcomes is not None  # query_frame() has made the query that hands over this batch.
        yield batch, self._outcomes

    def template(self, batch: DataFrame) -> DataFrame:
        """Return the source's records: the batch has rows."""
        assert self._records is not None  # begin() comes before the first batch.
        return self._records

    def end_batch(self) -> None:
        if self._outcomes is not None:
            # At the end of a batch: where a plan sorts, Spark reads the next records before it calls the writer.
            self._outcomes.next()

    def close(self) -> None:
        if self._outcomes is not None:
            self._outcomes.__exit__(None, None, None)
            self._outcomes = None


def uses_tokens(spark: SparkSession) -> bool:
    """Check that Spark's Kafka consumers log in with delegation tokens."""
    return any(name.startswith(f"{TOKENS}.") for name, _ in spark.sparkContext.getConf().getAll())


def halves(span: OffsetRange) -> list[OffsetRange]:
    """Split a range into two of about the same size."""
    middle = span.start + span.records // 2
    topic, partition = span.key
    return [OffsetRange(topic, partition, span.start, middle), OffsetRange(topic, partition, middle, span.end)]


def share_out(spans: Sequence[OffsetRange], tasks: int) -> list[list[OffsetRange]]:
    """Give each task ranges of about as many records in all; the largest range first, to the task with the fewest."""
    shares: list[list[OffsetRange]] = [[] for _ in range(max(1, tasks))]
    fewest = [(0, task) for task in range(len(shares))]
    for span in sorted(spans, key=lambda span: (-span.records, span.key, span.start)):
        records, task = fewest[0]
        shares[task].append(span)
        heapreplace(fewest, (records + span.records, task))
    return [share for share in shares if share] or [[]]


def _records(span: OffsetRange) -> int:
    return span.records
