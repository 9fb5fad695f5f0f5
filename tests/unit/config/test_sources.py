"""The setting ``source.kafka.start``, at which a new feed begins."""

from contextlib import suppress
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakefeed.config.models import PipelineConfig
from lakefeed.config.sources import KafkaSource, StartingOffsets
from lakefeed.config.topic_tables import as_new_topic, config_of

NOW = datetime(2026, 11, 23, 12, tzinfo=UTC)
TOPIC = st.from_regex(r"[A-Za-z0-9._-]{1,20}", fullmatch=True).filter(lambda name: name not in (".", ".."))


@pytest.mark.parametrize(
    ("text", "kind", "described"),
    [
        ("earliest", "earliest", "the earliest records"),
        ("latest", "latest", "the latest records"),
        ("2026-11-20", "time", "the records from 2026-11-20"),
        ("last 24 hours", "last", "the records of the last 24 hours"),
        ("group:etl", "group", "the offsets of the consumer group etl"),
        ("trips:0:12", "offsets", "the offsets that source.kafka.start names"),
    ],
)
def test_each_form_of_start_is_parsed(text: str, kind: str, described: str) -> None:
    found = StartingOffsets.parse(f" {text} ")
    assert (found.kind, found.described) == (kind, described)
    assert found.is_word == (text in ("earliest", "latest"))


def test_a_time_without_a_zone_is_utc() -> None:
    assert StartingOffsets.parse("2026-11-20T06:30").begins_at(NOW) == datetime(2026, 11, 20, 6, 30, tzinfo=UTC)
    east = timezone(timedelta(hours=1))
    assert StartingOffsets.parse("2026-11-20T06:30+01:00").begins_at(NOW) == datetime(2026, 11, 20, 6, 30, tzinfo=east)
    assert StartingOffsets.parse("last 2 days").begins_at(NOW) == NOW - timedelta(days=2)
    assert StartingOffsets.parse("earliest").begins_at(NOW) is None


@given(st.dictionaries(st.tuples(TOPIC, st.integers(0, 10**9 - 1)), st.integers(0, 2**59), min_size=1, max_size=5))
def test_offsets_are_parsed(offsets: dict[tuple[str, int], int]) -> None:
    text = ", ".join(f"{topic}:{partition}:{offset}" for (topic, partition), offset in offsets.items())
    if not text[:4].isdigit():
        assert StartingOffsets.parse(text).offsets == offsets


@given(st.text(max_size=40))
def test_any_text_is_parsed_or_refused(text: str) -> None:
    with suppress(ValueError):
        assert StartingOffsets.parse(text).text == text.strip()


def test_start_accepts_a_datetime_of_yaml() -> None:
    source = KafkaSource(bootstrap_servers="localhost:9092", topics=["t"], start=datetime(2026, 11, 20, tzinfo=UTC))
    assert source.starting.begins_at(NOW) == datetime(2026, 11, 20, tzinfo=UTC)


@pytest.mark.parametrize(
    "text", ["", "erliest", "last", "last night", "group:", "t:0", "t:0:x", "t:0:1,t:0:2", "..:0:1", "2026-02-30"]
)
def test_a_wrong_start_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"not a position to start at|duration|offset|partition|group"):
        StartingOffsets.parse(text)


@pytest.mark.parametrize("text", ["group:g", "t:0:1"])
def test_new_topics_cannot_begin_at_the_offsets_of_a_group_or_at_given_offsets(text: str) -> None:
    with pytest.raises(ValueError, match="no start for topics that do not exist yet"):
        KafkaSource(bootstrap_servers="localhost:9092", topics_pattern="t.*", new_topics=text)


def test_new_topics_requires_a_table_for_each_topic() -> None:
    source = {"bootstrap_servers": "h:1", "topics_pattern": "t.*", "start": "latest", "new_topics": "last 2 hours"}
    document = {"name": "a", "source": {"kafka": source}, "decode": "raw"}
    many = PipelineConfig.model_validate({**document, "sink": {"iceberg": {"table": "lake.a.{topic}"}}})
    part = as_new_topic(config_of(many, "t.1"))
    assert (config_of(many, "t.1").kafka.start, part.kafka.start) == ("latest", "last 2 hours")
    with pytest.raises(ValueError, match="requires a table for each topic"):
        PipelineConfig.model_validate({**document, "sink": {"iceberg": {"table": "lake.a.b"}}})
