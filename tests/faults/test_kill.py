"""A run is killed or stopped at any moment: after the next run, each row is in the table once."""

import os
import signal
import time

import pytest

from lakefeed_local.examples import packaged_example
from lakefeed_local.stack import Endpoints
from tests.support.cli import Running, lakefeed
from tests.support.feed import Feed

PIPELINE = packaged_example("taxi").main
ROWS = 24_000  # These settings give eight batches.


@pytest.fixture(scope="module")
def topic(stack: Endpoints, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return a topic with generated trips; each test lands it in a separate table."""
    feed = Feed(stack, tmp_path_factory.mktemp("kill"))
    feed.create_topic(partitions=10)
    lakefeed("topics", "produce", feed.topic, "--generate", "taxi", "--rows", str(ROWS), environment=feed.environment)
    return feed.topic


def arguments(topic: str, feed: Feed) -> list[str]:
    """Return options that run the demo's pipeline in small batches, with this topic, table and checkpoint."""
    settings = {
        "source.kafka.topics.0": topic,
        "source.kafka.max_records_per_batch": "3000",
        "sink.iceberg.table": feed.table,
        "checkpoint": feed.checkpoint,
        "trigger": "1 second",
        **feed.path_block,
    }
    return ["run", str(PIPELINE), *(f"--set={key}={value}" for key, value in settings.items())]


@pytest.mark.slow
def test_a_suspended_driver_commits_nothing_after_a_successor_replaced_it(topic: str, feed: Feed) -> None:
    run_it = arguments(topic, feed)
    first = Running(run_it, feed.environment, feed.folder / "first.log")
    first.wait_until_it_says(": batch ", times=2)
    os.killpg(first.process.pid, signal.SIGSTOP)
    lakefeed(*run_it, "--once", environment=feed.environment)
    time.sleep(60)
    os.killpg(first.process.pid, signal.SIGCONT)
    lakefeed("topics", "produce", topic, "--generate", "taxi", "--rows", "10", environment=feed.environment)
    assert first.process.wait(180) == 2, first.said()
    assert "another driver" in first.said()
    assert "Traceback" not in first.said()
    rows = feed.rows()
    assert len({(row["kafka_partition"], row["kafka_offset"]) for row in rows}) == len(rows)
    assert len(rows) == ROWS
