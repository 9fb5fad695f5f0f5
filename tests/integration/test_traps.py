"""If checkpoint, table and topic disagree, the feed resumes correctly or the start is refused.

docs/offsets.md has the table of the expected results.
"""

from collections.abc import Iterable
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewPartitions  # type: ignore[attr-defined]
from pyspark.sql import SparkSession

from lakefeed.clients.iceberg.reader import open_table
from lakefeed.clients.kafka.topics import Topics
from lakefeed.errors import CheckpointMismatch, RecordsLost
from lakefeed.feed.batch_writer import BatchResult, BatchWriter
from lakefeed.offsets.ranges import OffsetRanges
from lakefeed.pipeline import Pipeline, RunSummary
from lakefeed_repair.rewind import plan_rewind
from tests.support.feed import JSON_ROWS, Feed, records
from tests.support.starts import run_as_planned


class Case:
    """A feed with one kind of sink, and methods that break it."""

    def __init__(self, lake: SparkSession, feed: Feed, *, parquet: bool = False) -> None:
        self.lake, self.feed, self.parquet = lake, feed, parquet
        self.path = f"s3a://{feed.stack.bucket}/files/{feed.name}"
        self.notes: list[str] = []

    def pipeline(self, **blocks: Any) -> Pipeline:
        sink = {"parquet": {"path": self.path}} if self.parquet else {"iceberg": {"table": self.feed.table}}
        return self.feed.pipeline(**{"decode": JSON_ROWS, "sink": sink, **blocks})

    def run(self, *, accept_loss: bool = False, **blocks: Any) -> RunSummary:
        """Run the pipeline; check that ``offsets show`` and ``plan`` announced the same start."""
        self.notes = []
        pipeline = self.pipeline(**blocks)
        return run_as_planned(pipeline, self.lake, self.notes, accept_loss=accept_loss, plans=False)

    def send(self, ids: Iterable[int], *, partition: int = 0) -> None:
        self.feed.send_ids(ids, partition=partition)

    def land(self, *spans: tuple[int, int]) -> None:
        """Send and land one batch for each span of ids, in a topic of one partition."""
        self.feed.create_topic(partitions=1)
        for start, end in spans:
            self.send(range(start, end))
            self.run()

    def ids(self) -> list[int]:
        if self.parquet:
            return sorted(row.id for row in self.lake.read.parquet(self.path).select("id").collect())
        return sorted(row["id"] for row in self.feed.rows())

    def first_snapshot(self) -> int:
        table = open_table(self.feed.table, connections=self.feed.connections)
        return min(table.metadata.snapshots, key=lambda each: each.timestamp_ms).snapshot_id

    def verified(self) -> tuple[list[str], list[str]]:
        done = self.pipeline().verify(deep=True)
        return sorted({each.kind for each in done.faults}), sorted({each.kind for each in done.notes})


@pytest.fixture
def case(lake: SparkSession, feed: Feed) -> Case:
    return Case(lake, feed)


@pytest.fixture
def files(lake: SparkSession, feed: Feed) -> Case:
    return Case(lake, feed, parquet=True)


@pytest.mark.parametrize(
    "gone",
    ["", "metadata", pytest.param("offsets", marks=pytest.mark.slow), pytest.param("commits", marks=pytest.mark.slow)],
)
def test_a_feed_survives_the_loss_of_its_checkpoint_or_of_a_part_of_it(case: Case, gone: str) -> None:
    case.land((0, 5), (5, 9))
    case.feed.forget(gone)
    case.send(range(9, 12))
    case.run()
    assert case.ids() == list(range(12))
    assert len(case.notes) == 1
    assert "resumes at the table's position" in case.notes[0]
    assert case.verified() == ([], [])


