"""lakefeed lands Kafka topics in lakehouse tables on S3-compatible storage, with Spark Structured Streaming.

Importing it starts nothing and needs no PySpark.
"""

from __future__ import annotations

import importlib
import sys
import warnings
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
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
    from lakefeed.records.sources.kafka import deduplicated as deduplicated
    from lakefeed.topic import Topic as Topic

__version__ = "0.1.0"

# Imported when they are asked for: a command that needs none of them starts at once.
_MODULES = {
    "LakefeedError": "errors",
    "OffsetRange": "offsets.ranges",
    "Pipeline": "pipeline",
    "RunSummary": "pipeline",
    "Topic": "topic",
    "deduplicated": "records.sources.kafka",
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


# Documented modules that have moved; their old names work for one release.
_MOVED = {
    "lakefeed.decode": "lakefeed.records.decode",
    "lakefeed.decode.avro_schema": "lakefeed.records.decode.avro_schema",
    "lakefeed.decode.registry": "lakefeed.records.decode.registry",
    "lakefeed.jvm": "lakefeed.clients.spark.jvm",
    "lakefeed.observe": "lakefeed.feed.progress",
    "lakefeed.observe.requests": "lakefeed.feed.progress",
    "lakefeed.produce": "lakefeed.operations.produce",
    "lakefeed.produce.encode": "lakefeed.records.encode.encode",
    "lakefeed.produce.taxi": "lakefeed.operations.produce.taxi",
    "lakefeed.produce.write": "lakefeed.operations.produce.write",
    "lakefeed.schema": "lakefeed.records.schema",
}


class _MovedModules(MetaPathFinder, Loader):
    """Imports a module that has moved under its old name, with a warning that gives the new one."""

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if fullname not in _MOVED:
            return None
        is_package = any(each.startswith(f"{fullname}.") for each in _MOVED)
        return ModuleSpec(fullname, self, is_package=is_package)

    def create_module(self, spec: ModuleSpec) -> None:
        """Leave it to the import system: the module under the new name keeps its own spec."""

    def exec_module(self, module: ModuleType) -> None:
        """Give the old name's module what the new name's has."""
        moved = _MOVED[module.__name__]
        warnings.warn(
            f"{module.__name__} has moved to {moved}; the old name will be removed in the next release",
            DeprecationWarning,
            stacklevel=2,
        )
        names = vars(importlib.import_module(moved))
        vars(module).update({name: value for name, value in names.items() if not name.startswith("__")})


sys.meta_path.insert(0, _MovedModules())
