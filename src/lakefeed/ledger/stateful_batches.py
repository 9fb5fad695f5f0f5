"""Records a stateful query's batch ids in the ledger as a pseudo-topic, so that lost state is detected.

Such a query can resume only where its state is, and it has batches that read no record: windows close when the
watermark moves. So each of its commits has, beside the topics' ranges, the range ``[batch, batch + 1)`` of partition 0
of a topic ``lakefeed.batches``, whose id is Spark's id of the query. The commit check then refuses a gap, a batch that
comes twice, and a query whose checkpoint, and with it the state, was lost or recreated.
"""

from __future__ import annotations

from lakefeed.offsets.ranges import OffsetRange, OffsetRanges

BATCHES = "lakefeed.batches"
"""No Kafka topic of a user's: the commit check and the audits take it for one."""


def with_batch(ranges: OffsetRanges, *, batch_id: int, query_id: str) -> OffsetRanges:
    """Return the ranges of a batch of a query with state."""
    batch = OffsetRange(BATCHES, 0, batch_id, batch_id + 1)
    return OffsetRanges((*ranges.ranges, batch), {**ranges.topic_ids, BATCHES: query_id})


def without_batches(ranges: OffsetRanges) -> OffsetRanges:
    """Return the topics' ranges alone."""
    ids = {topic: topic_id for topic, topic_id in ranges.topic_ids.items() if topic != BATCHES}
    return OffsetRanges(tuple(span for span in ranges.ranges if span.topic != BATCHES), ids)


def has_state(ranges: OffsetRanges) -> bool:
    """Return whether these are ranges of a query with state."""
    return (BATCHES, 0) in ranges.ends
