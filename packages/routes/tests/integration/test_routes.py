"""A feed lands each record exactly once, in the table that a field or a header of the record names."""

import json
import os
import resource
import signal
import subprocess
import sys
import threading
from collections import defaultdict
from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import Any

import pytest
from pyiceberg.types import LongType
from pyspark.sql import DataFrame, SparkSession

from lakefeed.clients.iceberg.reader import open_catalog, open_table
from lakefeed.clients.spark.session import copy_of
from lakefeed.errors import CheckpointMismatch, ConfigError, LakefeedError
from lakefeed.pipeline import Pipeline
from lakefeed.sinks.iceberg.table import IcebergTable
from lakefeed_repair.rewind import plan_rewind
from tests.support.background import Background, running
from tests.support.deaths import CutOff
from tests.support.feed import Feed, until

DDL = "id BIGINT, event_type STRING, at STRUCT<kind: STRING>"
BAD_NAMES = ["x" * 300, "a.b", "it's", 'a"b', "Paid", "", "a\u0000b", "paid\n", "lakefeed_ledger", "ä", None]
DIES = """
import os, signal, sys
from lakefeed.pipeline import Pipeline
from lakefeed.sinks.iceberg.table import IcebergTable
append, left = IcebergTable.append, int(sys.argv[2])
def dies(self, rows, properties):
    global left
    append(self, rows, properties)
    left -= 1
    if left <= 0: os.killpg(0, signal.SIGKILL)
IcebergTable.append = dies
Pipeline.from_file(sys.argv[1]).run(once=True)
"""


class Events:
    """The feed of one test, whose records name their tables, and a model of the expected tables."""

    def __init__(self, feed: Feed, *, mark: str = "event_type") -> None:
        self.feed, self.mark, self.sent = feed, mark, 0
        self.model: dict[str, list[int]] = defaultdict(list)
        feed.create_topic(partitions=2)

    def send(self, kinds: Iterable[str | None], *, to: str | None = None) -> None:
        """Send a record for each name; the model expects it in the table ``to``, by default in the named table."""
        for header, named in groupby(kinds) if "header." in self.mark else [("", iter(kinds))]:
            values = []
            for kind in named:
                self.model[str(kind) if to is None else to].append(self.sent)
                values.append(json.dumps({"id": self.sent, "event_type": kind, "at": {"kind": kind}}).encode())
                self.sent += 1
            self.feed.send(values, headers=[("type", (header or "").encode())])

    def pipeline(self, *, routes: Mapping[str, Any] | None = None, limit: int = 100_000, **blocks: Any) -> Pipeline:
        iceberg = {"table": f"lake.{self.feed.name}.{{{self.mark}}}", **({} if routes is None else {"routes": routes})}
        given = {
            "source": self.feed.source(max_records_per_batch=limit),
            "decode": {"json": {"schema_ddl": DDL}, "metadata": ["headers"] if "header." in self.mark else []},
            "sink": {"iceberg": iceberg},
            "dead_letters": {"table": f"lake.{self.feed.name}.letters"},
            "checkpoint": "",
        }
        return self.feed.pipeline(**{**given, **blocks})

    def rows(self, name: str) -> list[dict[str, Any]]:
        return self.feed.rows(f"lake.{self.feed.name}.{name}")

    def require_model(self, pipeline: Pipeline) -> None:
        """Compare all tables with the model, and check with ``verify`` that they have every record once."""
        listed = open_catalog("lake", connections=self.feed.connections).list_tables(self.feed.name)
        tables = {path[-1] for path in listed} - {"letters", "lakefeed_ledger"}
        expected = {name: sorted(ids) for name, ids in self.model.items() if name and ids}
        assert {name: sorted(row["id"] for row in self.rows(name)) for name in tables} == expected
        dead = len(self.model[""])
        assert len(self.rows("letters")) == dead
        verified = pipeline.verify(deep=True)
        assert verified.faults == ()
        assert (verified.records, verified.rows, verified.dead_letters) == (self.sent, self.sent - dead, dead)
        assert verified.tables == {name: len(ids) for name, ids in expected.items()}


