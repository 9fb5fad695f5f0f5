"""The fit of a cost gives its exponent with an interval, or finds that the cost is flat."""

from __future__ import annotations

import random

import pytest

from lakefeed_bench.growth import CostGrowth, Points, growth_of

SIZES = (1, 10, 100, 1_000, 10_000)


def costs(*, fixed: float, rate: float, exponent: float, noise: float = 0.03, turns: int = 3, seed: int = 1) -> Points:
    chance = random.Random(seed)
    return [(size, (fixed + rate * size**exponent) * chance.gauss(1, noise)) for size in SIZES for _ in range(turns)]


def interval(growth: CostGrowth) -> tuple[float, float]:
    assert growth.low is not None
    assert growth.high is not None
    return growth.low, growth.high


@pytest.mark.parametrize("exponent", [0.5, 1.0, 1.5, 2.0])
@pytest.mark.parametrize("seed", range(3))
def test_the_fit_separates_the_exponent_from_a_fixed_cost(exponent: float, seed: int) -> None:
    # At the largest size (10,000), the growing part of the cost is ten times the fixed part.
    growth = growth_of(costs(fixed=1, rate=10 / 10_000**exponent, exponent=exponent, seed=seed))
    low, high = interval(growth)
    assert growth.exponent == pytest.approx(exponent, abs=0.12)
    assert low <= exponent + 0.05
    assert high >= exponent - 0.05
    assert growth.fixed == pytest.approx(1, rel=0.1)


def test_a_quadratic_cost_exceeds_the_linear_limit_and_a_linear_cost_does_not() -> None:
    square = growth_of(costs(fixed=1, rate=1e-7, exponent=2))
    line = growth_of(costs(fixed=1, rate=1e-3, exponent=1))
    assert square.is_above(1)
    assert (line.is_above(1), line.is_above(0)) == (False, True)
    assert not growth_of(costs(fixed=1, rate=1e-1, exponent=0.5)).is_above(1)


@pytest.mark.parametrize("seed", range(5))
def test_a_constant_cost_with_noise_is_flat(seed: int) -> None:
    growth = growth_of(costs(fixed=1, rate=0, exponent=1, noise=0.2, seed=seed))
    assert (growth.exponent, growth.low, growth.high) == (None, None, None)
    assert growth.at(5) == pytest.approx(1, rel=0.2)


def test_a_falling_cost_is_flat() -> None:
    assert growth_of([(1, 2.0), (10, 1.5), (100, 1.2), (1000, 1.0)]).exponent is None


def test_noise_makes_the_interval_of_the_exponent_wider() -> None:
    exact, noisy = (interval(growth_of(costs(fixed=1, rate=1e-3, exponent=1, noise=noise))) for noise in (0.01, 0.2))
    assert exact[1] - exact[0] < noisy[1] - noisy[0]


def test_too_few_points_do_not_prove_that_a_cost_grows() -> None:
    assert growth_of([(1, 1.0), (10, 100.0)]).is_above(0) is False
    assert growth_of([(1, 1.0), (10, 1.0), (100, 100.0)]).is_above(0) is False


def test_the_fitted_cost_equals_the_measured_cost() -> None:
    growth = growth_of(costs(fixed=2, rate=0.001, exponent=1, noise=0.001))
    assert growth.at(1_000) == pytest.approx(3, rel=0.02)
    assert growth.ratio == pytest.approx(12 / 2.001, rel=0.02)
