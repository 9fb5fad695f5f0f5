"""PySpark still recognises NumPy's values, although lakefeed prevents it from importing its test modules."""

import subprocess
import sys

import numpy as np
import pytest

WITHOUT_TESTS = """
import sys
from py4j.protocol import INPUT_CONVERTER
from lakefeed.clients.spark.numpy_values import skip_test_modules
skip_test_modules()
assert not any(converter.can_convert(value) for converter in INPUT_CONVERTER for value in (object(), "text"))
print([name for name in ("pyspark.testing", "pandas", "unittest") if name in sys.modules])
"""


def test_no_test_module_is_imported() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT_TESTS], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "[]", done.stderr


@pytest.mark.parametrize("value", [np.int64(1), np.float32(1), np.array([1, 2]), np.array([[1]]), 1, [1], object()])
def test_numpy_values_are_recognised_as_by_the_checks_of_pyspark(value: object) -> None:
    from pyspark.sql import types

    from lakefeed.clients.spark import numpy_values

    # Copy PySpark's checks, because a session of another test may have replaced the originals.
    is_scalar, is_array = isinstance(value, np.generic), isinstance(value, np.ndarray) and value.ndim == 1
    numpy_values.skip_test_modules()
    scalar, array = types.NumpyScalarConverter(), types.NumpyArrayConverter()
    assert (scalar.can_convert(value), array.can_convert(value)) == (is_scalar, is_array)
