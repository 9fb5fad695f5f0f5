"""Records from topic to topic in real time: each is there, copies are recognized, and what does not fit is refused."""

from __future__ import annotations

import json
import threading
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import lakefeed
from lakefeed.clients.kafka.topics import Topics
from lakefeed.errors import ConfigError, LakefeedError
from lakefeed.feed.progress import BatchProgress
from tests.support.cli import lakefeed as command
from tests.support.feed import Feed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DECODE = {"json": {"schema_ddl": "id BIGINT"}}


def settings(feed: Feed, **blocks: Any) -> dict[str, Any]:
    topics = Topics(feed.stack.bootstrap_servers)
    topics.create(f"{feed.topic}-out", partitions=1, exist_ok=True)
    return {
        "source": {"kafka": {"bootstrap_servers": feed.stack.bootstrap_servers, "topics": [feed.topic]}},
        "decode": DECODE,
        "sink": {"kafka": {"topic": f"{feed.topic}-out", "key": "id % 5"}},
        "trigger": "real-time, 5 seconds",
        **blocks,
    }


@pytest.mark.quick
@pytest.mark.slow
def test_records_go_through_and_a_second_run_resumes(feed: Feed, lake: SparkSession) -> None:
    feed.create_topic(partitions=2)
    notes: list[str] = []

    def run(numbers: range) -> int:
        stop = threading.Event()

        def on_batch(progress: BatchProgress) -> None:
            # The batch that was under way when they were sent may end before them.
            seen.append(progress.records)
            if sum(seen) >= len(numbers):
                stop.set()

        seen: list[int] = []
        feed.send(json.dumps({"id": number}).encode() for number in numbers)
        summary = feed.pipeline(**settings(feed)).run(spark=lake, stop=stop, on_batch=on_batch, on_note=notes.append)
        return summary.rows

    assert run(range(500)) >= 500
    assert run(range(500, 800)) >= 300
    assert any("at-least-once" in each for each in notes)
    reader = lake.read.format("kafka").option("kafka.bootstrap.servers", feed.stack.bootstrap_servers)
    records = reader.option("subscribe", f"{feed.topic}-out").option("includeHeaders", "true").load()
    once = [json.loads(each.value)["id"] for each in lakefeed.deduplicated(records).collect()]
    assert Counter(once) == Counter(range(800))
    batches = {bytes(h.value).decode() for each in records.collect() for h in each.headers if h.key == "lakefeed.batch"}
    assert all(each.partition("/")[2].isdigit() for each in batches)
    # The same file in batches resumes where real time has ended.
    feed.send([json.dumps({"id": 800}).encode()])
    assert feed.pipeline(**settings(feed)).run(spark=lake, once=True).rows >= 1


@pytest.mark.quick
@pytest.mark.parametrize(
    ("sql", "notes"),
    [
        ("SELECT id, explode(array(1, 2)) AS n FROM {name}", "without joins, groups and explode"),
        ("SELECT id FROM {name}", "which record they are made of"),
    ],
)
def test_what_is_no_row_for_a_record_is_refused_before_anything_is_sent(
    feed: Feed, lake: SparkSession, sql: str, notes: str
) -> None:
    feed.create_topic(partitions=1)
    transform = {"sql": sql.format(name=feed.name)}
    with pytest.raises(ConfigError, match=notes):
        feed.pipeline(**settings(feed, transform=transform)).run(spark=lake)


def test_more_partitions_than_tasks_at_a_time_are_refused(feed: Feed, lake: SparkSession) -> None:
    feed.create_topic(partitions=3)
    with pytest.raises(LakefeedError, match="3 partitions, and 2 tasks"):
        feed.pipeline(**settings(feed)).run(spark=lake)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_bench_measures_both_triggers_in_one_run(tmp_path: Path) -> None:
    done = command(
        *("bench", "latency", "--sink", "topic", "--home", str(tmp_path / "bench")),
        *("--seconds", "10", "--warm-up", "5"),
        *("--rate", "50", "--trigger", "1 second", "--trigger", "real-time, 10 seconds", "--output", "json"),
        timeout=800,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    batches, real_time = json.loads(done.stdout)
    assert (batches["trigger"], real_time["trigger"]) == ("1 second", "real-time, 10 seconds")
    for each in (batches, real_time):
        assert each["missing"] == 0
        assert each["records"] >= 250
        assert 0 < each["p50_ms"] <= each["p99_ms"] <= each["max_ms"]
    assert real_time["p50_ms"] < batches["p50_ms"]
