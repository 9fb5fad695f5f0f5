"""The ledger in a database passes the tests that all ledgers must pass."""

import pytest
from pyspark.sql import SparkSession

from lakefeed_jdbc.ledger import JdbcLedger
from lakefeed_jdbc.session import PythonDatabase
from packages.jdbc.tests.databases import EACH_DATABASE, JdbcFeed, server_of
from tests.support.ledger_contract import *  # noqa: F403
from tests.support.ledger_contract import Case, of_feed


@pytest.fixture(params=EACH_DATABASE)
def case(request: pytest.FixtureRequest, spark: SparkSession) -> Case:
    feed = JdbcFeed(spark, server_of(request.param, request.getfixturevalue))
    return of_feed(feed, lambda: JdbcLedger(PythonDatabase(feed.sink), feed.sink, feed.name).position())
