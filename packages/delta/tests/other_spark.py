"""Another Spark, with Delta's SQL, in a process of its own: ``python -m packages.delta.tests.other_spark``.

It reads a JSON line for each statement, and answers with the rows as texts or the error.
"""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lakefeed.clients.spark.session import session
from lakefeed.config.connections import Connections
from lakefeed_delta.settings import DeltaSinkConfig
from lakefeed_local.stack import Endpoints
from tests.support.faults.drivers import SHORT_LIVED, Driver, driver

CONF = {
    **DeltaSinkConfig.spark_settings,
    "spark.driver.memory": "700m",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    # DeltaCatalog itself needs Delta Kernel's jars, which reach only catalogs.
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalogV1",
    "spark.databricks.delta.retentionDurationCheck.enabled": "false",
}


class OtherSpark:
    """The other Spark's session, and the ``errors`` of statements that ``do`` has run."""

    def __init__(self, process: Driver) -> None:
        self._process = process
        self.errors: list[str] = []

    def do(self, statement: str) -> None:
        """Run a statement in a thread of the test, and keep its error."""
        try:
            self.sql(statement)
        except AssertionError as error:
            self.errors.append(str(error))

    def sql(self, statement: str) -> list[list[str]]:
        """Run a statement, and return its rows as texts."""
        self._process.tell(json.dumps(statement))
        # VACUUM prints a line of its own.
        answer = json.loads(next(line for line in iter(self._process.hear, None) if line.startswith("{")))
        assert "error" not in answer, answer["error"]
        rows: list[list[str]] = answer["rows"]
        return rows


@contextmanager
def other_spark(stack: Endpoints, folder: Path) -> Iterator[OtherSpark]:
    environment = {**stack.as_environment(), **SHORT_LIVED}
    with driver("packages.delta.tests.other_spark", environment=environment, log=folder / "other-spark.log") as process:
        yield OtherSpark(process)


def main() -> None:
    spark = session("other", connections=Connections.from_environment(), master="local[2]", conf=CONF)
    for line in sys.stdin:
        try:
            rows = [[str(value) for value in row] for row in spark.sql(json.loads(line)).collect()]
            print(json.dumps({"rows": rows}), flush=True)
        except Exception as error:
            print(json.dumps({"error": f"{type(error).__name__}: {error}"[:2000]}), flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
