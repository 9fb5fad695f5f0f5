"""A reason, as ``dead-letters list`` prints it, selects the letters of this reason."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakefeed.messages.printable import printable
from lakefeed.sinks.dead_letters.store import DeadLetterFilter, kinds

REASONS = [
    "found long, expecting int at byte 17 of 204",
    'it\'s "quoted", `ticked` and \\ escaped',
    "größe 東京 \N{ARABIC-INDIC DIGIT THREE}",
    "a\nb\tc\x1b[2J\u202e 7",
    "x" * 40_000 + " 3",
    "100% of it_",
]


def letter(reason: str) -> dict[str, Any]:
    return {"topic": "t", "partition": 0, "offset": 1, "timestamp": None, "reason": reason}


def is_chosen_as_printed(reason: str) -> bool:
    (kind,) = kinds([letter(reason)])
    printed = (printable(reason), printable(kind.reason), reason, kind.reason)
    return all(DeadLetterFilter(feed="f", reason=each).means(reason) for each in printed)


@pytest.mark.parametrize("reason", REASONS)
def test_a_printed_reason_selects_the_letters_with_this_reason(reason: str) -> None:
    assert is_chosen_as_printed(reason)
    assert not DeadLetterFilter(feed="f", reason=f"{reason}!").means(reason)


@given(st.text(st.characters(exclude_characters="\\")))
def test_any_printed_reason_selects_the_letters_with_this_reason(reason: str) -> None:
    assert is_chosen_as_printed(reason)


def test_a_filter_with_a_number_selects_only_this_number() -> None:
    assert not DeadLetterFilter(feed="f", reason="byte 18").means(REASONS[0])
    assert DeadLetterFilter(feed="f", reason="byte # of #").means(REASONS[0])
    assert DeadLetterFilter(feed="f").means(REASONS[0])
