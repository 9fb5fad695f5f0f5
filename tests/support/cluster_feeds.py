"""Feeds for tests on a cluster: the taxi feed with functions in Python, and one that is slow enough to be killed."""

import venv
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.support.cli import lakefeed
from tests.support.feed import Feed

TAXI_ROWS = 3000
# One module of the folder imports another one, and an installed package that Spark does not bring.
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
# Each row takes a while and leaves a mark, so that a test knows when a batch is at work on the executors.
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
    """The taxi feed into a table of its own, with a transform in Python."""
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
    """The rows of ``taxi_file`` of this name."""
    found = feed.rows(f"lake.{feed.name}{name}.rows")
    return sorted(found, key=str)


def pretend_version(folder: Path) -> Path:
    """A Python that says that it is 3.9."""
    venv.create(folder)
    (site,) = folder.glob("lib/python3*/site-packages")
    version = 'namedtuple("version_info", "major minor micro releaselevel serial")(3, 9, 0, "final", 0)'
    lines = ("import sys", "from collections import namedtuple", f"sys.version_info = {version}", "")
    (site / "sitecustomize.py").write_text("\n".join(lines))
    return folder / "bin" / "python3"


def slow_file(feed: Feed, marks: Path, *, spark: Mapping[str, str]) -> Path:
    """A feed in several batches, each of them with time to kill something."""
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
    """Its topic and records; returns the rows that they give."""
    feed.create_topic(partitions=4)
    rows = [{"id": number, "zone": f"zone {number % 7}"} for number in range(SLOW_ROWS)]
    feed.send(feed.avro(rows))
    return rows


def marked(marks: Path) -> int:
    """How many rows executors have worked at so far."""
    return marks.stat().st_size if marks.exists() else 0


def assert_each_row_once(feed: Feed, file: Path, rows: list[dict[str, Any]], environment: Mapping[str, str]) -> None:
    """By the table, and by ``lakefeed verify``."""
    assert sorted(feed.rows(), key=lambda row: row["id"]) == rows
    proved = lakefeed("verify", file, environment=environment)
    assert proved.returncode == 0, proved.stdout + proved.stderr
