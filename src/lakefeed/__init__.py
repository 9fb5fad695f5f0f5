"""lakefeed lands Kafka topics in lakehouse tables on S3-compatible storage, with Spark Structured Streaming.

Importing lakefeed starts nothing and needs no PySpark.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lakefeed.clients.iceberg.reader import open_table as open_table
    from lakefeed.clients.spark.session import session as session
    from lakefeed.clients.spark.signals import stop_on_signals as stop_on_signals
    from lakefeed.dataframes import read_topic as read_topic
    from lakefeed.dataframes import write_table as write_table
    from lakefeed.errors import LakefeedError as LakefeedError
    from lakefeed.offsets.ranges import OffsetRange as OffsetRange
    from lakefeed.pipeline import Pipeline as Pipeline
    from lakefeed.pipeline import RunSummary as RunSummary
    from lakefeed.records.sources import deduplicated as deduplicated

__version__ = "0.1.0"

# A name's module is imported at the name's first use, so that a command that needs none of them starts quickly.
_MODULES = {
    "LakefeedError": "errors",
    "OffsetRange": "offsets.ranges",
    "Pipeline": "pipeline",
    "RunSummary": "pipeline",
    "deduplicated": "records.sources",
    "open_table": "clients.iceberg.reader",
    "read_topic": "dataframes",
    "session": "clients.spark.session",
    "stop_on_signals": "clients.spark.signals",
    "write_table": "dataframes",
}

__all__ = sorted(["__version__", *_MODULES])


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module 'lakefeed' has no attribute '{name}'")
    return getattr(importlib.import_module(f"lakefeed.{_MODULES[name]}"), name)
