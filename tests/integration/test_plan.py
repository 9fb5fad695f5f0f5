"""On a real broker, store and catalog, ``plan`` shows exactly what the run does, and changes nothing."""

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from lakefeed.cli.plan import plan as command
from lakefeed.clients.kafka.topics import Topics
from lakefeed.errors import CheckpointMismatch
from lakefeed.feed.s3_requests import S3Requests
from lakefeed.ledger.snapshots import ancestors, commits_of
from lakefeed.pipeline import Pipeline
from lakefeed_local.stack import Endpoints
from tests.support.blocks import ROOT, blocks_of
from tests.support.cli import lakefeed
from tests.support.feed import Feed
from tests.support.planned import RIDE, WIDER, Planned, ride


@pytest.fixture
def planned(lake: SparkSession, feed: Feed) -> Planned:
    return Planned(lake, feed)


def test_a_new_table_is_created_and_filled_as_planned(planned: Planned) -> None:
    planned.send(60, 25, 3)
    pipeline = planned.pipeline(
        limit=40,
        sink={
            "partition_by": ["bucket(2, id)", "days(at)"],
            "sort_by": ["zone desc", "stop.x"],
            "properties": {"write.parquet.compression-level": "2"},
        },
        dead_letters={"table": f"lake.{planned.feed.name}.letters"},
    )
    found = planned.plan(pipeline)
    assert (found.kind, found.start, found.batch_id) == ("fresh", "begins at the earliest records", 0)
    assert found.checkpoint is not None
    assert found.checkpoint.action == "create"
    assert [(each.table.rpartition(".")[2], each.is_new) for each in found.tables] == [
        ("letters", True),
        ("rows", True),
    ]
    assert [each.backlog for each in found.partitions] == [60, 25, 3]
    # Spark divides the 40 records of a batch among the partitions and rounds down: 40 · 60/88, 40 · 25/88, 40 · 3/88.
    assert [each.first for each in found.partitions] == [27, 11, 1]
    assert found.estimates is not None
    assert found.estimates.files.first is None

    batches = planned.run(pipeline)
    assert planned.commits()[0] == found.first_ranges
    assert len(planned.commits()) == len(batches) == found.batches
    planned.assert_made_as_planned(found)

    again = planned.plan(pipeline)
    assert (again.statements, again.batches, again.kind) == ((), 0, "continues")
    assert again.checkpoint is not None
    assert again.checkpoint.action == "keep"
    # The table has batches now: the plan estimates files, requests and seconds from their means.
    planned.send(20, 20, 0)
    figures = planned.plan(pipeline).estimates
    assert figures is not None
    assert figures.files.first is not None
    assert figures.requests.first is not None
    assert figures.seconds.all is not None
    [first, *_] = planned.run(pipeline)
    assert first.requests is not None
    written = first.requests.by_class["data"]
    # The estimate is within a factor of two, because the batches write to different numbers of table partitions.
    assert written / 2 <= figures.files.first <= 2 * written
    assert first.requests.total / 2 <= figures.requests.first <= 2 * first.requests.total


@pytest.mark.quick
def test_the_requests_of_a_table_without_partitions_are_exact(planned: Planned) -> None:
    planned.send(30, 30, 30)
    pipeline = planned.pipeline(limit=30)
    found = planned.plan(pipeline)
    figures = found.estimates
    assert figures is not None
    assert (figures.files.first, figures.requests.first, found.batches) == (3, 8, 3)
    sent = 3 * sum(
        len(str(number)) + len(value) for number, value in enumerate(planned.feed.avro(map(ride, range(30)), RIDE))
    )
    assert figures.bytes.all == pytest.approx(sent, rel=0.01)
    _, second, *_ = planned.run(pipeline)
    assert second.requests is not None
    assert second.requests.by_class["data"] == 3
    assert second.requests.total == 8


