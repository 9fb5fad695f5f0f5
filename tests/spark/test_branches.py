"""Feeds land rows in a branch, which is audited and published; on all catalogs, with local files."""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, SparkSession

from lakefeed.clients.iceberg.reader import open_table
from lakefeed.config.connections import Connections
from lakefeed.config.iceberg_sink import IcebergSinkConfig
from lakefeed.errors import AuditFailed, BranchDiverged, CheckpointMismatch, ConfigError
from lakefeed.ledger.publication import AUDIT, StoredAudit, TableAudit, branch_state
from lakefeed.ledger.snapshot_summary import COMMIT_ID, Commit, PositionReset
from lakefeed.ledger.snapshots import ancestors, commits_of, position_in, scanned
from lakefeed.offsets.ranges import OffsetRange, OffsetRanges
from lakefeed.sinks.iceberg import publish as publishing
from lakefeed.sinks.iceberg.definition import TABLES
from lakefeed.sinks.iceberg.publish import Publisher, audit
from lakefeed.sinks.iceberg.table import IcebergTable
from lakefeed_upkeep import actions
from lakefeed_upkeep.maintain import Maintenance, Report
from lakefeed_upkeep.settings import Upkeep
from tests.support.catalogs import CatalogCase

FEED = "shop"
COLUMNS = "id BIGINT, v STRING, at TIMESTAMP, kafka_topic STRING, kafka_partition INT, kafka_offset BIGINT"
OLD = "2020-01-01 00:00:00"


@dataclass
class Branched:
    """A table that a feed fills by a branch: methods for the feed and for readers of the table."""

    spark: SparkSession
    connections: Connections
    settings: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        [catalog] = self.connections.catalogs
        self.name = f"{catalog}.ns.b{uuid.uuid4().hex[:8]}"
        self.settings = {"table": self.name, "branch": "staging", **self.settings}
        self.start()

    def start(self, **settings: Any) -> None:
        """Start the feed, with some settings changed; None removes a setting."""
        self.settings = {key: each for key, each in {**self.settings, **settings}.items() if each is not None}
        sink = IcebergSinkConfig.model_validate(self.settings)
        kind = TABLES.get((sink.mode, "append"), IcebergTable)
        table = kind(self.spark, sink, feed=FEED)
        table.apply_schema(self.rows(0, 0).schema)
        self.table, self.fence = table, table.take_fence()
        self.publisher = Publisher(self.spark, sink, feed=FEED) if sink.branch else None

    def rows(self, start: int, end: int, ids: Sequence[int | None] = (), at: str = OLD) -> DataFrame:
        keys = ids or range(start, end)
        found = self.spark.createDataFrame([(key, number) for number, key in enumerate(keys, start)], "id LONG, n LONG")
        columns = ["id", "'v' AS v", f"TIMESTAMP '{at}' AS at", "'topic' AS kafka_topic", "0 AS kafka_partition"]
        deleted = ["false AS lakefeed_deleted"] if self.settings.get("mode") == "upsert" else []
        return found.coalesce(1).selectExpr(*columns, "n AS kafka_offset", *deleted)

    def land(self, start: int, end: int, ids: Sequence[int | None] = (), *, fence: str | None = None) -> None:
        ranges = OffsetRanges((OffsetRange("topic", 0, start, end),), {"topic": "one"})
        commit = Commit(FEED, start, ranges, fence=fence or self.fence)
        self.table.land(self.rows(start, end, ids), commit, commit_id=uuid.uuid4().hex)

    def publish(self, **options: Any) -> Any:
        assert self.publisher is not None
        return self.publisher.publish(**options)

    def read(self) -> list[int | None]:
        """Return the ids that readers of the table see."""
        return self._ids(self.name)

    def staged(self) -> list[int | None]:
        return self._ids(f"{self.name}.branch_staging")

    def _ids(self, table: str) -> list[int | None]:
        return [row.id for row in self.spark.sql(f"SELECT id FROM {table} ORDER BY id NULLS FIRST").collect()]

    def ends(self) -> int | None:
        position = self.table.position()
        return None if position is None else position.ranges.ends["topic", 0]

    def another_writer(self, *ids: int) -> None:
        values = ", ".join(f"({each}, 'x', NULL, NULL, NULL, NULL)" for each in ids)
        self.spark.sql(f"INSERT INTO {self.name} VALUES {values}")

    def upkeep(self, **settings: Any) -> Report:
        chosen = Upkeep.model_validate(settings)
        return Maintenance(self.name, spark=self.spark, connections=self.connections, settings=chosen).run()


