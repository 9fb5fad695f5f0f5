"""``decode.on_unknown_field`` leaves JSON fields without a column out, or turns their records into dead letters."""

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from lakefeed.ledger.outcomes import Counts
from lakefeed.monitor.feed_monitor import FeedMonitor
from lakefeed.pipeline import Pipeline
from tests.support.agreement import of_ledger
from tests.support.feed import Feed

COLUMNS = "id BIGINT, inner STRUCT<a: INT>, list ARRAY<STRUCT<c: INT>>"
BOTH_PATHS = pytest.mark.parametrize("path", ["auto", "off"])


def pipeline(feed: Feed, path: str, **decode: Any) -> Pipeline:
    """Return a pipeline for one read path; the two pipelines read the same topic into separate tables."""
    return feed.pipeline(
        name=f"{feed.name}_{path}",
        fast_path=path,
        decode={"json": {"schema_ddl": COLUMNS}, "metadata": ["partition", "offset"], **decode},
        sink={"iceberg": {"table": f"{feed.table}_{path}"}},
        dead_letters={"table": f"{feed.table}_{path}_letters"},
        checkpoint=feed.place(f"checkpoints/{feed.name}_{path}"),
    )


def letters(feed: Feed, path: str) -> dict[int, str]:
    """Return the reasons of the dead letters by offset."""
    return {row["offset"]: row["reason"] for row in feed.rows(f"{feed.table}_{path}_letters")}


@BOTH_PATHS
def test_a_record_with_an_unknown_field_becomes_a_dead_letter_that_names_the_fields_path(
    lake: SparkSession, feed: Feed, path: str, tmp_path: Path
) -> None:
    feed.create_topic(partitions=1)
    feed.send(
        [
            b'{"id": 0, "inner": {"a": 1}, "list": [{"c": 2}]}',
            b'{"id": 1, "more": {"x": [1]}}',
            b'{"id": 2, "inner": {"a": 1, "b": null}}',
            b'{"id": 3, "list": [{"c": 1}, {"c": 2, "d": 3}]}',
            b'{"ID": 4}',
            b'{"id": 5, "": 1}',
            b'{"id": "x", "more": 1}',
            b'{"id": 7, "more": {"x": ',
        ]
    )
    strict = pipeline(feed, path, on_unknown_field="dead_letter")
    monitor = FeedMonitor(feed.name)
    strict.run(spark=lake, once=True, monitor=monitor)
    assert letters(feed, path) == {
        1: "more: no column has this field",
        2: "inner.b: no column has this field",
        3: "list[1].d: no column has this field",
        4: "ID: no column has this field: the column is id",
        5: ": no column can have a field with the empty name",
        6: "id: expected bigint, found a string",
        7: "more: no column has this field",
    }
    assert of_ledger(strict)[1] == {(feed.topic, 0): Counts(8, 7)}
    assert monitor.snapshot().totals.left_out_field is None
    # With the default, the next records land without these fields.
    feed.send([b'{"id": 8, "more": 1}', b'{"id": 9, "inner": {"b": 1}}'])
    lenient = pipeline(feed, path)
    monitor = FeedMonitor(feed.name)
    lenient.run(spark=lake, once=True, monitor=monitor)
    totals = monitor.snapshot().totals
    assert (totals.left_out, totals.left_out_field) == (2, "more")
    assert sorted(row["id"] for row in feed.rows(f"{feed.table}_{path}")) == [0, 8, 9]
    assert lenient.verify().faults == ()


def sampled(feed: Feed, path: str, **blocks: Any) -> Pipeline:
    return feed.pipeline(
        name=f"{feed.name}_{path}",
        fast_path=path,
        source=feed.source(max_records_per_batch=10),
        decode={"json": {"schema": "sample"}, "on_unknown_field": "evolve"},
        sink={"iceberg": {"table": f"{feed.table}_{path}"}},
        dead_letters={"table": f"{feed.table}_{path}_letters"},
        checkpoint=feed.place(f"checkpoints/{feed.name}_{path}"),
        **blocks,
    )


def run(spark: SparkSession, pipeline: Pipeline) -> tuple[Counts, list[str]]:
    """Run once; return the counts of the run, and its messages about fields."""
    monitor, notes = FeedMonitor("f"), list[str]()
    pipeline.run(spark=spark, once=True, monitor=monitor, on_batch=lambda batch: notes.extend(batch.notes))
    totals = monitor.snapshot().totals
    counts = Counts(totals.records, totals.dead_letters, totals.skipped, totals.left_out)
    return counts, [note for note in notes if "field" in note]


