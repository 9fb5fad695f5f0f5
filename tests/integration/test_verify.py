"""On real tables and a real broker, ``lakefeed verify`` accepts correct tables, and finds changes by other writers."""

import json
from typing import Any

import pytest
from pyiceberg.manifest import DataFileContent
from pyspark.sql import SparkSession

from lakefeed.clients.iceberg.reader import open_table
from lakefeed.clients.kafka.topics import Topics
from lakefeed.errors import ConfigError, ResourceMissing
from lakefeed.ledger.snapshot_summary import BATCH_ID, COMMIT_ID, COUNTS, FEED, RANGES
from lakefeed.offsets.ranges import OffsetRange, OffsetRanges
from lakefeed.operations.verify import Verification, verify_feed
from lakefeed.pipeline import Pipeline
from lakefeed.sinks.dead_letters.store import DeadLetterFilter
from lakefeed_repair.replay import replay
from tests.support.cli import lakefeed
from tests.support.feed import JSON_ROWS, Feed, trips

DECODE: dict[str, Any] = {
    "avro": {"registry": "${SCHEMA_REGISTRY_URL}"},
    "metadata": ["topic", "partition", "offset"],
    "on_null": "skip",
}


def checked(pipeline: Pipeline, *, deep: bool = True) -> Verification:
    return verify_feed(pipeline.config, connections=pipeline.connections, deep=deep)


def kinds(done: Verification) -> tuple[list[str], list[str]]:
    """Return the kinds of the faults and of the notes."""
    return sorted({each.kind for each in done.faults}), sorted({each.kind for each in done.notes})


def test_verify_adds_up_rows_dead_letters_replayed_and_dropped_letters(lake: SparkSession, feed: Feed) -> None:
    feed.create_topic()
    dead = f"lake.{feed.name}.dead_letters"
    blocks: dict[str, Any] = {
        "decode": DECODE,
        "dead_letters": {"table": dead},
        "expect": {"small": {"rule": "id < 90", "on_violation": "dead_letter"}},
    }
    feed.send([*feed.avro(trips(0, 60)), None, b"\x01"])
    feed.pipeline(**blocks).run(spark=lake, once=True)
    feed.send([*feed.avro(trips(60, 100)), b"\x02", None])
    feed.pipeline(**blocks).run(spark=lake, once=True)
    done = checked(feed.pipeline(**blocks))
    assert kinds(done) == ([], [])
    assert (done.commits, done.records, done.rows, done.dead_letters, done.skipped) == (2, 104, 90, 12, 2)
    assert [each.lag for each in done.partitions] == [0, 0, 0]

    blocks["expect"]["small"]["rule"] = "id < 95"
    assert replay(feed.pipeline(**blocks), DeadLetterFilter(feed=feed.name), spark=lake).rows == 5
    done = checked(feed.pipeline(**blocks))
    assert kinds(done) == ([], [])
    assert done.replayed == 5

    lake.sql(f"DELETE FROM {dead} WHERE reason LIKE '%magic%'")
    file = feed.write_file(**blocks)
    shown = lakefeed("verify", file, "--deep", environment=feed.environment)
    assert "each record once" in shown.stdout
    assert "104 = 90 good + 12 dead letters + 2 skipped" in shown.stdout
    assert "letters-dropped" in shown.stdout

    lake.sql(f"INSERT INTO {dead} SELECT * FROM {dead} LIMIT 1")
    result = lakefeed("verify", file, "--output", "json", environment=feed.environment, status=1)
    document = json.loads(result.stdout)
    assert document["verified"] is False
    assert "letters-twice" in {each["kind"] for each in document["findings"] if each["fault"]}


def test_verify_finds_changes_by_writers_without_the_commit_check(lake: SparkSession, feed: Feed) -> None:
    feed.create_topic(partitions=1)
    pipeline = feed.pipeline(decode=DECODE)
    for start in (0, 10, 20):
        feed.send(feed.avro(trips(start, start + 10)))
        pipeline.run(spark=lake, once=True)
    assert kinds(checked(pipeline)) == ([], [])

    table = open_table(feed.table, connections=feed.connections)
    rows = table.scan(row_filter="id >= 18 and id < 22").to_arrow()
    table.append(rows)
    done = checked(pipeline)
    assert kinds(done) == (["duplicates"], ["others"])
    [duplicates] = done.faults
    assert (duplicates.start, duplicates.end) == (18, 22)
    assert kinds(checked(pipeline, deep=False)) == ([], ["others"])

    # Forge a commit of the feed that begins after a gap, and whose rows have no record.
    topic_id = Topics(feed.stack.bootstrap_servers).describe(feed.topic).topic_id
    feed.send(feed.avro(trips(30, 40)))
    forged = {
        FEED: feed.name,
        BATCH_ID: "3",
        COMMIT_ID: "forged",
        RANGES: OffsetRanges((OffsetRange(feed.topic, 0, 35, 39),), {feed.topic: topic_id}).to_json(),
        COUNTS: json.dumps({feed.topic: {"0": [3, 0, 0]}}),
    }
    table.append(rows, snapshot_properties=forged)
    found = {each.kind: each for each in checked(pipeline).faults}
    assert found.keys() == {"gap", "records", "rows", "position", "duplicates", "missing"}
    assert (found["gap"].start, found["gap"].end, found["gap"].batch_id) == (30, 35, 3)
    assert "3 records" in found["records"].what
    assert "the topic holds 4" in found["records"].what
    assert (found["missing"].start, found["missing"].end) == (35, 39)


