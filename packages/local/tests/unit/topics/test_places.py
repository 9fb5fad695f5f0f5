"""The number of records to read is divided among the partitions, and the start of the read is checked."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakefeed.errors import ConfigError
from lakefeed_local.topics.places import TopicPlace, fair_shares

HELD = st.dictionaries(st.tuples(st.just("t"), st.integers(0, 20)), st.integers(0, 100), min_size=1)


@given(HELD, st.integers(0, 500))
def test_partitions_get_equal_shares_unless_they_have_fewer_records(
    held: dict[tuple[str, int], int], most: int
) -> None:
    shares = fair_shares(held, most)
    assert sum(shares.values()) == min(most, sum(held.values()))
    assert all(0 <= shares[key] <= held[key] for key in held)
    # A partition gets a smaller share than the others only if it has no more records.
    largest = max(shares.values())
    assert all(shares[key] == held[key] for key in held if shares[key] < largest - 1)


def test_a_read_begins_either_at_a_start_or_at_an_offset() -> None:
    with pytest.raises(ConfigError, match="both set where to begin"):
        TopicPlace(start="earliest", offset=3)
