"""For topics of random Avro schemas, some nested, both paths give equal rows, dead letters, counts and manifests."""

import json
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StringType

from lakefeed.ledger.outcomes import Counts
from lakefeed_encode.encode import to_records
from tests.support.any_rows import AnyRows
from tests.support.feed import Feed
from tests.support.wire_format import build

METRICS = ("record_count", "value_counts", "null_value_counts", "nan_value_counts", "lower_bounds", "upper_bounds")
RECORDS = 120


def fill(spark: SparkSession, feed: Feed, seed: int) -> str:
    """Fill a topic with records of a random schema, null, and undecodable values; return the topic's name."""
    topic, drawn = f"{feed.name}.t{seed}", AnyRows(seed, names=["c", "field_"], keys=[StringType()])
    sent = to_records(drawn.frame(spark, RECORDS), topic=topic, registry=feed.stack.schema_registry_url)
    values: list[bytes | None] = [bytes(row.value) for row in sent.select("value").collect()]
    cut = values[0][:-1] if values[0] else b""
    values[40:40] = [None, b"", b"no header", build(1_000_000_000, b"x"), cut]
    feed.create_topic(topic=topic, partitions=1)
    feed.send(values, topic=topic)
    return topic


def landed(spark: SparkSession, feed: Feed, seeds: range, path: str) -> dict[str, Any]:
    """Land all topics on one path; return by topic the results that must be equal on both paths."""
    tables = f"lake.{feed.name}_{path}"
    kafka = {"bootstrap_servers": "${KAFKA_BOOTSTRAP_SERVERS}", "topics_pattern": rf"{feed.name}\..*"}
    document = {
        "name": f"{feed.name}_{path}",
        "source": {"kafka": {**kafka, "max_records_per_batch": RECORDS // 2}},
        "decode": {
            "avro": {"registry": "${SCHEMA_REGISTRY_URL}"},
            "metadata": ["partition", "offset", "timestamp"],
            "on_null": "skip",
        },
        "dead_letters": {"table": f"{tables}.{{topic}}_letters"},
        "sink": {"iceberg": {"table": f"{tables}.{{topic}}"}},
        "fast_path": path,
    }
    file = feed.folder / f"{path}.yaml"
    file.write_text(json.dumps(document))
    pipeline = type(feed.pipeline()).from_file(file, environment=feed.environment)
    summary = pipeline.run(spark=spark, once=True)
    found: dict[str, Any] = {}
    for each in summary.tables:
        table = f"{tables}.{each.topic.replace('.', '_')}"
        files = spark.table(f"{table}.files").select(*METRICS).collect()
        commits = spark.table(f"{table}.snapshots").orderBy("committed_at").select("summary").collect()
        letters = spark.table(f"{table}_letters").select("partition", "offset", "reason").collect()
        moments = [
            f"unix_micros(CAST(`{name}` AS TIMESTAMP)) AS `{name}`"
            if kind.startswith("timestamp")
            else f"unix_date(`{name}`) AS `{name}`"
            if kind == "date"
            else f"`{name}`"
            for name, kind in spark.table(table).dtypes
        ]
        rows = spark.table(table).selectExpr(*moments).selectExpr("to_json(struct(*)) AS text").collect()
        found[each.topic] = {
            "failure": each.failure,
            "rows": sorted(row.text for row in rows),
            "files": sorted(map(repr, files)),
            "letters": sorted(map(tuple, letters)),
            "commits": [
                {key: value for key, value in commit.summary.items() if key in ("lakefeed.ranges", "lakefeed.counts")}
                for commit in commits
            ],
            "counts": each.counts,
        }
    return found


@pytest.mark.parametrize(
    "seeds", [pytest.param(range(4), id="few"), pytest.param(range(100, 160), id="many", marks=pytest.mark.slow)]
)
def test_topics_of_random_schemas_land_equally_on_both_paths(lake: SparkSession, feed: Feed, seeds: range) -> None:
    topics = [fill(lake, feed, seed) for seed in seeds]
    fast, general = landed(lake, feed, seeds, "auto"), landed(lake, feed, seeds, "off")
    assert fast.keys() == general.keys() == set(topics)
    for topic in topics:
        assert fast[topic] == general[topic], topic
        counts: Counts = fast[topic]["counts"]
        assert (counts.records, counts.skipped) == (RECORDS + 5, 1), topic
        assert counts.rows == len(fast[topic]["rows"]), topic
        assert counts.dead_letters == len(fast[topic]["letters"]) >= 4, topic
