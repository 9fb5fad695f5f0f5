"""Durations as a pipeline file writes them: ``10 seconds``, ``1 hour``."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Annotated

from pydantic import AfterValidator

_DURATION = re.compile(r"\s*(\d{1,9})\s*([a-z]+?)s?\s*", re.ASCII)
_SECONDS = {"second": 1, "minute": 60, "hour": 3600, "day": 86_400}
LONGEST_SECONDS = 100 * 366 * 86_400
"""A century: a longer one overflows Spark's and Iceberg's numbers once it is in microseconds."""


def parse_seconds(text: str, *, units: Collection[str] = tuple(_SECONDS)) -> int | None:
    """Return the seconds of a duration in one of the units; None if the text is no such duration."""
    match = _DURATION.fullmatch(text)
    return int(match[1]) * _SECONDS[match[2]] if match is not None and match[2] in units else None


def seconds_of(duration: str) -> int:
    """Return ``1 hour`` as 3600.

    Raises:
        ValueError: it is no duration, or longer than a century.
    """
    seconds = parse_seconds(duration)
    if seconds is None:
        raise ValueError("a duration is '<n> seconds|minutes|hours|days'")
    if seconds > LONGEST_SECONDS:
        raise ValueError("a duration is 100 years at most")
    return seconds


def _require_duration(text: str) -> str:
    seconds_of(text)
    return text


def _require_positive(text: str) -> str:
    if seconds_of(text) == 0:
        raise ValueError("a duration of 1 second at least is required")
    return text


Duration = Annotated[str, AfterValidator(_require_duration)]
"""A duration, which may be no time at all."""

Period = Annotated[str, AfterValidator(_require_positive)]
"""A duration of 1 second at least."""
