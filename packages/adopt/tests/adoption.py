"""Send numbered records, plan a takeover, take over, and check that each record landed once."""

import json
import os
from typing import Any

from pyspark.sql import SparkSession

from lakefeed.clients.spark.errors import translating
from lakefeed.pipeline import Pipeline
from lakefeed_adopt.plan import AdoptionPlan, execute_adoption, plan_adoption
from lakefeed_adopt.position import Origin
from tests.support.feed import Feed, ids

DECODE: dict[str, Any] = {"json": {"schema_ddl": "id BIGINT"}, "metadata": ["topic", "partition", "offset"]}
RUNS = int(os.environ.get("ADOPT_RUNS", "20"))
"""The number of random moments at which the slow tests stop each tool."""


def send(feed: Feed, ids: range, *, partition: int = -1) -> None:
    feed.send([json.dumps({"id": number}).encode() for number in ids], partition=partition)


def plan(pipeline: Pipeline, origin: str, **options: Any) -> AdoptionPlan:
    return plan_adoption(pipeline.feed, Origin.parse(origin), is_stopped=True, **options)


def take_over(pipeline: Pipeline, lake: SparkSession, origin: str, **options: Any) -> AdoptionPlan:
    agreed = plan(pipeline, origin, **options)
    with translating():
        execute_adoption(pipeline.feed, agreed, lake)
    return agreed


def assert_each_once(feed: Feed, pipeline: Pipeline, count: int) -> None:
    """Assert that each record has landed once, by the rows' ids and by ``verify``."""
    assert ids(feed) == list(range(count))
    for deep in (False, True):
        proof = pipeline.verify(deep=deep)
        assert not proof.faults, proof.faults
        assert "adopted" in {note.kind for note in proof.notes}
