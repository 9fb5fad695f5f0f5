"""Real servers and one Spark session that knows them, for all tests in this folder."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from lakefeed.config.connections import Connections
from lakefeed.local import Endpoints
from lakefeed.session import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def lake(stack: Endpoints, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A Spark session on two threads that reaches the stack's store and catalog."""
    running = session(
        "lakefeed-tests",
        connections=Connections.from_environment(stack.as_environment()),
        master="local[2]",
        conf={"spark.driver.memory": "1g", "spark.sql.shuffle.partitions": "2"},
        log_file=tmp_path_factory.mktemp("spark") / "spark.log",
    )
    yield running
    running.stop()
