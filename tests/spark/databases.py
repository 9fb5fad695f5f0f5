"""The databases that a JDBC feed lands in, and the verbs of a feed for them without Kafka."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from lakefeed.commit.ledger import Commit
from lakefeed.commit.ranges import OffsetRange, OffsetRanges
from lakefeed.config.jdbc import JdbcSink
from lakefeed.jdbc.table import JdbcTable
from tests.servers.mariadb import MariaDB
from tests.servers.postgresql import PostgreSQL

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DATABASES = ("postgresql", "mariadb")
Server = PostgreSQL | MariaDB
CHANGES = (
    "id BIGINT, city STRING, v STRING, kafka_topic STRING, kafka_partition INT, kafka_offset BIGINT, "
    "lakefeed_deleted BOOLEAN"
)
Change = tuple[int | None, str | None, str | None, int, int]
"""id, city, value (None deletes), partition, offset"""


def server_of(kind: str, fixture: Callable[[str], Any]) -> Server:
    """An empty database of a kind, for one test."""
    server: Server = fixture("postgres" if kind == "postgresql" else "maria").new_database()
    return server


@dataclass
class JdbcFeed:
    """One test's feed into one table.

    Attributes:
        spark: the session.
        server: the database.
        settings: of the sink, beside where it is.
    """

    spark: SparkSession
    server: Server
    settings: Mapping[str, Any] = field(default_factory=dict)
    name: str = "shop"
    batch: int = 0
    at: int = 0
    fence: str | None = None

    @property
    def sink(self) -> JdbcSink:
        return JdbcSink.model_validate(
            {
                "url": self.server.jdbc_url,
                "user": self.server.user,
                "password": self.server.password,
                "table": "rows_of_shop",
                **self.settings,
            }
        )

    def driver(self, *, groups: bool = False, **settings: Any) -> JdbcTable:
        """What one driver has of the table."""
        self.settings = {**self.settings, **settings}
        return JdbcTable(self.spark, self.sink, feed=self.name, groups=groups)

    def started(self, rows: DataFrame | None = None, *, groups: bool = False, **settings: Any) -> JdbcTable:
        """A driver that has begun, as a run of the feed does."""
        table = self.driver(groups=groups, **settings)
        frame = rows if rows is not None else self.changes([]) if self.sink.mode == "upsert" else self.rows(0)
        table.follow(frame.schema)
        self.fence = table.take_fence()
        return table

    def rows(self, count: int, *, start: int = 0) -> DataFrame:
        return self.spark.range(start, start + count).selectExpr("id", "concat('v', id) AS v")

    def changes(self, changes: Iterable[Change], topic: str = "topic") -> DataFrame:
        rows = [
            (key, city, value, topic, partition, offset, value is None)
            for key, city, value, partition, offset in changes
        ]
        return self.spark.createDataFrame(rows, CHANGES)

    def commit(self, records: int, **changes: Any) -> Commit:
        """The next batch's."""
        given = {"topic_id": "id-one", "batch": self.batch, "start": self.at, **changes}
        ranges = OffsetRanges(
            (OffsetRange("topic", 0, given["start"], given["start"] + records),), {"topic": given["topic_id"]}
        )
        return Commit(self.name, given["batch"], ranges, fence=given.get("fence", self.fence))

    def land(self, table: JdbcTable, rows: DataFrame, records: int = 10, **changes: Any) -> int | None:
        """Lands the next batch."""
        commit = self.commit(records, **changes)
        landed = table.land(rows, commit, commit_id=uuid.uuid4().hex)
        self.batch, self.at = commit.batch_id + 1, commit.ranges.ranges[0].end
        return landed

    def quoted(self, name: str) -> str:
        quote = '"' if isinstance(self.server, PostgreSQL) else "`"
        return f"{quote}{name}{quote}"

    def select(self, columns: str, table: str = "rows_of_shop") -> list[tuple[Any, ...]]:
        return self.server.execute(f"SELECT {columns} FROM {self.quoted(table)} ORDER BY 1")

    def tables(self) -> set[str]:
        schema = "current_schema()" if isinstance(self.server, PostgreSQL) else "DATABASE()"
        found = self.server.execute(f"SELECT table_name FROM information_schema.tables WHERE table_schema = {schema}")
        return {str(name) for (name,) in found}