def test_the_plan_shows_the_statements_that_the_run_executes(planned: Planned) -> None:
    planned.send(3, 3, 3)
    planned.run(planned.pipeline(sink={"partition_by": ["zone"]}))
    planned.feed.send(planned.feed.avro([ride(2**40, "area")], WIDER), partition=0)
    changed = planned.pipeline(sink={"partition_by": ["area", "days(at)"], "sort_by": ["id"]})
    found = planned.plan(changed)
    [table] = found.tables
    name = f"`lake`.`{planned.feed.name}`.`rows`"
    properties, *statements = table.statements
    assert properties.startswith(f"ALTER TABLE {name} SET TBLPROPERTIES ('lakefeed.reader.{planned.feed.name}' = ")
    # The partition field follows the renamed column, so no statement drops and adds the field.
    assert statements == [
        f"ALTER TABLE {name} RENAME COLUMN `zone` TO `area`",
        f"ALTER TABLE {name} ALTER COLUMN `id` TYPE BIGINT",
        f"ALTER TABLE {name} ADD COLUMNS (`fare` DOUBLE)",
        f"ALTER TABLE {name} ADD PARTITION FIELD days(`at`)",
        f"ALTER TABLE {name} WRITE LOCALLY ORDERED BY `id` ASC NULLS FIRST",
    ]
    assert (table.is_new, table.is_laid_out_anew, found.kind) == (False, True, "continues")
    assert any("area renamed from zone" in note for note in found.notes)
    planned.run(changed)
    made = planned.table()
    assert [each.name for each in made.schema().fields] == ["id", "area", "at", "stop", "fare"]
    assert [each.name for each in made.spec().fields] == ["zone", "at_day"]
    assert planned.commits()[-1] == found.first_ranges
    assert planned.plan(changed).statements == ()


def test_the_plan_of_a_refused_start_has_the_same_exit_status(planned: Planned) -> None:
    planned.send(4, 4, 4)
    pipeline = planned.pipeline()
    planned.run(pipeline)
    first = planned.table().metadata.current_snapshot_id
    planned.send(4, 4, 4)
    planned.run(pipeline)
    planned.lake.sql(f"CALL lake.system.rollback_to_snapshot('{planned.feed.table[5:]}', {first})")
    rolled_back = planned.plan(pipeline)
    assert (rolled_back.kind, rolled_back.tables, rolled_back.batches) == ("refused", (), 0)
    with pytest.raises(CheckpointMismatch) as refused:
        planned.run(pipeline)
    assert str(rolled_back.refusal) == str(refused.value)
    with planned.unchanged():
        result = lakefeed("plan", planned.feed.write_file(), environment=planned.feed.environment, status=None)
    assert result.returncode == 2
    assert "would be refused" in result.stdout
    assert "lakefeed offsets rewind pipeline.yaml --to table" in result.stdout

    # A checkpoint of another pipeline is refused with the difference.
    other = planned.feed.pipeline(sink={"iceberg": {"table": f"{planned.feed.table}_2"}})
    foreign = planned.plan(other)
    assert foreign.refusal is not None
    assert f"sink: iceberg {planned.feed.table} → iceberg {planned.feed.table}_2" in foreign.refusal.what


@pytest.mark.slow
def test_a_plan_of_upserts_includes_the_history_and_the_dead_letter_topic(planned: Planned) -> None:
    planned.send(4)
    letters = f"{planned.feed.name}-letters"
    sink = {"mode": "upsert", "keys": ["id"], "history": f"lake.{planned.feed.name}.history", "sort_by": ["id"]}
    pipeline = planned.pipeline(sink=sink, dead_letters={"topic": letters})
    found = planned.plan(pipeline)
    assert [each.table.rpartition(".")[2] for each in found.tables] == ["history", "rows"]
    assert found.dead_letter_topic is not None
    assert (found.dead_letter_topic.topic, found.dead_letter_topic.partitions) == (letters, 3)
    planned.run(pipeline)
    planned.assert_made_as_planned(found)
    made = Topics(planned.feed.stack.bootstrap_servers)
    assert len(made.describe(letters).partitions) == 3
    assert {key: made.setting(letters, key) for key in found.dead_letter_topic.config} == dict(
        found.dead_letter_topic.config
    )
    again = planned.plan(pipeline)
    assert (again.statements, again.dead_letter_topic) == ((), None)