@pytest.fixture
def branched(checked: SparkSession, connections: Connections) -> Branched:
    return Branched(checked, connections)


@pytest.mark.quick
def test_readers_see_only_published_rows_and_the_ledger_reads_the_branch(branched: Branched) -> None:
    branched.land(0, 3)
    assert (branched.read(), branched.staged(), branched.ends()) == ([], [0, 1, 2], 3)
    assert branched.publish(dry_run=True).state == "would be published"
    assert branched.read() == []
    done = branched.publish()
    assert (done.state, done.audit.rows, done.audit.new_rows) == ("published", 3, 3)
    assert branched.read() == [0, 1, 2]
    assert branched.publish().state == "nothing new"
    branched.start()
    branched.land(3, 5)
    with pytest.raises(Py4JJavaError, match="begins at 3, the table ends at 5"):
        branched.land(3, 5)
    assert branched.read() == [0, 1, 2]
    assert branched.publish().audit.new_rows == 2
    assert branched.read() == [0, 1, 2, 3, 4]
    # pyiceberg reads the same position from the branch.
    table = open_table(branched.name, connections=branched.connections)
    position = position_in(table, FEED, where=branched.name)
    assert position is not None
    assert position.ranges.ends == {("topic", 0): 5}
    assert [commit.rows for commit in commits_of(ancestors(table, FEED)[0], FEED)] == [3, 2]
    state = branch_state(table, FEED)
    assert state is not None
    assert (state.unpublished, state.is_diverged, state.sentence) == (0, False, "staging: all commits are published")


def test_each_expectation_is_audited_and_rows_that_fail_stay_in_the_branch(
    checked: SparkSession, connections: Connections
) -> None:
    expect = {
        "rows": {"at_least": 10},
        "new_rows": {"at_most": 4},
        "fresh": {"column": "at", "within": "1 hour"},
        "null_share": {"id": 0.2, "v": 0},
        "unique": [["id"], ["kafka_partition", "kafka_offset"]],
    }
    branched = Branched(checked, connections, {"publish": {"expect": expect}})
    branched.land(0, 6, [1, 1, 2, None, None, None])
    done = branched.publish()
    assert done.state == "failed"
    assert [failure.partition(" is not unique")[0] for failure in done.audit.failures] == [
        "the table has 6 rows, at least 10 are expected",
        "there are 6 new rows, at most 4 are allowed",
        done.audit.failures[2],
        "3 of 6 rows have no id: 50.00%, at most 20.00% is allowed",
        "id",
    ]
    assert done.audit.failures[2].startswith(f"the newest at is {OLD}")
    assert "2 values with several rows" in done.audit.failures[4]
    assert (branched.read(), len(branched.staged())) == ([], 6)
    stored = StoredAudit.of(branched.table.ledger.properties(), FEED)
    assert stored is not None
    assert stored.failures == done.audit.failures
    assert branched.publisher is not None
    with pytest.raises(AuditFailed, match="is not published"):
        branched.publisher.after_batch()
    # A failed audit does not stop the feed with on_failure: continue, nor if the batch is from before the start.
    assert "is not published" in str(branched.publisher.after_batch(is_new=False))
    branched.start(publish={"on_failure": "continue", "expect": expect})
    assert "is not published" in str(branched.publisher.after_batch())
    # With looser expectations the audit passes.
    branched.start(publish={"expect": {"rows": {"at_least": 6}, "null_share": {"id": 0.5}}})
    assert branched.publisher.after_batch() is not None
    assert len(branched.read()) == 6
    assert f"{AUDIT}.{FEED}" in branched.table.ledger.properties()


