"""``trigger``: when records are read; and what a real-time one can do."""

from __future__ import annotations

import re

AVAILABLE_NOW = "available-now"
REAL_TIME = "real-time"
INTERVAL = "1 minute"
"""Between two notes of how far a real-time query has come."""
LEAST_SECONDS = 5
"""Spark's ``spark.sql.streaming.realTimeMode.minBatchDuration``."""
_TIME = re.compile(r"\s*(\d{1,9})\s*(second|minute|hour)s?\s*", re.ASCII)
LONGEST_SECONDS = 366 * 86_400
_SECONDS = {"second": 1, "minute": 60, "hour": 3600}


def known(trigger: str) -> str:
    """The trigger as it is written.

    Raises:
        ValueError: it is none.
    """
    interval = interval_of(trigger)
    if trigger == AVAILABLE_NOW:
        return trigger
    if not (found := _TIME.fullmatch(trigger if interval is None else interval)):
        raise ValueError(
            f"a trigger is '<n> seconds|minutes|hours', '{AVAILABLE_NOW}', '{REAL_TIME}' or '{REAL_TIME}, <n> seconds'"
        )
    seconds = int(found[1]) * _SECONDS[found[2]]
    if seconds > LONGEST_SECONDS:
        raise ValueError("a trigger is a year at most")
    if interval is not None and seconds < LEAST_SECONDS:
        raise ValueError(f"{REAL_TIME}: its progress is noted every {LEAST_SECONDS} seconds at most")
    return trigger


def interval_of(trigger: str) -> str | None:
    """How often a real-time query notes how far it has come; None if the trigger is another."""
    name, _, interval = trigger.partition(",")
    return (interval.strip() or INTERVAL) if name.strip() == REAL_TIME else None
