"""``trigger``: when records are read; and what a real-time one can do."""

from __future__ import annotations

from lakefeed.config.durations import parse_seconds

AVAILABLE_NOW = "available-now"
REAL_TIME = "real-time"
INTERVAL = "1 minute"
"""Between two notes of how far a real-time query has come."""
LEAST_SECONDS = 5
"""Spark's ``spark.sql.streaming.realTimeMode.minBatchDuration``."""
LONGEST_SECONDS = 366 * 86_400
_UNITS = ("second", "minute", "hour")


def known(trigger: str) -> str:
    """The trigger as it is written.

    Raises:
        ValueError: it is none.
    """
    interval = interval_of(trigger)
    if trigger == AVAILABLE_NOW:
        return trigger
    seconds = parse_seconds(trigger if interval is None else interval, units=_UNITS)
    if seconds is None:
        raise ValueError(
            f"a trigger is '<n> seconds|minutes|hours', '{AVAILABLE_NOW}', '{REAL_TIME}' or '{REAL_TIME}, <n> seconds'"
        )
    if seconds > LONGEST_SECONDS:
        raise ValueError("a trigger is a year at most")
    if interval is not None and seconds < LEAST_SECONDS:
        raise ValueError(f"{REAL_TIME}: its progress is noted every {LEAST_SECONDS} seconds at most")
    return trigger


def interval_of(trigger: str) -> str | None:
    """How often a real-time query notes how far it has come; None if the trigger is another."""
    name, _, interval = trigger.partition(",")
    return (interval.strip() or INTERVAL) if name.strip() == REAL_TIME else None
