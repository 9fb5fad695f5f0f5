"""Debezium's change events, deletes and tombstones become the right rows, or errors of their records."""

import base64
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from lakefeed.errors import ConfigError
from lakefeed.records.decode import RECORD, Json, Raw, RecordPolicy, RowExpectation, classify, decoded
from lakefeed.records.decode.changes import DeleteRule
from lakefeed.records.decode.unavailable import Unavailable

ROW = "STRUCT<id: BIGINT, city: STRING>"
EVENT = Json(schema=f"before {ROW}, after {ROW}, source STRUCT<ts_ms: BIGINT>, op STRING, ts_ms BIGINT")
KEY = Json(schema="id BIGINT")
RULE = DeleteRule(tombstones=True, columns=(("debezium_op", ("d",)),), keys=("id",))
AMS, BER = {"id": 1, "city": "amsterdam"}, {"id": 1, "city": "berlin"}


def event(op: str | None, before: Any = None, after: Any = None, at: int = 5) -> bytes:
    return json.dumps({"before": before, "after": after, "op": op, "ts_ms": 9, "source": {"ts_ms": at}}).encode()


def frame(spark: SparkSession, values: Sequence[bytes | None], keys: Sequence[bytes | None] = ()) -> DataFrame:
    keys = keys or [b'{"id": 1}'] * len(values)
    rows = [("t", 0, offset, *each) for offset, each in enumerate(zip(keys, values, strict=True))]
    return spark.createDataFrame(rows, "topic STRING, partition INT, offset BIGINT, key BINARY, value BINARY")


def found(judged_records: DataFrame, *columns: str) -> list[tuple[Any, ...]]:
    rows = judged_records.orderBy(f"{RECORD}.record.offset").select(*columns).collect()
    return [tuple(row) for row in rows]


@pytest.mark.quick
def test_each_kind_of_change_event_becomes_the_row_after_the_change(spark: SparkSession) -> None:
    values = [
        event("r", after=AMS),
        event("c", after=AMS),
        event("u", before=AMS, after=BER),
        event("d", before=BER, at=7),
        event("d", before=None),
        None,
    ]
    policy = RecordPolicy(on_null="keep", envelope="debezium", deletes=RULE)
    rows = classify(decoded(frame(spark, values), EVENT, key=KEY), policy, keep=["offset"])
    assert rows.columns == ["id", "city", "debezium_op", "debezium_ts_ms", "kafka_offset", RECORD, "lakefeed_deleted"]
    assert found(rows, "id", "city", "debezium_op", "debezium_ts_ms", "lakefeed_deleted", f"{RECORD}.verdict") == [
        (1, "amsterdam", "r", 5, False, 0),
        (1, "amsterdam", "c", 5, False, 0),
        (1, "berlin", "u", 5, False, 0),
        (1, "berlin", "d", 7, True, 0),
        (1, None, "d", 5, True, 0),
        (1, None, None, None, True, 0),
    ]


def test_an_event_without_a_row_is_an_error_of_the_record(spark: SparkSession) -> None:
    values = [event("t"), event("x", after=AMS), event(None, after=AMS), event("c"), b"{broken", event("c", after=AMS)]
    policy = RecordPolicy(on_error="dead_letter", on_null="skip", envelope="debezium")
    rows = classify(decoded(frame(spark, values), EVENT), policy)
    reasons = [reason for (reason,) in found(rows, f"{RECORD}.reason")]
    assert [str(reason).partition(" (")[0] for reason in reasons[:4]] == [
        "debezium: op t",
        "debezium: unknown op x",
        "debezium: unknown op",
        "debezium: op c without after",
    ]
    assert reasons[4] is not None
    assert reasons[5] is None


def test_an_event_inside_a_schema_and_payload_envelope_is_unwrapped(spark: SparkSession) -> None:
    spec = Json(schema=f"payload STRUCT<after: {ROW}, op: STRING, ts_ms: BIGINT>")
    value = json.dumps({"schema": {}, "payload": {"after": AMS, "op": "c", "ts_ms": 3}}).encode()
    rows = classify(decoded(frame(spark, [value]), spec), RecordPolicy(envelope="debezium"))
    assert found(rows, "id", "city", "debezium_ts_ms") == [(1, "amsterdam", 3)]


