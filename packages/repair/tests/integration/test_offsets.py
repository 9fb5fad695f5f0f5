"""On a real broker, store and table, commands show and move the position of a feed."""

import json
import time
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import pytest
from confluent_kafka import Consumer
from pyspark.sql import SparkSession

from lakefeed.clients.iceberg.reader import open_table
from lakefeed.clients.kafka.groups import MonitoringGroup
from lakefeed.errors import CheckpointMismatch, ConfigError, LakefeedError, ResourceMissing
from lakefeed.feed.progress import FinishedBatch
from lakefeed.ledger.checkpoint import Claim
from lakefeed.offsets.ranges import OffsetRange
from lakefeed.pipeline import Pipeline, RunSummary
from lakefeed.sinks.dead_letters.table import DeadLetterTable
from lakefeed_repair.rewind import RewindPlan, plan_rewind, rewind
from tests.support.cli import lakefeed
from tests.support.feed import JSON_ROWS, Feed
from tests.support.starts import run_as_planned


class Lettered:
    """A feed of one partition with a monitoring group; records with odd ids from 101 on become dead letters."""

    def __init__(self, lake: SparkSession, feed: Feed) -> None:
        self.lake, self.feed = lake, feed
        self.letters = f"lake.{feed.name}.letters"
        feed.create_topic(partitions=1)

    def blocks(self) -> dict[str, Any]:
        return {
            "source": self.feed.source(monitoring_group=f"{self.feed.name}-lag"),
            "decode": JSON_ROWS,
            "dead_letters": {"table": self.letters},
            "expect": {"even": {"rule": "id < 100 OR id % 2 = 0", "on_violation": "dead_letter"}},
        }

    def pipeline(self) -> Pipeline:
        return self.feed.pipeline(**self.blocks())

    def run(self) -> RunSummary:
        """Run the pipeline; check that ``offsets show`` and ``plan`` announce the same start as the run makes."""
        self.notes: list[str] = []
        return run_as_planned(self.pipeline(), self.lake, self.notes, plans=False)

    def land(self, ids: Iterable[int]) -> None:
        self.feed.send_ids(ids)
        self.run()

    def rewind(self, to: str, **choices: Any) -> RewindPlan:
        agreed = plan_rewind(self.pipeline(), to, **choices)
        assert rewind(self.pipeline(), agreed, spark=self.lake) is None
        return agreed

    def ids(self) -> list[int]:
        return sorted(row["id"] for row in self.feed.rows())

    def dead(self) -> list[int]:
        return sorted(row["offset"] for row in self.feed.rows(self.letters))

    def standing(self) -> tuple[int | None, int | None, int | None]:
        """Return the offsets in the checkpoint, the table and the group."""
        [each] = self.pipeline().status().partitions
        return each.checkpoint, each.table, each.group

    def faults(self) -> list[str]:
        return sorted({each.kind for each in self.pipeline().verify(deep=True).faults})


@pytest.fixture
def lettered(lake: SparkSession, feed: Feed) -> Lettered:
    return Lettered(lake, feed)


@pytest.mark.quick
def test_a_rewind_deletes_rows_and_dead_letters_and_the_feed_reads_the_records_again(lettered: Lettered) -> None:
    lettered.land(range(98, 102))
    lettered.land(range(102, 106))
    assert (lettered.ids(), lettered.dead()) == ([98, 99, 100, 102, 104], [3, 5, 7])
    assert lettered.standing() == (8, 8, 8)

    with pytest.raises(ConfigError, match="3 rows of them") as unsaid:
        plan_rewind(lettered.pipeline(), f"{lettered.feed.topic}:0:2")
    assert "--delete-rows" in str(unsaid.value)
    dry = plan_rewind(lettered.pipeline(), f"{lettered.feed.topic}:0:2", delete_rows=True)
    assert (dry.rows, dry.letters, [each.again for each in dry.moves]) == (3, 3, [6])
    assert lettered.standing() == (8, 8, 8)

    lettered.rewind(f"{lettered.feed.topic}:0:2", delete_rows=True)
    assert (lettered.ids(), lettered.dead()) == ([98, 99], [])
    assert lettered.standing() == (None, 2, 2)
    lettered.run()
    assert (lettered.ids(), lettered.dead()) == ([98, 99, 100, 102, 104], [3, 5, 7])
    assert lettered.standing() == (8, 8, 8)
    assert lettered.faults() == []
    done = lettered.pipeline().verify()
    assert (done.rows, done.rows_added, done.rows_rewound, done.offsets, done.offsets_again) == (5, 8, 3, 14, 6)
    [partition] = lettered.pipeline().status().partitions
    assert partition.covered == ((0, 8),)


