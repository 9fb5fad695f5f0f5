"""Guess a schema from JSON records."""

import json
from collections.abc import Sequence
from typing import Any

import pytest

from lakefeed.clients.kafka.topics import PartitionDescription, TopicDescription
from lakefeed.config.sources import KafkaSource
from lakefeed.errors import ConfigError
from lakefeed.offsets.ranges import OffsetRange
from lakefeed.records.schema import inference
from lakefeed.records.schema.inference import InferredSchema, infer_schema
from lakefeed.records.schema.parse import parse


def of(*documents: Any) -> InferredSchema:
    return infer_schema([json.dumps(each).encode() for each in documents])


def said(guess: InferredSchema) -> list[str]:
    return [str(each) for each in guess.conflicts]


def test_records_of_one_schema_give_all_types_without_conflicts() -> None:
    guess = of(
        {"id": 1, "name": "a", "ok": True, "share": 0.5, "at": {"x": 1}, "tags": ["t"], "lines": [{"n": 1}]},
        {"id": None, "share": 1, "at": {"y": "z"}, "lines": []},
    )
    assert guess.ddl == (
        "`id` BIGINT, `name` STRING, `ok` BOOLEAN, `share` DOUBLE, `at` STRUCT<`x`: BIGINT, `y`: STRING>, "
        "`tags` ARRAY<STRING>, `lines` ARRAY<STRUCT<`n`: BIGINT>>"
    )
    assert guess.conflicts == ()
    parse(json.dumps(guess.avro))
    assert guess.avro["fields"][6]["type"][1]["items"][1]["name"] == "lines_element"


def test_the_most_frequent_type_is_inferred_and_other_types_are_conflicts() -> None:
    guess = of({"a": 1}, {"a": 2}, {"a": "x"}, {"a": {"b": 1}})
    assert guess.ddl == "`a` BIGINT"
    assert said(guess) == ["a: 2 times long, but 1 times string, 1 times object, which this schema cannot decode"]


def test_fields_without_values_become_strings_and_are_reported_as_guesses() -> None:
    guess = of({"a": None, "b": [], "c": {}})
    assert guess.ddl == "`a` STRING, `b` ARRAY<STRING>, `c` STRING"
    assert said(guess) == [
        "a: the sample has no value: STRING is a guess",
        "b.element: the sample has no value: STRING is a guess",
        "c: the sample has only empty objects: STRING, for the JSON, is a guess",
    ]


def test_whole_numbers_beyond_bigint_are_decimals() -> None:
    assert of({"a": 2**63}, {"a": 1}).ddl == "`a` DECIMAL(38,0)"


def test_unusable_records_are_counted_by_reason() -> None:
    guess = infer_schema([b'{"a": 1}', b"oops", b"[1]", b'{"a": 1, "a": 2}', b"\xff", b'{"a": NaN}', b"[" * 100_000])
    assert (guess.records, guess.ddl) == (7, "`a` BIGINT")
    assert said(guess) == [
        "4 of 7 records: no JSON in UTF-8",
        "1 of 7 records: not an object",
        "1 of 7 records: the field a occurs twice",
    ]


def test_names_that_avro_or_spark_refuses_are_conflicts() -> None:
    guess = of({"a-b": 1, "id": 1, "ID": 2})
    assert guess.ddl == "`a-b` BIGINT, `id` BIGINT, `ID` BIGINT"
    assert [each["name"] for each in guess.avro["fields"]] == ["a-b", "id", "ID"]
    assert said(guess) == [
        "ID: differs from id only in case: Spark treats both as one column",
        "Avro's own tools refuse the Avro schema because of the names a-b",
    ]


def test_a_field_may_have_the_name_of_the_record_or_of_an_avro_type() -> None:
    guess = of({"Value": {"a": 1}, "string": {"b": 2}})
    assert guess.ddl == "`Value` STRUCT<`a`: BIGINT>, `string` STRUCT<`b`: BIGINT>"
    parse(json.dumps(guess.avro))


def test_hostile_records_give_a_schema_within_the_limits() -> None:
    deep: Any = 1
    for _ in range(300):
        deep = {"x": deep}
    guess = of({"a": 10**40, "b": {}, "c": deep, "d": [], "x.y": {"z": 1}, "x_y": {"z": 1}})
    assert guess.ddl.startswith("`a` STRING, `b` STRING, `c` STRUCT<`x`: ")
    assert guess.ddl.count("STRUCT<") < 105
    parse(json.dumps(guess.avro))
    assert said(of({"a": 1, "": 2})) == ["a field with the empty name is left out: no column can have it"]
    broken = [
        json.dumps({"\ud800": 1}).encode(),
        json.dumps({"a": 1}).encode("utf-16"),
        b'{"a": ' + b"9" * 100_000 + b"}",
        b'{"a": ' + b"[" * 200_000,
    ]
    assert said(infer_schema(broken)) == ["4 of 4 records: no JSON in UTF-8"]
    with pytest.raises(ConfigError, match="more than 10,000 different fields") as refused:
        of({"at": {f"k{at}": 1 for at in range(10_001)}})
    assert refused.value.where == "at"
    assert "MAP" in (refused.value.hint or "")
    long = of({"k" * 100_000: {"a": {"b": {"c": 1}}}})
    assert len(json.dumps(long.avro)) < 110_000


class Cluster:
    def __init__(self, bootstrap_servers: str, *, options: object) -> None:
        assert options == {"kafka.client.id": "me"}
        self.topics = {"a": [(0, 100), (90, 100), (7, 7)], "b": [(0, 2)]}

    def list(self) -> Sequence[str]:
        return list(self.topics)

    def describe(self, name: str) -> TopicDescription:
        partitions = tuple(
            PartitionDescription(id=number, leader=1, start_offset=start, end_offset=end)
            for number, (start, end) in enumerate(self.topics[name])
        )
        return TopicDescription(name=name, topic_id="", partitions=partitions)


@pytest.mark.parametrize(
    ("source", "records", "starts"),
    [
        ({"topics": ["a"]}, 10, [95, 95, 7]),
        ({"topics": ["a"]}, 1000, [0, 90, 7]),
        ({"topics": ["a"]}, 1, [99, 100, 7]),
        ({"topics_pattern": "[ab]"}, 9, [97, 97, 7, 0]),
    ],
)
def test_newest_ranges_spread_the_records_over_the_partitions(
    monkeypatch: pytest.MonkeyPatch, source: dict[str, object], records: int, starts: list[int]
) -> None:
    monkeypatch.setattr(inference, "Topics", Cluster)
    settings = {"bootstrap_servers": "b:1", "options": {"kafka.client.id": "me"}, **source}
    ranges = list(inference.newest_ranges(KafkaSource.model_validate(settings), records))
    assert [each.start for each in ranges] == starts
    assert ranges[0] == OffsetRange("a", 0, starts[0], 100)
    assert sum(each.records for each in ranges) <= records