def test_a_value_that_is_not_an_event_is_an_error(spark: SparkSession) -> None:
    with pytest.raises(ConfigError, match="fields op and after"):
        classify(decoded(frame(spark, [b"{}"]), KEY), RecordPolicy(envelope="debezium"))


@pytest.mark.parametrize("then", ["set_null", "keep", "error"])
def test_an_unavailable_value_is_null_or_kept_or_an_error_as_configured(spark: SparkSession, then: Any) -> None:
    lacks = "__own__"
    coded = base64.b64encode(lacks.encode()).decode()
    row = "STRUCT<id: BIGINT, city: STRING, data: BINARY, text: STRING, list: STRING, inner: STRUCT<a: ARRAY<STRING>>>"
    after = {"id": 1, "city": lacks, "data": coded, "text": coded, "list": [lacks], "inner": {"a": [lacks]}}
    values = [event("u", after=after), event("u", after={"id": 2, "city": f"{lacks} ", "inner": {"a": [lacks, "b"]}})]
    policy = RecordPolicy(envelope="debezium", on_error="dead_letter", unavailable=Unavailable(lacks, then))
    rows = classify(decoded(frame(spark, values), Json(schema=f"after {row}, op STRING")), policy)
    one, two = found(rows, "id", "city", "data", "text", "list", "inner.a", f"{RECORD}.reason")
    assert two == (2, f"{lacks} ", None, None, None, [lacks, "b"], None)
    if then == "error":
        assert (one[0], str(one[-1]).partition(":")[0]) == (None, "city")
    elif then == "keep":
        assert one == (1, lacks, bytearray(lacks.encode()), coded, f'["{lacks}"]', [lacks], None)
    else:
        assert one == (1, *[None] * 6)


@pytest.mark.parametrize(
    ("keys", "rule", "expected"),
    [
        (Json(schema="id INT, other STRING"), RULE, [1, 2, None]),
        (Raw(), DeleteRule(tombstones=True, keys=("id",)), None),
    ],
)
def test_a_tombstone_gets_its_key_columns_from_the_record_key(
    spark: SparkSession, keys: Any, rule: DeleteRule, expected: list[int | None] | None
) -> None:
    spec = Json(schema="id BIGINT, city STRING, debezium_op STRING")
    rule = DeleteRule(tombstones=True, keys=rule.keys)
    values = [b'{"id": 1, "city": "a"}', None, None]
    records = decoded(frame(spark, values, [b'{"id": 9}', b'{"id": 2}', b"{}"]), spec, key=keys)
    rows = classify(records, RecordPolicy(on_null="keep", deletes=rule))
    if expected is None:
        # The raw key is not a number, so each delete has a null key column. (A feed would stop at such a delete.)
        expected = [1, None, None]
    assert [key for (key,) in found(rows, "id")] == expected
    assert [deleted for (deleted,) in found(rows, "lakefeed_deleted")] == [False, True, True]


def test_expectations_do_not_apply_to_deletes_and_invalid_delete_expressions_are_refused(spark: SparkSession) -> None:
    spec = Json(schema="id BIGINT, city STRING, op STRING")
    values = [b'{"id": 1, "op": "d"}', b'{"id": 1, "op": "u"}']
    expect = (RowExpectation("has_city", "city IS NOT NULL", "drop"),)
    rule = DeleteRule(tombstones=False, columns=(("op", ("d", "x")),), keys=("id",))
    rows = classify(decoded(frame(spark, values), spec), RecordPolicy(expect=expect, deletes=rule))
    assert found(rows, f"{RECORD}.verdict", "lakefeed_deleted") == [(0, True), (2, False)]
    wrong = DeleteRule(tombstones=False, columns=(("gone", ("d",)),), keys=("id",))
    with pytest.raises(ConfigError, match=r"delete\.column names 'gone'"):
        classify(decoded(frame(spark, values), spec), RecordPolicy(deletes=wrong))
    for column, misfit in (("op", 1), ("op", True), ("id", "d"), ("id", True)):
        wrong = DeleteRule(tombstones=False, columns=((column, (misfit,)),), keys=("id",))
        with pytest.raises(ConfigError, match=rf"delete\.equals has {misfit!r}, but the column {column} is"):
            classify(decoded(frame(spark, values), spec), RecordPolicy(deletes=wrong))


