"""Generated trips do not depend on the number of Spark's partitions, and resemble New York's taxi trips."""

import dataclasses
import json
from datetime import datetime

import pytest
from pyspark.sql import DataFrame, Row, SparkSession

from lakefeed.errors import ConfigError
from lakefeed_encode import avro
from lakefeed_local.produce.taxi import KEY, Totals, taxi_rows, taxi_schema, totals

FIELDS = [
    *("VendorID", "tpep_pickup_datetime", "tpep_dropoff_datetime", "passenger_count", "trip_distance"),
    *("RatecodeID", "store_and_fwd_flag", "PULocationID", "DOLocationID", "payment_type", "fare_amount"),
    *("extra", "mta_tax", "tip_amount", "tolls_amount", "improvement_surcharge", "total_amount"),
]


def ordered(rows: DataFrame) -> list[Row]:
    return sorted(rows.collect(), key=lambda row: str(row[KEY]))


@pytest.mark.quick
def test_generated_rows_have_the_fields_of_the_schema_and_the_key(spark: SparkSession) -> None:
    rows = taxi_rows(spark, 1)
    assert rows.columns == [*FIELDS, KEY]
    assert [field["name"] for field in json.loads(taxi_schema())["fields"]] == FIELDS
    expected = avro.struct_of(spark, taxi_schema())
    assert [each.dataType for each in rows.schema.fields[:-1]] == [each.dataType for each in expected.fields]
    avro.require_fit(rows, taxi_schema(), key=KEY)


@pytest.mark.parametrize("slices", [1, 3, 7])
def test_generated_rows_do_not_depend_on_the_number_of_partitions(spark: SparkSession, slices: int) -> None:
    rows = taxi_rows(spark, 500, seed=11, slices=slices)
    assert rows.rdd.getNumPartitions() == slices
    assert ordered(rows) == ordered(taxi_rows(spark, 500, seed=11, slices=2))


def test_generated_rows_do_not_depend_on_the_time_zone(spark: SparkSession) -> None:
    here = ordered(taxi_rows(spark, 300))
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        assert ordered(taxi_rows(spark, 300)) == here
    finally:
        spark.conf.set("spark.sql.session.timeZone", str(zone))


def test_two_adjacent_ranges_generate_the_rows_of_the_whole_range(spark: SparkSession) -> None:
    whole = ordered(taxi_rows(spark, 300))
    parts = [*taxi_rows(spark, 100).collect(), *taxi_rows(spark, 200, start=100).collect()]
    assert sorted(parts, key=lambda row: str(row[KEY])) == whole


@pytest.mark.quick
def test_generated_rows_are_the_same_in_each_version_of_lakefeed(spark: SparkSession) -> None:
    """Users publish benchmark results for a seed, so it must give the same rows in all versions of lakefeed."""
    assert totals(taxi_rows(spark, 10_000)) == Totals(
        records=10_000,
        distinct_keys=10_000,
        passengers=16_914,
        distance_hundredths=2_878_053,
        fare_cents=11_805_650,
        tip_cents=1_690_615,
        tolls_cents=284_984,
        total_cents=14_898_749,
    )


def test_another_seed_generates_other_rows(spark: SparkSession) -> None:
    keys = {row[KEY] for seed in (1, 2) for row in taxi_rows(spark, 200, seed=seed).collect()}
    assert len(keys) == 400
    sums = {totals(taxi_rows(spark, 1000, seed=seed)).total_cents for seed in (1, 2, 3)}
    assert len(sums) == 3


