"""Fit how a cost grows, as ``fixed + rate * size ** exponent``, and compute the exponent's confidence interval.

A slope of the logarithms alone would take the fixed cost of a batch for a small exponent, and hide a cost that only
begins to grow. So the fixed cost is fitted too: for every exponent of a grid, the best fixed cost and rate, neither
negative, by least squares of the relative errors. The interval contains the exponents whose errors exceed those of the
best exponent by no more than chance allows: the F test at 95 %.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

Points = Sequence[tuple[float, float]]

TOLERANCE = 0.1
"""An exponent may exceed its bound by this much: caches and sorting cost a little more than linear."""
GROWS = 1.25
"""A cost is flat if it grows by at most this factor over the whole range, or by no more than the noise."""
_STEP, _MOST = 0.01, 3.0
_PARAMETERS = 3


@dataclass(frozen=True, kw_only=True)
class CostGrowth:
    """The fitted cost.

    Attributes:
        fixed: the cost at size 0.
        rate: the cost of one more unit of size, if the exponent is 1.
        exponent: of the size; ``low`` and ``high`` are its interval of 95 % confidence. None if the cost is flat.
        ratio: the fitted cost at the largest size, divided by that at the smallest.
    """

    fixed: float
    rate: float
    exponent: float | None
    low: float | None
    high: float | None
    ratio: float

    def is_above(self, bound: float) -> bool:
        """Check that the cost grows faster than the size to this power, with 95 % confidence."""
        return self.low is not None and self.low > bound + TOLERANCE

    def at(self, size: float) -> float:
        """Return the fitted cost at a size."""
        return self.fixed + (self.rate * math.pow(size, self.exponent) if self.exponent is not None else 0.0)


def growth_of(points: Points) -> CostGrowth:
    """Fit measurements: pairs of size and cost, both above 0, of at least two sizes. A size may have several costs."""
    from scipy import stats

    flat_cost, _, flat_error = _fit(points, None)
    fits = {step * _STEP: _fit(points, step * _STEP) for step in range(5, round(_MOST / _STEP) + 1)}
    exponent = min(fits, key=lambda each: fits[each][2])
    (fixed, rate, error), degrees = fits[exponent], len(points) - _PARAMETERS
    smallest, largest = min(x for x, _ in points), max(x for x, _ in points)
    ratio = (fixed + rate * largest**exponent) / (fixed + rate * smallest**exponent)
    # No measurement is free of errors: without a minimum, a few points with an exact fit would give an interval of 0.
    least = max(error, len(points) * 1e-6)
    allowed = least * (1 + float(stats.f.ppf(0.95, 1, degrees)) / degrees) if degrees > 0 else math.inf
    if rate == 0.0 or ratio < GROWS or flat_error <= allowed:
        return CostGrowth(fixed=flat_cost, rate=0.0, exponent=None, low=None, high=None, ratio=ratio)
    inside = [each for each, (_, _, error) in fits.items() if error <= allowed]
    low, high = round(min(inside), 2), round(max(inside), 2)
    return CostGrowth(fixed=fixed, rate=rate, exponent=round(exponent, 2), low=low, high=high, ratio=ratio)


def _fit(points: Points, exponent: float | None) -> tuple[float, float, float]:
    """Return fixed cost, rate and the sum of squared relative errors; None fits the fixed cost alone."""
    import numpy as np
    from scipy.optimize import nnls

    sizes, costs = np.array(points, dtype=float).T
    scale = sizes.max()
    # Equations are divided by their costs, so that their right sides are 1 and errors are relative.
    columns = [1 / costs] if exponent is None else [1 / costs, (sizes / scale) ** exponent / costs]
    found, norm = nnls(np.column_stack(columns), np.ones(len(costs)))
    return float(found[0]), 0.0 if exponent is None else float(found[1] / scale**exponent), float(norm**2)
