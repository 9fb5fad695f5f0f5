"""One driver at a time: only the driver that took a feed's fence last can have its commits succeed.

The fence is a table property that the catalog's compare-and-set guards (``io.lakefeed.commit.CheckedOperations``); each
commit of the feed carries the fence of its driver, and is refused if the table has another.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from lakefeed.clients.iceberg.java_table import properties_of
from lakefeed.clients.iceberg.sql import set_properties
from lakefeed.clients.spark.errors import ONE_PLACE, TAKEN_OVER
from lakefeed.errors import CheckpointMismatch
from lakefeed.ledger.snapshot_summary import FENCE, Commit

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TRIES = 20
REFUSED = "is taken: the table has"


def next_fence(taken: str | None, *, who: str | None = None) -> str:
    """The fence after one that was taken, or the first: ``"<number> <who>"``."""
    return f"{int((taken or '0').split()[0]) + 1} {who or uuid.uuid4().hex[:12]}"


def take_fence(spark: SparkSession, table: str, feed: str) -> str:
    """Takes the next fence of a feed in its table, and returns it: ``"<number> <who>"``.

    A driver that had the one before can commit nothing more, and learns it at its next commit.

    Raises:
        Py4JJavaError: the catalog could not be written.
    """
    key = f"{FENCE}.{feed}"
    who = uuid.uuid4().hex[:12]
    for attempt in range(TRIES):
        fence = next_fence(properties_of(spark, table).get(key), who=who)
        try:
            spark.sql(set_properties(table, {key: fence}))
        except Exception as error:
            if REFUSED not in str(error) or attempt == TRIES - 1:
                raise
            continue
        return fence
    raise AssertionError("unreachable")


def require_fence(spark: SparkSession, table: str, commit: Commit) -> None:
    """Explains to a driver that was replaced why the table is not where it has left it.

    Raises:
        CheckpointMismatch: the table has another fence than the commit.
    """
    taken = properties_of(spark, table).get(f"{FENCE}.{commit.feed}")
    if commit.fence is not None and taken != commit.fence:
        raise CheckpointMismatch(
            TAKEN_OVER, where=f"{table}: fence {taken}, this driver's {commit.fence}", hint=ONE_PLACE
        )