@pytest.mark.parametrize(
    "count", [pytest.param(2, marks=pytest.mark.slow), pytest.param(9, marks=pytest.mark.slow), 20]
)
def test_a_recreated_topic_is_refused_with_fewer_and_with_more_records(case: Case, count: int) -> None:
    case.land((0, 5), (5, 9))
    case.feed.recreate_topic()
    case.send(range(1000, 1000 + count))
    with pytest.raises(RecordsLost, match=r"recreated.*up to 9, the new one has the offsets \[0, ") as refused:
        case.run()
    assert "lakefeed run pipeline.yaml --accept-loss" in str(refused.value)
    with pytest.raises(RecordsLost, match=r"recreated.*up to 9, the new one has the offsets \[0, "):
        case.pipeline().run_batch(spark=case.lake)
    assert case.ids() == list(range(9))
    case.run(accept_loss=True)
    assert case.ids() == [*range(9), *range(1000, 1000 + count)]
    given_up = [each.what for each in case.pipeline().verify().notes if each.kind == "accepted-loss"]
    assert given_up
    assert not [each for each in given_up if "given up" in each]
    assert "resumes although records are lost" in case.notes[0]
    case.send([7])
    case.run()
    assert len(case.ids()) == 9 + count + 1
    assert case.notes == []


def test_a_feed_of_another_name_continues_a_restored_topic(case: Case) -> None:
    """Follow docs/offsets.md after a restore from a backup that lacks the first records and has newer records."""
    case.land((0, 5), (5, 9))
    case.feed.recreate_topic()
    case.send(range(3, 14))
    with pytest.raises(RecordsLost, match="recreated"):
        case.run()
    with pytest.raises(RecordsLost, match="recreated"):
        plan_rewind(case.pipeline(), f"{case.feed.topic}:0:6", accept_loss=True)
    restored: dict[str, Any] = {
        "name": f"{case.feed.name}_restored",
        "checkpoint": f"{case.feed.checkpoint}-restored",
        "source": case.feed.source(start=f"{case.feed.topic}:0:6"),
    }
    case.run(**restored)
    assert case.ids() == list(range(14))
    assert case.pipeline(**restored).verify().faults == ()
    assert {each.kind for each in case.pipeline().verify().faults} == {"topic-recreated"}


def test_removed_records_stop_the_feed_until_the_loss_is_accepted(case: Case) -> None:
    case.land((0, 5))
    case.send(range(5, 20))
    case.feed.remove_records(8)
    with pytest.raises(RecordsLost, match=r"is at 5, the topic begins at 8: 3 offsets were removed"):
        case.run()
    case.run(accept_loss=True)
    assert case.ids() == [*range(5), *range(8, 20)]
    faults, notes = case.verified()
    assert (faults, "accepted-loss" in notes) == ([], True)


def test_a_planned_batch_whose_records_retention_removed_is_refused(case: Case) -> None:
    case.land((0, 5), (5, 9))
    case.lake.sql(f"CALL lake.system.rollback_to_snapshot('{case.feed.table[5:]}', {case.first_snapshot()})")
    case.feed.forget("commits/1")
    case.feed.remove_records(7)
    with pytest.raises(RecordsLost, match="is at 5, the topic begins at 7"):
        case.run()
    case.run(accept_loss=True)
    assert case.ids() == [*range(5), *range(7, 9)]


