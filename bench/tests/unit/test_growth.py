"""The fit finds a cost's exponent beside a fixed cost; noise widens the interval of the exponent."""

from __future__ import annotations

import random

import pytest

from lakefeed_bench.growth import Points, growth_of

SIZES = (1, 10, 100, 1_000, 10_000)


def costs(*, fixed: float, rate: float, exponent: float, noise: float = 0.03, turns: int = 3, seed: int = 1) -> Points:
    chance = random.Random(seed)
    return [(size, (fixed + rate * size**exponent) * chance.gauss(1, noise)) for size in SIZES for _ in range(turns)]


@pytest.mark.parametrize("exponent", [0.5, 1.0, 1.5, 2.0])
@pytest.mark.parametrize("seed", range(3))
def test_the_exponent_is_found_beside_a_fixed_cost(exponent: float, seed: int) -> None:
    # At the largest size, the cost that grows is ten times the fixed cost.
    found = growth_of(costs(fixed=1, rate=10 / 10_000**exponent, exponent=exponent, seed=seed))
    assert found.exponent == pytest.approx(exponent, abs=0.12)
    assert found.low is not None
    assert found.high is not None
    assert found.low <= exponent + 0.05
    assert found.high >= exponent - 0.05
    assert found.fixed == pytest.approx(1, rel=0.1)


def test_a_square_is_super_linear_and_a_line_is_not() -> None:
    square = growth_of(costs(fixed=1, rate=1e-7, exponent=2))
    line = growth_of(costs(fixed=1, rate=1e-3, exponent=1))
    assert square.is_above(1)
    assert (line.is_above(1), line.is_above(0)) == (False, True)
    assert not growth_of(costs(fixed=1, rate=1e-1, exponent=0.5)).is_above(1)


@pytest.mark.parametrize("seed", range(5))
def test_noise_alone_does_not_grow(seed: int) -> None:
    found = growth_of(costs(fixed=1, rate=0, exponent=1, noise=0.2, seed=seed))
    assert (found.exponent, found.low, found.high) == (None, None, None)
    assert found.at(5) == pytest.approx(1, rel=0.2)


def test_a_cost_that_falls_is_flat() -> None:
    assert growth_of([(1, 2.0), (10, 1.5), (100, 1.2), (1000, 1.0)]).exponent is None


def test_noise_widens_the_interval() -> None:
    exact = growth_of(costs(fixed=1, rate=1e-3, exponent=1, noise=0.01))
    rough = growth_of(costs(fixed=1, rate=1e-3, exponent=1, noise=0.2))
    assert exact.high is not None
    assert exact.low is not None
    assert rough.high is not None
    assert rough.low is not None
    assert exact.high - exact.low < rough.high - rough.low


def test_too_few_points_are_sure_of_nothing() -> None:
    assert growth_of([(1, 1.0), (10, 100.0)]).is_above(0) is False
    assert growth_of([(1, 1.0), (10, 1.0), (100, 100.0)]).is_above(0) is False


def test_the_fitted_cost_is_that_of_the_measurements() -> None:
    found = growth_of(costs(fixed=2, rate=0.001, exponent=1, noise=0.001))
    assert found.at(1_000) == pytest.approx(3, rel=0.02)
    assert found.ratio == pytest.approx(12 / 2.001, rel=0.02)