@pytest.mark.parametrize("on_error", ["fail", "dead_letter"])
def test_a_change_with_a_null_key_is_an_error_of_the_record(spark: SparkSession, on_error: Any) -> None:
    spec = Json(schema="id BIGINT, part STRING, op STRING")
    rule = DeleteRule(tombstones=True, columns=(("op", ("d",)),), keys=("ID", "part"))
    values = [
        b'{"id": 1, "part": "a"}',
        b'{"id": 1}',
        b'{"id": null, "part": "a"}',
        b'{"part": "a", "op": "d"}',
        None,
        None,
        b'{"id": 7, "op": "drop"}',
    ]
    keys = [b'{"id": 1, "part": "a"}', *[b"{}"] * 3, b'{"id": 2}', b'{"id": 2, "part": "b"}', b"{}"]
    dropped = RowExpectation("known", "coalesce(op, '') <> 'drop'", "drop")
    policy = RecordPolicy(on_error=on_error, on_null="keep", deletes=rule, expect=(dropped,))
    judged = classify(decoded(frame(spark, values, keys), spec, key=Json(schema="id BIGINT, part STRING")), policy)
    bad = 1 if on_error == "dead_letter" else 3
    assert [verdict for (verdict,) in found(judged, f"{RECORD}.verdict")] == [0, bad, bad, bad, bad, 0, 2]
    reasons = [str(reason).split(" is null")[0] for (reason,) in found(judged, f"{RECORD}.reason")]
    part, id_ = "the key column part", "the key column ID"
    assert reasons == ["None", part, id_, id_, part, "None", "None"]
    # A null key is no error if a transform may compute the key, or if the record is skipped because its value is null.
    later = RecordPolicy(on_null="keep", deletes=replace(rule, are_columns=False))
    assert {each for (each,) in found(classify(decoded(frame(spark, values), spec), later), f"{RECORD}.verdict")} == {0}
    skips = RecordPolicy(on_null="skip", deletes=replace(rule, tombstones=False))
    assert found(classify(decoded(frame(spark, [None]), spec), skips), f"{RECORD}.verdict") == [(2,)]


@pytest.mark.parametrize(
    ("keys", "key"),
    [
        ("payload STRUCT<id: BIGINT>", {"payload": {"id": 2}, "schema": {"type": "struct"}}),
        ("schema STRING, payload STRUCT<ID: STRING>", {"payload": {"ID": "2"}, "schema": None}),
        ("payload BIGINT", {"payload": 2, "schema": {}}),
        ("id BIGINT, payload STRING", {"id": 2, "payload": "x"}),
    ],
)
def test_a_key_inside_a_schema_and_payload_envelope_is_unwrapped(spark: SparkSession, keys: str, key: Any) -> None:
    values = [None, event("d"), event("d", before={"id": 3, "city": None})]
    records = decoded(frame(spark, values, [json.dumps(key).encode()] * 3), EVENT, key=Json(schema=keys))
    rows = classify(records, RecordPolicy(on_null="keep", envelope="debezium", deletes=RULE))
    assert found(rows, "id", "lakefeed_deleted") == [(2, True), (2, True), (3, True)]


@pytest.mark.parametrize(
    ("after", "why"),
    [("STRING", "MongoDB"), ("VOID", "as if the topic had only deletes"), ("ARRAY<INT>", "after is array<int>")],
)
def test_an_event_schema_without_columns_is_refused_with_the_reason(spark: SparkSession, after: str, why: str) -> None:
    for spec in (f"after {after}, op STRING", f"payload STRUCT<after: {after}, op: STRING>"):
        with pytest.raises(ConfigError, match=why):
            classify(decoded(frame(spark, []), Json(schema=spec)), RecordPolicy(envelope="debezium"))
