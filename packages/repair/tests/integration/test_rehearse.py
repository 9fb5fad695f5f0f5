"""A rehearsal shows how a changed pipeline file changes the rows."""

import json
from typing import Any

import pytest
from pyspark.sql import SparkSession

from lakefeed.clients.iceberg.reader import open_table
from lakefeed.pipeline import Pipeline
from lakefeed_local.stack import Endpoints
from lakefeed_repair.rehearsal import choose, rehearse
from tests.support.feed import Feed, trips
from tests.support.rehearsals import DDL, KEPT, blocks, decode, iceberg, land, shown, sql

PLAIN = "timestamp_millis(ms) AS sent"
CHANGES: dict[str, tuple[dict[str, Any], dict[str, str]]] = {
    "nothing": ({}, {}),
    "another reader": ({"fast_path": "off"}, {}),
    "a renamed column": ({"sql": f"* EXCEPT (ms, note), {PLAIN}, note AS remark"}, {"note": "renamed to remark"}),
    "another timestamp unit": (
        {"sql": "* EXCEPT (ms), timestamp_seconds(ms) AS sent"},
        {"sent": "36 rows of 36 have another value"},
    ),
    "a larger decimal scale": (
        {"ddl": DDL.replace("(10,2)", "(10,3)")},
        {"fare": "type decimal(10,2) → decimal(10,3); 0 rows of 36"},
    ),
    "a smaller decimal scale": ({"ddl": DDL.replace("(10,2)", "(10,1)")}, {"fare": "", "@dead-letters": ""}),
    "a double instead of a decimal": (
        {"ddl": DDL.replace("fare DECIMAL(10,2)", "fare DOUBLE")},
        {"fare": "type decimal(10,2) → double; 0 rows"},
    ),
    "a stricter expectation": (
        {"expect": {"positive": {"rule": "fare >= 5", "on_violation": "dead_letter"}}},
        {"@dead-letters": "5 times a row → dead letter: expectation positive"},
    ),
    "an expectation that drops": (
        {"expect": {"positive": {"rule": "fare >= 0", "on_violation": "drop"}}},
        {"@dead-letters": "2 times dead letter: expectation positive"},
    ),
    "no expectation": ({"expect": {}}, {"@dead-letters": "2 times dead letter: expectation positive"}),
    "new partitions": ({"sink": {"partition_by": ["days(at)"]}}, {"@partition_by": "none → day(at)"}),
    "another order": ({"sink": {"sort_by": ["zone desc"]}}, {"@sort_by": "none → identity(zone)"}),
    "a dropped column": ({"sql": f"* EXCEPT (ms, note), {PLAIN}"}, {"note": "is gone (string), with 36 values"}),
    "another cast": (
        {"sql": f"* EXCEPT (ms, id), CAST(id AS STRING) AS id, {PLAIN}"},
        {"id": "type bigint → string; 0 rows of 36"},
    ),
    "more metadata": ({"decode": {"metadata": [*KEPT, "key"]}}, {"kafka_key": "was added (binary), with 36 values"}),
    "less metadata": ({"decode": {"metadata": KEPT[:2]}}, {"kafka_offset": "is gone (bigint), with 36 values"}),
    "bad timestamps are kept": ({"decode": {"on_bad_timestamp": "keep"}}, {"@dead-letters": "1 times dead letter: "}),
    "tombstones are dead": ({"decode": {"on_null": "dead_letter"}}, {"@dead-letters": "1 times no row → dead letter"}),
    "unknown fields are dead": (
        {"decode": {"on_unknown_field": "dead_letter"}},
        {"@dead-letters": "1 times a row → dead letter: "},
    ),
    "a filter": ({"rest": "WHERE id % 2 = 0"}, {"@rows": "18 times a row → no row"}),
    "other texts": (
        {"sql": f"* EXCEPT (ms, zone), {PLAIN}, upper(zone) AS zone"},
        {"zone": "36 rows of 36 have another value"},
    ),
    "another map": (
        {"sql": f"* EXCEPT (ms, tags), {PLAIN}, map_filter(tags, (k, v) -> v != '7') AS tags"},
        {"tags": "1 row of 36 have another value"},
    ),
    "two rows for each record": (
        {"rest": "LATERAL VIEW explode(array(1, 2)) AS part"},
        {"part": "was added (int), with 36 values", "@rows": "36 times no row → a row"},
    ),
    "no dead letters": ({"dead_letters": None, "expect": {}}, {"@stopped": "the feed would stop: A record cannot be"}),
    "an error budget": ({"dead_letters": {"budget": {"max_rows": 1}}}, {"@stopped": "the feed would stop: "}),
}


@pytest.fixture(scope="module")
def landed(lake: SparkSession, stack: Endpoints, tmp_path_factory: pytest.TempPathFactory) -> tuple[Feed, Pipeline]:
    feed = Feed(stack, tmp_path_factory.mktemp("old"))
    return feed, land(lake, feed, size=100)


