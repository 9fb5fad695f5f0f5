"""``DirectReader`` accepts suitable feeds, and divides offset ranges among tasks."""

from types import SimpleNamespace
from typing import Any

import pytest

from lakefeed.config.sources import KafkaSource
from lakefeed.feed.batch_reader import DirectReader, share_out
from lakefeed.offsets.ranges import OffsetRange
from lakefeed.records.decode.verdict import RecordPolicy
from lakefeed.records.spec import Raw

SOURCE = KafkaSource.model_validate({"bootstrap_servers": "host:9092", "topics": ["trips"]})


def session(**settings: str) -> Any:
    """Return a stand-in for a session that has only these settings."""
    configuration = SimpleNamespace(
        getAllWithPrefix=lambda prefix: [name for name in settings if name.replace("_", ".").startswith(prefix)]
    )
    return SimpleNamespace(
        sparkContext=SimpleNamespace(_jsc=SimpleNamespace(sc=lambda: SimpleNamespace(conf=lambda: configuration)))
    )


def rows(**changes: Any) -> Any:
    parts = {
        "policy": RecordPolicy(),
        "streams": {},
        "key": None,
        "keep": ("offset",),
        "schema": SimpleNamespace(spec=None),
    }
    return SimpleNamespace(**{**parts, **changes})


def test_the_direct_reader_accepts_a_feed_with_default_settings() -> None:
    assert DirectReader.refusal(session(spark_app_name="trips"), SOURCE, rows()) is None


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"key": object()}, "decode.key"),
        ({"streams": {"a": "b"}}, "transform.streams"),
        ({"policy": RecordPolicy(on_bad_timestamp="error")}, "decode.on_bad_timestamp"),
        ({"schema": SimpleNamespace(spec=Raw())}, "decode.raw"),
    ],
)
def test_the_direct_reader_names_a_setting_that_it_does_not_support(changes: dict[str, Any], reason: str) -> None:
    assert DirectReader.refusal(session(), SOURCE, rows(**changes)) == reason


def test_the_direct_reader_refuses_delegation_tokens_and_other_sources() -> None:
    tokens = session(spark_kafka_clusters_main_auth="x")
    assert "delegation tokens" in (DirectReader.refusal(tokens, SOURCE, rows()) or "")
    assert DirectReader.refusal(session(), None, rows()) == "the source is not Kafka"


def test_ranges_are_divided_evenly_and_without_overlap() -> None:
    spans = [OffsetRange("t", 0, 0, 101), OffsetRange("t", 1, 5, 25), OffsetRange("t", 2, 7, 27)]
    shares = share_out([spans[0].cut(0, 50), spans[0].cut(50, 101), *spans[1:]], 2)
    assert sorted(sum(span.records for span in share) for share in shares) == [70, 71]
    assert share_out([], 3) == [[]]
