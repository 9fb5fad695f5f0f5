"""Feeds for tests on a cluster: the taxi feed with Python functions, and a slow feed that is killed in a batch."""

import venv
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.support.cli import lakefeed
from tests.support.feed import Feed

TAXI_ROWS = 3000
# The module trips imports another module of its folder and a package that Spark does not include.
FUNCTIONS = {
    "trips.py": """
import pyspark.sql.functions as sf
from pyspark.sql import DataFrame

from zones import borough


def with_borough(trips: DataFrame) -> DataFrame:
    return trips.withColumn("borough", sf.udf(borough)("PULocationID"))
""",
    "zones.py": """
from packaging.version import Version


def borough(zone):
    return None if zone is None else f"{Version(str(zone))} of {7 * int(zone) % 5}"
""",
}
SLOW_ROWS = 1200
SLOW_BATCH = 300
# Each row is slow and leaves a file, so that a test sees when executors work on a batch.
SLOW = """
import time

import pyspark.sql.functions as sf
from pyspark.sql import DataFrame


def slowly(rows: DataFrame, marks: str) -> DataFrame:
    def wait(number):
        time.sleep(0.02)
        with open(marks, "a") as file:
            file.write(".")
        return number

    return rows.withColumn("id", sf.udf(wait, "long")("id"))
"""


def taxi_file(feed: Feed, name: str, **blocks: Any) -> Path:
    """Write a pipeline file of the taxi feed, with its own table and a transform in Python."""
    for module, text in FUNCTIONS.items():
        (feed.folder / module).write_text(text)
    other = Feed(feed.stack, feed.folder, name=f"{feed.name}{name}")
    return other.write_file(
        **{
            "source": {
                "kafka": {
                    "bootstrap_servers": "${KAFKA_BOOTSTRAP_SERVERS}",
                    "topics": [feed.topic],
                    "start": "earliest",
                    "max_records_per_batch": 1000,
                }
            },
            "transform": {"steps": {"boroughs": {"python": "trips:with_borough"}}},
            **blocks,
        }
    )


def rows_of(feed: Feed, name: str) -> list[dict[str, Any]]:
    """Return the rows of the table of ``taxi_file(feed, name)``."""
    found = feed.rows(f"lake.{feed.name}{name}.rows")
    return sorted(found, key=str)


def pretend_version(folder: Path) -> Path:
    """Return the path of a Python that reports version 3.9."""
    venv.create(folder)
    (site,) = folder.glob("lib/python3*/site-packages")
    version = 'namedtuple("version_info", "major minor micro releaselevel serial")(3, 9, 0, "final", 0)'
    lines = ("import sys", "from collections import namedtuple", f"sys.version_info = {version}", "")
    (site / "sitecustomize.py").write_text("\n".join(lines))
    return folder / "bin" / "python3"


def slow_file(feed: Feed, marks: Path, *, spark: Mapping[str, str]) -> Path:
    """Write a pipeline file of a feed with several batches, slow enough that a test can kill a process in a batch."""
    (feed.folder / "slow.py").write_text(SLOW)
    source = {
        "bootstrap_servers": "${KAFKA_BOOTSTRAP_SERVERS}",
        "topics": [feed.topic],
        "start": "earliest",
        "max_records_per_batch": SLOW_BATCH,
    }
    return feed.write_file(
        source={"kafka": source},
        transform={"steps": {"slow": {"python": "slow:slowly", "options": {"marks": str(marks)}}}},
        spark=dict(spark),
    )


def send_slow_rows(feed: Feed) -> list[dict[str, Any]]:
    """Create the topic of ``slow_file`` and send its records; return the expected rows."""
    feed.create_topic(partitions=4)
    rows = [{"id": number, "zone": f"zone {number % 7}"} for number in range(SLOW_ROWS)]
    feed.send(feed.avro(rows))
    return rows


def marked(marks: Path) -> int:
    """Return the number of rows that executors have processed so far."""
    return marks.stat().st_size if marks.exists() else 0


def assert_each_row_once(feed: Feed, file: Path, rows: list[dict[str, Any]], environment: Mapping[str, str]) -> None:
    """Check that the table has each row once: read the table, and run ``lakefeed verify``."""
    assert sorted(feed.rows(), key=lambda row: row["id"]) == rows
    lakefeed("verify", file, environment=environment)
