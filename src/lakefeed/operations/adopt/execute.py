"""Take a table over: record the feed's first position in its ledger, in one commit without rows."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from lakefeed.clients.spark.jvm import cause_of
from lakefeed.errors import CheckpointMismatch
from lakefeed.feed.feed import Feed
from lakefeed.ledger.continuity import REWIND
from lakefeed.ledger.iceberg import REFUSED
from lakefeed.ledger.snapshot_summary import Commit
from lakefeed.operations.adopt.plan import AdoptionPlan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def execute_adoption(feed: Feed, agreed: AdoptionPlan, spark: SparkSession) -> None:
    """Take the table over as planned; nothing is left to do if that has happened.

    The commit is the whole takeover: killed before it, nothing has happened but that a fence was taken. The table's
    catalog refuses it if the table has another newest commit than the plan has seen.

    Raises:
        CheckpointMismatch: the other tool, or a driver of the feed, has committed since the plan.
    """
    if agreed.is_done:
        return
    from py4j.protocol import Py4JJavaError

    sink = feed.ledger_table(spark)
    fence = sink.take_fence(prefix=REWIND)
    commit = Commit(feed.config.name, 0, agreed.ranges, fence=fence, adopted=agreed.adoption)
    try:
        sink.commit_reset(commit, commit_id=uuid.uuid4().hex)
    except Py4JJavaError as error:
        if REFUSED not in str(error):
            raise
        cause = cause_of(error).removeprefix(f"{REFUSED}: ")
        raise CheckpointMismatch(
            f"the table has changed since the plan, and was not adopted: {cause}",
            where=agreed.table,
            hint="stop the other tool, and run the command again",
        ) from None
