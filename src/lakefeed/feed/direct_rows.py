"""Reads the rows of a batch in one step: ``io.lakefeed.kafka.DecodedRecords`` reads, decodes and counts each record.

The general way hands every record from Spark's source to the decoder and from there to the counter as a row of Spark's.
The rows, the verdicts and the counts are the same: ``RowBuilder.accepted_rows`` is what this stands for.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from heapq import heapreplace
from typing import TYPE_CHECKING, Any

from lakefeed.clients.spark.errors import BAD_TIMESTAMP_REASON, UNKNOWN_SCHEMA
from lakefeed.clients.spark.jvm import java
from lakefeed.config.sources import KafkaSource
from lakefeed.feed.row_builder import RowBuilder
from lakefeed.ledger.outcomes import BatchOutcomes
from lakefeed.offsets.ranges import OffsetRange, OffsetRanges
from lakefeed.records.decode.formats import decoder_options
from lakefeed.records.decode.verdict import METADATA_PREFIX, TOMBSTONE, VERDICTS
from lakefeed.records.sources.kafka import RECORDS_PER_TASK, client_options, task_count
from lakefeed.records.spec import ID_HEADERS, ID_IN_HEADER, Raw, RegisteredFormat

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession

FORMAT = "io.lakefeed.kafka.DecodedRecords"
TOKENS = "spark.kafka.clusters"
"""Spark's settings of delegation tokens, which only Spark's own consumers use."""


@dataclass(kw_only=True)
class DirectRows:
    """Reads the rows of one feed's batches.

    Attributes:
        most: the most records of a batch: a smaller one is read by fewer tasks.
    """

    source: KafkaSource
    rows: RowBuilder
    most: int
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
        }
        return next((reason for reason, applies in reasons.items() if applies), None)

    def read(self, spark: SparkSession, ranges: OffsetRanges, outcomes: BatchOutcomes) -> DataFrame:
        """Return the rows of these records; each record is counted while it is read."""
        tasks = [[_range(each) for each in task] for task in self._tasks(spark, ranges)]
        reader = self._reader(spark).option("tasks", json.dumps(tasks)).option("commit-id", outcomes.commit_id)
        return self.rows.from_decoded(reader.load())

    def close(self, spark: SparkSession) -> None:
        """End the run: the consumers that this JVM has kept for its next batch, with all that they have fetched."""
        with suppress(Exception):  # A JVM that has ended keeps none.
            java(spark).kafka.DecodedRecords.endRun(self._run)

    def discard_fetched(self, spark: SparkSession) -> None:
        """Read the next batch with new consumers, on each executor: the kept ones have records of another leader."""
        self.close(spark)
        self._run, self._kept = uuid.uuid4().hex, None

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
        count = task_count(ranges, most=self.most)
        cores = spark.sparkContext.defaultParallelism
        while filled and count < cores and (largest := max(filled, key=_records)).records >= 2 * RECORDS_PER_TASK:
            filled.remove(largest)
            filled += halves(largest)
            count += 1
        return share_out(filled, count)


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


def _range(span: OffsetRange) -> tuple[str, int, int, int]:
    return (span.topic, span.partition, span.start, span.end)
