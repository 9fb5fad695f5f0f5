"""lakefeed lands Kafka topics in lakehouse tables on S3-compatible storage, with Spark Structured Streaming.

Importing it starts nothing and needs no PySpark.
"""

from __future__ import annotations

from lakefeed.commit.ranges import OffsetRange
from lakefeed.dataframes import read_topic, write_table
from lakefeed.errors import LakefeedError
from lakefeed.kafka.copies import deduplicated
from lakefeed.pipeline import Pipeline, RunSummary
from lakefeed.session import session
from lakefeed.tables.reader import open_table

__version__ = "0.1.0"

__all__ = [
    "LakefeedError",
    "OffsetRange",
    "Pipeline",
    "RunSummary",
    "__version__",
    "deduplicated",
    "open_table",
    "read_topic",
    "session",
    "write_table",
]
