"""A linear model that learns from a stream: each batch adds its sums to those of the newest version, and writes the
next version.

A version is one row of a table: the sums of all rows learned so far, the weights that follow from them, and the offset
ranges of its batch. It is written in one commit, so that a batch is learned as a whole or not at all, and ``last``
returns after a crash which batch was the newest. Spark computes a batch's sums; no row comes to the driver.
"""

from datetime import UTC, datetime

import numpy as np
from pyspark.sql import functions as sf

import lakefeed as lf
from lakefeed.errors import ResourceMissing

COLUMNS = """
    version BIGINT, rows BIGINT, weights ARRAY<DOUBLE>, squares ARRAY<DOUBLE>, products ARRAY<DOUBLE>,
    ranges STRING, at TIMESTAMP
"""


class LinearModel:
    """Least squares of a label by features, which are columns or SQL; the first weight is the intercept."""

    def __init__(self, table, features, label):
        self.table = table
        self.terms = ["1", *(each.strip() for each in features.split(","))]
        self.label = label

    def write(self, rows, batch):
        """Learn the rows of one batch."""
        size, newest = len(self.terms), self.newest()
        squares, products = self.sums(rows)
        if newest is not None:
            squares, products = squares + newest["squares"], products + newest["products"]
        # With few or similar rows, many models fit equally well; this solution has the smallest weights.
        weights = np.linalg.lstsq(squares.reshape(size, size), products)[0]
        version = {
            "version": (newest["version"] if newest else 0) + 1,
            "rows": int(squares[0]),
            "weights": weights.tolist(),
            "squares": squares.tolist(),
            "products": products.tolist(),
            "ranges": batch.ranges,
            "at": datetime.now(UTC),
        }
        spark = rows.sparkSession
        spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {self.table.rpartition('.')[0]}")
        spark.sql(f"CREATE TABLE IF NOT EXISTS {self.table} ({COLUMNS}) USING iceberg")
        spark.createDataFrame([version], COLUMNS).coalesce(1).writeTo(self.table).append()

    def last(self):
        """The offset ranges of the batch that was learned last."""
        newest = self.newest()
        return newest["ranges"] if newest else None

    def newest(self):
        """The newest version, read without Spark; None before the first one."""
        try:
            versions = lf.open_table(self.table).scan().to_arrow().to_pylist()
        except ResourceMissing:
            return None
        return max(versions, key=lambda each: each["version"], default=None)

    def sums(self, rows):
        """The sums of all products of two terms, and of each term and the label: one row for any batch."""
        complete = rows.where(" AND ".join(f"({each}) IS NOT NULL" for each in [*self.terms, self.label]))
        squares = [f"({one}) * ({other})" for one in self.terms for other in self.terms]
        products = [f"({one}) * ({self.label})" for one in self.terms]
        found = complete.agg(*(sf.expr(f"coalesce(sum(double({each})), 0)") for each in [*squares, *products])).first()
        return np.array(found[: len(squares)]), np.array(found[len(squares) :])
