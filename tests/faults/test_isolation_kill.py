"""A driver dies while it searches for failing records; each record still becomes exactly one row or dead letter."""

import json
import sys

import pytest

from lakefeed.pipeline import Pipeline
from tests.support.cli import Running
from tests.support.faults.drivers import SHORT_LIVED
from tests.support.faults.isolation_child import SAYS
from tests.support.faults.landed import Landing
from tests.support.feed import Feed

# The driver dies while it tries all records, half of them or a single record, or before it lands the valid records.
STEPS = ("1", "2", "7", "commit")
POISON = {3, 17, 18, 40, 57}


@pytest.mark.slow
def test_a_kill_during_the_search_for_failing_records_loses_and_doubles_no_record(feed: Feed) -> None:
    feed.create_topic(partitions=2)
    values = [json.dumps({"id": at, "text": "x" if at in POISON else f"{at + 1}"}).encode() for at in range(60)]
    feed.send(values[:30], partition=0)
    feed.send(values[30:], partition=1)
    landing = Landing(feed, "iceberg")
    file = feed.write_file(
        source=feed.source(max_records_per_batch=30),
        decode={"json": {"schema_ddl": "id BIGINT, text STRING"}, "metadata": ["topic", "partition", "offset"]},
        transform={"sql": f"SELECT *, 100 / CAST(text AS INT) AS share FROM {feed.name}"},
        dead_letters={"table": landing.letters},
    )
    environment = {**feed.environment, **SHORT_LIVED}
    for number, step in enumerate((*STEPS, "never")):
        command = (sys.executable, "-m", "tests.support.faults.isolation_child", step)
        run = Running(["run", file, "--once"], environment, feed.folder / f"{number}.log", command=command)
        status = run.process.wait(300)
        rows = [row["id"] for row in landing.rows()]
        letters = landing.dead_letters()
        assert len(rows) == len(set(rows)), step
        assert len(letters) == len(set(letters)), step
        assert not set(rows) & POISON, step
        assert (SAYS in run.said()) is (status != 0) is (step != "never"), run.said()
    assert sorted(rows) == sorted(set(range(60)) - POISON)
    assert sorted(letters) == sorted(values[at] for at in POISON)
    assert not Pipeline.from_file(file, environment=feed.environment).verify(deep=True).faults
