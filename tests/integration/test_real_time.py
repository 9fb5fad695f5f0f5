"""In real time, records go from topic to topic: all arrive, copies are recognized, unsuitable settings are refused."""

import json
import threading
from collections import Counter
from typing import Any

import pytest
from pyspark.sql import SparkSession

import lakefeed
from lakefeed.clients.kafka.topics import Topics
from lakefeed.errors import ConfigError, LakefeedError
from lakefeed.feed.progress import FinishedBatch
from tests.support.feed import Feed

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
def test_records_arrive_in_real_time_and_a_second_run_resumes(feed: Feed, lake: SparkSession) -> None:
    feed.create_topic(partitions=2)
    notes: list[str] = []

    def run(numbers: range) -> int:
        stop = threading.Event()

        def on_batch(progress: FinishedBatch) -> None:
            # A batch that was already running when the records were sent may end before it has read them.
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
    # A run in batches resumes where the run in real time has stopped.
    feed.send([json.dumps({"id": 800}).encode()])
    assert feed.pipeline(**settings(feed)).run(spark=lake, once=True).rows >= 1


@pytest.mark.quick
@pytest.mark.parametrize(
    ("sql", "notes"),
    [
        ("SELECT id, explode(array(1, 2)) AS n FROM {name}", "not join, group or explode them"),
        ("SELECT id FROM {name}", "drops the position of the record"),
    ],
)
def test_a_transform_that_gives_no_or_several_rows_for_a_record_is_refused_before_the_start(
    feed: Feed, lake: SparkSession, sql: str, notes: str
) -> None:
    feed.create_topic(partitions=1)
    transform = {"sql": sql.format(name=feed.name)}
    with pytest.raises(ConfigError, match=notes):
        feed.pipeline(**settings(feed, transform=transform)).run(spark=lake)


def test_a_topic_with_more_partitions_than_parallel_tasks_is_refused(feed: Feed, lake: SparkSession) -> None:
    feed.create_topic(partitions=3)
    with pytest.raises(LakefeedError, match="3 partitions and 2 slots"):
        feed.pipeline(**settings(feed)).run(spark=lake)
