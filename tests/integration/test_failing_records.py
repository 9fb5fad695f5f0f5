"""A record that the transform fails at: the error names it, nothing is committed, and the feed resumes without it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from lakefeed.errors import JobFailed
from tests.feed import Feed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DECODE = {"json": {"schema_ddl": "id BIGINT, text STRING"}, "metadata": ["partition", "offset"]}
SECRET = "hunter2"


def test_the_record_is_named_without_its_values(
    lake: SparkSession, feed: Feed, capfd: pytest.CaptureFixture[str]
) -> None:
    feed.create_topic(partitions=2)
    transform = {"sql": f"SELECT id, 100 / CAST(text AS INT) AS share, kafka_partition, kafka_offset FROM {feed.name}"}
    texts = ["1", "2", "4", SECRET, "5"]
    values = [json.dumps({"id": id_, "text": text}).encode() for id_, text in enumerate(texts)]
    feed.send(values[:3], partition=0)
    feed.send(values, partition=1)
    capfd.readouterr()
    with pytest.raises(JobFailed) as failed:
        feed.pipeline(decode=DECODE, transform=transform).run(spark=lake, once=True)
    assert failed.value.what == f"the transform fails at {feed.topic}-1 offset 3; nothing of the batch is written"
    # tests/unit/test_record_values.py has what follows: the types and the expression.
    assert failed.value.where is not None
    assert failed.value.where.startswith(f"feed {feed.name}, [CAST_INVALID_INPUT]")
    assert failed.value.hint is not None
    assert f"--range {feed.topic}:1:3:4;" in failed.value.hint
    assert SECRET not in str(failed.value) + "".join(capfd.readouterr())
    assert feed.rows() == []

    rule = {"number": {"rule": "text RLIKE '^[0-9]+$'", "on_violation": "drop"}}
    summary = feed.pipeline(decode=DECODE, transform=transform, expect=rule).run(spark=lake, once=True)
    assert (summary.rows, summary.records) == (7, 8)
    landed = sorted((each["kafka_partition"], each["kafka_offset"]) for each in feed.rows())
    assert landed == [*((0, each) for each in range(3)), (1, 0), (1, 1), (1, 2), (1, 4)]
