"""Generate any number of taxi trips; the same seed gives the same trips.

Spark computes every value by integer arithmetic from bits of ``xxhash64(seed, id)``, so a row depends only on the seed
and its id, not on the number of slices, the machine or the session's time zone. The tables below model New York's
yellow cabs: quantiles are interpolated, list elements are drawn with equal probability.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from importlib.resources import files
from pathlib import Path

from lakefeed import open_table
from lakefeed.clients.iceberg.sql import quoted
from lakefeed.clients.spark.statements import expression
from lakefeed.config.connections import Connections
from lakefeed.errors import ConfigError
from lakefeed.lazy import Column, DataFrame, SparkSession, sf
from lakefeed_local.produce.sources import read_rows

KEY = "trip_key"
"""The column with a trip's id, which becomes the record's key; the schema has no such field."""

_ROWS_A_SLICE = 500_000
_SUMMED: tuple[str, ...] = (
    *("passenger_count", "trip_distance", "fare_amount", "tip_amount", "tolls_amount", "total_amount"),
)

# Tables of 33 quantiles: the distance in hundredths of a mile, and the seconds per mile in the city.
_DISTANCE = (
    *(0, 40, 50, 60, 67, 72, 78, 84, 90, 96, 102, 109, 116, 123, 131, 140, 149, 159, 169, 180, 191, 204),
    *(219, 237, 258, 282, 312, 352, 411, 510, 680, 986, 2600),
)
_PACE = (
    *(95, 112, 140, 160, 175, 187, 199, 210, 219, 229, 239, 249, 257, 265, 272, 280, 289, 299, 309, 320, 333),
    *(346, 359, 371, 389, 407, 430, 455, 483, 520, 571, 650, 800),
)
# The start and end zones of 64 trips, the hours of 64 pickups, the passenger counts of 32 trips, and 16 tips in
# percent.
_ZONES = (
    *([161, 236, 237, 170] * 4 + [162, 230, 234, 48, 186] * 3),
    *([163, 100, 141, 142, 140, 138, 132, 107, 239, 238, 263, 68, 79, 249] * 2),
    *(229, 231, 164, 246, 137),
)
_TRIPS_AN_HOUR = (2, 2, 1, 1, 1, 1, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3, 3, 4, 4, 4, 3, 4, 4, 2)
_HOURS = tuple(hour for hour, trips in enumerate(_TRIPS_AN_HOUR) for _ in range(trips))
_PASSENGERS = (*([1] * 23), 2, 2, 2, 2, 3, 4, 5, 5, 6)
_TIPS = (0, 6, 10, 13, 15, 17, 20, 20, 20, 20, 20, 20, 20, 25, 25, 30)


@dataclass(frozen=True, kw_only=True)
class Totals:
    """Sums over trips, which show that two engines have the same trips. They are exact, because they are integers."""

    records: int
    distinct_keys: int | None
    passengers: int
    distance_hundredths: int
    fare_cents: int
    tip_cents: int
    tolls_cents: int
    total_cents: int


TOTALS_SQL = {
    "records": "count(*)",
    "passengers": "sum(cast(passenger_count as bigint))",
    "distance_hundredths": "sum(cast(round(trip_distance * 100) as bigint))",
    "fare_cents": "sum(cast(round(fare_amount * 100) as bigint))",
    "tip_cents": "sum(cast(round(tip_amount * 100) as bigint))",
    "tolls_cents": "sum(cast(round(tolls_amount * 100) as bigint))",
    "total_cents": "sum(cast(round(total_amount * 100) as bigint))",
}
"""The SQL of every total except ``distinct_keys``, for both Spark and DuckDB."""


def totals(rows: DataFrame, *, key: str | None = KEY) -> Totals:
    """Compute the totals of trips with Spark in one pass; ``distinct_keys`` needs a ``key`` and a shuffle."""
    expressions = dict(TOTALS_SQL)
    if key is not None:
        expressions["distinct_keys"] = f"count(distinct {quoted((key,))})"
    row = rows.select(*_aliased(rows.sparkSession, expressions)).collect()[0].asDict()
    return Totals(distinct_keys=row.pop("distinct_keys", None), **{name: value or 0 for name, value in row.items()})


def taxi_schema() -> str:
    """Return the Avro schema of a trip: a record of 17 fields that are not nullable."""
    return files("lakefeed_local.produce").joinpath("taxi.avsc").read_text()


def taxi_rows(spark: SparkSession, rows: int, *, seed: int = 7, start: int = 0, slices: int | None = None) -> DataFrame:
    """Return the trips with the numbers ``start`` to ``start + rows - 1`` of this ``seed``.

    They have the 17 fields of :func:`taxi_schema` and ``trip_key``, a text that is unique per seed and number. Times
    are in 2018, as text in the format ``MM/dd/yyyy hh:mm:ss a``. Amounts are whole cents, and ``total_amount`` is the
    sum of the other amounts. Spark gets ``slices`` partitions; by default one per half million rows, and at least one
    per core.
    """
    if rows < 0 or start < 0 or (slices is not None and slices < 1):
        where = f"rows={rows}, start={start}, slices={slices}"
        hint = "give rows and start of at least 0, and slices of at least 1"
        raise ConfigError("trips cannot be generated for these numbers", where=where, hint=hint)
    slices = slices or max(spark.sparkContext.defaultParallelism, -(-rows // _ROWS_A_SLICE))
    dice = _Dice(seed)
    # Each step is a separate projection, so that Spark computes a value once, even if later steps use it often.
    trips = spark.range(start, start + rows, 1, slices).select("id", *_aliased(spark, dice.hashes))
    trips = trips.select("id", *_aliased(spark, _draws(dice)))
    for step in _STEPS:
        trips = trips.select("*", *_aliased(spark, step))
    return trips.select(*_aliased(spark, {**_FIELDS, KEY: f"concat('{seed}-', id)"}))


class _Dice:
    """Returns SQL of independent random numbers, each from other bits of three 64-bit hashes."""

    def __init__(self, seed: int) -> None:
        # The three hashes depend on a hash of the seed, so that similar seeds give unrelated trips.
        digest = hashlib.sha256(f"lakefeed taxi {seed}".encode()).digest()
        words = [int.from_bytes(digest[i * 8 : i * 8 + 8], "big", signed=True) >> 1 for i in range(3)]
        self.hashes = {f"h{number}": f"xxhash64({word}L, id)" for number, word in enumerate(words)}
        self._free = [64] * len(words)

    def bits(self, count: int) -> str:
        """Return SQL of a random number of ``count`` bits; no other expression uses the same bits."""
        number = next(number for number, free in enumerate(self._free) if free >= count)
        self._free[number] -= count
        return f"(shiftrightunsigned(h{number}, {self._free[number]}) & {(1 << count) - 1})"

    def below(self, limit: int) -> str:
        """Return SQL of a uniform random number from 0 to ``limit - 1``, for limits up to a few thousand."""
        bits = 16 if limit > 1000 else 14
        return f"shiftright({self.bits(bits)} * {limit}, {bits})"

    def one_of(self, values: Sequence[int]) -> str:
        """Return SQL that draws one of the values with equal probability; the number of values is a power of 2."""
        return f"{_array(values)}[cast({self.bits((len(values) - 1).bit_length())} AS int)]"

    def quantile(self, values: Sequence[int]) -> str:
        """Return SQL of a random number whose distribution has these 33 quantiles, with linear interpolation."""
        steps = [high - low for low, high in itertools.pairwise(values)]
        bin_, part = f"cast({self.bits(5)} AS int)", self.bits(8)
        return f"({_array(values[:-1])}[{bin_}] + shiftright({_array(steps)}[{bin_}] * {part}, 8))"

    def zone(self) -> str:
        """Return SQL that usually draws a busy zone, and sometimes any of the 265 zones."""
        return f"if({self.bits(3)} > 0, {self.one_of(_ZONES)}, {self.below(265)} + 1)"


def _draws(dice: _Dice) -> dict[str, str]:
    return {
        "day": dice.below(365),
        "hour": dice.one_of(_HOURS),
        "second": dice.below(3600),
        "pickup_zone": dice.zone(),
        "dropoff_zone": dice.zone(),
        "cruise": dice.quantile(_DISTANCE),
        "pace": dice.quantile(_PACE),
        "luck": dice.below(1000),
        "passengers": dice.one_of(_PASSENGERS),
        "payment": dice.below(1000),
        "tip_percent": dice.one_of(_TIPS),
        "toll": dice.bits(7),
        "flag": dice.bits(9),
        "vendor": dice.bits(7),
    }


# Rate 2 is the flat fare between Manhattan and JFK (zone 132), 3 Newark, 5 negotiated. Payment 1 is by card,
# the only one with known tips; 2 cash, 3 no charge, 4 dispute. After five miles, trips are 2/5 faster.
_STEPS: tuple[dict[str, str], ...] = (
    {
        "rate": "CASE WHEN luck < 968 THEN 1L WHEN luck < 993 THEN 2L WHEN luck < 996 THEN 3L ELSE 5L END",
        "payment_type": (
            "CASE WHEN payment < 740 THEN 1L WHEN payment < 994 THEN 2L WHEN payment < 998 THEN 3L ELSE 4L END"
        ),
        "pickup": "(day * 24 + hour) * 3600 + second",
    },
    {
        "hundredths": "if(rate IN (2, 3), 1500 + cruise % 500, cruise)",
        "jfk_end": "if(rate = 2, vendor % 2, -1)",
    },
    {
        "dropoff": "pickup + 60 + (5 * hundredths - 2 * greatest(hundredths - 500, 0)) * pace div 500",
        "toll_cents": (
            "if(toll < CASE WHEN rate = 2 THEN 90 WHEN rate = 3 THEN 120 WHEN hundredths > 800 THEN 40 ELSE 1"
            " END, if(rate = 3, 1250L, 576L), 0L)"
        ),
        "tax_cents": "if(rate = 3, 0L, 50L)",
        "extra_cents": (
            "CASE WHEN rate IN (2, 3) THEN 0L WHEN hour >= 20 OR hour < 6 THEN 50L"
            " WHEN hour >= 16 AND day % 7 < 5 THEN 100L ELSE 0L END"
        ),
    },
    {
        "fare_cents": (
            "CASE rate WHEN 2 THEN 5200L WHEN 5 THEN 2000L + cruise * 5 div 100 * 100"
            " ELSE if(rate = 3, 2000L, 250L) + 50 * (hundredths div 25 + (dropoff - pickup) div 110) END"
        ),
    },
    {"metered_cents": "fare_cents + extra_cents + tax_cents + toll_cents + 30"},
    {"tip_cents": "if(payment_type = 1, metered_cents * tip_percent div 100, 0L)"},
)


def _array(values: Iterable[object]) -> str:
    return f"array({', '.join(map(str, values))})"


def _aliased(spark: SparkSession, expressions: Mapping[str, str]) -> list[Column]:
    return [expression(spark, sql).alias(name) for name, sql in expressions.items()]


def _clock(seconds: str) -> str:
    """Return SQL that formats seconds since 2018 as ``MM/dd/yyyy hh:mm:ss a``, much faster than date_format."""
    days = [date(2018, 1, 1) + timedelta(days=day) for day in range(367)]
    dates = _array(f"'{day:%m/%d/%Y} '" for day in days)
    hours = _array(f"'{(hour + 11) % 12 + 1:02}:'" for hour in range(24))
    two = _array(f"'{number:02}'" for number in range(60))
    return (
        f"concat({dates}[cast({seconds} div 86400 AS int)], {hours}[cast({seconds} div 3600 % 24 AS int)],"
        f" {two}[cast({seconds} div 60 % 60 AS int)], ':', {two}[cast({seconds} % 60 AS int)],"
        f" if({seconds} div 43200 % 2 = 0, ' AM', ' PM'))"
    )


_FIELDS = {
    "VendorID": "if(vendor < 59, 1L, 2L)",
    "tpep_pickup_datetime": _clock("pickup"),
    "tpep_dropoff_datetime": _clock("dropoff"),
    "passenger_count": "cast(passengers AS double)",
    "trip_distance": "hundredths / 100D",
    "RatecodeID": "cast(rate AS double)",
    "store_and_fwd_flag": "if(flag < 2, 'Y', 'N')",
    "PULocationID": "cast(if(jfk_end = 0, 132, pickup_zone) AS bigint)",
    "DOLocationID": "cast(if(jfk_end = 1, 132, dropoff_zone) AS bigint)",
    "payment_type": "payment_type",
    "fare_amount": "fare_cents / 100D",
    "extra": "extra_cents / 100D",
    "mta_tax": "tax_cents / 100D",
    "tip_amount": "tip_cents / 100D",
    "tolls_amount": "toll_cents / 100D",
    "improvement_surcharge": "0.3D",
    "total_amount": "(metered_cents + tip_cents) / 100D",
}


def taxi_trips(spark: SparkSession, *, rows: int, csv: Path | None) -> DataFrame:
    """Return trips, generated or from a CSV file, each with a ``trip_key`` that depends only on its row."""
    if csv is None:
        return taxi_rows(spark, rows)
    found = read_rows(spark, str(csv), format="csv", schema=taxi_schema())
    return found.withColumn(KEY, sf.hex(sf.xxhash64(*found.columns)))


def table_totals(table: str, connections: Connections, *, key: str | None) -> Totals:
    """Compute the totals of an Iceberg table with DuckDB, from rows that pyiceberg streams."""
    import duckdb

    expressions, columns = dict(TOTALS_SQL), _SUMMED
    if key is not None:
        expressions["distinct_keys"], columns = f"count(distinct {key})", (key, *_SUMMED)
    scan = open_table(table, connections=connections).scan(selected_fields=columns)
    with duckdb.connect() as connection:
        connection.register("trips", scan.to_arrow_batch_reader())
        listed = ", ".join(f"{sql} AS {name}" for name, sql in expressions.items())
        row = connection.execute(f"SELECT {listed} FROM trips").fetchone()  # noqa: S608  # TOTALS_SQL
    assert row is not None  # A query of aggregates always returns a row.
    sums = {name: int(value or 0) for name, value in zip(expressions, row, strict=True)}
    return Totals(distinct_keys=sums.pop("distinct_keys", None), **sums)
