"""All ledgers behave alike: Iceberg's, and a user's class whose ``last`` returns the newest batch."""

import uuid
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from pyiceberg.catalog import load_catalog
from pyspark.sql import SparkSession

from lakefeed.clients.iceberg.catalogs import make_catalog
from lakefeed.ledger.continuity import RangesLedger
from lakefeed.ledger.feed_position import Position
from lakefeed.ledger.snapshot_summary import Commit
from lakefeed.ledger.snapshots import position_in
from tests.support.catalogs import SqliteCase
from tests.support.feed_table import FEED, Table
from tests.support.ledger_contract import *  # noqa: F403
from tests.support.ledger_contract import Case


@dataclass
class Memory:
    """A user's ledger: it is in memory, and its ``last`` returns the newest batch."""

    landed: list[str] = field(default_factory=list)

    def last(self) -> str | None:
        return self.landed[-1] if self.landed else None


def of_iceberg(spark: SparkSession, folder: Path) -> Case:
    make_catalog(folder / "catalog.db")
    catalog = SqliteCase(name=f"ledgers_{uuid.uuid4().hex[:6]}", folder=folder)
    catalog.declare(spark)
    spark.sql(f"CREATE NAMESPACE {catalog.name}.ns")
    name = f"{catalog.name}.ns.t"
    spark.sql(f"CREATE TABLE {name} (id BIGINT) USING iceberg TBLPROPERTIES ('format-version'='2')")
    table = Table(spark, name)

    def read() -> Position | None:
        with load_catalog(catalog.name, type="sql", uri=f"sqlite:///{folder}/catalog.db") as stored:
            return position_in(stored.load_table("ns.t"), FEED, where=name)

    def land(commit: Commit) -> None:
        [span] = commit.ranges.ranges
        table.land(span.start, span.end, ranges=commit.ranges, fence=commit.fence)

    return Case(ledger=table.ledger(), feed=FEED, land=land, read=read)


def of_class() -> Case:
    own = Memory()
    ledger = RangesLedger("python:Memory", own.last)
    return Case(
        ledger=ledger, feed="shop", land=lambda commit: own.landed.append(commit.ranges.to_json()), read=ledger.position
    )


@pytest.fixture(params=["iceberg", "python"])
def case(request: pytest.FixtureRequest, tmp_path: Path) -> Case:
    return of_class() if request.param == "python" else of_iceberg(request.getfixturevalue("spark"), tmp_path)