@pytest.mark.slow
def test_an_expectation_of_a_missing_or_unsuitable_column_is_refused(branched: Branched) -> None:
    branched.land(0, 1)
    for expect, what in (
        ({"null_share": {"nowhere": 0}}, "names the column 'nowhere'"),
        ({"unique": [["id", "nowhere"]]}, "names the column 'nowhere'"),
        ({"fresh": {"column": "v", "within": "1 hour"}}, "has no age"),
    ):
        branched.start(publish={"expect": expect})
        with pytest.raises(ConfigError, match=what):
            branched.publish()
    assert branched.read() == []


def test_publishing_over_another_writers_commit_is_refused_and_after_a_discard_the_records_are_read_again(
    branched: Branched,
) -> None:
    branched.land(0, 2)
    branched.publish()
    branched.land(2, 4)
    branched.another_writer(99)
    with pytest.raises(BranchDiverged, match="publishing would lose them"):
        branched.publish()
    assert branched.read() == [0, 1, 99]
    state = branch_state(open_table(branched.name, connections=branched.connections), FEED)
    assert state is not None
    assert (state.unpublished, state.is_diverged) == (1, True)
    assert branched.publisher is not None
    branched.publisher.discard()
    assert (branched.staged(), branched.ends()) == ([0, 1, 99], 2)
    branched.start()
    branched.land(2, 5)
    branched.publish()
    assert branched.read() == [0, 1, 2, 3, 4, 99]


def test_a_commit_between_audit_and_publication_stops_the_publication(
    branched: Branched, monkeypatch: pytest.MonkeyPatch
) -> None:
    branched.land(0, 2)
    branched.publish()
    branched.land(2, 4)

    def audited(*arguments: Any, **named: Any) -> TableAudit:
        found = audit(*arguments, **named)
        branched.another_writer(99)
        return found

    monkeypatch.setattr(publishing, "audit", audited)
    with pytest.raises(BranchDiverged, match="publishing would lose them"):
        branched.publish()
    assert branched.read() == [0, 1, 99]


@pytest.mark.slow
def test_a_discard_is_refused_before_the_first_publication(branched: Branched) -> None:
    branched.land(0, 2)
    assert branched.publisher is not None
    with pytest.raises(ConfigError, match="published nothing yet"):
        branched.publisher.discard()
    assert branched.staged() == [0, 1]


@pytest.mark.slow
@pytest.mark.parametrize("write", ["merge-on-read", "copy-on-write"])
@pytest.mark.parametrize("version", [2, 3])
def test_upserts_are_merged_in_the_branch(
    checked: SparkSession, connections: Connections, write: str, version: int
) -> None:
    keyed = {"mode": "upsert", "keys": ["id"], "write": write, "format_version": version}
    branched = Branched(checked, connections, {**keyed, "publish": {"expect": {"unique": [["id"]]}}})
    branched.land(0, 4, [1, 2, 3, 1])
    branched.publish()
    branched.land(4, 6, [2, 7])
    assert (branched.read(), branched.staged()) == ([1, 2, 3], [1, 2, 3, 7])
    branched.publish()
    assert branched.read() == [1, 2, 3, 7]


