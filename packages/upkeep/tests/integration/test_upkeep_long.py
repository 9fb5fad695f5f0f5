"""Many small batches with scheduled upkeep: files, metadata, durations and requests do not grow; kills do no harm.

``LAKEFEED_UPKEEP_BATCHES`` sets the number of batches (default and minimum 200), ``LAKEFEED_UPKEEP_SEED`` the moments
of the kills.
"""

import json
import os
import random
import time
from collections.abc import Callable
from statistics import mean, median
from typing import Any

import pytest
from pyspark.sql import SparkSession

from lakefeed.clients.iceberg.reader import open_table
from lakefeed.config.values import seconds_of
from lakefeed.feed.progress import FinishedBatch
from lakefeed_upkeep import actions as due
from lakefeed_upkeep.table_stats import Health, read_health
from packages.upkeep.tests.integration.test_upkeep import DECODE, every_record_once, look_after, nothing_is_too_young
from tests.support.cli import Running, lakefeed
from tests.support.feed import Feed, trips
from tests.support.table_files import left_behind

pytestmark = pytest.mark.timeout(6 * 3600)

BATCHES = max(200, int(os.environ.get("LAKEFEED_UPKEEP_BATCHES", "200")))
SEED = int(os.environ.get("LAKEFEED_UPKEEP_SEED", "20180208"))
BATCHES_BETWEEN_KILLS = range(40, 60)
"""The number of batches after which a kill comes as soon as upkeep runs; at the range's end it comes in any case."""
ROWS = 10
KEPT = 40
BLOCKS: dict[str, Any] = {
    "decode": DECODE,
    "trigger": "0 seconds",
    "upkeep": {
        "every": "20 seconds",
        "compact": {"min_files": 10},
        "manifests": {"more_than": 20},
        "expire": {"older_than": "20 seconds", "keep": KEPT},
        "orphans": {"every": "1 minute"},
    },
}


def small_batches(feed: Feed, batches: int) -> dict[str, Any]:
    """Send records; return the blocks of a pipeline that reads these records in `batches` small batches."""
    feed.create_topic(partitions=1)
    feed.send(feed.avro(trips(0, batches * ROWS)))
    return {**BLOCKS, "source": feed.source(max_records_per_batch=ROWS)}


def orphans_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let upkeep remove orphans after a minute; users must allow a day, but the batches here take only seconds."""
    monkeypatch.setattr(due, "seconds_of", lambda text: 60 if text == "3 days" else seconds_of(text))


@pytest.mark.slow
def test_files_metadata_durations_and_requests_stay_flat_over_many_batches(
    lake: SparkSession, feed: Feed, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    orphans_soon(monkeypatch)
    blocks = small_batches(feed, BATCHES)
    pipeline = feed.pipeline(**blocks)
    batches: list[FinishedBatch] = []
    seen: dict[int, Health] = {}
    notes: list[str] = []

    def on_batch(progress: FinishedBatch) -> None:
        batches.append(progress)
        if len(batches) % 10 == 0:
            seen[len(batches)] = read_health(feed.table, connections=feed.connections)

    summary = pipeline.run(spark=lake, once=True, on_batch=on_batch, on_note=notes.append)
    assert summary.batches == BATCHES
    assert not [note for note in notes if "failed" in note]
    figures: dict[str, Callable[[range], float]] = {
        "files": lambda part: max(seen[at].files for at in part if at in seen),
        "manifests": lambda part: max(seen[at].manifests for at in part if at in seen),
        "snapshots": lambda part: max(seen[at].snapshots for at in part if at in seen),
        "metadata_bytes": lambda part: max(seen[at].metadata_bytes for at in part if at in seen),
        "seconds (median)": lambda part: median(batches[at - 1].seconds for at in part),
        "requests (median)": lambda part: median(_requests(batches[at - 1]) for at in part),
        "requests (mean, upkeep's too)": lambda part: mean(_requests(batches[at - 1]) for at in part),
    }
    first, last = range(1, 101), range(BATCHES - 99, BATCHES + 1)
    compared = {name: (figure(first), figure(last)) for name, figure in figures.items()}
    with capsys.disabled():
        print(f"\n{BATCHES} batches, {len(notes)} times upkeep: first and last hundred")
        for name, (before, after) in compared.items():
            print(f"  {name:<32}{before:>12,.1f}{after:>12,.1f}")
    for name, (before, after) in compared.items():
        # Allow some growth: a batch takes about a second, and other load on this machine can delay it.
        slack = 0.5 if name.startswith("seconds") else 5
        assert after <= 1.5 * before + slack, f"{name} grows: {compared}"
    every_record_once(pipeline)


@pytest.mark.slow
def test_each_record_lands_once_with_upkeep_and_a_kill_every_fifty_batches(
    lake: SparkSession, feed: Feed, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    blocks = small_batches(feed, BATCHES)
    blocks["upkeep"] = {**blocks["upkeep"], "every": "5 seconds"}
    file = feed.write_file(**blocks)
    dice = random.Random(SEED)
    kills = in_upkeep = 0
    while True:
        run = Running(["run", str(file), "--once"], feed.environment, feed.folder / f"{kills}.log")
        at_work = False
        while run.process.poll() is None and not at_work:
            batches = run.said().count(": batch ")
            if batches >= BATCHES_BETWEEN_KILLS.stop:
                break
            at_work = batches >= BATCHES_BETWEEN_KILLS.start and upkeep_is_at_work(feed, run)
            time.sleep(0.05)
        # Wait for up to 3 seconds, so that the kill hits a random moment.
        time.sleep(dice.random() * 3)
        if run.process.poll() is not None:
            assert run.process.returncode == 0, run.said()
            break
        in_upkeep += upkeep_is_at_work(feed, run)
        run.kill()
        kills += 1
        assert "failed" not in run.said(), run.said()
        every_commit_is_right(feed, file)
    pipeline = feed.pipeline(**blocks)
    every_record_once(pipeline)
    nothing_is_too_young(monkeypatch)
    report = look_after(feed, lake)
    assert left_behind(feed) == set()
    with capsys.disabled():
        print(
            f"\n{BATCHES} batches, {kills} kills, {in_upkeep} of them in upkeep, seed {SEED}; then: {report.sentence}"
        )
    every_record_once(pipeline)
    assert sorted(row["id"] for row in feed.rows()) == list(range(BATCHES * ROWS))


def upkeep_is_at_work(feed: Feed, run: Running) -> bool:
    """Return whether this process holds the upkeep lease; the lease of a killed process stays until it expires."""
    properties = open_table(feed.table, connections=feed.connections).properties
    return f"-{run.process.pid}-" in properties.get("lakefeed.upkeep.lease", "")


def every_commit_is_right(feed: Feed, file: Any) -> None:
    """Just after a kill, check that ``lakefeed verify --deep`` finds no fault in the table."""
    shown = lakefeed("verify", file, "--deep", "--output", "json", environment=feed.environment, status=None)
    document = json.loads(shown.stdout)
    assert [each for each in document["findings"] if each["fault"]] == [], document["findings"]


def _requests(progress: FinishedBatch) -> int:
    assert progress.requests is not None
    return progress.requests.total
