"""A number is accepted if it fits into a decimal type without rounding."""

from decimal import Decimal, localcontext

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakefeed_testing.encode import _is_decimal

TYPES = st.integers(1, 38).flatmap(lambda precision: st.tuples(st.just(precision), st.integers(0, precision)))


@given(TYPES, st.integers(-(10**40), 10**40), st.integers(-40, 5))
def test_a_number_fits_if_its_digits_fit_precision_and_scale(
    type_: tuple[int, int], digits: int, exponent: int
) -> None:
    precision, scale = type_
    with localcontext() as context:
        context.prec = 200
        number = Decimal(digits).scaleb(exponent)
        units = number.scaleb(scale)
    assert _is_decimal(str(number), precision, scale) == (units == int(units) and abs(int(units)) < 10**precision)


def test_numbers_of_more_than_28_digits_keep_all_digits() -> None:
    assert _is_decimal("123456789012345678901234567890.1", 38, 1)
    assert not _is_decimal("123456789012345678901234567890.12", 38, 1)


@pytest.mark.parametrize("text", ["", "abc", "NaN", "Infinity", "1,5", "0x1"])
def test_a_text_that_is_not_a_number_does_not_fit_a_decimal(text: str) -> None:
    assert not _is_decimal(text, 38, 18)
