"""The trips that demo and benches produce, and their totals as another engine than Spark reads them from a table."""

from __future__ import annotations

from pathlib import Path

from lakefeed.clients.iceberg.reader import open_table
from lakefeed.config.connections import Connections
from lakefeed.lazy import DataFrame, SparkSession, sf
from lakefeed_local.produce.sources import read_rows
from lakefeed_local.produce.taxi import KEY, TOTALS_SQL, Totals, taxi_rows, taxi_schema

_SUMMED: tuple[str, ...] = (
    *("passenger_count", "trip_distance", "fare_amount", "tip_amount", "tolls_amount", "total_amount"),
)


def taxi_trips(spark: SparkSession, *, rows: int, csv: Path | None) -> DataFrame:
    """Return trips with the column ``trip_key``, the same ones whenever Spark computes them: a file's, or generated."""
    if csv is None:
        return taxi_rows(spark, rows)
    found = read_rows(spark, str(csv), format="csv", schema=taxi_schema())
    return found.withColumn(KEY, sf.hex(sf.xxhash64(*found.columns)))


def table_totals(table: str, connections: Connections, *, key: str | None) -> Totals:
    """Add up an Iceberg table, streamed by pyiceberg, with DuckDB: no Spark, and no limit by memory."""
    import duckdb

    expressions, columns = dict(TOTALS_SQL), _SUMMED
    if key is not None:
        expressions["distinct_keys"], columns = f"count(distinct {key})", (key, *_SUMMED)
    scan = open_table(table, connections=connections).scan(selected_fields=columns)
    with duckdb.connect() as connection:
        connection.register("trips", scan.to_arrow_batch_reader())
        listed = ", ".join(f"{sql} AS {name}" for name, sql in expressions.items())
        found = connection.execute(f"SELECT {listed} FROM trips").fetchone()  # noqa: S608  # our own words
    values = found or (0,) * len(expressions)
    sums = {name: int(value or 0) for name, value in zip(expressions, values, strict=True)}
    return Totals(distinct_keys=sums.pop("distinct_keys", None), **sums)
