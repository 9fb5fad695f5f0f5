"""``schema.accept`` decides which writers' records become rows; a refused schema does not change the table."""

import json
from typing import Any

import pytest

from lakefeed.config.decoding import Accept
from lakefeed.errors import ConfigError
from lakefeed.records.schema.reader import ChangePolicy, Evolution, refusal
from tests.support.avro_documents import field, record

TRIP = record(field("id", "long"), field("fare", "double"), name="Trip", namespace="nyc")
PAYMENT = record(field("amount", "double"), field("currency"), name="Payment", namespace="shop")
FOREIGN = "the record is a shop.Payment, but the table's rows are nyc.Trip"


def fields_of(schema: str) -> list[str]:
    return [each["name"] for each in json.loads(schema)["fields"]]


def why(writer: Any, accept: Accept = "same_record", reader: Any = TRIP) -> str | None:
    return refusal(json.dumps(reader), json.dumps(writer), accept)


@pytest.mark.parametrize(
    "writer",
    [
        TRIP,
        {**TRIP, "namespace": "nyc.v2"},
        {**TRIP, "name": "Ride", "aliases": ["Trip"]},
        {**TRIP, "name": "Ride", "aliases": ["old.Trip"]},
        record(field("id", "long"), name="Trip"),
        record({**field("number", "long"), "aliases": ["id"]}, name="Trip"),
        # It is the merge that refuses the type, not ``accept``.
        record(field("id", "string"), field("other"), name="Trip"),
    ],
)
def test_the_policy_same_record_accepts_a_version_of_the_record(writer: Any) -> None:
    assert why(writer) is None


def test_the_policy_same_record_accepts_a_name_from_the_readers_aliases() -> None:
    assert why({**TRIP, "name": "Ride"}, reader={**TRIP, "aliases": ["nyc.Ride"]}) is None


def test_the_policy_same_record_refuses_another_name_and_records_without_shared_fields() -> None:
    assert why(PAYMENT) == FOREIGN
    # Shared fields do not prove that the records are of the same kind: both may have an id.
    assert why({**TRIP, "name": "Payment", "namespace": "shop"}) == FOREIGN
    assert why({**PAYMENT, "name": "Trip"}) == "the record shares no field with the table's rows, which are nyc.Trip"
    assert why(record(name="Trip")) == "the record shares no field with the table's rows, which are nyc.Trip"


def test_the_policy_resolvable_refuses_a_writer_without_a_required_field() -> None:
    writer = record(field("id", "long"), name="Trip")
    assert why(writer, "resolvable") == "the record has no field fare, which is required and has no default"
    with_default = record(field("id", "long"), {**field("fare", "double"), "default": 0.0}, name="Trip")
    assert why(writer, "resolvable", with_default) is None
    nullable = record(field("id", "long"), field("fare", ["double", "null"]), name="Trip")
    assert why(writer, "resolvable", nullable) is None


def test_the_policy_any_accepts_a_record_with_another_name() -> None:
    assert why(PAYMENT, "any") is None


def test_titles_of_json_schemas_do_not_count_as_names() -> None:
    renamed, foreign = {**TRIP, "name": "Fahrt"}, {**PAYMENT, "name": "Trip"}
    assert refusal(json.dumps(TRIP), json.dumps(renamed), "same_record", by_name=False) is None
    assert refusal(json.dumps(TRIP), json.dumps(foreign), "same_record", by_name=False) is not None


def test_a_schema_that_is_not_a_record_is_refused_with_an_error() -> None:
    with pytest.raises(ConfigError):
        why(["null", TRIP])


@pytest.mark.parametrize("policy", ["evolve", "ignore", "fail"])
def test_a_refused_schema_does_not_change_the_readers_schema(policy: ChangePolicy) -> None:
    """Even with ``fail``, a refused schema is no error, because its records only count as unreadable."""
    evolution = Evolution(policy, json.dumps(TRIP), known_ids={1})
    assert evolution.merge_writer_schema(2, json.dumps(PAYMENT)) is None
    assert evolution.reader_schema == json.dumps(TRIP)
    assert evolution.incompatible[2] == FOREIGN
    assert evolution.merged_ids == {1}
    assert evolution.take_notes() == (f"schema id 2: {FOREIGN}; its records are not landed",)


def test_the_policy_any_merges_the_schema_of_another_record() -> None:
    evolution = Evolution("evolve", json.dumps(TRIP), known_ids={1}, accept="any")
    assert evolution.merge_writer_schema(2, json.dumps(PAYMENT)) is not None
    assert fields_of(evolution.reader_schema) == ["id", "fare", "amount", "currency"]


def test_a_refused_schema_is_accepted_after_the_readers_schema_got_a_field_of_it() -> None:
    first, last = record(field("a"), name="R"), record(field("b"), name="R")
    between = record(field("a"), field("b"), name="R")
    evolution = Evolution("evolve", json.dumps(first), known_ids={1})
    assert evolution.merge_writer_schema(2, json.dumps(last)) is None
    assert 2 in evolution.known_ids
    assert evolution.merge_writer_schema(3, json.dumps(between)) is not None
    assert 2 not in evolution.known_ids
    assert evolution.merge_writer_schema(2, json.dumps(last)) is not None
    assert evolution.incompatible == {}
    assert evolution.take_notes() == ()
    assert evolution.merge_writer_schema(4, json.dumps(last)) is None