def die(pipeline: Pipeline, lake: SparkSession, *committed: str) -> None:
    """Run the pipeline; the driver dies in the next batch, after only the tables ``committed`` have committed it."""
    append = IcebergTable.append

    def cut(self: IcebergTable, rows: DataFrame, properties: Mapping[str, str]) -> None:
        if self.name.rpartition(".")[2] not in committed:
            raise CutOff
        append(self, rows, properties)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(IcebergTable, "append", cut)
        with pytest.raises((LakefeedError, CutOff)):
            pipeline.run(spark=lake, once=True)


@pytest.mark.quick
def test_new_values_get_tables_while_the_feed_runs_and_invalid_names_become_dead_letters(
    lake: SparkSession, feed: Feed
) -> None:
    events = Events(feed)
    pipeline = events.pipeline()
    events.send(["created", "paid", "sent"] * 4)
    events.send(BAD_NAMES, to="")
    with running(pipeline, lake) as run:
        run.until_records(events.sent)
        events.send(["returned", "paid"] * 2)
        run.until_records(events.sent)
    assert run.end().dead_letters == len(BAD_NAMES)
    events.require_model(pipeline)
    # A batch makes no commit in a table for which it has no rows.
    names = (f"lake.{feed.name}.{name}" for name in ("sent", "paid"))
    sent, paid = (len(open_table(name, connections=feed.connections).snapshots()) for name in names)
    assert sent < paid


@pytest.mark.parametrize("checkpoint", ["none", "kept", "lost"])
@pytest.mark.quick
def test_a_driver_that_dies_between_the_commits_of_two_tables_loses_and_doubles_nothing(
    lake: SparkSession, feed: Feed, checkpoint: str
) -> None:
    events = Events(feed)
    location = "" if checkpoint == "none" else feed.checkpoint
    pipeline = events.pipeline(checkpoint=location)
    events.send(["created", "paid"])
    pipeline.run(spark=lake, once=True)
    events.send(["created", "paid", "sent"] * 3)
    events.send(["Bad"], to="")
    die(pipeline, lake, "created", "sent")
    unfinished = pipeline.verify(deep=True)
    assert unfinished.faults == ()
    assert [each.kind for each in unfinished.notes].count("unfinished") == 2
    if checkpoint == "lost":
        feed.forget()
    # The interrupted batch is completed first, with its own end offsets, because the next batch would have others.
    events.send(["created", "returned"] * 2)
    events.pipeline(limit=2, checkpoint=location).run(spark=lake, once=True)
    events.require_model(pipeline)


def test_a_batch_that_only_some_tables_have_is_not_completed_by_changed_rules(lake: SparkSession, feed: Feed) -> None:
    events = Events(feed)
    events.send(["created", "paid"] * 3)
    die(events.pipeline(), lake, "paid")
    with pytest.raises(CheckpointMismatch, match="3 rows of an interrupted batch, and 0"):
        events.pipeline(routes={"names": ["created"]}).run(spark=lake, once=True)
    events.pipeline().run(spark=lake, once=True)
    events.require_model(events.pipeline())


@pytest.mark.slow
def test_each_record_lands_once_after_the_driver_was_killed(lake: SparkSession, feed: Feed) -> None:
    events = Events(feed)
    pipeline = events.pipeline(limit=40)
    events.send(f"kind_{number % 7}" for number in range(200))
    for commits in ("1", "3", "9"):
        command = [sys.executable, "-c", DIES, str(feed.folder / f"{feed.name}.yaml"), commits]
        environment = {**os.environ, **feed.environment}
        done = subprocess.run(command, env=environment, start_new_session=True, timeout=240, check=False)
        assert done.returncode == -signal.SIGKILL
        assert pipeline.verify(deep=True).faults == ()
    pipeline.run(spark=lake, once=True)
    events.require_model(pipeline)


