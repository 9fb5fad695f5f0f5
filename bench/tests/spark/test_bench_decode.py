"""``lakefeed-bench decode`` compares lakefeed's decoder with Spark's from_avro."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lakefeed_bench.decode import CASES, compare, report
from lakefeed_bench.harness import document

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_decode_reports_a_ratio_for_each_schema(spark: SparkSession) -> None:
    compared = [compare(spark, name, rows=300, rounds=1, warm_up=0) for name in CASES]
    for each in compared:
        result = document(each)
        assert result["ratio_to_from_avro"] > 0
        assert result["lakefeed"]["cpu_microseconds"] > 0
        assert result["bytes_per_record"] > 50
    assert [line.split()[0] for line in report(compared).splitlines()[1:4]] == list(CASES)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_the_decoder_of_lakefeed_is_not_slower_than_from_avro(spark: SparkSession, name: str) -> None:
    compared = compare(spark, name, rows=200_000, rounds=7)
    assert compared.ratio_to_from_avro > 0.8, report([compared])
