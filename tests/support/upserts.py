"""A table of keyed rows on a SQLite catalog and local files, and the operations of a feed on this table."""

import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from pyspark.sql import SparkSession

from lakefeed.clients.iceberg.catalogs import make_catalog
from lakefeed.config.iceberg_sink import IcebergSinkConfig
from lakefeed.ledger.snapshot_summary import Commit
from lakefeed.offsets.ranges import OffsetRange, OffsetRanges
from lakefeed.sinks.iceberg.upsert import UpsertTable
from tests.support.catalogs import SqliteCase
from tests.support.ledger_feed import Change, frame_of

CATALOG = "upserts"


@dataclass
class Upserts:
    """The table of one test, and the operations of a feed on this table."""

    spark: SparkSession
    settings: dict[str, Any]
    name: str = field(default_factory=lambda: f"{CATALOG}.ns.u{uuid.uuid4().hex[:8]}")
    fence: str | None = None
    times: Sequence[str] = ()
    """Expressions for the columns at0, at1, …, in which n is the number after the @ of a change's city, or null."""

    def __post_init__(self) -> None:
        self.restart()

    def restart(self, **settings: Any) -> None:
        self.settings |= settings
        block = {"table": self.name, "mode": "upsert", "keys": ["id"], **self.settings}
        if block.pop("with_history", False):
            block["history"] = self.history
        self.table = UpsertTable(self.spark, IcebergSinkConfig.model_validate(block), feed="shop")
        self.table.apply_schema(self.changes([]).schema)
        self.fence = self.table.take_fence()

    @property
    def history(self) -> str:
        return f"{self.name}_history"

    def changes(self, changes: Iterable[Change], topic: str = "topic") -> Any:
        # The filter makes the rows non-deterministic, as rows of a stream are, whose outcomes are counted.
        rows = frame_of(self.spark, changes, topic).filter("rand() >= 0")
        times = [f"{each} AS at{number}" for number, each in enumerate(self.times)]
        number = "try_cast(nullif(split_part(city, '@', 2), '') AS BIGINT) AS n"
        return rows.selectExpr("*", number).selectExpr("*", *times).drop("n") if times else rows

    def batch(self, start: int, end: int, *, topic_id: str = "one") -> Commit:
        ranges = OffsetRanges((OffsetRange("topic", 0, start, end),), {"topic": topic_id})
        return Commit("shop", start, ranges, fence=self.fence)

    def land(self, start: int, end: int, changes: Sequence[Change], **batch: Any) -> int | None:
        return self.table.land(self.changes(changes), self.batch(start, end, **batch), commit_id=uuid.uuid4().hex)

    def land_range(self, count: int, *, key: str = "id", value: str = "'x'", offset: str = "id") -> int | None:
        """Land the first batch: `count` changes, which these expressions compute from the numbers below `count`."""
        rows = self.spark.range(0, count, numPartitions=2).selectExpr(
            f"{key} AS id", "'a' AS city", f"{value} AS v", "'topic' AS kafka_topic", "0 AS kafka_partition",
            f"{offset} AS kafka_offset", "false AS lakefeed_deleted",
        )  # fmt: skip
        return self.table.land(rows, self.batch(0, count), commit_id=uuid.uuid4().hex)

    def rows(self, columns: str = "id, city, v, kafka_offset", table: str | None = None) -> list[tuple[Any, ...]]:
        found = self.spark.sql(f"SELECT {columns} FROM {table or self.name} ORDER BY ALL")
        return [tuple(row) for row in found.collect()]

    def commits(self) -> list[Commit]:
        return list(self.table.commits())


@pytest.fixture(scope="session")
def upsert_catalog(tmp_path_factory: pytest.TempPathFactory) -> SqliteCase:
    """Return the catalog of the upsert tests: only one, because other tests run the commit check on all."""
    folder = tmp_path_factory.mktemp("upserts")
    make_catalog(folder / "catalog.db")
    return SqliteCase(name=CATALOG, folder=folder)


@pytest.fixture(scope="session")
def upserting(spark: SparkSession, upsert_catalog: SqliteCase) -> SparkSession:
    """Return the session, with the catalog of the upsert tests configured."""
    upsert_catalog.declare(spark)
    spark.sql(f"CREATE NAMESPACE {CATALOG}.ns")
    return spark


@pytest.fixture
def plain(upserting: SparkSession) -> Upserts:
    return Upserts(upserting, {})