@pytest.mark.parametrize(
    "cut", ["letters", pytest.param("discard", marks=pytest.mark.slow), pytest.param("note", marks=pytest.mark.slow)]
)
def test_an_interrupted_rewind_is_completed_by_the_next_start(
    lettered: Lettered, monkeypatch: pytest.MonkeyPatch, cut: str
) -> None:
    class Killed(Exception):
        pass

    def die(*given: Any, **named: Any) -> None:
        raise Killed

    lettered.land(range(98, 102))
    agreed = plan_rewind(lettered.pipeline(), "earliest", delete_rows=True)
    where: dict[str, tuple[type, str]] = {
        "letters": (DeadLetterTable, "follow"),
        "discard": (Claim, "discard"),
        "note": (Claim, "note"),
    }
    with monkeypatch.context() as patched:
        patched.setattr(*where[cut], die)
        with pytest.raises(Killed):
            rewind(lettered.pipeline(), agreed, spark=lettered.lake)
    assert lettered.ids() == []
    lettered.land(range(102, 104))
    assert lettered.notes == ["resumes where the feed was moved to"]
    assert (lettered.ids(), lettered.dead()) == ([98, 99, 100, 102], [3, 5])
    assert lettered.faults() == []


def test_rewind_accepts_every_form_of_target(lettered: Lettered) -> None:
    lettered.land(range(4))
    snapshot = open_table(lettered.feed.table, connections=lettered.feed.connections).metadata.current_snapshot_id
    time.sleep(0.1)
    between = datetime.now(UTC)
    lettered.land(range(4, 8))
    pipeline, topic = lettered.pipeline(), lettered.feed.topic

    def to(target: str, **choices: Any) -> list[tuple[int | None, int]]:
        return [(each.start, each.to) for each in plan_rewind(pipeline, target, **choices).moves]

    assert to("earliest", delete_rows=True) == [(8, 0)]
    assert to(f"snapshot:{snapshot}", delete_rows=True) == [(8, 4)]
    assert to(f"timestamp:{between.isoformat()}", delete_rows=False) == [(8, 4)]
    assert to("timestamp:2000-01-01", delete_rows=True) == [(8, 0)]
    assert to("timestamp:2100-01-01", delete_rows=True) == to("latest") == to("table") == []
    assert to(json.dumps({topic: {"0": 7}}), delete_rows=True) == [(8, 7)]
    assert to("earliest", partition=1) == []
    lettered.feed.send([b'{"id": 8}'], partition=0)
    with pytest.raises(ConfigError, match=r"never read 1 offsets: \[8, 9\)"):
        to("latest")
    assert to("latest", accept_loss=True) == [(8, 9)]
    wrong: dict[str, type[LakefeedError]] = {
        f"{topic}:0:10": ResourceMissing,
        f"{topic}:1:0": ConfigError,
        "snapshot:1": ResourceMissing,
        "timestamp:tomorrow": ConfigError,
        "yesterday": ConfigError,
    }
    for target, error in wrong.items():
        with pytest.raises(error):
            to(target, accept_loss=True, delete_rows=True)
    lettered.rewind("latest", accept_loss=True)
    lettered.land([9])
    assert lettered.ids() == [*range(8), 9]
    assert lettered.faults() == []


def test_a_rewind_is_refused_if_the_feed_has_committed_since_the_plan(lettered: Lettered) -> None:
    lettered.land(range(4))
    agreed = plan_rewind(lettered.pipeline(), "earliest", delete_rows=True)
    lettered.land(range(4, 6))
    with pytest.raises(CheckpointMismatch, match="has committed since"):
        rewind(lettered.pipeline(), agreed, spark=lettered.lake)
    assert lettered.ids() == list(range(6))


@pytest.mark.parametrize("dropped", [True, False])
def test_a_checkpoint_ahead_of_the_table_is_recreated(lettered: Lettered, dropped: bool) -> None:
    lettered.land(range(98, 102))
    first = open_table(lettered.feed.table, connections=lettered.feed.connections).metadata.current_snapshot_id
    lettered.land(range(102, 104))
    if dropped:
        lettered.lake.sql(f"DROP TABLE {lettered.feed.table}")
    else:
        lettered.lake.sql(f"CALL lake.system.rollback_to_snapshot('{lettered.feed.table[5:]}', {first})")
    with pytest.raises(CheckpointMismatch, match="--to table"):
        lettered.run()
    assert lettered.pipeline().status().refusal is not None
    assert lettered.rewind("table").letters == (2 if dropped else 1)
    assert lettered.pipeline().status().refusal is None
    lettered.run()
    assert (lettered.ids(), lettered.dead()) == ([98, 99, 100, 102], [3, 5])
    assert lettered.faults() == []


def test_dead_letters_ahead_of_the_table_are_dropped_only_on_request(lettered: Lettered) -> None:
    lettered.land(range(98, 102))
    lettered.lake.sql(f"DROP TABLE {lettered.feed.table}")
    lettered.feed.forget()
    # run() checks that `offsets show` and `plan` refuse the start with the same words as the run.
    with pytest.raises(CheckpointMismatch, match="are ahead of its rows"):
        lettered.run()
    assert lettered.dead() == [3]
    assert lettered.pipeline().status().is_position_known
    lettered.rewind("table")
    lettered.run()
    assert (lettered.ids(), lettered.dead()) == ([98, 99, 100], [3])