def test_the_values_of_a_trip_are_consistent(spark: SparkSession) -> None:
    parts = ("fare_amount", "extra", "mta_tax", "tip_amount", "tolls_amount", "improvement_surcharge")
    for row in taxi_rows(spark, 3000, seed=3).collect():
        began, ended = (
            datetime.strptime(row[name], "%m/%d/%Y %I:%M:%S %p")
            for name in ("tpep_pickup_datetime", "tpep_dropoff_datetime")
        )
        assert datetime(2018, 1, 1) <= began < ended < datetime(2019, 1, 2)
        cents = [round(row[name] * 100) for name in parts]
        assert all(row[name] == whole / 100 for name, whole in zip(parts, cents, strict=True))
        assert row.total_amount == sum(cents) / 100
        assert row.tip_amount == 0 or row.payment_type == 1
        assert 1 <= row.PULocationID <= 265
        assert 1 <= row.DOLocationID <= 265
        assert None not in row


def test_shares_and_means_are_those_of_new_york(spark: SparkSession) -> None:
    """The limits surround the figures of 29,999 real trips of a February morning, widely where they vary by year."""
    figures = (
        taxi_rows(spark, 200_000)
        .selectExpr(
            "avg(trip_distance) AS distance",
            "median(trip_distance) AS median_distance",
            "avg(fare_amount) AS fare",
            "median(fare_amount) AS median_fare",
            "avg(total_amount) AS total",
            "corr(fare_amount, trip_distance) AS fare_follows_distance",
            "avg(if(payment_type = 1, 1, 0)) AS by_card",
            "avg(if(payment_type = 1, tip_amount / fare_amount, null)) AS tip",
            "avg(if(passenger_count = 1, 1, 0)) AS alone",
            "avg(if(tolls_amount > 0, 1, 0)) AS with_toll",
            "avg(if(RatecodeID = 1, 1, 0)) AS standard",
            "avg(if(VendorID = 2, 1, 0)) AS vendor_2",
            "count(DISTINCT substring(tpep_pickup_datetime, 1, 10)) AS days",
        )
        .collect()[0]
    )
    bounds = {
        "distance": (2.4, 3.2),
        "median_distance": (1.3, 1.8),
        "fare": (10, 13.5),
        "median_fare": (6.5, 9),
        "total": (12.5, 16.5),
        "fare_follows_distance": (0.85, 1),
        "by_card": (0.71, 0.77),
        "tip": (0.17, 0.24),
        "alone": (0.68, 0.8),
        "with_toll": (0.03, 0.08),
        "standard": (0.95, 0.98),
        "vendor_2": (0.5, 0.58),
        "days": (365, 365),
    }
    wrong = {name: figures[name] for name, (low, high) in bounds.items() if not low <= figures[name] <= high}
    assert not wrong


def test_some_zones_have_many_more_trips_than_others(spark: SparkSession) -> None:
    counts = [row["count"] for row in taxi_rows(spark, 50_000).groupBy("PULocationID").count().collect()]
    busiest = sorted(counts, reverse=True)[:20]
    assert 0.5 < sum(busiest) / 50_000 < 0.85
    assert len(counts) > 200


def test_the_total_of_a_trip_is_the_exact_sum_of_its_parts(spark: SparkSession) -> None:
    rows = taxi_rows(spark, 1000)
    listed = rows.collect()
    found = totals(rows, key=None)
    assert found.distinct_keys is None
    assert found.records == 1000
    assert found.total_cents == sum(round(row.total_amount * 100) for row in listed)
    assert found.distance_hundredths == sum(round(row.trip_distance * 100) for row in listed)
    assert dataclasses.replace(found, distinct_keys=1000) == totals(rows)


def test_totals_of_no_rows_are_zero(spark: SparkSession) -> None:
    assert totals(taxi_rows(spark, 0)).total_cents == 0


@pytest.mark.parametrize("wrong", [{"rows": -1}, {"rows": 1, "start": -1}, {"rows": 1, "slices": 0}])
def test_negative_numbers_of_rows_and_zero_partitions_are_refused(spark: SparkSession, wrong: dict[str, int]) -> None:
    rows = wrong.pop("rows")
    with pytest.raises(ConfigError, match="trips cannot be generated"):
        taxi_rows(spark, rows, **wrong)
