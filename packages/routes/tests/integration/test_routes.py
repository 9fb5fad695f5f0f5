"""A feed lands each record in the table that a field or header names, exactly once in each table and over all."""

import json
import threading
from collections import defaultdict
from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import Any

import pytest
from pyiceberg.types import LongType
from pyspark.sql import DataFrame, SparkSession

from lakefeed.clients.iceberg.reader import open_catalog
from lakefeed.clients.spark.session import copy_of
from lakefeed.errors import CheckpointMismatch, LakefeedError
from lakefeed.pipeline import Pipeline
from lakefeed.sinks.iceberg.table import IcebergTable
from tests.support.background import Background, running
from tests.support.deaths import CutOff
from tests.support.feed import Feed, until

DDL = "id BIGINT, event_type STRING, at STRUCT<kind: STRING>"
BAD_NAMES = ["x" * 300, "a.b", "it's", 'a"b', "Paid", "", "a\u0000b", "paid\n", "lakefeed_ledger", "ä", None]


class Events:
    """The feed of one test, whose records name their table, and a model of its tables."""

    def __init__(self, feed: Feed, *, mark: str = "event_type") -> None:
        self.feed, self.mark, self.sent, self.place = feed, mark, 0, f"lake.{feed.name}"
        self.model: dict[str, list[int]] = defaultdict(list)
        feed.create_topic(partitions=2)

    def send(self, kinds: Iterable[str | None], *, to: str | None = None) -> None:
        """Send a record for each kind; the model expects it in the table ``to``, by default that of its kind."""
        for header, named in groupby(kinds) if "header." in self.mark else [("", iter(kinds))]:
            values = []
            for kind in named:
                self.model[str(kind) if to is None else to].append(self.sent)
                values.append(json.dumps({"id": self.sent, "event_type": kind, "at": {"kind": kind}}).encode())
                self.sent += 1
            self.feed.send(values, headers=[("type", (header or "").encode())])

    def pipeline(self, *, routes: Mapping[str, Any] | None = None, limit: int = 100_000, **blocks: Any) -> Pipeline:
        iceberg = {"table": f"lake.{self.feed.name}.{{{self.mark}}}", **({} if routes is None else {"routes": routes})}
        blocks = {"dead_letters": {"table": f"lake.{self.feed.name}.letters"}, "checkpoint": "", **blocks}
        decode = {"json": {"schema_ddl": DDL}, "metadata": ["headers"] if "header." in self.mark else []}
        source = self.feed.source(max_records_per_batch=limit)
        return self.feed.pipeline(**{"source": source, "decode": decode, "sink": {"iceberg": iceberg}, **blocks})

    def require_model(self, pipeline: Pipeline) -> None:
        """Compare all tables with the model, and require that verify finds every record once over all of them."""
        listed = open_catalog("lake", connections=self.feed.connections).list_tables(self.feed.name)
        tables = {path[-1] for path in listed} - {"letters", "lakefeed_ledger", "rows"}
        expected = {name: sorted(ids) for name, ids in self.model.items() if name and ids}
        found = {name: sorted(row["id"] for row in self.feed.rows(f"{self.place}.{name}")) for name in tables}
        assert found == expected
        dead = len(self.model[""])
        assert len(self.feed.rows(f"{self.place}.letters")) == dead
        verified = pipeline.verify(deep=True)
        counts = verified.records, verified.rows, verified.dead_letters
        assert (verified.faults, counts) == ((), (self.sent, self.sent - dead, dead))
        assert verified.tables == {name: len(ids) for name, ids in expected.items()}


@pytest.mark.quick
def test_new_values_get_tables_in_a_run_and_bad_names_are_dead_letters(lake: SparkSession, feed: Feed) -> None:
    events = Events(feed)
    pipeline = events.pipeline()
    events.send(["created", "paid", "sent"] * 4)
    events.send(BAD_NAMES, to="")
    with running(pipeline, lake) as run:
        run.until_records(events.sent)
        events.send(["returned", "paid"] * 2)
        run.until_records(events.sent)
    events.require_model(pipeline)


