"""Texts of records, schemas and the pipeline file stay unchanged, in lakefeed's session and in a user's session.

In a user's session Spark replaces ``${name}`` in SQL, by settings and by environment variables of the driver.
"""

import json
import os
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from lakefeed.clients.iceberg.reader import open_table
from lakefeed.clients.kafka.selection import Selection
from lakefeed.clients.spark.session import copy_of
from lakefeed.errors import SchemaUnusable
from lakefeed_inspect.read import BatchRead, Files
from tests.support.feed import Feed

OF_HADOOP = ("${env.HOME}", "${user.name}", "${io.file.buffer.size}", "${fs.s3a.secret.key:-${env.HOME}}")
TEXTS = (
    *OF_HADOOP,
    *("${foo}", "${env:HOME}", "${system:user.dir}", "${spark.app.name}", "$${foo}", "${env:HOME", "${}"),
    *("it's", "''", '"', "a`b", "``", "-- no", "/* no */", "*/", "a\nb", ";", "\\", "\\'", "\\n", "\\u0041", "%s"),
    *(":value0", ":key0", "?", "{fn}", "' OR '1' = '1", "❄ é", "a b", "\t", "$", "NULL", ""),
)
NAMES = ("${foo}", *(f"n{number} {text}" for number, text in enumerate(TEXTS) if text))


@pytest.fixture(params=[pytest.param("ours", marks=pytest.mark.slow), "users"])
def session(lake: SparkSession, request: pytest.FixtureRequest) -> SparkSession:
    """Return a feed's session, or a user's session, in which Spark replaces variables in SQL."""
    assert lake.conf.get("spark.sql.variable.substitute") == "false"
    own = copy_of(lake)
    if request.param == "users":
        own.conf.set("spark.sql.variable.substitute", "true")
        own.conf.set("foo", "replaced")
    return own


def stored_texts(feed: Feed) -> str:
    properties = dict(open_table(feed.table, connections=feed.connections).properties)
    return json.dumps(properties)


def test_texts_in_keys_values_and_names_stay_unchanged(session: SparkSession, feed: Feed) -> None:
    """The texts are keys, values and parts of field names of JSON records, which are upserted twice."""
    feed.create_topic(partitions=1)
    rows = [{"k": text, "v": 1, "nested": dict.fromkeys(NAMES, text), **dict.fromkeys(NAMES, text)} for text in TEXTS]
    pipeline = feed.pipeline(
        decode={"json": {"schema": "sample"}}, sink={"iceberg": {"table": feed.table, "mode": "upsert", "keys": ["k"]}}
    )
    for version in (1, 2):
        feed.send([json.dumps({**row, "v": version}).encode() for row in rows])
        pipeline.run(spark=session, once=True)
        found = {row["k"]: row for row in feed.rows()}
        assert len(feed.rows()) == len(found) == len(TEXTS)
        for row in rows:
            have = {name: found[row["k"]][name] for name in row}
            assert have == {**row, "v": version}
    assert "${env:HOME}" in stored_texts(feed)


def test_defaults_and_docs_of_schemas_stay_unchanged(session: SparkSession, feed: Feed) -> None:
    """In a later run, records of an older version get the newer version's defaults unchanged."""
    feed.create_topic(partitions=1)
    added: list[dict[str, Any]] = [
        {"name": f"s{number}", "type": "string", "default": text, "doc": text} for number, text in enumerate(TEXTS)
    ]
    first: dict[str, Any] = {"type": "record", "name": "R", "doc": TEXTS[1], "fields": [{"name": "id", "type": "long"}]}
    second = {**first, "fields": [*first["fields"], *added]}
    blocks: dict[str, Any] = {"sink": {"iceberg": {"table": feed.table, "format_version": 3}}}
    feed.send(feed.avro([{"id": 1}], first))
    feed.pipeline(**blocks).run(spark=session, once=True)
    feed.send(feed.avro([{"id": 2, **{each["name"]: "own" for each in added}}], second))
    feed.pipeline(**blocks).run(spark=session, once=True)
    feed.send(feed.avro([{"id": 3}], first))
    feed.pipeline(**blocks).run(spark=session, once=True)
    found = {row["id"]: row for row in feed.rows()}
    assert found[3] == {"id": 3, **{each["name"]: each["default"] for each in added}}
    # In format version 3 older rows have the column's initial default.
    assert found[1] == {"id": 1, **{each["name"]: each["default"] for each in added}}
    texts = stored_texts(feed)
    assert "${env:HOME}" in texts
    assert f'"{os.environ["HOME"]}\\"' not in texts


def test_sql_in_the_pipeline_file_reaches_spark_unchanged(session: SparkSession, feed: Feed) -> None:
    """An expectation, a transform and a dead letter's reason contain ``${…}``; the file writes ``$`` as ``$$``."""
    feed.create_topic(partitions=1)
    feed.send([json.dumps({"id": number, "s": text}).encode() for number, text in enumerate(TEXTS)])
    dead = f"{feed.table}_dead"
    feed.pipeline(
        decode={"json": {"schema_ddl": "id BIGINT, s STRING"}},
        expect={"known": {"rule": "s <> '$${env:HOME}'", "on_violation": "dead_letter"}},
        transform={"sql": f"SELECT id, s, '$${{env:HOME}}' AS `$${{foo}}` FROM {feed.name}"},
        dead_letters={"table": dead},
        sink={"iceberg": {"table": feed.table, "partition_by": ["s"]}},
    ).run(spark=session, once=True)
    rows = feed.rows()
    assert sorted(row["s"] for row in rows) == sorted(text for text in TEXTS if text != "${env:HOME}")
    assert {row["${foo}"] for row in rows} == {"${env:HOME}"}
    [letter] = feed.rows(dead)
    assert letter["reason"] == "expectation known: s <> '${env:HOME}'"


@pytest.mark.parametrize("fast_path", ["auto", "off"])
def test_column_names_with_variables_stay_unchanged_in_files(session: SparkSession, feed: Feed, fast_path: str) -> None:
    """Spark hands the column names of files to Hadoop as a setting, and Hadoop replaces ``${name}`` in settings."""
    feed.create_topic(partitions=1)
    row = {**dict.fromkeys(NAMES, "v"), "nested": [dict.fromkeys(NAMES, "v")]}
    feed.send([json.dumps(row).encode()])
    path = feed.folder / "files"
    blocks: dict[str, Any] = {"decode": {"json": {"schema": "sample"}}, "fast_path": fast_path}
    feed.pipeline(**blocks, sink={"parquet": {"path": f"file://{path}"}}).run(spark=session, once=True)
    [file] = path.glob("*.parquet")
    assert pq.read_table(file, partitioning=None).to_pylist() == [row]
    copy = str(feed.folder / "copy")
    target = Files(session, copy, file_format="parquet", append=False)
    BatchRead.of(feed.pipeline(**blocks)).to(target, Selection.of(), spark=session)
    assert [each for each in (pq.read_table(file).to_pylist() for file in Path(copy).glob("*.parquet")) if each] == [
        [row]
    ]
    sink = {"format": {"name": "parquet", "path": f"file://{feed.folder}/refused"}}
    with pytest.raises(SchemaUnusable, match="replace") as error:
        feed.pipeline(**blocks, checkpoint=f"{feed.checkpoint}-format", sink=sink).run(spark=session, once=True)
    assert os.environ["HOME"] not in str(error.value)
