"""Finds readings that differ from their sensor's mean by more than a number of standard deviations. The state of a
sensor is count, mean and sum of squares.
"""

import math

from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor


class Deviation(StatefulProcessor):
    """The state of one sensor, computed by Welford's method, which stores no reading."""

    def __init__(self, sigmas, warm_up):
        self.sigmas = sigmas
        self.warm_up = warm_up

    def init(self, handle):
        self.seen = handle.getValueState("seen", "count BIGINT, mean DOUBLE, squares DOUBLE")

    def handleInputRows(self, key, rows, timerValues):  # noqa: N802, N803  # Spark's names
        count, mean, squares = self.seen.get() or (0, 0.0, 0.0)
        for row in sorted(rows, key=lambda each: each.at):
            spread = math.sqrt(squares / count) if count else 0.0
            if count >= self.warm_up and abs(row.value - mean) > self.sigmas * spread:
                yield Row(sensor=key[0], at=row.at, value=row.value, mean=round(mean, 3), spread=round(spread, 3))
            count += 1
            step = row.value - mean
            mean += step / count
            squares += step * (row.value - mean)
        self.seen.update((count, mean, squares))

    def close(self):
        pass


def anomalies(rows, sigmas, warm_up):
    return rows.groupBy("sensor").transformWithState(
        Deviation(sigmas, warm_up),
        outputStructType="sensor STRING, at TIMESTAMP, value DOUBLE, mean DOUBLE, spread DOUBLE",
        outputMode="Append",
        timeMode="None",
    )
