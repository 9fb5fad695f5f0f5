"""Upkeep and an upsert feed rewrite the same files at the same time, and no commit of the feed fails.

``LAKEFEED_UPKEEP_MERGES`` sets the number of merged batches (default 12).
"""

import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from lakefeed.ledger.iceberg import IcebergLedger
from lakefeed.pipeline import Pipeline
from lakefeed_upkeep.actions import LastUpkeep
from lakefeed_upkeep.table_stats import read_health
from packages.upkeep.tests.integration.test_upkeep import OFTEN, look_after, nothing_is_too_young
from tests.support.background import Background
from tests.support.changes import Model, differences, forget_the_last_batch, rows_of, write_pipeline
from tests.support.cli import Running
from tests.support.feed import Feed

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]

MERGES = max(4, int(os.environ.get("LAKEFEED_UPKEEP_MERGES", "12")))
CHANGES = 300
UPKEEP: dict[str, Any] = {**OFTEN, "every": "1 second", "compact": {"min_files": 2}, "manifests": {"more_than": 2}}


def the_table_is_its_model(feed: Feed, pipeline: Pipeline, model: Model, history: str) -> None:
    assert differences(rows_of(feed, feed.table), model.table()) == []
    assert differences(rows_of(feed, history), model.history()) == []
    proof = pipeline.verify(deep=True)
    assert proof.faults == ()


def moves_on(write: str, changes: int) -> int:
    """Return Model's ``moves_on``: with copy-on-write, small files remain only if later changes have other keys."""
    return changes if write == "copy-on-write" else 0


@pytest.mark.parametrize("beside", ["in the job", "in a job of its own"])
@pytest.mark.parametrize("write", ["merge-on-read", "copy-on-write"])
def test_simultaneous_merges_and_compactions_all_succeed(
    lake: SparkSession, feed: Feed, write: str, beside: str
) -> None:
    history = f"{feed.table}_history"
    feed.create_topic(partitions=2)
    model = Model(keys=400, partitions=2, moves_on=moves_on(write, 2 * CHANGES))
    file = write_pipeline(feed, batch=CHANGES, write=write, history=history, partition_by=["bucket(2, id)"])
    document = json.loads(file.read_text())
    kept = feed.folder / "kept.yaml"
    kept.write_text(json.dumps({**document, "upkeep": UPKEEP}))
    pipeline = Pipeline.from_file(kept if beside == "in the job" else file, environment=feed.environment)
    model.send(CHANGES, topic=feed.topic, servers=feed.stack.bootstrap_servers)
    run = Background(pipeline, lake)
    run.until_records(CHANGES)
    with keeper(feed, kept) if beside == "in a job of its own" else nullcontext():
        model.send((MERGES - 1) * CHANGES, topic=feed.topic, servers=feed.stack.bootstrap_servers)
        run.until_records(MERGES * CHANGES, seconds=900)
        run.end()
    assert not [note for note in run.notes if "failed" in note]
    found = read_health(feed.table, connections=feed.connections)
    assert LastUpkeep.of(found.properties).at is not None, "no upkeep came to an end"
    assert any(each.replaces for each in found.ancestors), "nothing was compacted"
    the_table_is_its_model(feed, pipeline, model, history)


@contextmanager
def keeper(feed: Feed, file: Path) -> Iterator[None]:
    """Until the block ends, a second process maintains the feed's tables every second."""
    with Running(
        ["tables", "maintain", file, "--every", "1 second"], feed.environment, feed.folder / "upkeep.log"
    ) as job:
        job.wait_until_it_says("orphans of", timeout=400)
        yield
        assert job.ask_to_stop(signal.SIGTERM) == 0, job.said()
        assert "failed" not in job.said(), job.said()


@pytest.mark.parametrize("write", ["merge-on-read", "copy-on-write"])
def test_an_upsert_feed_loses_no_row_if_upkeep_runs_between_a_kill_and_the_restart(
    lake: SparkSession, feed: Feed, monkeypatch: pytest.MonkeyPatch, write: str
) -> None:
    """The driver dies between the commits of MERGE and checkpoint; upkeep runs before the batch is repeated."""
    history = f"{feed.table}_history"
    feed.create_topic(partitions=2)
    model = Model(keys=100, partitions=2, moves_on=moves_on(write, 100))
    file = write_pipeline(feed, batch=100, write=write, history=history, partition_by=["bucket(2, id)"])
    pipeline = Pipeline.from_file(file, environment=feed.environment)
    model.send(300, topic=feed.topic, servers=feed.stack.bootstrap_servers)
    pipeline.run(spark=lake, once=True)
    forget_the_last_batch(feed)
    nothing_is_too_young(monkeypatch)
    for table in (feed.table, history):
        report = look_after(feed, lake, table, compact={"min_files": 2}, manifests={"more_than": 1})
        assert report.did.files_after < report.did.files_before
        # Another writer commits until upkeep would expire the feed's snapshots.
        for _ in range(12):
            IcebergLedger(lake, table, "another").land_empty({})
        assert look_after(feed, lake, table).did.snapshots
    model.send(100, topic=feed.topic, servers=feed.stack.bootstrap_servers)
    Pipeline.from_file(file, environment=feed.environment).run(spark=lake, once=True)
    the_table_is_its_model(feed, pipeline, model, history)