@pytest.mark.quick
def test_verify_finds_missing_rows_and_a_rollback_by_another_engine(lake: SparkSession, feed: Feed) -> None:
    feed.create_topic(partitions=1)
    pipeline = feed.pipeline(decode=DECODE)
    for start in (0, 10):
        feed.send(feed.avro(trips(start, start + 10)))
        pipeline.run(spark=lake, once=True)
    first = open_table(feed.table, connections=feed.connections).metadata.snapshots[0].snapshot_id
    lake.sql(f"DELETE FROM {feed.table} WHERE id BETWEEN 4 AND 6")
    done = checked(pipeline)
    assert kinds(done) == ([], ["missing", "others"])
    assert (done.notes[-1].start, done.notes[-1].end) == (4, 7)
    open_table(feed.table, connections=feed.connections).manage_snapshots().rollback_to_snapshot(first).commit()
    assert kinds(checked(pipeline)) == (["position"], [])


def test_verify_distinguishes_offsets_without_a_record_from_lost_records(lake: SparkSession, feed: Feed) -> None:
    feed.create_topic(partitions=1)
    feed.send_transactions("cac", count=3)
    pipeline = feed.pipeline(decode=JSON_ROWS)
    pipeline.run(spark=lake, once=True)
    done = checked(pipeline)
    assert kinds(done) == ([], [])
    # Three aborted records and three markers have no row, or two markers if the range ends before the last marker.
    assert (done.records, done.rows) == (6, 6)
    assert done.offsets - done.records in (5, 6)


def test_verify_refuses_a_feed_that_it_cannot_verify(lake: SparkSession, feed: Feed) -> None:
    feed.create_topic(partitions=1)
    with pytest.raises(ResourceMissing, match="there is no table"):
        checked(feed.pipeline())
    feed.send(feed.avro(trips(0, 10)))
    feed.pipeline().run(spark=lake, once=True)
    assert kinds(checked(feed.pipeline(), deep=False)) == ([], [])
    with pytest.raises(ConfigError, match="kafka_partition"):
        checked(feed.pipeline())
    path = f"s3a://{feed.stack.bucket}/parquet/{feed.name}"
    with pytest.raises(ConfigError, match="feed into files cannot be verified"):
        checked(feed.pipeline(sink={"parquet": {"path": path}}))


@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_verify_names_a_missing_or_truncated_file(lake: SparkSession, feed: Feed, mode: str) -> None:
    feed.create_topic(partitions=1)
    dead = f"lake.{feed.name}.dead_letters"
    sink = {"table": feed.table, **({"mode": "upsert", "keys": ["id"]} if mode == "upsert" else {})}
    blocks: dict[str, Any] = {"decode": DECODE, "dead_letters": {"table": dead}, "sink": {"iceberg": sink}}
    feed.send([*feed.avro(trips(0, 20)), b"\x01"])
    pipeline = feed.pipeline(**blocks)
    pipeline.run(spark=lake, once=True)
    if mode == "upsert":
        feed.send(feed.avro(trips(0, 5)))
        pipeline.run(spark=lake, once=True)
    done = checked(pipeline)
    assert done.faults == ()

    files: dict[str, str] = {}
    for name in (feed.table, dead):
        table = open_table(name, connections=pipeline.connections)
        head = table.current_snapshot()
        assert head is not None
        files[head.manifest_list] = f"the manifest list {head.manifest_list}"
        for manifest in head.manifests(table.io):
            files[manifest.manifest_path] = f"the manifest {manifest.manifest_path}"
            for entry in manifest.fetch_manifest_entry(table.io):
                kind = "data" if entry.data_file.content == DataFileContent.DATA else "delete"
                files[entry.data_file.file_path] = f"the {kind} file {entry.data_file.file_path}"
    assert len(files) == done.files
    tried = {path: named for path, named in files.items() if mode == "append" or "delete file" in named}
    assert len(tried) == (6 if mode == "append" else 1)
    for path, named in tried.items():
        content = table.io.new_input(path).open().read()
        for damaged, why in ((None, "it is gone"), (content[:-1], f"it has {len(content) - 1:,} bytes instead")):
            if damaged is None:
                table.io.delete(path)
            elif "manifest" in named:
                continue
            else:
                with table.io.new_output(path).create(overwrite=True) as file:
                    file.write(damaged)
            for deep in (False, True):
                [fault] = checked(pipeline, deep=deep).faults
                assert (fault.kind, f"{named}: {why}" in fault.what) == ("file-lost", True), fault
                assert "rewind the feed" in fault.what
        with table.io.new_output(path).create(overwrite=True) as file:
            file.write(content)
    assert checked(pipeline).faults == ()
