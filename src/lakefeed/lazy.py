"""PySpark's modules of functions and types, imported when they are used first: to import lakefeed takes no PySpark."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import functions as sf
    from pyspark.sql import types as t
else:

    class _Module:
        def __init__(self, name: str) -> None:
            self._name = name

        def __getattr__(self, name: str) -> Any:
            found = getattr(importlib.import_module(self._name), name)
            setattr(self, name, found)
            return found

    sf, t = _Module("pyspark.sql.functions"), _Module("pyspark.sql.types")

__all__ = ["sf", "t"]