def test_partitions_that_are_added_during_a_batch_are_read(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    case.feed.create_topic(partitions=3)
    case.send(range(5), partition=1)
    land = BatchWriter.write

    def with_more_partitions(writer: BatchWriter, batch: Any, ranges: OffsetRanges, batch_id: int) -> BatchResult:
        if len(ranges.ranges) == 3:
            admin = AdminClient({"bootstrap.servers": case.feed.stack.bootstrap_servers})
            for each in admin.create_partitions([NewPartitions(case.feed.topic, 12)]).values():
                each.result()
            case.send(range(5, 8), partition=11)
        return land(writer, batch, ranges, batch_id)

    with monkeypatch.context() as patched:
        patched.setattr(BatchWriter, "write", with_more_partitions)
        case.run()
    case.send(range(8, 10), partition=7)
    case.run()
    assert case.ids() == list(range(10))
    assert case.notes == []
    assert case.verified() == ([], [])


@pytest.mark.quick
def test_a_client_with_outdated_metadata_identifies_new_and_missing_partitions(case: Case) -> None:
    case.feed.create_topic(partitions=1)
    topics = Topics(case.feed.stack.bootstrap_servers)
    old = topics.describe(case.feed.topic).topic_id
    admin = AdminClient({"bootstrap.servers": case.feed.stack.bootstrap_servers})
    for each in admin.create_partitions([NewPartitions(case.feed.topic, 12)]).values():
        each.result(30)
    partitions = [(case.feed.topic, number) for number in range(12)]
    ids, epochs = topics.identify(partitions)
    assert (ids, set(epochs)) == ({case.feed.topic: old}, set(partitions))
    case.feed.recreate_topic()
    ids, epochs = topics.identify(partitions)
    assert ids != {case.feed.topic: old}
    assert set(epochs) < set(partitions)


@pytest.mark.quick
def test_a_topic_that_is_recreated_during_a_run_stops_the_feed(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    case.feed.create_topic(partitions=1)
    case.send(range(10))
    land = BatchWriter.write

    def then_another_topic(writer: BatchWriter, batch: Any, ranges: OffsetRanges, batch_id: int) -> BatchResult:
        landed = land(writer, batch, ranges, batch_id)
        case.feed.recreate_topic()
        case.send(range(1000, 1020))
        return landed

    with monkeypatch.context() as patched:
        patched.setattr(BatchWriter, "write", then_another_topic)
        with pytest.raises(RecordsLost, match="recreated"):
            case.run(source=case.feed.source(max_records_per_batch=5))
    assert case.ids() == list(range(5))
    # run() checks that `offsets show` and `plan` refuse the start as the run does. With the loss accepted, the feed
    # reads the new topic.
    with pytest.raises(RecordsLost, match=r"recreated.*up to 5, the new one has the offsets \[0, 20\)"):
        case.run()
    case.run(accept_loss=True)
    assert case.ids() == [*range(5), *range(1000, 1020)]
    assert case.verified()[0] == []


def test_a_topic_removed_from_the_pipeline_is_refused_until_the_loss_is_accepted(case: Case) -> None:
    other = f"{case.feed.name}-other"

    def reading(*topics: str, **settings: Any) -> dict[str, Any]:
        return {"source": case.feed.source(topics=topics, **settings)}

    case.land((0, 3))
    case.feed.create_topic(topic=other, partitions=1)
    case.feed.send([b'{"id": 10}'], topic=other)
    case.run(**reading(case.feed.topic, other, start="latest", max_records_per_batch=7))
    assert case.ids() == [0, 1, 2, 10]
    assert case.notes == []
    with pytest.raises(RecordsLost, match="other-0: the pipeline does not read it any more"):
        case.run()
    case.send([3])
    case.run(accept_loss=True)
    assert case.ids() == [0, 1, 2, 3, 10]
    assert case.verified()[0] == []


def test_records_of_open_and_aborted_transactions_do_not_land(case: Case) -> None:
    case.feed.create_topic(partitions=1)
    servers = {"bootstrap.servers": case.feed.stack.bootstrap_servers}

    case.feed.send_transactions("ca", count=3)
    case.run()
    assert case.ids() == [0, 1, 2]
    still_open = Producer({**servers, "transactional.id": f"{case.feed.name}-open"})
    still_open.init_transactions(30)
    still_open.begin_transaction()
    for value in records(3, first=3):
        still_open.produce(case.feed.topic, value, partition=0)
    still_open.flush(30)
    case.run()
    assert case.ids() == [0, 1, 2]
    case.feed.forget()
    still_open.commit_transaction(30)
    case.run()
    assert case.ids() == list(range(6))
    assert case.verified() == ([], [])


def test_a_rollback_of_the_table_stops_the_feed(case: Case) -> None:
    case.land((0, 5), (5, 9))
    case.lake.sql(f"CALL lake.system.rollback_to_snapshot('{case.feed.table[5:]}', {case.first_snapshot()})")
    with pytest.raises(CheckpointMismatch, match="is at 9 in the checkpoint, and at 5 in the table") as failure:
        case.run()
    assert "lakefeed offsets rewind pipeline.yaml --to table" in str(failure.value)
    # Without the checkpoint, the feed resumes at the position of the table after the rollback.
    case.feed.forget()
    case.run()
    assert case.ids() == list(range(9))


@pytest.mark.parametrize("gone", ["", "metadata"])
def test_a_parquet_feed_needs_its_checkpoint_but_not_the_checkpoints_metadata_file(files: Case, gone: str) -> None:
    files.land((0, 5))
    files.feed.forget(gone)
    files.send(range(5, 8))
    if gone == "metadata":
        # Only the id of the query is lost; the logs of batches are complete, so the feed resumes.
        files.run()
        assert files.ids() == list(range(8))
        return
    with pytest.raises(CheckpointMismatch, match="the checkpoint is empty: the checkpoint was lost or rolled back"):
        files.run()
