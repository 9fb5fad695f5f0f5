"""A feed into a search server, without Kafka."""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import DataFrame

from lakefeed_elasticsearch.index import ElasticsearchIndex
from lakefeed_elasticsearch.settings import ElasticsearchSinkConfig
from tests.support.ledger_feed import LedgerFeed
from tests.support.servers.search import Gate, SearchServer


@dataclass
class SearchFeed(LedgerFeed):
    """A test's feed into its own index; ``gate`` is the proxy between the feed and the server."""

    server: SearchServer
    gate: Gate
    settings: Mapping[str, Any] = field(default_factory=dict)
    index: str = field(default_factory=lambda: f"shop_{uuid.uuid4().hex[:8]}", kw_only=True)

    @property
    def sink(self) -> ElasticsearchSinkConfig:
        login = {"username": self.gate.username, "password": self.gate.password}
        return ElasticsearchSinkConfig.model_validate(
            {"url": self.gate.url, "index": self.index, **login, **self.settings}
        )

    def driver(self, *, groups: bool = False, evolves: bool = True, **settings: Any) -> ElasticsearchIndex:
        self.settings = {**self.settings, **settings}
        return ElasticsearchIndex(self.spark, self.sink, self.context(groups=groups, evolves=evolves))

    def started(self, rows: DataFrame | None = None, *, groups: bool = False, **settings: Any) -> ElasticsearchIndex:
        """Return the index of a driver that has applied the schema and taken the fence."""
        index = self.driver(groups=groups, **settings)
        frame = rows if rows is not None else self.changes([]) if self.sink.mode == "upsert" else self.rows(0)
        index.apply_schema(frame.schema)
        self.fence = index.take_fence()
        return index

    def rows(self, count: int, *, start: int = 0) -> DataFrame:
        """Return `count` rows, one per record."""
        position = ("'topic' AS kafka_topic", "0 AS kafka_partition", "id AS kafka_offset")
        return self.spark.range(start, start + count).selectExpr("id", "concat('v', id) AS v", *position)

    def documents(self) -> dict[str, dict[str, Any]]:
        return self.server.documents(self.index)

    def ledger(self) -> dict[str, Any]:
        """Return the feed's document in the ledger index."""
        found: dict[str, Any] = self.server.ask("GET", f"/lakefeed_feeds/_doc/{self.index}:{self.name}")["_source"]
        return found
