"""PySpark's functions, types and errors, imported at their first use: importing lakefeed needs no PySpark.

The classes below serve annotations only. A function that creates an instance of a class, or calls ``isinstance`` with
the class, imports the class.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from py4j import protocol as py4j
    from pyspark import errors as spark_errors
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql import functions as sf
    from pyspark.sql import types as t
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.types import DataType, StructField, StructType
else:
    Column = DataFrame = DataType = SparkSession = StreamingQuery = StructField = StructType = Any

    class _Module:
        def __init__(self, name: str) -> None:
            self._name = name

        def __getattr__(self, name: str) -> Any:
            found = getattr(importlib.import_module(self._name), name)
            setattr(self, name, found)
            return found

    sf, t = _Module("pyspark.sql.functions"), _Module("pyspark.sql.types")
    py4j, spark_errors = _Module("py4j.protocol"), _Module("pyspark.errors")

__all__ = ["Column", "DataFrame", "DataType", "SparkSession", "StreamingQuery", "StructField", "StructType"]
__all__ += ["py4j", "sf", "spark_errors", "t"]
