"""One local Spark session, with lakefeed's jars, for all tests in this folder."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session on two threads of this machine; it needs no server."""
    from lakefeed.config.connections import Connections
    from lakefeed.session import session

    folder: Path = tmp_path_factory.mktemp("spark")
    running = session(
        "lakefeed-tests",
        connections=Connections(),
        master="local[2]",
        conf={
            "spark.driver.memory": "1g",
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
        },
        log_file=folder / "spark.log",
    )
    yield running
    running.stop()