@pytest.mark.parametrize("case", [pytest.param("nothing", marks=pytest.mark.quick), *list(CHANGES)[1:]])
def test_each_change_of_a_pipeline_file_is_shown_by_its_effect_on_the_rows(
    lake: SparkSession, landed: tuple[Feed, Pipeline], case: str
) -> None:
    (feed, old), (changed, expected) = landed, CHANGES[case]
    more: dict[str, Any] = {key: changed[key] for key in ("expect", "fast_path", "dead_letters") if key in changed}
    if more.get("dead_letters"):
        more["dead_letters"] = {"table": f"lake.{feed.name}.dead", **more["dead_letters"]}
    more["decode"] = decode(changed.get("ddl", DDL), **changed.get("decode", {}))
    columns = changed.get("sql", f"* EXCEPT (ms), {PLAIN}")
    more["transform"] = sql(feed, columns, changed.get("rest", ""))
    more["sink"] = iceberg(feed, **changed.get("sink", {}))
    document = {key: value for key, value in blocks(feed, **more).items() if value is not None}
    done = rehearse(feed.pipeline(**document), old, spark=lake)
    found = shown(done)
    assert found.keys() == expected.keys(), found
    assert all(text in found[name] for name, text in expected.items()), found
    assert done.refused([]) == list(expected)
    assert done.refused(list(expected)) == []
    assert (done.old["batches"], done.old["rows_per_second"] > 0) == (done.new["batches"], done.old["batches"] > 0)
    if not expected:
        assert (done.new["records"], done.new["rows"], done.new["dead_letters"], done.new["skipped"]) == (41, 36, 4, 1)
        assert done.new["s3_requests"] > 0
        assert [note for note in done.notes if "the feed landed" in note] == []


def test_a_change_of_the_subject_and_of_the_envelope_is_shown(lake: SparkSession, feed: Feed) -> None:
    feed.create_topic(partitions=1)
    feed.send(feed.avro(trips(0, 5)))
    tip = {"name": "tip", "type": ["null", "double"], "default": None}
    wider = {"type": "record", "name": "Trip", "fields": [{"name": "id", "type": "long"}, tip]}
    feed.avro([{"id": 1, "tip": None}], wider, topic=f"{feed.topic}-other")
    old = feed.pipeline()
    old.run(spark=lake, once=True)
    other = {"avro": {"registry": "${SCHEMA_REGISTRY_URL}", "subject": f"{feed.topic}-other-value"}}
    done = rehearse(feed.pipeline(decode=other, schema={"on_change": "ignore"}), old, spark=lake)
    assert shown(done) == {"zone": "is gone (string), with 5 values", "tip": "was added (double), with 0 values"}

    changes = Feed(feed.stack, feed.folder)
    changes.create_topic(partitions=1)
    changes.send([json.dumps({"before": None, "after": {"id": n}, "op": "c"}).encode() for n in range(3)])
    plain = {"json": {"schema_ddl": "before STRUCT<id: BIGINT>, after STRUCT<id: BIGINT>, op STRING"}}
    old = changes.pipeline(decode={**plain, "envelope": "debezium"})
    old.run(spark=lake, once=True)
    found = shown(rehearse(changes.pipeline(decode=plain), old, spark=lake))
    assert {"id", "before", "after"} <= found.keys()


def test_examples_have_offsets_and_values_unless_values_are_masked(
    lake: SparkSession, landed: tuple[Feed, Pipeline]
) -> None:
    feed, old = landed
    columns = "* EXCEPT (ms, zone, id), timestamp_millis(ms) AS sent, upper(zone) AS zone, id + 1 AS id"
    new = feed.pipeline(**blocks(feed, transform=sql(feed, columns)))
    done = rehearse(new, old, spark=lake, masked=["id"], last="1 batch")
    [zone] = [each for each in done.differences if each.name == "zone"]
    [number] = [each for each in done.differences if each.name == "id"]
    assert len(zone.examples) == 10
    assert zone.examples[0].startswith(f"{feed.topic}:")
    assert " → ZONE " in zone.examples[0]
    assert {example.partition("  ")[2] for example in number.examples} == {"*** → ***"}
    assert done.batches == 1


def test_the_last_records_batches_or_minutes_are_rounded_to_whole_commits(lake: SparkSession, feed: Feed) -> None:
    land(lake, feed)
    table = open_table(feed.table, connections=feed.connections)
    commits = {last: choose(table, feed.name, last) for last in ("1", "30 records", "1 batch", "99 batches", "1h")}
    sizes = {last: [commit.ranges.records for commit in chosen] for last, chosen in commits.items()}
    assert sum(sizes["30 records"]) >= 30 > sum(sizes["30 records"][1:])
    assert sizes["1"] == sizes["1 batch"] == sizes["1h"][-1:]
    assert sizes["99 batches"] == sizes["1h"]
    assert sum(sizes["1h"]) == 41
