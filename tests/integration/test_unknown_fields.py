"""JSON fields without a column are left out, or make dead letters, as ``decode.on_unknown_field`` says."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from lakefeed.ledger.outcomes import Counts
from lakefeed.monitor.feed_monitor import FeedMonitor
from lakefeed.pipeline import Pipeline
from tests.support.agreement import of_ledger
from tests.support.feed import Feed

COLUMNS = "id BIGINT, inner STRUCT<a: INT>, list ARRAY<STRUCT<c: INT>>"
BOTH_PATHS = pytest.mark.parametrize("path", ["auto", "off"])


def pipeline(feed: Feed, path: str, **decode: Any) -> Pipeline:
    """Return a pipeline of its own for one path: the same topic, another table and other dead letters."""
    return feed.pipeline(
        name=f"{feed.name}_{path}",
        fast_path=path,
        decode={"json": {"schema_ddl": COLUMNS}, "metadata": ["partition", "offset"], **decode},
        sink={"iceberg": {"table": f"{feed.table}_{path}"}},
        dead_letters={"table": f"{feed.table}_{path}_letters"},
        checkpoint=feed.place(f"checkpoints/{feed.name}_{path}"),
    )


def letters(feed: Feed, path: str) -> dict[int, str]:
    """Return the reasons of the dead letters by offset."""
    return {row["offset"]: row["reason"] for row in feed.rows(f"{feed.table}_{path}_letters")}


@BOTH_PATHS
def test_a_record_with_a_field_that_no_column_has_becomes_a_dead_letter_with_the_path(
    lake: SparkSession, feed: Feed, path: str, tmp_path: Path
) -> None:
    feed.create_topic(partitions=1)
    feed.send(
        [
            b'{"id": 0, "inner": {"a": 1}, "list": [{"c": 2}]}',
            b'{"id": 1, "more": {"x": [1]}}',
            b'{"id": 2, "inner": {"a": 1, "b": null}}',
            b'{"id": 3, "list": [{"c": 1}, {"c": 2, "d": 3}]}',
            b'{"ID": 4}',
            b'{"id": 5, "": 1}',
            b'{"id": "x", "more": 1}',
            b'{"id": 7, "more": {"x": ',
        ]
    )
    strict = pipeline(feed, path, on_unknown_field="dead_letter")
    monitor = FeedMonitor(feed.name)
    strict.run(spark=lake, once=True, monitor=monitor)
    assert letters(feed, path) == {
        1: "more: no column has this field",
        2: "inner.b: no column has this field",
        3: "list[1].d: no column has this field",
        4: "ID: no column has this field: the column is id",
        5: ": no column can have a field with the empty name",
        6: "id: expected bigint, found a string of another form",
        7: "more: no column has this field",
    }
    assert of_ledger(strict)[1] == {(feed.topic, 0): Counts(8, 7)}
    assert monitor.snapshot().totals.left_out_field is None
    # After a restart with the default, the next records land without these fields.
    feed.send([b'{"id": 8, "more": 1}', b'{"id": 9, "inner": {"b": 1}}'])
    lenient = pipeline(feed, path)
    monitor = FeedMonitor(feed.name)
    lenient.run(spark=lake, once=True, monitor=monitor)
    totals = monitor.snapshot().totals
    assert (totals.left_out, totals.left_out_field) == (2, "more")
    assert sorted(row["id"] for row in feed.rows(f"{feed.table}_{path}")) == [0, 8, 9]
    assert lenient.verify().faults == ()