@BOTH_PATHS
def test_a_new_field_at_any_depth_becomes_a_column_while_the_feed_runs(
    lake: SparkSession, feed: Feed, path: str
) -> None:
    feed.create_topic(partitions=1)
    table = f"{feed.table}_{path}"
    feed.send([b'{"id": %d, "who": {"name": "a"}, "lines": [{"sku": "x"}]}' % number for number in range(10)])
    assert run(lake, sampled(feed, path)) == (Counts(10), [])
    # The first values decide the type of a column: fractions beside integers give double, several types give text. Null
    # and empty values decide nothing, and are not lost.
    feed.send(
        [
            b'{"id": 10, "fare": 1, "later": null, "tags": []}',
            b'{"id": 11, "fare": 1.5, "mixed": 1, "who": {"name": "b", "age": 7}}',
            b'{"id": 12, "mixed": "x", "lines": [{"sku": "y", "count": 2}], "deep": {"er": [{"x": true}]}}',
            b'{"id": 13, "fare": "none"}',
            b"poison",
            *(b'{"id": %d}' % number for number in range(14, 20)),
            b'{"id": 20, "fare": 2, "late": "in the second batch"}',
        ]
    )
    counts, notes = run(lake, sampled(feed, path))
    assert counts == Counts(12, 1, 0, 1)
    assert notes == [
        "new JSON fields: who.age added (long or null); lines.element.count added (long or null); fare added (string "
        "or null); mixed added (string or null); deep added (record deep or null)",
        "the JSON field later has no column and is left out; 1 record of this run have such fields",
        "new JSON fields: late added (string or null)",
    ]
    rows = {row["id"]: row for row in feed.rows(table)}
    assert sorted(rows) == [*range(14), *range(14, 21)]
    assert [rows[number]["fare"] for number in (0, 10, 11, 13, 20)] == [None, "1", "1.5", "none", "2"]
    assert rows[11]["who"] == {"name": "b", "age": 7}
    assert rows[12]["lines"] == [{"sku": "y", "count": 2}]
    assert rows[12]["deep"] == {"er": [{"x": True}]}
    assert (rows[11]["mixed"], rows[12]["mixed"], rows[20]["late"]) == ("1", "x", "in the second batch")
    assert "tags" not in rows[10]
    # A new driver reads with the columns of the table; a value of another type becomes a dead letter.
    feed.send([b'{"id": 21, "who": {"age": "old"}}', b'{"id": 22, "who": {"age": 8, "size": 1}, "tags": ["t"]}'])
    counts, notes = run(lake, sampled(feed, path))
    assert counts == Counts(2, 1)
    assert notes == ["new JSON fields: who.size added (long or null); tags added (array of string or null or null)"]
    assert {row["id"]: row["tags"] for row in feed.rows(table)}[22] == ["t"]
    assert sampled(feed, path).verify().faults == ()
    history = lake.table(table).select("id", "fare", "who.size").where("id = 22").collect()
    assert [tuple(row) for row in history] == [(22, None, 1)]


@BOTH_PATHS
def test_a_field_that_cannot_become_a_column_is_left_out_with_the_reason(
    lake: SparkSession, feed: Feed, path: str
) -> None:
    feed.create_topic(partitions=1)
    feed.send([b'{"id": 1}'])
    run(lake, sampled(feed, path))
    feed.send([b'{"id": 2, "ID": 3, "_lakefeed_is_row": 4, "ok": 5, "odd": {"": 1}}', b'{"id": 3, "ID": 4}'])
    counts, notes = run(lake, sampled(feed, path))
    assert counts == Counts(2, 0, 0, 2)
    assert "new JSON fields: ok added (long or null)" in notes
    assert "the JSON field ID is left out: differs from the column id only in case" in notes
    assert any(note.startswith("the JSON field _lakefeed_is_row is left out: ") for note in notes)
    assert sorted((row["id"], row["ok"]) for row in feed.rows(f"{feed.table}_{path}")) == [(1, None), (2, 5), (3, None)]


def of_any_shape(
    feed: Feed, path: str, version: int, *, properties: dict[str, str] | None = None, **decode: Any
) -> Pipeline:
    return feed.pipeline(
        name=f"{feed.name}_{path}_{version}",
        fast_path=path,
        decode=decode,
        sink={
            "iceberg": {
                "table": f"{feed.table}_{path}_{version}",
                "format_version": version,
                "properties": properties or {},
            }
        },
        dead_letters={"table": f"{feed.table}_{path}_{version}_letters"},
        checkpoint=feed.place(f"checkpoints/{feed.name}_{path}_{version}"),
    )


