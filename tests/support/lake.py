"""Start a Spark session in the tests' process."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

from lakefeed.clients.spark.session import running, session
from lakefeed.config.connections import Connections
from lakefeed_delta.settings import DeltaSinkConfig
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
    """Yield a session on two threads; stop the session when the block ends, unless it ran before the block.

    The session has the jars and settings that any test needs, because a JVM keeps those of its first session.

    Args:
        folder: the folder of Spark's log.
        name: the application's name.
        connections: the servers that the session reaches; if None, the session reaches no servers.
        conf: further settings of Spark.
    """
    is_shared = running() is not None
    opened = session(
        name,
        connections=(connections or Connections()).model_copy(update={"source": KinesisSource(stream="any")}),
        master="local[2]",
        conf={
            "spark.driver.memory": "1g",
            "spark.sql.shuffle.partitions": "2",
            **DeltaSinkConfig.spark_settings,
            **(conf or {}),
        },
        log_file=folder / "spark.log",
    )
    try:
        yield opened
    finally:
        if not is_shared:
            opened.stop()


@contextmanager
def spark_on(stack: Endpoints, *, name: str, folder: Path) -> Iterator[SparkSession]:
    """Yield a session of ``spark_in`` that reaches the stack's store and catalog.

    Args:
        stack: the servers.
        name: the application's name.
        folder: the folder of Spark's log.
    """
    with spark_in(folder, name=name, connections=Connections.from_environment(stack.as_environment())) as running:
        yield running