@pytest.mark.slow
def test_a_rewind_deletes_rows_only_in_the_branch(branched: Branched) -> None:
    branched.land(0, 4)
    branched.publish()
    before = OffsetRanges((OffsetRange("topic", 0, 4, 4),), {"topic": "one"})
    move = PositionReset("rewind", {("topic", 0): (4, 2)}, deleted_rows={("topic", 0): 2})
    commit = Commit(FEED, 0, move.reaches(before), branched.fence, move=move)
    branched.table.commit_reset(commit, commit_id=uuid.uuid4().hex, delete_where="kafka_offset >= 2")
    assert (branched.read(), branched.staged(), branched.ends()) == ([0, 1, 2, 3], [0, 1], 2)
    table = open_table(branched.name, connections=branched.connections)
    assert scanned(table, FEED).to_arrow().num_rows == 2
    branched.land(2, 4)
    branched.publish()
    assert branched.read() == [0, 1, 2, 3]


@pytest.mark.slow
def test_a_feed_leaves_its_branch_only_after_all_rows_are_published(branched: Branched) -> None:
    branched.land(0, 2)
    with pytest.raises(ConfigError, match="has unpublished rows in the branch staging"):
        branched.start(branch=None)
    branched.start(branch="staging")
    branched.publish()
    branched.start(branch=None)
    branched.land(2, 3)
    assert branched.read() == [0, 1, 2]
    with pytest.raises(ConfigError, match="already has a branch staging"):
        branched.start(branch="staging")
    branched.start(branch="other")
    branched.land(3, 4)
    assert branched.read() == [0, 1, 2]
    branched.publish()
    assert branched.read() == [0, 1, 2, 3]


@pytest.mark.slow
def test_a_start_is_refused_if_the_branch_was_removed(branched: Branched) -> None:
    branched.land(0, 2)
    branched.spark.sql(f"ALTER TABLE {branched.name} DROP BRANCH staging")
    with pytest.raises(CheckpointMismatch, match="the branch staging of the table was removed"):
        branched.start()


@pytest.mark.slow
def test_a_feeds_commit_outside_its_branch_or_by_a_replaced_driver_is_refused(branched: Branched) -> None:
    branched.land(0, 2)
    # Publish first, so that main and the branch are the same snapshot: the commit below differs only in that it names
    # no branch.
    branched.publish()
    ranges = OffsetRanges((OffsetRange("topic", 0, 2, 3),), {"topic": "one"})
    properties = {**Commit(FEED, 2, ranges, fence=branched.fence).properties(), COMMIT_ID: uuid.uuid4().hex}
    writer = branched.rows(2, 3).writeTo(branched.name)
    for key, value in properties.items():
        writer = writer.option(f"snapshot-property.{key}", value)
    with pytest.raises(Py4JJavaError, match=r"lands in the branch .* this commit is in another one"):
        writer.append()
    replaced = branched.fence
    branched.start()
    with pytest.raises(Py4JJavaError, match="another driver has taken over"):
        branched.land(2, 3, fence=replaced)
    assert branched.staged() == [0, 1]
    branched.publish()
    assert branched.read() == [0, 1]


@pytest.mark.slow
def test_expiry_keeps_unpublished_snapshots_and_their_compaction_is_refused(
    branched: Branched, catalog: CatalogCase, monkeypatch: pytest.MonkeyPatch
) -> None:
    branched.land(0, 1)
    branched.publish()
    for start in range(1, 13):
        branched.land(start, start + 1)
    if catalog.declared().type == "rest":
        with pytest.raises(ConfigError, match="the lease of the upkeep commits"):
            branched.upkeep(only=["expire"])
        return
    monkeypatch.setattr(actions, "seconds_of", lambda duration: 0)
    monkeypatch.setattr(actions, "HELD_DAYS", -1)
    with pytest.raises(ConfigError, match="could not be published any more"):
        branched.upkeep(only=["compact"])
    report = branched.upkeep(expire={"keep": 10}, compact={"min_files": 2})
    assert {each.step for each in report.due} <= {"expire", "orphans"}
    assert branched.table.ledger.publication_state() == "ahead"
    branched.publish()
    assert branched.read() == list(range(13))
