"""Starts of a feed with state, with a sink in Python, and after batches without records.

``offsets show``, ``plan`` and ``run`` must agree on each start: see ``tests/support/starts.py``. ``test_traps.py``
tests the other rows of the table in docs/offsets.md.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions  # type: ignore[attr-defined]
from pyspark.sql import SparkSession

import lakefeed as lf
from lakefeed.clients.kafka.topics import Topics
from lakefeed.errors import CheckpointMismatch, RecordsLost
from tests.support.feed import Feed
from tests.support.starts import run_as_planned

DECODE = {"json": {"schema_ddl": "id BIGINT, at TIMESTAMP"}, "metadata": ["topic", "partition", "offset"]}
KEPT = '''
import json
import re
from pathlib import Path


class Kept:
    """Keeps the ranges of the newest batch in a file."""

    def __init__(self, file):
        self.file = Path(file)

    def write(self, rows, batch):
        self.file.write_text(batch.ranges)

    def last(self):
        return self.file.read_text() if self.file.exists() else None
'''


class Started:
    """A feed, and the notes that its newest run printed at the start."""

    def __init__(self, lake: SparkSession, feed: Feed) -> None:
        self.lake, self.feed = lake, feed
        self.notes: list[str] = []

    def send(self, *ids: int, partition: int = 0) -> None:
        values = [json.dumps({"id": each, "at": f"2024-01-01T00:{each:02}:00Z"}).encode() for each in ids]
        self.feed.send(values, partition=partition)

    def run(self, **blocks: Any) -> int:
        self.notes = []
        pipeline = self.feed.pipeline(**{"decode": DECODE, **blocks})
        return run_as_planned(pipeline, self.lake, self.notes).rows


@pytest.fixture
def started(lake: SparkSession, feed: Feed) -> Started:
    feed.create_topic(partitions=1)
    return Started(lake, feed)


def test_an_empty_batch_does_not_count_as_a_change_of_position(started: Started) -> None:
    """Spark begins a query with an empty batch, and makes an empty batch when a partition is added."""
    for _ in range(2):
        assert started.run() == 0
        assert started.notes == []
    started.send(1, 2)
    assert started.feed.pipeline(decode=DECODE).run_batch(spark=started.lake).rows == 2
    assert started.run() == 0
    assert started.notes == [
        "the checkpoint is older than the table; resumes at the table's position, with a new checkpoint"
    ]
    admin = AdminClient({"bootstrap.servers": started.feed.stack.bootstrap_servers})
    [added] = admin.create_partitions([NewPartitions(started.feed.topic, 2)]).values()
    added.result()
    assert started.run() == 0
    started.send(3, partition=1)
    assert started.run() == 1
    assert started.notes == []


def test_a_python_sink_with_a_ledger_lands_each_batch_once(started: Started, tmp_path: Path) -> None:
    Path(started.feed.folder, f"kept_{started.feed.name}.py").write_text(KEPT)
    file = tmp_path / "ranges.json"
    sink = {"python": {"path": f"kept_{started.feed.name}:Kept", "options": {"file": str(file)}}}
    started.send(1, 2)
    assert started.run(sink=sink) == 2
    assert started.run(sink=sink) == 0
    assert started.notes == []
    before = file.read_text()
    started.send(3)
    assert started.run(sink=sink) == 1
    started.feed.forget("offsets/1")
    started.feed.forget("commits/1")
    assert started.run(sink=sink) == 0
    assert started.notes == [
        "the checkpoint is older than the table; resumes at the table's position, with a new checkpoint"
    ]
    file.write_text(before)
    with pytest.raises(CheckpointMismatch, match="is at 3 in the checkpoint, and at 2 in the table"):
        started.run(sink=sink)
    file.unlink()
    with pytest.raises(CheckpointMismatch, match="has no commit of the feed"):
        started.run(sink=sink)


@pytest.mark.quick
def test_the_checkpoint_of_another_pipeline_is_refused(started: Started) -> None:
    started.send(1)
    started.run()
    pipeline = started.feed.pipeline(decode=DECODE, name="another")
    messages = []
    for start in (pipeline.status, lambda: pipeline.run(spark=started.lake, once=True)):
        with pytest.raises(CheckpointMismatch, match="the checkpoint belongs to feed") as refused:
            start()
        messages.append(str(refused.value))
    [plan] = pipeline.plan(spark=started.lake).tables
    assert messages == [str(plan.refusal)] * 2


def land_rows(started: Started, *, stateful: bool = False) -> None:
    """Land the topic by ``read_topic`` and ``write_table``, without a pipeline."""
    feed, brokers = started.feed, started.feed.stack.bootstrap_servers
    rows = lf.read_topic(started.lake, feed.topic, decode=DECODE, bootstrap_servers=brokers)
    if stateful:
        rows = rows.withWatermark("at", "10 minutes").dropDuplicates(["id", "at"])
    query = lf.write_table(
        rows, feed.table, checkpoint=feed.checkpoint, name=feed.name, trigger="available-now", bootstrap_servers=brokers
    )
    assert query is not None
    query.awaitTermination()


def test_write_table_refuses_the_starts_that_a_pipeline_refuses(started: Started) -> None:
    for each in (1, 2):
        started.send(each)
        land_rows(started)
    with pytest.raises(CheckpointMismatch, match="keeps state now"):
        land_rows(started, stateful=True)
    started.feed.forget("offsets/1")
    started.feed.forget("commits/1")
    with pytest.raises(CheckpointMismatch, match="cannot resume from this checkpoint: the checkpoint is older"):
        land_rows(started)
    assert sorted(row["id"] for row in started.feed.rows()) == [1, 2]
    Topics(started.feed.stack.bootstrap_servers).delete(started.feed.topic)
    with pytest.raises(RecordsLost, match="-0: "):
        land_rows(started)