@pytest.mark.slow
def test_a_parquet_run_does_what_was_planned(planned: Planned) -> None:
    planned.send(4, 4, 4)
    path = f"s3a://{planned.feed.stack.bucket}/parquet/{planned.feed.name}"
    pipeline = planned.feed.pipeline(sink={"parquet": {"path": path}})
    found = planned.plan(pipeline)
    assert (found.kind, found.tables) == ("fresh", ())
    assert found.estimates is not None
    [first] = planned.run(pipeline)
    assert first.requests is not None
    # One file, because a single task reads and writes such a small batch.
    assert found.estimates.files.first == first.requests.by_class["data"] == 1
    planned.send(4, 0, 0)
    figures = planned.plan(pipeline).estimates
    [second] = planned.run(pipeline)
    assert figures is not None
    assert second.requests is not None
    # Compare only the PUTs, because the first batch of a run also lists the checkpoint.
    assert figures.requests.first == S3Requests(second.requests.counts).by_operation["PutObject"] == 1 + 3
    wrong = planned.plan(planned.feed.pipeline(sink={"parquet": {"path": path, "partition_by": ["nowhere"]}}))
    assert wrong.refusal is not None
    assert "partition_by names the column 'nowhere'" in wrong.refusal.what


def test_a_plan_of_many_topics_has_a_total_and_an_entry_for_each(planned: Planned) -> None:
    feed, lake = planned.feed, planned.lake
    names = {each: f"{feed.name}.{each}" for each in ("loud", "quiet", "silent", "strange")}
    for name in names.values():
        feed.create_topic(topic=name, partitions=2)
    for each, count in (("loud", 50), ("quiet", 2)):
        feed.send(feed.avro(map(ride, range(count)), RIDE, topic=names[each]), topic=names[each], partition=0)
    # The topic 'strange' has a record but no registered schema, so its plan is refused.
    feed.send([b"?"], topic=names["strange"])
    file = feed.write_file(
        source=feed.source(topics=None, topics_pattern=rf"{feed.name}\..*", max_records_per_batch=20),
        sink={"iceberg": {"table": f"lake.{feed.name}.{{topic}}"}},
        tables={"on_failure": "stop"},
        checkpoint="",
    )
    pipeline = Pipeline.from_file(file, environment=feed.environment)
    with planned.unchanged():
        found = pipeline.plan(spark=lake)
    plans = dict(zip(sorted(names), found.tables, strict=True))
    assert [plans[each].kind for each in names] == ["fresh", "fresh", "waits", "refused"]
    assert found.exit_status == 1
    assert found.total is not None
    assert (found.total.records.all, found.total.files.all, found.total.requests.all) == (52, 4, 4 + 4 * 3)
    summary = pipeline.run(spark=lake, once=True)
    batches = {each.topic: each.batches for each in summary.tables}
    for each in ("loud", "quiet"):
        plan, table = plans[each], f"lake.{feed.name}.{feed.name}_{each}"
        assert batches[names[each]] == plan.batches
        commits = [
            commit.ranges.ranges
            for commit in commits_of(ancestors(planned.table(table))[0], plan.feed)
            if commit.ranges.records
        ]
        assert commits[0] == plan.first_ranges
        planned.assert_made_as_planned(plan)

    result = CliRunner().invoke(command, [str(file)], env=feed.environment)
    assert result.exit_code == 1, result.output
    assert f"{names['loud']}" in result.output
    alone = CliRunner().invoke(command, [str(file), "--topic", names["loud"], "--output", "json"], env=feed.environment)
    assert alone.exit_code == 0, alone.output
    [only] = json.loads(alone.stdout)["tables"]
    assert (only["kind"], only["batches"]) == ("continues", 0)


@pytest.mark.quick
def test_docs_check_md_shows_the_plan_that_the_command_prints(
    lake: SparkSession, stack: Endpoints, tmp_path: Path
) -> None:
    planned = Planned(lake, Feed(stack, tmp_path, name="rides", fast_path=None))
    planned.send(60, 25, 3)
    planned.pipeline(limit=40, sink={"partition_by": ["days(at)"], "sort_by": ["zone"]})
    with planned.unchanged():
        done = CliRunner().invoke(
            command, [str(tmp_path / "rides.yaml")], env={**planned.feed.environment, "COLUMNS": "120"}
        )
    assert done.exit_code == 0, done.output
    # Replace the schema id, which depends on the schemas that other tests have registered.
    result = re.sub(r"'lakefeed.schema-ids' = '\d+'", "'lakefeed.schema-ids' = '1'", done.output)
    [shown] = [block.text for block in blocks_of(ROOT / "docs" / "check.md") if block.test]
    assert result == shown
