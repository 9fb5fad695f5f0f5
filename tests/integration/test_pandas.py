"""Transforms use pandas functions, and state of a user's class, which is refused after the class has changed."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from lakefeed.errors import CheckpointMismatch, ConfigError, MissingExtra
from lakefeed_local.stack import Endpoints
from tests.support.feed import Feed

DECODE = {"json": {"schema_ddl": "zip STRING, bytes BIGINT"}}
FUNCTIONS = """
import pandas as pd
from pyspark.sql import functions as sf


@sf.pandas_udf("double")
def kilobytes(given: pd.Series) -> pd.Series:
    return given / 1024


def large(rows, least):
    def only(frames):
        for frame in frames:
            yield frame[frame.bytes >= least]

    return rows.mapInPandas(only, schema=rows.schema).withColumn("kilobytes", kilobytes("bytes"))
"""
COUNTER = """
import pandas as pd
from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor


class Counter(StatefulProcessor):
    def init(self, handle):
        self.seen = handle.getValueState("seen", "{state}")
        {more}

    def handleInputRows(self, key, rows, timerValues):
        {body}

    def close(self):
        pass


def counted(rows):
    return rows.groupBy("zip").{operator}(
        Counter(), outputStructType="zip STRING, n BIGINT", outputMode="Append", timeMode="None"
    )
"""
BODIES = {
    "transformWithState": """
        n = (self.seen.get() or (0,))[0] + len(list(rows))
        self.seen.update((n,))
        yield Row(zip=key[0], n=n)""",
    "transformWithStateInPandas": """
        n = (self.seen.get() or (0,))[0] + sum(len(each) for each in rows)
        self.seen.update((n,))
        yield pd.DataFrame({"zip": [key[0]], "n": [n]})""",
}


@pytest.fixture
def feed(stack: Endpoints, tmp_path: Path) -> Feed:
    made = Feed(stack, tmp_path)
    made.create_topic(partitions=1)
    return made


def hits(*zips: str, size: int = 1) -> list[bytes]:
    return [json.dumps({"zip": each, "bytes": size}).encode() for each in zips]


def counting(
    feed: Feed, *, operator: str = "transformWithState", state: str = "n BIGINT", more: str = "pass", version: int = 1
) -> dict[str, Any]:
    """Return the blocks of a pipeline that counts by key; each `version` is imported as a new module."""
    module = f"{feed.name}_{version}"
    body = BODIES[operator].strip()
    text = COUNTER.replace("{operator}", operator).replace("{state}", state).replace("{more}", more)
    (feed.folder / f"{module}.py").write_text(text.replace("{body}", body))
    return {"decode": DECODE, "transform": {"steps": {"counted": {"python": f"{module}:counted"}}}}


@pytest.mark.quick
def test_pandas_functions_transform_rows(feed: Feed, lake: SparkSession) -> None:
    (feed.folder / f"{feed.name}_functions.py").write_text(FUNCTIONS)
    steps = {"large": {"python": f"{feed.name}_functions:large", "options": {"least": 1024}}}
    feed.send([*hits("8001", size=10), *hits("3011", size=2048)])
    pipeline = feed.pipeline(decode=DECODE, transform={"steps": steps})
    pipeline.run(spark=lake, once=True)
    assert [(each["zip"], each["kilobytes"]) for each in feed.rows()] == [("3011", 2.0)]
    assert pipeline.verify().faults == ()


@pytest.mark.parametrize(
    "operator", ["transformWithState", pytest.param("transformWithStateInPandas", marks=pytest.mark.slow)]
)
def test_the_state_of_a_users_class_resumes_after_a_restart_and_changed_state_is_refused(
    feed: Feed, lake: SparkSession, operator: str
) -> None:
    feed.send(hits("8001", "8001", "3011"))
    feed.pipeline(**counting(feed, operator=operator)).run(spark=lake, once=True)
    feed.send(hits("8001"))
    feed.pipeline(**counting(feed, operator=operator, version=2)).run(spark=lake, once=True)
    assert sorted((each["zip"], each["n"]) for each in feed.rows()) == [("3011", 1), ("8001", 2), ("8001", 3)]

    feed.send(hits("8001"))
    more = "self.last = handle.getListState('last', 'at TIMESTAMP')"
    other = feed.pipeline(**counting(feed, operator=operator, state="n INT", more=more, version=3))
    with pytest.raises(CheckpointMismatch, match=r"value seen struct<n:bigint>[\s\S]*list last struct<at:timestamp>"):
        other.run(spark=lake, once=True)
    assert len(feed.rows()) == 3
    pipeline = feed.pipeline(**counting(feed, operator=operator, version=2))
    assert pipeline.run(spark=lake, once=True).records == 1
    assert pipeline.verify().faults == ()


def test_an_error_in_init_is_reported_before_the_start(feed: Feed, lake: SparkSession) -> None:
    with pytest.raises(ConfigError, match=r"init.* of Counter fails: .*no_such"):
        feed.pipeline(**counting(feed, more="self.no_such.get()")).run(spark=lake, once=True)
    assert not lake.catalog.tableExists(feed.table)


def test_the_error_of_a_missing_pandas_names_the_install_command(
    feed: Feed, lake: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = feed.pipeline(**counting(feed))
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingExtra, match=r"(?s)pandas.*transform\.steps\.counted.*lakefeed\[pandas\]'"):
        pipeline.run(spark=lake, once=True)


TIMERS = """
from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor


