"""The five bytes of Confluent's header, and Spark's messages about files in plain words."""

import pytest

from lakefeed.records.encode.encode import header
from lakefeed_local.produce.sources import read_error


@pytest.mark.parametrize(
    ("schema_id", "expected"), [(0, "0000000000"), (1, "0000000001"), (2**31 - 1, "007fffffff"), (258, "0000000102")]
)
def test_header(schema_id: int, expected: str) -> None:
    assert header(schema_id).hex() == expected


def test_other_failures_are_not_about_files() -> None:
    assert read_error("org.apache.spark.SparkException: Job aborted due to stage failure") is None
