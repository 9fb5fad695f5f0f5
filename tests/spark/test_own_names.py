"""A field with the name of one of lakefeed's own columns is refused with its name, or becomes a row as usual."""

import json
from dataclasses import replace

import pytest
from pyspark.sql import SparkSession

from lakefeed.config.keyed import DELETED, OWN
from lakefeed.errors import ConfigError
from lakefeed.ledger.outcomes import RECORD
from lakefeed.records.decode import Json, RecordPolicy, classify, decoded
from lakefeed.records.decode.changes import OP, OWN_KEY, TS_MS, DeleteRule
from lakefeed.records.schema.fit import StorableRows
from lakefeed.sinks import changes
from tests.spark.test_debezium import found, frame

OWN_NAMES = (RECORD, OWN_KEY, changes._RANK, changes._OF_KEY, f"{OWN}_task", f"{OWN}_rows", f"{OWN}_anything")
"""Names of our columns beside the values' fields; a column of a value may not have them."""
HARMLESS = (
    *("decoded", "decoded_key", "key", "value", "topic", "partition", "offset", "timestamp", "headers", "record"),
    *("reason", "verdict", "schema_id", "error", "null_value", "s", "t", "rows", "count", "keys", "op", "after"),
    *("kafka_timestamp", "debezium_op", "_lake", "lakefeed_task", "lakefeed_copy", "decoded.value", "a`b", "${x}"),
)
UPSERT = RecordPolicy(on_null="keep", deletes=DeleteRule(tombstones=True, keys=("id",)))
POLICIES = {"append": RecordPolicy(), "upsert": UPSERT}
KEEP = ("topic", "partition", "offset")


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


@pytest.mark.parametrize("name", OWN_NAMES)
def test_a_field_with_a_reserved_name_is_refused(spark: SparkSession, name: str) -> None:
    assert name.startswith(OWN)
    for policy in POLICIES.values():
        for spelt in (name, name.upper()):
            spec = Json(schema=f"id BIGINT, {quoted(spelt)} INT")
            values = decoded(frame(spark, []), spec, key=Json(schema="id BIGINT"))
            with pytest.raises(ConfigError, match=spelt):
                classify(values, policy)
    with pytest.raises(ConfigError, match=f"column {name}"):
        StorableRows(lambda rows: rows)(spark.range(1).withColumnRenamed("id", name))


def test_a_field_with_the_name_of_a_column_that_lakefeed_adds_is_refused_with_a_hint(spark: SparkSession) -> None:
    def refusal(field: str, policy: RecordPolicy, keep: tuple[str, ...]) -> ConfigError:
        with pytest.raises(ConfigError, match=field) as refused:
            classify(decoded(frame(spark, []), Json(schema=f"id BIGINT, {field} INT")), policy, keep=keep)
        return refused.value

    for name in KEEP:
        assert f"remove {name} from decode.metadata" in str(refusal(f"kafka_{name}", POLICIES["append"], KEEP).hint)
        assert "decode.metadata" not in str(refusal(f"KAFKA_{name}", UPSERT, KEEP).hint)
    assert "decode.metadata" not in str(refusal(DELETED, UPSERT, KEEP).hint)
    # In append mode lakefeed adds no column lakefeed_deleted, so a field may have this name.
    values = decoded(frame(spark, [b'{"lakefeed_deleted": 7}']), Json(schema=f"{DELETED} INT"))
    assert found(classify(values, POLICIES["append"]), DELETED) == [(7,)]
    event = f"after STRUCT<id: BIGINT, {OP}: STRING, {TS_MS}: BIGINT>, op STRING"
    with pytest.raises(ConfigError, match=OP):
        classify(decoded(frame(spark, []), Json(schema=event)), replace(UPSERT, envelope="debezium"))


@pytest.mark.parametrize("mode", POLICIES)
def test_a_field_of_any_other_name_is_a_column_at_every_level(spark: SparkSession, mode: str) -> None:
    names, every = list(HARMLESS), [*HARMLESS, *OWN_NAMES, DELETED]
    columns, inner = (", ".join(f"{quoted(name)} INT" for name in each) for each in (names, every))
    spec = Json(schema=f"id BIGINT, {columns}, nested STRUCT<{inner}>")
    nested = {name: at for at, name in enumerate(every)}
    document = {"id": 1, **{name: at for at, name in enumerate(names)}, "nested": nested}
    key = {"id": 5, **{name: 100 + at for at, name in enumerate(every)}}
    keys = Json(schema=f"id BIGINT, {inner}")
    records = frame(spark, [json.dumps(document).encode(), None], [json.dumps(key).encode()] * 2)
    policy = replace(POLICIES[mode], on_null="keep")
    if policy.deletes is not None:
        policy = replace(policy, deletes=replace(policy.deletes, keys=("id", *names)))
    rows = classify(decoded(records, spec, key=keys), policy, keep=KEEP)
    row, tombstone = rows.orderBy(f"{RECORD}.record.offset").drop(RECORD).collect()
    assert {name: row[name] for name in names} == {name: at for at, name in enumerate(names)}
    assert row["nested"].asDict() == nested
    expected = {name: 100 + at if mode == "upsert" else None for at, name in enumerate(names)}
    assert {name: tombstone[name] for name in names} == expected
    # The null key of a delete stays null, although the fields decoded_key and key have values.
    if mode == "upsert":
        deletes = DeleteRule(tombstones=False, columns=(("op", ("d",)),), keys=("id",))
        value = b'{"id": null, "decoded_key": 1, "key": 2, "op": "d"}'
        spec = Json(schema="id INT, decoded_key INT, key INT, op STRING")
        judged = classify(decoded(frame(spark, [value]), spec), RecordPolicy(deletes=deletes))
        assert found(judged, "id", "decoded_key", "key", DELETED) == [(None, 1, 2, True)]


def test_a_key_column_may_have_the_name_of_one_of_lakefeeds_counts(spark: SparkSession) -> None:
    rows = spark.createDataFrame([(1, 2), (1, 3)], "count INT, rows INT")
    assert changes.counted_groups(rows, keys=["count", "rows"], where="t", kind="iceberg") == 2
