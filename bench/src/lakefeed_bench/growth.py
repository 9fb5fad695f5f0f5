"""Fit how a cost grows, as ``fixed + rate * size ** exponent``, and compute the exponent's confidence interval.

A straight line through the logarithms would underestimate the exponent, because a batch also has a fixed cost. So the
fit includes the fixed cost: for every exponent of a grid, the least squares of relative errors give the best fixed cost
and rate; neither may be negative. The best exponent is the one with the smallest error. Its interval contains the
exponents that an F test at 95 % does not reject.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

Points = Sequence[tuple[float, float]]

TOLERANCE = 0.1
"""How far an exponent may exceed its bound, because caches and sorting cost a little more than linear."""
GROWS = 1.25
"""If a cost grows by less than this factor over the whole range, or by less than its noise, it counts as flat."""
_STEP, _MOST = 0.01, 3.0
_PARAMETERS = 3


@dataclass(frozen=True, kw_only=True)
class CostGrowth:
    """The fitted cost.

    Attributes:
        fixed: the cost at size 0.
        rate: the factor before the power of the size.
        exponent, low, high: the exponent and its 95 % confidence interval; None if the cost is flat.
        ratio: the fitted cost at the largest size, divided by the fitted cost at the smallest size.
    """

    fixed: float
    rate: float
    exponent: float | None
    low: float | None
    high: float | None
    ratio: float

    def is_above(self, bound: float) -> bool:
        """Return True if the exponent exceeds the bound with 95 % confidence."""
        return self.low is not None and self.low > bound + TOLERANCE

    def at(self, size: float) -> float:
        return self.fixed + (self.rate * math.pow(size, self.exponent) if self.exponent is not None else 0.0)


def growth_of(points: Points) -> CostGrowth:
    """Fit the measurements: (size, cost) pairs above 0 of at least two sizes; a size may have several pairs."""
    from scipy import stats

    flat_cost, _, flat_error = _fit(points, None)
    fits = {step * _STEP: _fit(points, step * _STEP) for step in range(5, round(_MOST / _STEP) + 1)}
    exponent = min(fits, key=lambda each: fits[each][2])
    (fixed, rate, error), degrees = fits[exponent], len(points) - _PARAMETERS
    smallest, largest = min(x for x, _ in points), max(x for x, _ in points)
    ratio = (fixed + rate * largest**exponent) / (fixed + rate * smallest**exponent)
    # Points that fit exactly by chance would give an interval of length 0, so the error has a minimum.
    least = max(error, len(points) * 1e-6)
    allowed = least * (1 + float(stats.f.ppf(0.95, 1, degrees)) / degrees) if degrees > 0 else math.inf
    if rate == 0.0 or ratio < GROWS or flat_error <= allowed:
        return CostGrowth(fixed=flat_cost, rate=0.0, exponent=None, low=None, high=None, ratio=ratio)
    inside = [each for each, (_, _, error) in fits.items() if error <= allowed]
    low, high = round(min(inside), 2), round(max(inside), 2)
    return CostGrowth(fixed=fixed, rate=rate, exponent=round(exponent, 2), low=low, high=high, ratio=ratio)


def _fit(points: Points, exponent: float | None) -> tuple[float, float, float]:
    """Return the fixed cost, the rate and the sum of squared relative errors; without an exponent, the rate is 0."""
    import numpy as np
    from scipy.optimize import nnls

    sizes, costs = np.array(points, dtype=float).T
    scale = sizes.max()
    # Dividing both sides of an equation by its cost makes the errors relative.
    columns = [1 / costs] if exponent is None else [1 / costs, (sizes / scale) ** exponent / costs]
    fitted, norm = nnls(np.column_stack(columns), np.ones(len(costs)))
    return float(fitted[0]), 0.0 if exponent is None else float(fitted[1] / scale**exponent), float(norm**2)