def test_a_driver_that_is_replaced_between_two_tables_lands_nothing_twice(
    lake: SparkSession, feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = Events(feed)
    pipeline = events.pipeline()
    events.send(["created", "paid"])
    pipeline.run(spark=lake, once=True)
    events.send(["created", "paid", "sent"] * 2)
    waits, continued, append = threading.Event(), threading.Event(), IcebergTable.append

    def slow(self: IcebergTable, rows: DataFrame, properties: Mapping[str, str]) -> None:
        if self.name.endswith(".paid") and not waits.is_set():
            waits.set()
            assert continued.wait(120)
        append(self, rows, properties)

    monkeypatch.setattr(IcebergTable, "append", slow)
    old = Background(pipeline, copy_of(lake), once=True)
    until(waits.is_set)
    events.send(["returned", "sent"])
    pipeline.run(spark=lake, once=True)
    continued.set()
    old.thread.join(120)
    assert isinstance(old.failure, LakefeedError)
    pipeline.run(spark=lake, once=True)
    events.require_model(pipeline)


@pytest.mark.parametrize("mark", ["event_type", "at.kind", "header.type", "made"])
def test_values_that_are_not_listed_go_to_the_default_table(lake: SparkSession, feed: Feed, mark: str) -> None:
    events = Events(feed, mark=mark)
    made: dict[str, Any] = (
        {"transform": {"sql": f"SELECT *, event_type AS made FROM {feed.name}"}} if mark == "made" else {}
    )
    pipeline = events.pipeline(routes={"names": ["created", "paid"], "default": "other"}, **made)
    events.send(["created", "paid"] * 2)
    events.send([*BAD_NAMES, "unlisted", "other"], to="other")
    assert pipeline.run(spark=lake, once=True).dead_letters == 0
    events.require_model(pipeline)
    if made:
        events.send(["Upper"], to="other")
        strict = events.pipeline(**made)
        with pytest.raises(ConfigError, match="names no table"):
            strict.run(spark=lake, once=True)


def test_the_number_of_tables_is_limited_and_tables_of_others_are_never_written(lake: SparkSession, feed: Feed) -> None:
    feed.create_table({"id": LongType()})
    events = Events(feed)
    pipeline = events.pipeline(routes={"max_tables": 2, "pattern": "k_[a-z]|rows|letters"})
    events.send(["k_a", "k_b"] * 2)
    events.send(["k_c", "k_d", "no_match", "rows", "letters"], to="")
    assert pipeline.run(spark=lake, once=True).dead_letters == 5
    # A restart knows the existing tables; with a default table, all other records go there.
    rest = events.pipeline(routes={"max_tables": 2, "default": "k_rest"})
    events.send(["k_a"])
    events.send(["k_e", "k_f"], to="k_rest")
    rest.run(spark=lake, once=True)
    assert feed.rows() == []
    open_catalog("lake", connections=feed.connections).drop_table(f"{feed.name}.rows")
    events.require_model(rest)


def test_a_table_gets_new_columns_with_the_next_rows_that_it_receives(lake: SparkSession, feed: Feed) -> None:
    events = Events(feed)
    events.send(["created", "paid"])
    events.pipeline().run(spark=lake, once=True)
    wider = events.pipeline(decode={"json": {"schema_ddl": f"{DDL}, more STRING"}})
    for kind, wide in (("paid", [False, True]), ("created", [True, True])):
        events.send([kind])
        wider.run(spark=lake, once=True)
        assert ["more" in events.rows(name)[0] for name in ("created", "paid")] == wide
    # Other commands show the position of the feed, or refuse operations that routed tables do not support.
    assert sum(part.table or 0 for part in wider.status().partitions) == events.sent
    assert [sum(part.backlog for part in plan.partitions) for plan in wider.plan(spark=lake).tables] == [0]
    with pytest.raises(ConfigError, match="cannot be moved"):
        plan_rewind(wider, "earliest")


@pytest.mark.parametrize("count", [50, pytest.param(1000, marks=pytest.mark.slow)])
def test_many_tables_share_a_batch(lake: SparkSession, feed: Feed, count: int) -> None:
    events = Events(feed)
    pipeline = events.pipeline(routes={"max_tables": count})
    for batch in ("first", "second"):
        events.send(f"kind_{number % count}" for number in range(20 * count))
        done = pipeline.run(spark=lake, once=True)
        memory = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024
        print(f"{count} tables, {batch}: {done.seconds} s, {memory} MB, S3 requests {dict(done.s3_requests or {})}")
    events.require_model(pipeline)
