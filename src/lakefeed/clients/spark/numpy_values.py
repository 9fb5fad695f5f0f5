"""Make PySpark recognise NumPy values without importing its test modules.

When the first list or dictionary is passed to the JVM, PySpark 4.1 imports ``pyspark.testing.utils``, and with it
pandas, PyArrow and unittest, only to check that NumPy is installed. That takes half a second of CPU at every start.
"""

from __future__ import annotations

import sys
from typing import Any


def skip_test_modules() -> None:
    """Replace PySpark's two type checks for NumPy values by cheaper checks with the same results."""
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
    """Return NumPy's type. If NumPy is not imported yet, return an empty tuple: no value is an instance of it."""
    numpy_type: type | tuple[()] = getattr(sys.modules.get("numpy"), name, ())
    return numpy_type
