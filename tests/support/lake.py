"""A Spark session in the tests' own process."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

from lakefeed.clients.spark.session import is_running, session
from lakefeed.config.connections import Connections
from lakefeed_kinesis.settings import KinesisSource
from lakefeed_local.stack import Endpoints


@contextmanager
def spark_in(
    folder: Path,
    *,
    name: str = "lakefeed-tests",
    connections: Connections | None = None,
    conf: Mapping[str, str] | None = None,
) -> Iterator[SparkSession]:
    """Two threads; stopped when the block ends, well or not, unless it ran before.

    The jars are those of all tests: a JVM keeps the class path of the first session that was in it.

    Args:
        folder: for Spark's log.
        name: the application's.
        connections: what it reaches; nothing without.
        conf: settings of its own.
    """
    is_shared = is_running()
    running = session(
        name,
        connections=(connections or Connections()).model_copy(update={"source": KinesisSource(stream="any")}),
        master="local[2]",
        conf={"spark.driver.memory": "1g", "spark.sql.shuffle.partitions": "2", **(conf or {})},
        log_file=folder / "spark.log",
    )
    try:
        yield running
    finally:
        if not is_shared:
            running.stop()


@contextmanager
def spark_on(stack: Endpoints, *, name: str, folder: Path) -> Iterator[SparkSession]:
    """Yield the same, which reaches the stack's store and catalog.

    Args:
        stack: the servers.
        name: the application's.
        folder: for Spark's log.
    """
    with spark_in(folder, name=name, connections=Connections.from_environment(stack.as_environment())) as running:
        yield running
