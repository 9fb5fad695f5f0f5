"""Records a stateful query's batch ids in the ledger as offsets of a pseudo-topic, so that lost state is detected.

A stateful query can resume only at its state's batch, and offsets do not identify that batch: a batch that only closes
windows reads no records. So the query's commits also have the range ``[batch, batch + 1)`` of partition 0 of a topic
``lakefeed.batches``, whose id is Spark's id of the query. The commit check then refuses a gap, a repeated batch, and a
query whose checkpoint was lost or recreated, because its state was lost, too.
"""

from __future__ import annotations

from lakefeed.offsets.ranges import OffsetRange, OffsetRanges

BATCHES = "lakefeed.batches"
"""The name of the pseudo-topic. The commit check and the audits handle it like a Kafka topic."""


def with_batch(ranges: OffsetRanges, *, batch_id: int, query_id: str) -> OffsetRanges:
    """Add the pseudo-topic's range to a batch's ranges."""
    batch = OffsetRange(BATCHES, 0, batch_id, batch_id + 1)
    return OffsetRanges((*ranges.ranges, batch), {**ranges.topic_ids, BATCHES: query_id})


def without_batches(ranges: OffsetRanges) -> OffsetRanges:
    """Return the ranges without that of the pseudo-topic."""
    ids = {topic: topic_id for topic, topic_id in ranges.topic_ids.items() if topic != BATCHES}
    return OffsetRanges(tuple(span for span in ranges.ranges if span.topic != BATCHES), ids)


def has_state(ranges: OffsetRanges) -> bool:
    """Return whether a stateful query has committed these ranges."""
    return (BATCHES, 0) in ranges.ends
