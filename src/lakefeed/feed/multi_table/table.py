"""Writes one topic to its table, independently of the other topics."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lakefeed.clients.kafka.topics import TopicDescription
from lakefeed.clients.spark.errors import translated
from lakefeed.config.many import OnFailure
from lakefeed.config.topic_tables import require_fit
from lakefeed.errors import LakefeedError, RecordsLost
from lakefeed.feed.batch_writer import BatchResult, BatchWriter
from lakefeed.feed.data_loss import DataLoss, find_data_loss
from lakefeed.feed.feed import Feed
from lakefeed.feed.multi_table.ranges import backlog, next_ranges
from lakefeed.feed.multi_table.sharing import has_landed, require_own
from lakefeed.feed.open import open_feed
from lakefeed.feed.recovery import ACCEPT
from lakefeed.feed.run import TableSummary
from lakefeed.ledger.feed_position import Position
from lakefeed.ledger.outcomes import ZERO, Counts
from lakefeed.ledger.snapshot_summary import Commit
from lakefeed.offsets.ranges import OffsetRanges

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


MOST_SHOWN = 3


@dataclass
class TableTask:
    """Writes one topic to its table, batch by batch; its failures do not stop the others.

    The table's own ledger says where it resumes: a failed table is behind, and no checkpoint has its position.

    Attributes:
        topic: the topic's name.
        feed: of this topic alone.
        on_failure: what happens after a failure.
        failure: why it is paused or stopped; None if it is not.
    """

    topic: str
    feed: Feed
    spark: SparkSession
    on_failure: OnFailure
    retry_seconds: int
    from_latest: bool = False
    accept_loss: bool = False
    failure: LakefeedError | None = None
    batches: int = 0
    rows: int = 0
    counts: Counts = ZERO
    _writer: BatchWriter | None = None
    _latest: Mapping[int, int] | None = None
    _position: dict[int, int] | None = None
    _ids: Mapping[str, str] = field(default_factory=dict)
    _retry_at: float = 0.0
    _waiting_since: float | None = None
    _batch_id: int = 0

    @property
    def table(self) -> str:
        """Where its rows go."""
        return self.feed.config.sink.ledger_table

    @property
    def is_stopped(self) -> bool:
        """Whether it waits for the next start."""
        return self.failure is not None and self.on_failure == "stop"

    def is_due(self, topic: TopicDescription, *, until: Mapping[int, int] | None = None) -> bool:
        """Whether there are records to write, and the table does not wait after a failure."""
        if self.is_stopped or (self.failure is not None and time.monotonic() < self._retry_at):
            return False
        if self.from_latest and self._latest is None:
            self._latest = {each.id: each.end_offset for each in topic.partitions}
        if self._writer is None:
            # A topic without a record may be without a schema too.
            return any(each.end_offset for each in topic.partitions)
        return self._is_gathered(self.backlog(topic, until=until), ends=until is not None)

    def _is_gathered(self, lag: int, *, ends: bool) -> bool:
        """Whether there are enough records for a batch, or the first has waited long enough."""
        source = self.feed.config.kafka
        if lag == 0 or ends or lag >= (source.min_records_per_batch or 0):
            return lag > 0
        now = time.monotonic()
        if self._waiting_since is None:
            self._waiting_since = now
        return now - self._waiting_since >= source.max_wait_seconds

    def backlog(self, topic: TopicDescription, *, until: Mapping[int, int] | None = None) -> int:
        """Return how many offsets are not written yet; all offsets of the topic if the table has not begun."""
        return backlog(self._position or {}, topic, until=until)

    def step(
        self, topic: TopicDescription, *, limit: int, until: Mapping[int, int] | None = None
    ) -> tuple[BatchResult | None, str | None]:
        """Write the next batch, if there are records for it.

        Returns:
            The result of the batch, and a message for the user.

        Raises:
            LakefeedError: the batch failed, and the pipeline file says that the job ends then.
        """
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        try:
            landed = self._step(topic, limit=limit, until=until)
        except (LakefeedError, Py4JError, PySparkException) as error:
            return None, self._failed(translated(error))
        note = None if self.failure is None else "resumes"
        self.failure = None
        return landed, note

    def refuse(self, error: LakefeedError) -> None:
        """Stop the table until the pipeline file has changed."""
        self.on_failure = "stop"
        self.failure = error

    def has_landed(self) -> bool:
        """Whether the table has rows of this topic; False if it is unavailable."""
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        try:
            position = self.feed.ledger_table(self.spark).position()
        except (LakefeedError, Py4JError, PySparkException):
            return False
        return has_landed(position, self.topic)

    def summary(self) -> TableSummary:
        """Summarize what was written until now."""
        return TableSummary(
            topic=self.topic,
            table=self.table,
            batches=self.batches,
            counts=self.counts,
            rows=self.rows,
            failure=None if self.failure is None else str(self.failure),
        )

    def _step(self, topic: TopicDescription, *, limit: int, until: Mapping[int, int] | None) -> BatchResult | None:
        writer = self._writer or self._begin(topic)
        assert self._position is not None
        if lost := self._lost(self._position, self._ids, topic):
            raise self._records_lost(lost)
        ranges = next_ranges(self._position, topic, limit=limit, until=until)
        if not ranges.records:
            return None
        landed = writer.write(self._records(ranges), ranges, self._batch_id)
        self._position = {each.partition: each.end for each in ranges.ranges}
        self._ids = ranges.topic_ids
        self._batch_id += 1
        self._waiting_since = None
        self.batches += not landed.replayed
        self.rows += landed.rows or 0
        self.counts += landed.counts
        return landed

    def _begin(self, topic: TopicDescription) -> BatchWriter:
        """Open the table and prepare it. Only when it has records: a job may have hundreds of tables."""
        require_fit(self.feed.config)
        self.feed.require_stateless(self.spark)
        sink = self.feed.ledger_table(self.spark)
        start = open_feed(
            self.feed.identity,
            sink,
            checkpoint=None,
            topics={self.topic: topic},
            stateful=False,
            accept_loss=self.accept_loss,
            check=lambda position: require_own(position, self.topic, self.table),
        )
        no_records = self._records(next_ranges({}, topic, limit=0))
        writer = self.feed.begin_writer(self.spark, sink, no_records, lost=start.lost_partitions)
        # Again: no other driver can move the table any more.
        start.decide()
        start.apply(fence=writer.fence)
        if start.decision.data_loss:
            writer.follow()
        position = start.position
        newest = next(sink.commits(), None)
        self._batch_id = newest.batch_id + 1 if newest else 0
        self._position = _ends(position) if position else {}
        self._ids = position.ranges.topic_ids if position else {}
        if position is None and (ends := self._latest) is not None:
            # Recorded before the first batch: a restart must not begin at a later end.
            ranges = OffsetRanges.between({self.topic: ends}, {self.topic: ends}, {self.topic: topic.topic_id})
            commit = Commit(self.feed.config.name, 0, ranges, fence=writer.fence)
            sink.land_move(commit, commit_id=uuid.uuid4().hex)
            self._position, self._ids, self._batch_id = dict(ends), ranges.topic_ids, 1
        self._writer = writer
        return writer

    def _lost(self, position: Mapping[int, int], ids: Mapping[str, str], topic: TopicDescription) -> list[DataLoss]:
        stands = {(self.topic, number): offset for number, offset in position.items()}
        return list(find_data_loss(stands, ids, {self.topic: topic}))

    def _records_lost(self, lost: list[DataLoss]) -> RecordsLost:
        return RecordsLost(
            f"topic {self.topic} cannot resume: {'; '.join(each.message for each in lost[:MOST_SHOWN])}",
            where=self.table,
            hint=f"bring the records back, or give them up: {ACCEPT}, which records the loss in the table's ledger",
        )

    def _records(self, ranges: OffsetRanges) -> DataFrame:
        return self.feed.source.reread(self.spark, ranges.ranges)

    def _failed(self, error: LakefeedError) -> str:
        if self.on_failure == "fail":
            raise error
        note = self.failure is None or self.failure.what != error.what
        self.failure = error
        # What was read of the table may be the cause: open it again.
        self._writer = self._position = None
        self._retry_at = time.monotonic() + self.retry_seconds
        then = "stopped until the next start" if self.on_failure == "stop" else f"tried again in {self.retry_seconds} s"
        return f"{error.what}; {then}" if note else ""


def _ends(position: Position) -> dict[int, int]:
    return {each.partition: each.end for each in position.ranges.ranges}
