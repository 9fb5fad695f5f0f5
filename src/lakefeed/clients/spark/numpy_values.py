"""Lets PySpark recognise NumPy values without importing its test modules.

The first list or dictionary that is passed to the JVM makes PySpark 4.1 import ``pyspark.testing.utils``, and with it
pandas, PyArrow and unittest, only to learn whether NumPy is installed: half a second of CPU or more at each start.
"""

from __future__ import annotations

import sys
from typing import Any


def skip_test_modules() -> None:
    """Replace PySpark's two checks; what they convert, and how, stays the same."""
    from pyspark.sql import types

    converters: Any = types
    converters.NumpyScalarConverter.can_convert = _is_scalar
    converters.NumpyArrayConverter.can_convert = _is_array


def _is_scalar(converter: object, value: object) -> bool:
    return isinstance(value, _numpy_type("generic"))


def _is_array(converter: object, value: object) -> bool:
    array: Any = value if isinstance(value, _numpy_type("ndarray")) else None
    return array is not None and array.ndim == 1


def _numpy_type(name: str) -> type | tuple[()]:
    """Return NumPy's type; no type where NumPy is not imported, or only in part by now: no value can be of it then."""
    found: type | tuple[()] = getattr(sys.modules.get("numpy"), name, ())
    return found