class Visit(StatefulProcessor):
    def init(self, handle):
        self.handle = handle
        self.seen = handle.getValueState("seen", "n BIGINT")

    def handleInputRows(self, key, rows, timerValues):
        given = list(rows)
        self.seen.update(((self.seen.get() or (0,))[0] + len(given),))
        for timer in list(self.handle.listTimers()):
            self.handle.deleteTimer(timer)
        self.handle.registerTimer(max(each.ms for each in given) + 60_000)
        return iter([])

    def handleExpiredTimer(self, key, timerValues, expiredTimerInfo):
        yield Row(zip=key[0], n=self.seen.get()[0])
        self.seen.clear()

    def close(self):
        pass


def visits(rows):
    return rows.groupBy("zip").transformWithState(
        Visit(), outputStructType="zip STRING, n BIGINT", outputMode="Append", timeMode="EventTime"
    )
"""


@pytest.mark.slow
def test_timers_expire_when_the_watermark_passes_even_in_batches_without_records(
    feed: Feed, lake: SparkSession
) -> None:
    (feed.folder / f"{feed.name}_timers.py").write_text(TIMERS)
    at = {"sql": f"SELECT zip, at, unix_millis(at) AS ms FROM {feed.name}"}
    pipeline = feed.pipeline(
        decode={"json": {"schema_ddl": "zip STRING, at TIMESTAMP"}},
        transform={
            "watermark": {"column": "at", "delay": "10 seconds"},
            "steps": {"timed": at, "visits": {"python": f"{feed.name}_timers:visits"}},
        },
    )

    def visit(zip_code: str, minute: int) -> bytes:
        return json.dumps({"zip": zip_code, "at": f"2024-01-01T12:{minute:02}:00Z"}).encode()

    feed.send([visit("8001", 0), visit("8001", 1), visit("3011", 1)])
    pipeline.run(spark=lake, once=True)
    assert not lake.catalog.tableExists(feed.table) or feed.rows() == []
    # The record at minute 5 moves the watermark, so that the timers end visits that had no record for a minute.
    feed.send([visit("6003", 5)])
    pipeline.run(spark=lake, once=True)
    assert sorted((each["zip"], each["n"]) for each in feed.rows()) == [("3011", 1), ("8001", 2)]
    assert pipeline.verify().faults == ()