@pytest.mark.slow
def test_a_rewind_sets_the_position_of_a_table_that_lost_it(lettered: Lettered) -> None:
    lake, table = lettered.lake, lettered.feed.table
    lake.sql(f"CREATE NAMESPACE IF NOT EXISTS lake.{lettered.feed.name}")
    lake.sql(f"CREATE TABLE {table} (id BIGINT, kafka_topic STRING, kafka_partition INT, kafka_offset BIGINT)")
    lake.sql(f"INSERT INTO {table} (id) VALUES (-1)")
    first = open_table(table, connections=lettered.feed.connections).metadata.current_snapshot_id
    lettered.land(range(4))
    lake.sql(f"CALL lake.system.rollback_to_snapshot('{table[5:]}', {first})")
    with pytest.raises(CheckpointMismatch, match="position is unknown"):
        lettered.run()
    assert lettered.pipeline().status().is_position_known is False
    with pytest.raises(CheckpointMismatch, match="position is unknown"):
        plan_rewind(lettered.pipeline(), "table")
    with pytest.raises(ConfigError, match="all partitions"):
        plan_rewind(lettered.pipeline(), "earliest", partition=0)
    lettered.rewind(f"{lettered.feed.topic}:0:1")
    lettered.run()
    assert lettered.ids() == [-1, 1, 2, 3]


@pytest.mark.slow
def test_the_feed_writes_the_monitoring_group_and_never_reads_it(lettered: Lettered) -> None:
    lettered.land(range(4))
    group = MonitoringGroup(lettered.pipeline().config.kafka, f"{lettered.feed.name}-lag")
    assert group.offsets([(lettered.feed.topic, 0)]) == {(lettered.feed.topic, 0): 4}
    assert group.publish([OffsetRange(lettered.feed.topic, 0, 0, 1)]) is None
    lettered.land(range(4, 6))
    assert lettered.ids() == list(range(6))
    assert group.offsets([(lettered.feed.topic, 0)]) == {(lettered.feed.topic, 0): 6}

    # While the group has a member, the broker refuses the offsets that the feed commits for the group. The feed reports
    # the refusal once, and continues.
    settings = {"bootstrap.servers": lettered.feed.stack.bootstrap_servers, "group.id": group.name}
    member = Consumer(settings)
    member.subscribe([lettered.feed.topic])
    while not member.assignment():
        member.poll(0.2)
    batches: list[FinishedBatch] = []
    notes: list[str] = []
    lettered.feed.send([b'{"id": 6}'], partition=0)
    lettered.pipeline().run(spark=lettered.lake, once=True, on_batch=batches.append, on_note=notes.append)
    member.close()
    # The feed commits the group's offsets in the background, so a later batch may have the note.
    reported = [*notes, *(note for batch in batches for note in batch.notes)]
    assert sum("could not be set" in note for note in reported) == 1, reported
    assert lettered.ids() == list(range(7))


@pytest.mark.slow
def test_a_rewind_of_one_topic_moves_no_other_table(lake: SparkSession, feed: Feed) -> None:
    names = [f"{feed.name}.{each}" for each in ("a", "b")]
    for name in names:
        feed.create_topic(topic=name, partitions=1)
        feed.send_ids(range(4), topic=name)
    sink = {"iceberg": {"table": f"lake.{feed.name}.{{topic}}"}}
    pipeline = feed.pipeline(source=feed.source(topics=names), decode=JSON_ROWS, sink=sink, checkpoint="")

    def ids(name: str) -> list[int]:
        return sorted(row["id"] for row in feed.rows(f"lake.{feed.name}.{name.replace('.', '_')}"))

    pipeline.run(spark=lake, once=True)
    one = pipeline.of_topic(names[1])
    assert one.status().refusal is None
    agreed = plan_rewind(one, f"{names[1]}:0:1", delete_rows=True)
    assert agreed.rows == 3
    rewind(one, agreed, spark=lake)
    assert (ids(names[0]), ids(names[1])) == ([0, 1, 2, 3], [0])
    pipeline.run(spark=lake, once=True)
    assert (ids(names[0]), ids(names[1])) == ([0, 1, 2, 3], [0, 1, 2, 3])


def test_the_offsets_commands_show_and_plan_without_spark(lettered: Lettered) -> None:
    lettered.land(range(4))
    file = lettered.feed.write_file(**lettered.blocks())
    shown = lakefeed("offsets", "show", file, environment=lettered.feed.environment)
    assert "a start resumes where the last batch ended" in shown.stdout
    result = lakefeed("offsets", "show", file, "--output", "json", environment=lettered.feed.environment)
    [partition] = json.loads(result.stdout)["partitions"]
    assert (partition["checkpoint"], partition["table"], partition["group"], partition["lag"]) == (4, 4, 4, 0)
    rewind = ("offsets", "rewind", file, "--to", "earliest", "--delete-rows")
    planned = lakefeed(*rewind, "--dry-run", environment=lettered.feed.environment)
    assert "4 rows are deleted" in planned.stdout
    assert lettered.standing() == (4, 4, 4)
    done = lakefeed(*rewind, "--yes", "--output", "json", environment=lettered.feed.environment)
    assert json.loads(done.stdout)["rows_deleted"] == 4
    lettered.run()
    assert lettered.ids() == [0, 1, 2, 3]
