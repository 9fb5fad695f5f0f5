"""A Spark session in the tests' own process that reaches the embedded stack."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from lakefeed.config.connections import Connections
from lakefeed.config.kinesis import KinesisAccess
from lakefeed.local import Endpoints
from lakefeed.session import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def spark_on(stack: Endpoints, *, name: str, folder: Path) -> Iterator[SparkSession]:
    """Two threads that reach the stack's store and catalog; stopped when the block ends, well or not.

    Args:
        stack: the servers.
        name: the application's.
        folder: for Spark's log.
    """
    running = session(
        name,
        connections=Connections.from_environment(stack.as_environment()).model_copy(
            update={"kinesis": KinesisAccess()}
        ),
        master="local[2]",
        conf={"spark.driver.memory": "1g", "spark.sql.shuffle.partitions": "2"},
        log_file=folder / "spark.log",
    )
    try:
        yield running
    finally:
        running.stop()
