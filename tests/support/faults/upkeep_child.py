"""Maintain a pipeline's table in a process that a test kills: ``python -m tests.support.faults.upkeep_child FILE``.

The process does the same as ``lakefeed tables maintain``, but removes files of any age, because the settings require an
age of a day for orphans, and a test cannot wait for a day.
"""

import sys
from pathlib import Path

from lakefeed.clients.spark.session import session
from lakefeed.pipeline import Pipeline
from lakefeed_upkeep import actions as due
from lakefeed_upkeep.maintain import Maintenance
from lakefeed_upkeep.settings import Upkeep


def main() -> None:
    """Run the upkeep that is due, once."""
    due.seconds_of = lambda duration: 0  # type: ignore[attr-defined]
    pipeline = Pipeline.from_file(Path(sys.argv[1]))
    sink, settings = pipeline.config.sink.iceberg, pipeline.config.block(Upkeep)
    assert sink is not None
    assert settings is not None
    spark = session(
        "upkeep-child",
        connections=pipeline.connections,
        master="local[2]",
        conf={"spark.driver.memory": "700m", "spark.sql.shuffle.partitions": "2"},
    )
    Maintenance(sink.table, spark=spark, connections=pipeline.connections, settings=settings).run()
    spark.stop()


if __name__ == "__main__":
    main()