SHAPES = [
    b'{"id": 0, "inner": {"a": 1}, "list": []}',
    b'{"id": 1, "more": {"x": [1, null, 2.50]}, "b": "\\u00e4", "unknown_fields": 1}',
    b'{"list": [{"c": 1}, {"c": 2, "d": 3}], "id": 2, "inner": {"b": null}}',
    b'{"id": 3, "x": 1, "x": 2}',
    b'{"id": "no number", "x": 1}',
]
REMAINDERS = {
    0: None,
    1: {"more": {"x": [1, None, 2.5]}, "b": "ä", "unknown_fields": 1},
    2: {"list": [{"c": 1}, {"c": 2, "d": 3}], "inner": {"b": None}},
}


@BOTH_PATHS
@pytest.mark.parametrize("version", [2, 3])
def test_a_column_stores_the_fields_that_have_no_column(
    lake: SparkSession, feed: Feed, path: str, version: int
) -> None:
    feed.create_topic(partitions=1)
    feed.send(SHAPES)
    pipeline = of_any_shape(feed, path, version, json={"schema_ddl": COLUMNS}, on_unknown_field="variant")
    counts, _ = run(lake, pipeline)
    assert counts == Counts(5, 2 if version == 3 else 1, 0, 0)
    table = lake.table(f"{feed.table}_{path}_{version}")
    assert dict(table.dtypes)["unknown_fields"] == ("variant" if version == 3 else "string")
    text = "to_json(unknown_fields)" if version == 3 else "unknown_fields"
    found = {row.id: row.text and json.loads(row.text) for row in table.selectExpr("id", f"{text} AS text").collect()}
    assert {number: found[number] for number in REMAINDERS} == REMAINDERS
    assert found.keys() == ({0, 1, 2} if version == 3 else {0, 1, 2, 3})
    reasons = {row.offset: row.reason for row in lake.table(f"{feed.table}_{path}_{version}_letters").collect()}
    assert reasons.get(3) == ("a duplicate key" if version == 3 else None)
    # A new driver resumes, and commands without Spark accept the columns of the table.
    feed.send([b'{"id": 5, "late": true}'])
    run(lake, pipeline)
    assert table.where("unknown_fields IS NOT NULL").count() == (3 if version == 3 else 4)
    assert pipeline.verify().faults == ()
    assert pipeline.status().position is not None


@BOTH_PATHS
@pytest.mark.parametrize("version", [2, 3])
def test_json_without_a_schema_is_one_column_for_values_of_any_form(
    lake: SparkSession, feed: Feed, path: str, version: int
) -> None:
    feed.create_topic(partitions=1)
    feed.send([b'{"a": {"b": [1, "x"]}}', b"[1, 2]", b'"text"', b"12.50", b"null", b"", b"{", b"1 2", None])
    run(lake, of_any_shape(feed, path, version, json={}, on_null="skip", metadata=["offset"]))
    text = "to_json(value)" if version == 3 else "value"
    table = lake.table(f"{feed.table}_{path}_{version}")
    found = {row.kafka_offset: row.text for row in table.selectExpr("kafka_offset", f"{text} AS text").collect()}
    fraction = "12.5" if version == 3 else "12.50"
    assert found == {0: '{"a":{"b":[1,"x"]}}', 1: "[1,2]", 2: '"text"', 3: fraction, 4: "null"}
    reasons = {row.offset: row.reason for row in lake.table(f"{feed.table}_{path}_{version}_letters").collect()}
    assert reasons == {
        5: "empty: 0 bytes",
        6: "truncated JSON",
        7: "something follows the JSON value after character 2",
    }


@BOTH_PATHS
def test_declared_variants_at_every_depth_are_shredded_by_the_tables_properties(
    lake: SparkSession, feed: Feed, path: str
) -> None:
    feed.create_topic(partitions=1)
    feed.send([b'{"id": %d, "v": {"n": %d, "s": "x"}, "l": [{"v": [1]}], "m": {"k": 1}}' % (n, n) for n in range(50)])
    columns = "id BIGINT, v VARIANT, l ARRAY<STRUCT<v: VARIANT>>, m MAP<STRING, VARIANT>"
    shredding = {"write.parquet.shred-variants": "true"}
    pipeline = of_any_shape(feed, path, 3, properties=shredding, json={"schema_ddl": columns})
    counts, _ = run(lake, pipeline)
    assert counts == Counts(50)
    table = lake.table(f"{feed.table}_{path}_3")
    [row] = (
        table.where("id = 7")
        .selectExpr("variant_get(v, '$.n', 'int') AS n", "to_json(l[0].v) AS l", "to_json(m['k']) AS k")
        .collect()
    )
    assert (row.n, row.l, row.k) == (7, "[1]", "1")
    [file] = lake.table(f"{feed.table}_{path}_3.files").select("file_path").collect()
    stored = feed.store().open_input_file(file.file_path.partition("://")[2])
    assert "typed_value" in str(pq.ParquetFile(stored).schema)
    assert pipeline.verify().faults == ()
