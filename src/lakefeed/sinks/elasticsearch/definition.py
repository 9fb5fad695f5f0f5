"""The Elasticsearch sink: its index, its checks before a run, and its ledger read without Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from lakefeed.config.elasticsearch import ElasticsearchSinkConfig
from lakefeed.config.problem import Problem
from lakefeed.errors import AccessDenied, ConfigError, LakefeedError, Unreachable
from lakefeed.ledger.checkpoint import Claim
from lakefeed.ledger.protocol import SinkState
from lakefeed.sinks.definition import Check, SinkDefinition, StoredState
from lakefeed.sinks.elasticsearch.documents import IndexDocuments
from lakefeed.sinks.elasticsearch.index import ElasticsearchIndex
from lakefeed.sinks.elasticsearch.layout import IndexLayout
from lakefeed.sinks.elasticsearch.ledger import ElasticsearchLedger
from lakefeed.sinks.elasticsearch.server import Server

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

OLDEST = 7
"""Elasticsearch before it has types of documents, and no compare-and-set by sequence number."""


class ElasticsearchDefinition(SinkDefinition[ElasticsearchSinkConfig]):
    """An index of a search server, with the ledger in an index beside it."""

    def open(self, spark: SparkSession, claim: Claim) -> ElasticsearchIndex:
        return ElasticsearchIndex.of(spark, self.settings, self.context)

    def schema_planner(self, spark: SparkSession, noted: str | None) -> ElasticsearchIndex:
        return ElasticsearchIndex.of(spark, self.settings, self.context)

    def check_rows(self, rows: DataFrame, *, stateful: bool) -> Iterator[Problem]:
        """Look for keys, types and positions that documents need."""
        documents = IndexDocuments(self.settings, groups=self.context.groups)
        try:
            documents.require(rows.schema)
            documents.require_records(rows, stateful=stateful)
        except ConfigError as error:
            yield Problem.of(error, key=self.context.place)

    def preflight(self, rows: Callable[[], StructType | None]) -> list[Check]:
        return [lambda: list(problems(self.settings, key=self.context.place))]

    def state(self) -> SinkState:
        ledger = ElasticsearchLedger(Server(self.settings), self.settings, self.context.feed)
        return StoredState(keeps_ledger=True, read_position=ledger.position)


def problems(sink: ElasticsearchSinkConfig, *, key: str) -> Iterator[Problem]:
    """Find everything that would stop a run, without Spark; ``key`` is the block's place in the pipeline file."""
    server = Server(sink)
    try:
        require_version(server, where=", ".join(sink.urls))
        IndexLayout(server, sink).describe()
    except AccessDenied as error:
        yield Problem.of(error, key=f"{key}.{'api_key' if sink.api_key is not None else 'username'}")
    except Unreachable as error:
        yield Problem.of(error, key=f"{key}.url")
    except LakefeedError as error:
        yield Problem.of(error, key=f"{key}.{'index' if sink.index in (error.where or '') else 'url'}")


def require_version(server: Server, *, where: str) -> None:
    """Refuse another kind of server, and one that is too old."""
    version = server.ask("GET", "/").document.get("version")
    number = str(version.get("number", "")) if isinstance(version, dict) else ""
    if not number[:1].isdigit():
        hint = "give the address of the server's REST API, usually at port 9200"
        raise ConfigError("this address answers, but not as Elasticsearch or OpenSearch does", where=where, hint=hint)
    is_opensearch = isinstance(version, dict) and version.get("distribution") == "opensearch"
    if not is_opensearch and int(number.partition(".")[0]) < OLDEST:
        raise ConfigError(f"the server is Elasticsearch {number}", where=where, hint="it has to be 7 or newer")
