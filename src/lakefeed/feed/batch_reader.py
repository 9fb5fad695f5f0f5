"""Reads a batch's rows and counts the outcomes of its records; ``Feed.batch_writer`` chooses one of three readers.

``BatchReader`` builds the rows from the records of Spark's source, with a separate counter for every attempt. Records
pass from the source to the decoder and to the counter as Spark rows. ``DirectReader`` ignores the DataFrame that Spark
passes for the batch: lakefeed's source ``io.lakefeed.kafka.DecodedRecords`` reads the batch's offset ranges, and
decodes and counts the records in one step. Rows, verdicts and counts of both readers are the same.

``QueryReader`` gets rows instead of records: a query with state builds them itself, from closed windows or changed
groups. So the counter is part of the query's plan, and is reset for every batch. The schema is fixed while the query
runs: a new schema ends the query before anything is written (``PlannedRestart``). A source without offsets runs like a
query with state, because only the checkpoint has the position in the source.
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
from lakefeed.config.keyed import DELETED
from lakefeed.config.sources import KafkaSource
from lakefeed.errors import SchemaChanged
from lakefeed.feed.row_builder import RowBuilder
from lakefeed.ledger.outcomes import BatchOutcomes
from lakefeed.ledger.snapshot_summary import Commit, SnapshotProperties
from lakefeed.offsets.ranges import OffsetRange, OffsetRanges
from lakefeed.records.decode.changes import DeleteRule
from lakefeed.records.decode.formats import decoder_options
from lakefeed.records.decode.verdict import METADATA_PREFIX, TOMBSTONE, VERDICTS, key_is_null
from lakefeed.records.sources import RECORDS_PER_TASK, client_options, coalesce_small, task_count
from lakefeed.records.spec import Raw
from lakefeed.sinks.definition import RowSink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession

FORMAT = "io.lakefeed.kafka.DecodedRecords"
TOKENS = "spark.kafka.clusters"
"""The prefix of Spark's settings for delegation tokens, which only Spark's own Kafka consumers use."""


class PlannedRestart(SchemaChanged):
    """Makes the query restart, for example for a new schema or new leaders; no row of the batch is written."""


@dataclass
class BatchReader:
    """Builds a batch's rows from its records, for a query without state; builds them again for every attempt to write.

    Attributes:
        most_records: the maximum number of records of a batch; smaller batches are read and written in fewer tasks.
    """

    spark: SparkSession
    rows: RowBuilder
    sink: RowSink
    _: KW_ONLY
    most_records: int | None = None
    is_part_of_query = False
    """Whether the counter of outcomes is part of the streaming query's plan; if so, a new schema needs a new query."""

    def begin(self, records: DataFrame) -> None:
        """Prepare to read batches of the stream ``records``."""

    def bound_batches(self, most: int) -> None:
        """Set the maximum number of records of later batches."""
        self.most_records = most

    def query_frame(self, records: DataFrame) -> DataFrame:
        """Return the streaming DataFrame whose batches the query passes to the writer."""
        return records

    def is_committed(self, batch: DataFrame, commit: Commit) -> bool:
        return self.sink.has(commit)

    @contextmanager
    def attempt(self, batch: DataFrame, commit: SnapshotProperties) -> Iterator[tuple[DataFrame, BatchOutcomes]]:
        """Yield the rows and their counter for one attempt to write the batch."""
        if self.most_records is not None and isinstance(commit, Commit):
            batch = coalesce_small(batch, commit.ranges, most=self.most_records)
        with self.rows.counted(batch, self.spark) as counted:
            yield counted

    def template(self, batch: DataFrame) -> DataFrame:
        """Return a DataFrame of records, from whose columns those of the rows can be derived."""
        return batch

    def end_batch(self) -> None:
        """Reset the counter after a batch; ``BatchReader`` does nothing, because every attempt has a new counter."""

    def discard_fetched(self) -> None:
        """Discard records that were fetched ahead: a new leader may have different records at their offsets."""
        raise PlannedRestart("partitions have new leaders; resumes with new consumers")

    def close(self) -> None:
        """Release the resources of a stopped query or run; ``BatchReader`` has none to release."""


