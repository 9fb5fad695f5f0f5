"""Settings that the models keep parsed: their text form, and what JSON shows."""

from __future__ import annotations

import pytest

from lakefeed.config.base import ParsedText
from lakefeed.config.iceberg_sink import IcebergSinkConfig
from lakefeed.config.values import PartitionTransform, SortColumn


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (PartitionTransform, "city"),
        (PartitionTransform, "days(stop.at)"),
        (PartitionTransform, "bucket(16, id)"),
        (PartitionTransform, "truncate(3, name)"),
        (SortColumn, "at asc nulls first"),
        (SortColumn, "stop.at desc nulls last"),
        (SortColumn, "at desc nulls first"),
    ],
)
def test_the_text_of_a_value_is_read_as_the_same_value(kind: type[ParsedText], text: str) -> None:
    assert str(kind.parse(text)) == text


def test_json_has_the_texts() -> None:
    settings = {"table": "lake.a.b", "partition_by": ["day(at)", "id"], "sort_by": ["id"]}
    sink = IcebergSinkConfig.model_validate(settings)
    assert sink.partition_by[0] == PartitionTransform(name="days", column="at")
    document = sink.model_dump_json(exclude_unset=True)
    assert '"partition_by":["days(at)","id"],"sort_by":["id asc nulls first"]' in document
    assert IcebergSinkConfig.model_validate_json(document) == sink
