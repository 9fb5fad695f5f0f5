"""Parse the offset ranges, times and ages with which users select records."""

from contextlib import suppress
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakefeed.clients.kafka.selection import Selection, ago, moment, require_held
from lakefeed.clients.kafka.topics import PartitionDescription, TopicDescription
from lakefeed.errors import ConfigError, ResourceMissing
from lakefeed.offsets.ranges import OffsetRange

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
offsets = st.integers(0, 10**18 - 1)


@given(st.from_regex(r"[A-Za-z0-9._-]{1,249}", fullmatch=True), st.integers(0, 10**9 - 1), offsets, offsets)
def test_the_text_of_a_range_is_parsed_to_the_same_range(topic: str, partition: int, one: int, other: int) -> None:
    written = OffsetRange(topic, partition, min(one, other), max(one, other))
    assert OffsetRange.parse(str(written)) == written


def test_a_range_is_written_as_topic_partition_start_end() -> None:
    assert OffsetRange.parse("some-topic:0:110:220") == OffsetRange("some-topic", 0, 110, 220)


@pytest.mark.parametrize(
    "text", ["", "t", "t:0", "t:0:1", "t:0:5:4", "t:-1:0:1", "t:0:1:2:3", "t:0:1:²", "a b:0:1:2", " t:0:1:2"]
)
def test_a_malformed_range_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="is not an offset range"):
        OffsetRange.parse(text)


@given(st.text(max_size=30))
def test_any_text_is_parsed_as_a_range_or_raises_a_config_error(text: str) -> None:
    with suppress(ConfigError):
        assert OffsetRange.parse(str(OffsetRange.parse(text))) == OffsetRange.parse(text)


@given(st.datetimes(min_value=datetime(1970, 1, 2), max_value=datetime(2200, 1, 1)), st.integers(-14, 14))
def test_a_time_without_a_utc_offset_is_in_utc(local: datetime, hours: int) -> None:
    assert moment(local.isoformat()) == local.replace(tzinfo=UTC)
    zoned = local.replace(tzinfo=timezone(timedelta(hours=hours)))
    assert moment(zoned.isoformat()) == zoned == moment(zoned)


def test_dates_and_times_in_iso_8601_are_parsed() -> None:
    assert moment("2026-11-20") == datetime(2026, 11, 20, tzinfo=UTC)
    assert moment("2026-11-20T06:30") == moment("2026-11-20 07:30+01:00") == moment("2026-11-20T06:30Z")
    with pytest.raises(ConfigError, match="not a time in ISO 8601"):
        moment("yesterday")


@given(st.integers(0, 500_000), st.sampled_from(["s", "m", "h", "d"]))
def test_an_age_is_subtracted_from_now(count: int, unit: str) -> None:
    seconds = {"s": 1, "m": 60, "h": 3600, "d": 86_400}[unit]
    assert NOW - ago(f"{count}{unit}", now=NOW) == timedelta(seconds=count * seconds)


def test_an_age_in_words_is_parsed() -> None:
    assert ago("2 hours", now=NOW) == ago("2h", now=NOW) == ago("120m", now=NOW)
    with pytest.raises(ConfigError, match="before the year 1"):
        ago("999999999d")
    for text in ("", "h", "2 weeks", "-1h", "2h30m"):
        with pytest.raises(ConfigError, match="is not an age"):
            ago(text)


def test_a_contradictory_selection_is_refused() -> None:
    one = OffsetRange("t", 0, 0, 10)
    with pytest.raises(ConfigError, match="exclude each other"):
        Selection.of([one], since="2026-11-20")
    with pytest.raises(ConfigError, match="ranges overlap"):
        Selection.of([one, OffsetRange("t", 0, 9, 12)])
    with pytest.raises(ConfigError, match="no offset range is given"):
        Selection.of([])
    with pytest.raises(ConfigError, match="ends before it begins"):
        Selection.of(since="2026-11-20", until="2026-11-20")
    assert Selection.of([one, OffsetRange("t", 0, 10, 12)]).ranges


def test_the_error_lists_all_offsets_that_a_topic_lacks() -> None:
    topic = TopicDescription(
        name="t",
        topic_id="x",
        partitions=tuple(PartitionDescription(id=each, leader=0, start_offset=100, end_offset=200) for each in (0, 1)),
    )
    require_held([OffsetRange("t", 0, 100, 200)], {"t": topic}, where="broker")
    expected = [OffsetRange("t", 0, 99, 120), OffsetRange("t", 1, 150, 201), OffsetRange("t", 2, 0, 1)]
    with pytest.raises(ResourceMissing) as refused:
        require_held(expected, {"t": topic}, where="broker")
    assert "t-0 no longer has offset 99, it begins at 100" in refused.value.what
    assert "t-1 has no offset 200 yet, it ends at 200" in refused.value.what
    assert "t-2 does not exist, t has 2 partitions" in refused.value.what
    with pytest.raises(ConfigError, match="does not read the topic u"):
        require_held([OffsetRange("u", 0, 0, 1)], {"t": topic}, where="broker")
