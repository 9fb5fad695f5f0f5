"""The ledger in a search server passes the tests that all ledgers must pass."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from lakefeed_elasticsearch.ledger import ElasticsearchLedger
from lakefeed_elasticsearch.server import Server
from packages.elasticsearch.tests.search_feed import SearchFeed
from tests.support.ledger_contract import *  # noqa: F403
from tests.support.ledger_contract import Case, of_feed
from tests.support.servers.search import SearchServer, gate


@pytest.fixture
def case(spark: SparkSession, search: SearchServer) -> Iterator[Case]:
    with gate(search) as opened:
        feed = SearchFeed(spark, search, opened)
        yield of_feed(feed, lambda: ElasticsearchLedger(Server(feed.sink), feed.sink, feed.name).position())