@dataclass
class DirectReader(BatchReader):
    """Reads a batch's offset ranges with lakefeed's own source, which also decodes and counts the records."""

    _: KW_ONLY
    source: KafkaSource
    most_records: int
    _run: str = field(default_factory=lambda: uuid.uuid4().hex, init=False)
    _kept: tuple[Any, DataFrameReader] | None = field(default=None, init=False)

    @staticmethod
    def refusal(spark: SparkSession, source: KafkaSource | None, rows: RowBuilder) -> str | None:
        """Return why a ``DirectReader`` cannot read this feed's rows; None if it can."""
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
            "a table for each value of a field": policy.rule is not None,
            "decode.on_bad_timestamp": policy.on_bad_timestamp is not None,
            "decode.raw": isinstance(rows.schema.spec, Raw),
            "a format that is an expression": isinstance(rows.schema.spec, ExpressionFormat),
        }
        return next((reason for reason, applies in reasons.items() if applies), None)

    @contextmanager
    def attempt(self, batch: DataFrame, commit: SnapshotProperties) -> Iterator[tuple[DataFrame, BatchOutcomes]]:
        # A backfill or replay writes only some records of its ranges, but ``DecodedRecords`` reads all of them. It also
        # does not support isolated records, and columns whose type in the table allows fewer values than in the rows.
        if not isinstance(commit, Commit) or self.rows.isolated or self.rows.takes:
            with super().attempt(batch, commit) as counted:
                yield counted
        else:
            with BatchOutcomes(self.spark) as outcomes:
                yield self.read(batch.sparkSession, commit.ranges, outcomes), outcomes

    def read(self, spark: SparkSession, ranges: OffsetRanges, outcomes: BatchOutcomes) -> DataFrame:
        """Return the rows of these offset ranges; the records are counted while they are read."""
        tasks = [
            [(each.topic, each.partition, each.start, each.end) for each in task] for task in self._tasks(spark, ranges)
        ]
        reader = self._reader(spark).option("tasks", json.dumps(tasks)).option("commit-id", outcomes.commit_id)
        return self.rows.from_decoded(reader.load())

    def discard_fetched(self) -> None:
        """Use new consumers on all executors for the next batch: the old ones have fetched records from old leaders."""
        self.close()
        self._run, self._kept = uuid.uuid4().hex, None

    def close(self) -> None:
        """Close the run's consumers in this JVM, and discard the records that they have fetched."""
        with suppress(Exception):  # If the JVM has ended, its consumers are closed.
            java(self.spark).kafka.DecodedRecords.endRun(self._run)

    def _reader(self, spark: SparkSession) -> DataFrameReader:
        """Return a reader with the options that all batches share; reuse it while these options stay the same."""
        schema, policy = self.rows.schema, self.rows.policy
        session: Any = spark
        # Compare the Java objects of the sessions: the Python wrapper is a new object in every batch.
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
                "changes": None if policy.deletes is None else change_rule(policy.deletes),
            },
        }
        reader = spark.read.format(FORMAT).options(**client_options(self.source), consumers=self._run)
        reader = reader.options(**{name: json.dumps(value) for name, value in options.items()})
        self._kept = key, reader
        return reader

    def _tasks(self, spark: SparkSession, ranges: OffsetRanges) -> list[list[OffsetRange]]:
        """Distribute ranges to as many tasks as ``BatchReader`` uses; split large ranges further to use all cores."""
        filled = [span for span in ranges.ranges if span.records > 0]
        count = task_count(ranges, most=self.most_records)
        cores = spark.sparkContext.defaultParallelism
        while filled and count < cores:
            largest = max(filled, key=lambda span: span.records)
            if largest.records < 2 * RECORDS_PER_TASK:
                break
            filled.remove(largest)
            middle = largest.start + largest.records // 2
            filled += [largest.cut(largest.start, middle), largest.cut(middle, largest.end)]
            count += 1
        return share_out(filled, count)


@dataclass
class QueryReader(BatchReader):
    """Gets the rows from a streaming query with state; the query's plan counts the records."""

    is_part_of_query = True

    def __post_init__(self) -> None:
        self._records: DataFrame | None = None
        self._outcomes: BatchOutcomes | None = None
        self._logged: int | None = None

    def begin(self, records: DataFrame) -> None:
        """Store ``records`` for ``template``, and read the id of the newest batch from the sink's log."""
        self._records, self._logged = records, self.sink.logged()

    def query_frame(self, records: DataFrame) -> DataFrame:
        """Return the stream's rows, with a new counter in their plan."""
        self.close()
        self._outcomes = BatchOutcomes(self.spark)
        return self.rows.accepted_rows(records, self._outcomes.__enter__())

    def is_committed(self, batch: DataFrame, commit: Commit) -> bool:
        """Return whether the sink has the batch. If so, compute its rows without writing: its state must advance."""
        is_logged = self._logged is not None and commit.batch_id <= self._logged
        if not (is_logged or self.sink.has(commit)):
            return False
        batch.write.format("noop").mode("overwrite").save()
        return True

    @contextmanager
    def attempt(self, batch: DataFrame, commit: SnapshotProperties) -> Iterator[tuple[DataFrame, BatchOutcomes]]:
        """Yield the batch, which already has rows instead of records, and the query's counter."""
        # Do not reset the counter for a second attempt: Spark reuses the first attempt's shuffles, and does not count
        # again.
        assert self._outcomes is not None  # query_frame() has created this query's counter.
        yield batch, self._outcomes

    def template(self, batch: DataFrame) -> DataFrame:
        """Return the source's records, because the batch itself has rows instead of records."""
        assert self._records is not None  # begin() is called before the first batch.
        return self._records

    def end_batch(self) -> None:
        if self._outcomes is not None:
            # Reset now, not when the next batch begins: if the plan sorts, Spark reads records before it calls the
            # writer.
            self._outcomes.next()

    def close(self) -> None:
        if self._outcomes is not None:
            self._outcomes.__exit__(None, None, None)
            self._outcomes = None


def change_rule(deletes: DeleteRule) -> dict[str, Any]:
    return {
        "column": DELETED,
        "tombstones": deletes.tombstones,
        "equals": dict(deletes.columns),
        "keys": {key: key_is_null(key) for key in deletes.keys if deletes.are_columns},
    }


def uses_tokens(spark: SparkSession) -> bool:
    """Return whether Spark's Kafka consumers log in with delegation tokens."""
    own: Any = spark.sparkContext
    return len(own._jsc.sc().conf().getAllWithPrefix(f"{TOKENS}.")) > 0


def share_out(spans: Sequence[OffsetRange], tasks: int) -> list[list[OffsetRange]]:
    """Distribute ranges so that tasks have about as many records: the largest range first, to the emptiest task."""
    shares: list[list[OffsetRange]] = [[] for _ in range(max(1, tasks))]
    fewest = [(0, task) for task in range(len(shares))]
    for span in sorted(spans, key=lambda span: (-span.records, span.key, span.start)):
        records, task = fewest[0]
        shares[task].append(span)
        heapreplace(fewest, (records + span.records, task))
    return [share for share in shares if share] or [[]]
