"""Upkeep recognizes conflicts, computes the time of its next run, and writes partition values as Iceberg does."""

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest

from lakefeed_upkeep.actions import as_text, is_conflict
from lakefeed_upkeep.schedule import next_time
from lakefeed_upkeep.settings import Upkeep


@pytest.mark.parametrize(
    ("text", "conflict"),
    [
        ("org.apache.iceberg.exceptions.CommitFailedException: table changed", True),
        ("Cannot commit rewrite because of a ValidationException or CommitFailedException", True),
        ("org.apache.iceberg.exceptions.NotFoundException: Location does not exist", False),
        ("org.apache.iceberg.exceptions.ValidationException: Cannot expire snapshots: GC is disabled", False),
        ("ValidationException: lakefeed refuses the commit: another driver", False),
        ("java.lang.OutOfMemoryError", False),
    ],
)
def test_only_commits_of_other_writers_count_as_conflicts(text: str, conflict: bool) -> None:
    assert is_conflict(text) is conflict


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, None),
        (True, "true"),
        (17565, "17565"),
        ("a/b", "a/b"),
        (Decimal("1.50"), "1.50"),
        (date(2018, 2, 3), "2018-02-03"),
    ],
)
def test_partition_values_are_written_in_icebergs_form(value: Any, text: str | None) -> None:
    assert as_text(value) == text


def test_the_next_upkeep_follows_the_time_of_day_or_the_interval() -> None:
    noon = datetime(2018, 2, 3, 12, 0, tzinfo=UTC).timestamp()
    assert next_time(Upkeep(), now=noon) == noon + 3600
    assert next_time(Upkeep(every="10 minutes"), now=noon) == noon + 600
    assert next_time(Upkeep(at="12:30"), now=noon) == noon + 1800
    assert next_time(Upkeep(at="12:00"), now=noon) == noon + 86_400
    assert next_time(Upkeep(at="02:30"), now=noon) == noon + 14.5 * 3600
