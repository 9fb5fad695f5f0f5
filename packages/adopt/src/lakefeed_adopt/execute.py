"""Take over a table: record the feed's first position in the table's ledger, in one commit without rows."""

from __future__ import annotations

import uuid

from lakefeed.clients.iceberg.sql import set_properties
from lakefeed.clients.spark.jvm import cause_of
from lakefeed.clients.spark.statements import run
from lakefeed.errors import CheckpointMismatch
from lakefeed.feed.feed import Feed
from lakefeed.lazy import SparkSession, py4j
from lakefeed.ledger.continuity import REWIND
from lakefeed.ledger.iceberg import REFUSED
from lakefeed.ledger.snapshot_summary import Commit, adopted_property
from lakefeed_adopt.plan import AdoptionPlan


def execute_adoption(feed: Feed, agreed: AdoptionPlan, spark: SparkSession) -> None:
    """Take over the table as planned; do nothing if the feed has already taken it over.

    Only the commit takes the table over. A process that is killed before the commit has at most taken a fence, and
    either set a property or created an empty table. The catalog refuses the commit if the table has a newer commit than
    the plan.

    Raises:
        CheckpointMismatch: the other tool, or a driver of the feed, has committed since the plan.
        ConfigError: the transform keeps state, which no other tool can hand over.
    """
    if agreed.is_done:
        return
    feed.require_stateless(spark)
    sink = feed.ledger_table(spark)
    if agreed.is_new_table:
        feed.begin_writer(spark, sink, feed.source.reread(spark, []))
    else:
        # Set the property before the commit, because without it a backfill or rewind would land the other tool's
        # records again.
        run(spark, set_properties(sink.name, adopted_property(feed.config.name, agreed.ranges)))
    fence = sink.take_fence(prefix=REWIND)
    commit = Commit(feed.config.name, 0, agreed.ranges, fence=fence, adopted=agreed.adoption)
    try:
        sink.commit_reset(commit, commit_id=uuid.uuid4().hex)
    except py4j.Py4JJavaError as error:
        if REFUSED not in str(error):
            raise
        cause = cause_of(error).removeprefix(f"{REFUSED}: ")
        raise CheckpointMismatch(
            f"the table has changed since the plan, and was not adopted: {cause}",
            where=agreed.table,
            hint="stop the other tool, and run the command again",
        ) from None
