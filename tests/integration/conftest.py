"""Real servers and one Spark session that knows them, for all tests in this folder."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from lakefeed.local import Endpoints
from tests.support.lake import spark_on

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def lake(stack: Endpoints, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A Spark session on two threads that reaches the stack's store and catalog."""
    with spark_on(stack, name="lakefeed-tests", folder=tmp_path_factory.mktemp("spark")) as running:
        yield running
