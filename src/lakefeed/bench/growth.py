"""How a cost grows: fits ``fixed + rate * size ** exponent`` to measurements, and says how sure the exponent is.

A slope of the logarithms alone would take the fixed cost of a batch for a small exponent, and hide a cost that only
begins to grow. So the fixed cost is fitted beside it: for each exponent of a grid the best fixed cost and rate, neither
negative, by least squares of the relative errors. The interval has the exponents whose errors are not larger than the
best one's by more than chance allows: the F test at 95 %, whose quantile for one parameter is that of Student's t,
squared.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from lakefeed.bench.confidence import t95

Points = Sequence[tuple[float, float]]
Verdict = Literal["flat", "below linear", "linear", "above linear", "unclear"]

TOLERANCE = 0.1
"""So much an exponent may be above a bound: caches and sorting cost a little more than linear."""
GROWS = 1.25
"""A cost is flat if it does not grow by more than this over the whole range, or by no more than the noise."""
_STEP, _MOST = 0.01, 3.0
_PARAMETERS = 3


@dataclass(frozen=True, kw_only=True)
class CostGrowth:
    """The fitted cost.

    Attributes:
        fixed: the cost at size 0.
        rate: the cost of one more, where the exponent is 1.
        exponent: of the size; with ``low`` and ``high``, its interval of 95 % confidence. None where the cost is flat.
        ratio: the fitted cost at the largest size, by that at the smallest.
    """

    fixed: float
    rate: float
    exponent: float | None
    low: float | None
    high: float | None
    ratio: float

    @property
    def verdict(self) -> Verdict:
        """Compare the exponent with 1; ``unclear`` where it is above, and may be 1 as well."""
        if self.exponent is None:
            return "flat"
        if self.is_above(1.0):
            return "above linear"
        if self.exponent > 1 + TOLERANCE:
            return "unclear"
        return "linear" if self.exponent > 1 - TOLERANCE else "below linear"

    def is_above(self, bound: float) -> bool:
        """Check that the cost surely grows faster than the size to this power."""
        return self.low is not None and self.low > bound + TOLERANCE

    def at(self, size: float) -> float:
        """Return the fitted cost."""
        return self.fixed + (self.rate * math.pow(size, self.exponent) if self.exponent is not None else 0.0)

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "verdict": self.verdict}


def growth_of(points: Points) -> CostGrowth:
    """Fit measurements: sizes and costs, both above 0, of two sizes or more; each size may have several."""
    flat = _fit(points, 0.0)
    fits = {step * _STEP: _fit(points, step * _STEP) for step in range(5, round(_MOST / _STEP) + 1)}
    exponent = min(fits, key=lambda each: fits[each].error)
    best, degrees = fits[exponent], len(points) - _PARAMETERS
    smallest, largest = min(x for x, _ in points), max(x for x, _ in points)
    ratio = (best.fixed + best.rate * largest**exponent) / (best.fixed + best.rate * smallest**exponent)
    # Errors that no measurement is free of: a few points that are fitted exactly would be sure of anything.
    least = max(best.error, len(points) * 1e-6)
    allowed = least * (1 + t95(degrees) ** 2 / degrees) if degrees > 0 else math.inf
    if best.rate == 0.0 or ratio < GROWS or flat.error <= allowed:
        return CostGrowth(fixed=flat.fixed, rate=0.0, exponent=None, low=None, high=None, ratio=ratio)
    inside = [each for each, fit in fits.items() if fit.error <= allowed]
    return CostGrowth(
        fixed=best.fixed,
        rate=best.rate,
        exponent=round(exponent, 2),
        low=round(min(inside), 2),
        high=round(max(inside), 2),
        ratio=ratio,
    )


@dataclass(frozen=True)
class _Fit:
    fixed: float
    rate: float
    error: float


def _fit(points: Points, exponent: float) -> _Fit:
    """Fit the fixed cost and the rate by the least sum of squares of the relative errors."""
    if exponent == 0.0:
        weights = [1 / y for _, y in points]
        fixed = sum(weights) / sum(weight**2 for weight in weights)
        return _Fit(fixed, 0.0, _error(points, fixed, 0.0, 0.0))
    # The columns of the two unknowns, each divided by the measurement: ones are to come out.
    ones = [1 / y for _, y in points]
    scale = max(x for x, _ in points)
    powers = [(x / scale) ** exponent / y for x, y in points]
    aa, bb = sum(a * a for a in ones), sum(b * b for b in powers)
    ab, a1, b1 = sum(a * b for a, b in zip(ones, powers, strict=True)), sum(ones), sum(powers)
    determinant = aa * bb - ab * ab
    fixed, rate = (
        (0.0, b1 / bb) if determinant <= 0 else ((a1 * bb - b1 * ab) / determinant, (b1 * aa - a1 * ab) / determinant)
    )
    if rate < 0:
        fixed, rate = a1 / aa, 0.0
    elif fixed < 0:
        fixed, rate = 0.0, b1 / bb
    return _Fit(fixed, rate / scale**exponent, _error(points, fixed, rate / scale**exponent, exponent))


def _error(points: Points, fixed: float, rate: float, exponent: float) -> float:
    return sum(((fixed + rate * math.pow(x, exponent)) / y - 1) ** 2 for x, y in points)
