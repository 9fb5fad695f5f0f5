"""An upsert feed is killed and repeats batches: its table equals a model that does not use Spark, row by row.

``LAKEFEED_UPSERT_CHANGES`` (by default 100,000), ``LAKEFEED_UPSERT_KEYS`` (by default a fifth of the changes) and
``LAKEFEED_UPSERT_KILLS`` (by default 5) set the size of the test.
"""

from __future__ import annotations

import json
import os
import random
import re
import time
from pathlib import Path

import pytest

from lakefeed_local.stack import Endpoints
from tests.support.changes import Model, differences, forget_the_last_batch, rows_of, write_pipeline
from tests.support.cli import Running, lakefeed
from tests.support.feed import Feed

pytestmark = pytest.mark.timeout(6 * 3600)


def seconds_of_the_last_batch(run: Running) -> float:
    last = [line for line in run.said().splitlines() if ": batch " in line][-1]
    found = re.search(r" · ([\d.]+) s · ", last)
    assert found, last
    return float(found[1])


@pytest.mark.slow
@pytest.mark.parametrize(("write", "version"), [("merge-on-read", 2), ("copy-on-write", 2), ("merge-on-read", 3)])
def test_the_table_equals_the_model_after_many_changes_and_kills(
    stack: Endpoints, tmp_path: Path, write: str, version: int
) -> None:
    changes = int(os.environ.get("LAKEFEED_UPSERT_CHANGES", "100_000"))
    keys = int(os.environ.get("LAKEFEED_UPSERT_KEYS", str(changes // 5)))
    kills = int(os.environ.get("LAKEFEED_UPSERT_KILLS", "5"))
    feed = Feed(stack, tmp_path)
    feed.create_topic(partitions=6)
    model = Model(keys=keys, partitions=6)
    model.send(changes, topic=feed.topic, servers=stack.bootstrap_servers, remember=False)
    file = write_pipeline(
        feed, batch=max(1_000, changes // 40), write=write, partition_by=["city"], format_version=version
    )
    dice = random.Random(7)
    for attempt in range(kills):
        run = Running(["run", file, "--once"], feed.environment, tmp_path / f"{attempt}.log")
        run.wait_until_it_says(": batch ", times=dice.randint(1, 3), timeout=3600)
        time.sleep(dice.random() * seconds_of_the_last_batch(run))
        # The run must not have ended yet, so that the kill interrupts it and the last run has work left.
        assert run.process.poll() is None, run.said()
        run.kill()
        if attempt % 2:
            forget_the_last_batch(feed)
    in_json = ("--output", "json")
    done = lakefeed("run", file, "--once", *in_json, environment=feed.environment, timeout=6 * 3600)
    assert json.loads(done.stdout)["batches"] > 0
    assert differences(rows_of(feed, feed.table), model.table()) == []
    proof = json.loads(lakefeed("verify", file, "--deep", *in_json, environment=feed.environment, timeout=3600).stdout)
    assert proof["upserts"]["changes"] == proof["records"] == changes
