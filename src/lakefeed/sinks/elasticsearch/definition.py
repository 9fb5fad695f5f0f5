"""The Elasticsearch sink: its index, its checks before a run, and its ledger read without Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from lakefeed.config.elasticsearch import ElasticsearchSinkConfig
from lakefeed.config.problem import Problem
from lakefeed.errors import ConfigError
from lakefeed.ledger.checkpoint import Claim
from lakefeed.ledger.feed_position import Position
from lakefeed.ledger.protocol import SinkState
from lakefeed.sinks.definition import Check, SinkDefinition, StoredState
from lakefeed.sinks.elasticsearch.documents import IndexDocuments
from lakefeed.sinks.elasticsearch.index import ElasticsearchIndex
from lakefeed.sinks.elasticsearch.layout import IndexLayout
from lakefeed.sinks.elasticsearch.ledger import ElasticsearchLedger
from lakefeed.sinks.elasticsearch.probe import problems
from lakefeed.sinks.elasticsearch.server import Server

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


class ElasticsearchDefinition(SinkDefinition[ElasticsearchSinkConfig]):
    """An index of a search server, with the ledger in an index beside it."""

    def open(self, spark: SparkSession, claim: Claim) -> ElasticsearchIndex:
        """Open the index."""
        return self._index(spark)

    def schema_planner(self, spark: SparkSession, noted: str | None) -> ElasticsearchIndex:
        """Return the index, which plans its own changes."""
        return self._index(spark)

    def check_rows(self, rows: DataFrame, *, stateful: bool) -> Iterator[Problem]:
        """Look for keys, types and positions that documents need."""
        documents = IndexDocuments(self.settings, groups=self.context.groups)
        try:
            documents.require(rows.schema)
            documents.require_records(rows, stateful=stateful)
        except ConfigError as error:
            yield Problem.of(error, key=self.context.place)

    def preflight(self, rows: Callable[[], StructType | None]) -> list[Check]:
        """Log in, and read the index."""
        return [lambda: list(problems(self.settings, key=self.context.place))]

    def state(self) -> SinkState:
        """Read the feed's position from the ledger's index."""
        return StoredState(keeps_ledger=True, read_position=self._position)

    def _position(self) -> Position | None:
        server = Server(self.settings)
        if IndexLayout(server, self.settings).described() is None:
            return None
        return ElasticsearchLedger(server, self.settings, self.context.feed).position()

    def _index(self, spark: SparkSession) -> ElasticsearchIndex:
        context = self.context
        return ElasticsearchIndex(
            spark,
            self.settings,
            feed=context.feed,
            evolves=context.evolves,
            groups=context.groups,
            patience=context.patience,
        )
