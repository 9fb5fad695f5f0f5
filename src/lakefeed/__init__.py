"""lakefeed lands Kafka topics in lakehouse tables on S3-compatible storage, with Spark Structured Streaming.

Importing it starts nothing and needs no PySpark.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

# Not with the others: the import of the module would put it in place of the function.
from lakefeed.session import session

if TYPE_CHECKING:
    from lakefeed.commit.ranges import OffsetRange
    from lakefeed.dataframes import read_topic, write_table
    from lakefeed.errors import LakefeedError
    from lakefeed.kafka.copies import deduplicated
    from lakefeed.pipeline import Pipeline, RunSummary
    from lakefeed.signals import stop_on_signals
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
    "stop_on_signals",
    "write_table",
]

# Imported when they are asked for: a command that needs none of them starts at once.
_MODULES = {
    "LakefeedError": "errors",
    "OffsetRange": "commit.ranges",
    "Pipeline": "pipeline",
    "RunSummary": "pipeline",
    "deduplicated": "kafka.copies",
    "open_table": "tables.reader",
    "read_topic": "dataframes",
    "stop_on_signals": "signals",
    "write_table": "dataframes",
}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module 'lakefeed' has no attribute '{name}'")
    return getattr(importlib.import_module(f"lakefeed.{_MODULES[name]}"), name)
