"""Records have the header of Confluent's wire format; errors of files name the file."""

import pytest

from lakefeed_encode.encode import header
from lakefeed_local.produce.sources import read_error


@pytest.mark.parametrize(
    ("schema_id", "expected"), [(0, "0000000000"), (1, "0000000001"), (2**31 - 1, "007fffffff"), (258, "0000000102")]
)
def test_the_header_is_a_zero_byte_and_the_schema_id(schema_id: int, expected: str) -> None:
    assert header(schema_id).hex() == expected


def test_an_unrelated_spark_error_is_not_reported_as_an_error_of_a_file() -> None:
    assert read_error("org.apache.spark.SparkException: Job aborted due to stage failure") is None