@pytest.mark.parametrize("checkpoint", ["none", "kept", "lost"])
def test_a_driver_dies_between_the_commits_of_two_tables(
    lake: SparkSession, feed: Feed, monkeypatch: pytest.MonkeyPatch, checkpoint: str
) -> None:
    events = Events(feed)
    location = "" if checkpoint == "none" else feed.checkpoint
    pipeline = events.pipeline(checkpoint=location)
    events.send(["created", "paid"])
    pipeline.run(spark=lake, once=True)
    events.send(["created", "paid", "sent"] * 3)
    events.send(["Bad"], to="")
    append = IcebergTable.append

    def cut(self: IcebergTable, rows: DataFrame, properties: Mapping[str, str]) -> None:
        if not self.name.endswith((".created", ".sent")):
            raise CutOff
        append(self, rows, properties)

    with monkeypatch.context() as patch:
        patch.setattr(IcebergTable, "append", cut)
        with pytest.raises(LakefeedError):
            pipeline.run(spark=lake, once=True)
    unfinished = pipeline.verify(deep=True)
    assert (unfinished.faults, [each.kind for each in unfinished.notes].count("unfinished")) == ((), 2)
    with pytest.raises(CheckpointMismatch, match="3 rows of an interrupted batch, and 0"):
        events.pipeline(routes={"names": ["paid", "sent"]}, checkpoint=location).run(spark=lake, once=True)
    if checkpoint == "lost":
        feed.forget()
    events.send(["created", "returned"] * 2)
    events.pipeline(limit=2, checkpoint=location).run(spark=lake, once=True)
    events.require_model(pipeline)


def test_a_replaced_driver_between_two_tables_lands_nothing_twice(
    lake: SparkSession, feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = Events(feed)
    pipeline = events.pipeline()
    events.send(["created", "paid"])
    pipeline.run(spark=lake, once=True)
    events.send(["created", "paid", "sent"] * 2)
    waits, resumes, append = threading.Event(), threading.Event(), IcebergTable.append

    def slow(self: IcebergTable, rows: DataFrame, properties: Mapping[str, str]) -> None:
        if self.name.endswith(".paid") and not waits.is_set():
            waits.set()
            assert resumes.wait(120)
        append(self, rows, properties)

    monkeypatch.setattr(IcebergTable, "append", slow)
    old = Background(pipeline, copy_of(lake), once=True)
    until(waits.is_set)
    events.send(["returned", "sent"])
    pipeline.run(spark=lake, once=True)
    resumes.set()
    old.thread.join(120)
    assert isinstance(old.failure, LakefeedError)
    pipeline.run(spark=lake, once=True)
    events.require_model(pipeline)


@pytest.mark.parametrize("mark", ["event_type", "at.kind", "header.type", "made"])
def test_other_values_go_to_the_default_table(lake: SparkSession, feed: Feed, mark: str) -> None:
    events = Events(feed, mark=mark)
    sql = f"SELECT *, event_type AS made FROM {feed.name}"
    made: dict[str, Any] = {"transform": {"sql": sql}} if mark == "made" else {}
    pipeline = events.pipeline(routes={"names": ["created", "paid"], "default": "other"}, **made)
    events.send(["created", "paid"] * 2)
    events.send([*BAD_NAMES, "unlisted", "other"], to="other")
    assert pipeline.run(spark=lake, once=True).dead_letters == 0
    events.require_model(pipeline)


def test_the_number_of_tables_is_bounded_and_other_tables_are_never_written(lake: SparkSession, feed: Feed) -> None:
    feed.create_table({"id": LongType()})
    events = Events(feed)
    pipeline = events.pipeline(routes={"max_tables": 2, "pattern": "k_[a-z]|rows|letters"})
    events.send(["k_a", "k_b"] * 2)
    events.send(["k_c", "k_d", "no_match", "rows", "letters"], to="")
    assert pipeline.run(spark=lake, once=True).dead_letters == 5
    rest = events.pipeline(routes={"max_tables": 2, "default": "k_rest"})
    events.send(["k_e", "k_f"], to="k_rest")
    rest.run(spark=lake, once=True)
    assert feed.rows() == []
    events.require_model(rest)


@pytest.mark.parametrize("count", [50, pytest.param(1000, marks=pytest.mark.slow)])
def test_many_tables_share_a_batch(lake: SparkSession, feed: Feed, count: int) -> None:
    events = Events(feed)
    pipeline = events.pipeline(routes={"max_tables": count})
    events.send(f"kind_{number % count}" for number in range(20 * count))
    print(f"{count} tables: {pipeline.run(spark=lake, once=True)}")
    events.require_model(pipeline)
