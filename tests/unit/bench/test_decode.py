"""Check the cases of ``lakefeed bench decode``."""

from __future__ import annotations

from lakefeed.bench.decode import CASES
from lakefeed.cli.bench import SCHEMAS


def test_the_command_offers_every_case() -> None:
    assert tuple(CASES) == SCHEMAS
