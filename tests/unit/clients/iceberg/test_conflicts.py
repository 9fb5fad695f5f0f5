"""What came second is run again, after it has asked for quiet; anything else is an error."""

from __future__ import annotations

import pytest

from lakefeed.clients.iceberg.conflicts import TRIES, run_in_turn

LOST = "ValidationException: Found conflicting files that can contain records matching true"


def outcome(*failures: str) -> tuple[str, int]:
    """What a statement that fails so often and then ends returns, and how often it asked for quiet."""
    left, asked = list(failures), list[None]()

    def statement() -> str:
        if left:
            raise RuntimeError(left.pop(0))
        return "done"

    return run_in_turn("lake.a.t", statement, ask_for_quiet=lambda: asked.append(None)), len(asked)


def test_it_is_run_again_as_often_as_it_was_second() -> None:
    assert outcome() == ("done", 0)
    assert outcome(LOST) == ("done", 1)
    assert outcome(*[LOST] * (TRIES - 1)) == ("done", TRIES - 1)


def test_it_ends_with_the_last_conflict_and_with_any_other_error() -> None:
    with pytest.raises(RuntimeError, match="Found conflicting files"):
        outcome(*[LOST] * TRIES)
    with pytest.raises(RuntimeError, match="lakefeed refuses the commit"):
        outcome("lakefeed refuses the commit: another driver has taken over")
