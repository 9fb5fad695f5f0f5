"""Mistakes that the models do not find: columns, DDL, SQL and Spark settings."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from lakefeed.config.checks import known
from lakefeed.config.sql import columns_of_ddl, unreadable
from tests.support.pipeline_text import GOOD, REGISTRY, Acceptor, Reader

AVRO = "  avro:\n" + REGISTRY
JSON = "  json: {schema_ddl: 'id BIGINT, at TIMESTAMP, `odd.name` STRING'}\n  metadata: [offset, key]\n"
TABLE = "    table: lake.nyc.trips\n"


@pytest.mark.parametrize(
    ("settings", "key", "hint"),
    [
        ("    partition_by: [days(att)]\n", "sink.iceberg.partition_by.0", "did you mean 'at'?"),
        ("    sort_by: [id, 'idd desc']\n", "sink.iceberg.sort_by.1", "did you mean 'id'?"),
        ("    partition_by: [kafka_partition]\n", "sink.iceberg.partition_by.0", "the columns are id, at, odd.name"),
        ("    mode: upsert\n    keys: [id, other]\n", "sink.iceberg.keys.1", "the columns are"),
        ("    mode: upsert\n    keys: [id]\n    delete: {column: op, equals: [d]}\n", "sink.iceberg.delete.column", ""),
    ],
)
def test_a_missing_column_is_reported_at_its_setting(reading: Reader, settings: str, key: str, hint: str) -> None:
    text = GOOD.replace(AVRO, JSON).replace(TABLE, TABLE + settings)
    _, found = reading(text)
    assert [(each.key, each.severity) for each in found] == [(key, "error")]
    assert found[0].line == 12 + settings.count("\n") - 1
    assert hint in (found[0].hint or "")


@pytest.mark.parametrize(
    "settings",
    ["    partition_by: [days(AT), kafka_offset]\n    sort_by: [kafka_key]\n", "    mode: upsert\n    keys: [ID]\n"],
)
def test_column_names_are_compared_without_case(accepted: Acceptor, settings: str) -> None:
    accepted(GOOD.replace(AVRO, JSON).replace(TABLE, TABLE + settings))


@pytest.mark.parametrize(
    ("ddl", "settings", "key", "what"),
    [
        ("id INT, _file STRING", "", "decode.json.schema_ddl", "_file is reserved for a metadata column"),
        ("id INT, a STRUCT<b: INT>, `a.b` INT", "", "decode.json.schema_ddl", "two columns would have the name a.b"),
        ("id INT, a MAP<INT, STRUCT<b: INT>>, `a.value.b` INT", "", "decode.json.schema_ddl", "the name a.value.b"),
        ("id INT, ID INT", "", "decode.json.schema_ddl", "the name ID"),
        ("id BIGINT", "days(id)", "sink.iceberg.partition_by.0", "days(id) cannot partition a column of type BIGINT"),
        ("a STRUCT<id: STRING>", "hours(a.id)", "sink.iceberg.partition_by.0", "of type STRING"),
        ("id DATE", "hours(id)", "sink.iceberg.partition_by.0", "of type DATE"),
        ("id DOUBLE", "'bucket(4, id)'", "sink.iceberg.partition_by.0", "of type DOUBLE"),
        ("id ARRAY<INT>", "id", "sink.iceberg.partition_by.0", "of type ARRAY"),
        (
            "id TIMESTAMP, id_day INT",
            "days(id)",
            "sink.iceberg.partition_by.0",
            "'id_day', and a column already has this name",
        ),
    ],
)
def test_columns_that_iceberg_refuses_are_found(reading: Reader, ddl: str, settings: str, key: str, what: str) -> None:
    partition = f"    partition_by: [{settings}]\n" if settings else ""
    text = GOOD.replace(AVRO, f"  json: {{schema_ddl: '{ddl}'}}\n").replace(TABLE, TABLE + partition)
    [found] = reading(text)[1]
    assert (found.key, found.severity) == (key, "error")
    assert what in found.what
    # With a transform, the declared columns are not checked, because it may rename and cast them.
    assert reading(f"{text}transform: {{sql: SELECT 1 AS id FROM taxi}}\n")[1] == []


def test_partitions_that_iceberg_allows_are_accepted(accepted: Acceptor) -> None:
    ddl = "`a.b` DECIMAL(9, 2), at TIMESTAMP_NTZ, on_ DATE, s STRUCT<t: STRING>, f FLOAT"
    partitions = "hours(at), years(on_), 'bucket(4, s.t)', 'truncate(2, s.t)', f, 'bucket(2, on_)'"
    text = GOOD.replace(AVRO, f"  json: {{schema_ddl: '{ddl}'}}\n")
    accepted(text.replace(TABLE, f"{TABLE}    partition_by: [{partitions}]\n"))


@pytest.mark.parametrize(
    ("name", "schema"),
    [
        ("s.avsc", {"type": "record", "name": "A", "fields": [{"name": "id", "type": "long"}]}),
        ("s.json", {"type": "struct", "fields": [{"name": "id", "type": "long", "nullable": True, "metadata": {}}]}),
    ],
)
def test_columns_are_compared_with_a_schema_file(reading: Reader, tmp_path: Path, name: str, schema: object) -> None:
    (tmp_path / name).write_text(json.dumps(schema))
    kind = "avro" if name.endswith("avsc") else "json"
    text = GOOD.replace(AVRO, f"  {kind}: {{schema_file: {name}}}\n").replace(TABLE, f"{TABLE}    sort_by: [ix]\n")
    assert [each.key for each in reading(text)[1]] == ["sink.iceberg.sort_by.0"]
    assert reading(text.replace("[ix]", "[id]"))[1] == []
    (tmp_path / name).write_text("[" * 5000)
    assert reading(text)[1] == []


def test_columns_of_a_registry_or_a_transform_are_not_checked(accepted: Acceptor) -> None:
    accepted(GOOD.replace(TABLE, f"{TABLE}    sort_by: [anything]\n"))
    text = GOOD.replace(AVRO, JSON).replace(TABLE, f"{TABLE}    sort_by: [anything]\n")
    accepted(f"{text}transform: {{sql: SELECT 1 AS anything FROM taxi}}\n")


# Spark's StructType.fromDDL accepts this DDL; it refuses the DDL in REFUSED.
TAKEN = (
    "a DECIMAL(10,2), `x y` INT, `a``b` VARCHAR(3)",
    "a: ARRAY<ARRAY<STRUCT<x: MAP<INT,DECIMAL(3)>>>>",
    "a STRING COLLATE UTF8_LCASE NOT NULL COMMENT 'x, y'",
    "a INTERVAL DAY TO SECOND, b STRUCT<>, c TIME(3), d GEOMETRY(4326), e VARIANT",
    "a INT -- not a column\n, 1b LONG",
    "STRUCT<a: INT, b: STRING>",
)
REFUSED = (
    *("", " ", "a", "a INT,", ",", "a INT b INT", "x-y INT", "a BIGNT", "a ARRAY", "a ARRAY<", "a MAP<INT>", "12 INT"),
    *("a DECIMAL(50,2)", "a DECIMAL(3,5)", "a DECIMAL(-1)", "a VARCHAR", "a INT(3)", "a INT COMMENT", "a NULL"),
    *("a INT DEFAULT 3", "a STRUCT<b>", "a INT, a INT", "é INT", "`` INT", "a INT)", "a " + "ARRAY<" * 60),
)


@pytest.mark.parametrize("text", TAKEN)
def test_ddl_that_spark_accepts_is_accepted(text: str) -> None:
    assert columns_of_ddl(text)


@pytest.mark.parametrize("text", REFUSED)
def test_ddl_that_spark_refuses_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        columns_of_ddl(text)


@pytest.mark.parametrize(
    ("sql", "why"),
    [
        ("SELECT 'a FROM t", "quote ' at character 8"),
        ("SELECT `a FROM t", "quote `"),
        ("SELECT (a FROM t", "a ( is not closed"),
        ("SELECT a) FROM t", "has no opening bracket"),
        ("SELECT a[0) FROM t", "has no opening bracket"),
        ("SELECT 1; SELECT 2", "it has two statements"),
        ("-- nothing", "empty"),
        ("/* SELECT 1", "comment"),
        ("SELECT 'it''s', \"b\\\"\", `a``(`, r'\\', '(' /* ) ' */ -- '\n FROM t;", None),
    ],
)
def test_open_quotes_and_brackets_in_sql_are_found(sql: str, why: str | None) -> None:
    found = unreadable(sql)
    assert found is None if why is None else why in (found or "")


@pytest.mark.parametrize(
    ("ddl", "refused"),
    [
        ("after STRING, op STRING", True),
        ("payload STRUCT<`after`: string, op: STRING>", True),
        ("after STRUCT<after: INT, s: STRING>, op STRING", False),
        ("afterwards STRING, after STRUCT<id: INT>, op STRING", False),
    ],
)
def test_debezium_events_from_mongodb_are_refused(reading: Reader, ddl: str, refused: bool) -> None:
    text = GOOD.replace(AVRO, f"  json: {{schema_ddl: '{ddl}'}}\n  envelope: debezium\n")
    found = [each for each in reading(text)[1] if each.key == "decode.envelope"]
    assert len(found) == refused
    assert all("MongoDB" in each.what and "ExtractNewDocumentState" in str(each.hint) for each in found)


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ("_Lakefeed_rank INT", "_Lakefeed_rank"),
        ("Kafka_Offset INT", "Kafka_Offset"),
        ("kafka_topic INT, _lake INT, lakefeed_deleted INT", None),
    ],
)
def test_a_field_with_the_name_of_a_column_that_lakefeed_adds_is_reported(
    reading: Reader, fields: str, name: str | None
) -> None:
    text = GOOD.replace(AVRO, JSON.replace("id BIGINT", f"id BIGINT, {fields}"))
    found = [each for each in reading(text)[1] if each.key == "decode"]
    assert [each.what.split()[2] for each in found] == ([] if name is None else [name])


OTHERS = (
    *("spark.sql.catalog.lake.client.factory", "spark.hadoop.fs.s3a.conection.maximum", "spark.databricks.delta.x"),
    *("spark.executorEnv.HOMEE", "spark.kubernetes.driver.label.ap", "spark.openlineage.transport.type", "spark.mine"),
    *("spark.gluten.enabled", "spark.rapids.sql.enabled", "spark.ui.filters.x", "spark.eventLog.gcMetrics"),
)


def warnings(reading: Reader, *settings: str) -> dict[str, str]:
    listed = ", ".join(f"{each}: x" for each in settings)
    config, found = reading(f"{GOOD}spark: {{{listed}}}\n")
    assert config is not None
    return {each.key.removeprefix("spark."): str(each.hint) for each in found if "has no setting" in each.what}


def test_a_misspelt_spark_setting_is_a_warning_with_the_right_name(reading: Reader) -> None:
    found = warnings(reading, "spark.sql.shufle.partitions")
    assert found == {"spark.sql.shufle.partitions": "did you mean spark.sql.shuffle.partitions?"}


def test_a_lost_or_swapped_letter_in_a_spark_setting_is_found(reading: Reader) -> None:
    name = "spark.sql.adaptive.enabled"
    lost = {name[:at] + name[at + 1 :] for at in range(len("spark."), len(name)) if name[at] != "."}
    swapped = {name[:at] + name[at + 1] + name[at] + name[at + 2 :] for at in range(7, 16)}
    misspelt = sorted({*lost, *swapped, name + "s", "spark.sql.Adaptive.enabled"} - {name})
    assert set(warnings(reading, *misspelt)) == set(misspelt)


@pytest.mark.parametrize(
    "settings", [OTHERS, [each for each in known() if each.startswith("spark.sql.a")]], ids=["others", "Spark's"]
)
def test_settings_of_spark_and_of_other_packages_are_accepted(reading: Reader, settings: Sequence[str]) -> None:
    assert warnings(reading, *settings) == {}


@pytest.mark.parametrize(
    ("decode", "sink", "what", "hint"),
    [
        ("  on_unknown_field: dead_letter\n", "", "decode.on_unknown_field makes dead letters", "dead_letters: {table"),
        ("  on_unknown_field: evolve\n", "", "adds columns to a guessed schema", "json: {schema: sample}"),
        ("  on_unknown_field: variant\n  envelope: debezium\n", "", "without an envelope", "dead_letter"),
        ("  on_encrypted: stop\n", "", "on_encrypted requires a registry", "remove on_encrypted"),
        ("  on_unknown_field: variant\n", "    sort_by: [unknown_fieldss]\n", "unknown_fieldss", "'unknown_fields'"),
    ],
)
def test_contradicting_settings_for_json_are_reported_with_a_hint(
    reading: Reader, decode: str, sink: str, what: str, hint: str
) -> None:
    _, [found] = reading(GOOD.replace(AVRO, JSON + decode).replace(TABLE, TABLE + sink))
    assert found.line is not None
    assert what in found.what
    assert hint in str(found.hint)


def test_only_a_table_of_format_version_3_may_have_a_variant(reading: Reader) -> None:
    text = GOOD.replace(AVRO, JSON.replace("at TIMESTAMP", "at TIMESTAMP, v VARIANT"))
    _, [found] = reading(text)
    assert found.key == "decode.json.schema_ddl"
    assert "the column v is a VARIANT" in found.what
    assert "format_version: 3" in str(found.hint)
    assert reading(text.replace(TABLE, f"{TABLE}    format_version: 3\n"))[1] == []


def test_unknown_fields_of_formats_with_a_schema_are_refused(reading: Reader) -> None:
    _, [found] = reading(GOOD.replace(AVRO, f"{AVRO}  on_unknown_field: dead_letter\n"))
    assert "on_unknown_field is for JSON" in found.what
