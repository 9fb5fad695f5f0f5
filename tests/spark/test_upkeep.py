"""On real Iceberg tables of all catalogs, upkeep changes only the files that it should change."""

import os
import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from lakefeed.config.connections import Connections
from lakefeed.errors import TableBusy
from lakefeed.ledger.iceberg import IcebergLedger
from lakefeed.ledger.snapshot_summary import COMMIT_ID, Commit
from lakefeed.offsets.ranges import OffsetRange, OffsetRanges
from lakefeed_upkeep import actions
from lakefeed_upkeep.actions import LastUpkeep
from lakefeed_upkeep.maintain import Lease, Maintenance, Report
from lakefeed_upkeep.settings import Step, Upkeep
from lakefeed_upkeep.table_stats import read_health

FEED = "trips"
OLD = time.time() - 10 * 86_400


class Table:
    """A table partitioned by day, with methods for its feed, other writers and upkeep."""

    def __init__(self, spark: SparkSession, connections: Connections) -> None:
        self.spark, self.connections = spark, connections
        [catalog] = connections.catalogs
        self.name = f"{catalog}.ns.t{uuid.uuid4().hex[:8]}"
        # A REST catalog does not check properties, so a lease there is taken by a commit.
        self.lease_commits = int(connections.catalogs[catalog].type == "rest")
        self.landed = 0
        spark.sql(
            f"CREATE TABLE {self.name} (id BIGINT, at TIMESTAMP) USING iceberg PARTITIONED BY (days(at)) "
            "TBLPROPERTIES ('format-version'='2', 'commit.manifest.min-count-to-merge'='1000')"
        )

    def land(self, rows: int = 4, *, day: int = 1, feed: str = FEED) -> None:
        """Commit new rows in one data file, as a batch of the feed."""
        start, end = self.landed, self.landed + rows
        commit = Commit(feed, start, OffsetRanges((OffsetRange("topic", 0, start, end),), {"topic": "id"}))
        written = self.spark.range(start, end).coalesce(1)
        frame = written.selectExpr("id", f"TIMESTAMP '2018-02-{day:02} 12:00:00' AS at").writeTo(self.name)
        for key, value in {**commit.properties(), COMMIT_ID: uuid.uuid4().hex}.items():
            frame = frame.option(f"snapshot-property.{key}", value)
        frame.append()
        self.landed = end

    def others(self, commits: int) -> None:
        """Make commits without rows, as another writer."""
        for _ in range(commits):
            self.java().newAppend().commit()

    def settings(self, *only: Step, **blocks: Any) -> Upkeep:
        return Upkeep.model_validate({"only": list(only) or None, "compact": {"min_files": 3}, **blocks})

    def maintain(self, settings: Upkeep, **options: Any) -> Report:
        stop = options.pop("stop", threading.Event())
        say = options.pop("say", lambda line: None)
        job = Maintenance(
            self.name, spark=self.spark, connections=self.connections, settings=settings, stop=stop, say=say
        )
        return job.run(**options)

    def files(self) -> int:
        return read_health(self.name, connections=self.connections).files

    def ids(self) -> list[int]:
        return sorted(row.id for row in self.spark.table(self.name).collect())

    def whole(self) -> bool:
        return self.ids() == list(range(self.landed))

    def folder(self) -> Path:
        return Path(read_health(self.name, connections=self.connections).location.removeprefix("file:"))

    def java(self) -> Any:
        gateway: Any = self.spark._jvm
        return gateway.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(self.spark._jsparkSession, self.name)


@pytest.fixture
def table(spark: SparkSession, connections: Connections) -> Table:
    return Table(spark, connections)


def expire_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let upkeep remove files of any age; users must configure at least the minimum age."""
    monkeypatch.setattr(actions, "seconds_of", lambda duration: 0)


@pytest.mark.quick
def test_small_files_of_a_partition_become_one_file_and_the_coldest_partition_comes_first(table: Table) -> None:
    for day in (3, 3, 3, 1, 1, 1, 2):
        table.land(day=day)
    said: list[str] = []
    report = table.maintain(table.settings("compact"), say=said.append)
    assert [line.partition(":")[0] for line in said] == ["at_day=2018-02-03", "at_day=2018-02-01"]
    assert (report.did.partitions, report.did.files_before, report.did.files_after) == (2, 6, 2)
    assert report.before["files"] == 7
    assert report.after is not None
    assert report.after["files"] == 3
    assert not report.gave_up
    assert table.whole()
    assert table.maintain(table.settings("compact")).due == ()
    last = LastUpkeep.of(read_health(table.name, connections=table.connections).properties)
    assert last.did["files_after"] == 2


def test_a_dry_run_lists_the_due_steps_and_changes_nothing(table: Table) -> None:
    for _ in range(4):
        table.land()
    orphan = table.folder() / "data" / "left.parquet"
    orphan.write_bytes(b"x" * 100)
    os.utime(orphan, (OLD, OLD))
    before = table.java().operations().current().metadataFileLocation()
    report = table.maintain(table.settings(), dry_run=True)
    assert [each.step for each in report.due] == ["compact", "orphans"]
    assert (report.did.orphans, report.did.orphan_bytes) == (1, 100)
    assert report.after is None
    assert orphan.exists()
    assert table.java().operations().current().metadataFileLocation() == before


@pytest.mark.quick
def test_orphan_files_are_removed_and_other_files_are_kept(table: Table) -> None:
    table.land()
    old = [
        table.folder() / name
        for name in (
            "data/at_day=2018-02-01/left.parquet",
            "metadata/left-m0.avro",
            "metadata/00009-left.metadata.json",
            "data/notes.txt",
            "checkpoints/trips/offsets/0",
            "nested/data/other-table.parquet",
        )
    ]
    young = table.folder() / "data" / "at-work.parquet"
    for file in (*old, young):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"x" * 10)
    for file in table.folder().rglob("*"):
        if file.is_file() and file != young:
            os.utime(file, (OLD, OLD))
    report = table.maintain(table.settings("orphans"))
    assert (report.did.orphans, report.did.orphan_bytes) == (3, 30)
    assert [file.exists() for file in (*old, young)] == [False, False, False, True, True, True, True]
    assert table.whole()
    # The run above was requested by a user. A scheduled run (asked=False) searches for orphans only once a day.
    assert table.maintain(table.settings("orphans"), asked=False).due == ()
    assert table.maintain(table.settings("orphans"), asked=False, dry_run=True).due == ()


@pytest.mark.quick
def test_expiry_keeps_the_newest_commit_of_each_feed(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    table.land(feed="quiet")
    table.land(feed="quiet")
    first = table.landed
    table.others(13)
    expire_all(monkeypatch)
    table.maintain(table.settings("expire", expire={"keep": 10}))
    last = next(IcebergLedger(table.spark, table.name, "quiet").commits())
    assert last.ranges.ranges[0].end == first
    assert len(read_health(table.name, connections=table.connections).ancestors) == 14 + table.lease_commits
    assert table.whole()


def test_manifests_are_rewritten_and_old_snapshots_removed(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(4):
        table.land()
    table.others(9)
    table.land()
    table.others(2)
    expire_all(monkeypatch)
    report = table.maintain(
        table.settings("manifests", "expire", manifests={"more_than": 3}, expire={"keep": 10}), measure_scan=True
    )
    assert report.did.manifests_before == 5
    assert report.did.manifests_after == 1
    assert report.after is not None
    assert (report.after["manifests"], report.after["snapshots"]) == (1, 10)
    assert report.did.snapshots == 7 + table.lease_commits
    assert report.scan_seconds is not None
    assert table.whole()


def test_compaction_applies_delete_files(table: Table) -> None:
    table.spark.sql(
        f"ALTER TABLE {table.name} SET TBLPROPERTIES ('write.delete.mode'='merge-on-read', "
        "'write.delete.granularity'='file')"
    )
    table.land(rows=10)
    table.spark.sql(f"DELETE FROM {table.name} WHERE id < 4")
    report = table.maintain(table.settings("compact"))
    assert (report.did.files_before, report.did.files_after) == (1, 1)
    assert table.ids() == list(range(4, 10))


def test_a_second_upkeep_job_is_refused_or_waits(table: Table) -> None:
    for _ in range(3):
        table.land()
    with Lease(table.spark, table.java(), name=table.name):
        with pytest.raises(TableBusy, match="another upkeep job"):
            table.maintain(table.settings("compact"))
        assert table.files() == 3
        waiting = threading.Thread(target=lambda: table.maintain(table.settings("compact"), wait=120))
        waiting.start()
        time.sleep(2)
        assert table.files() == 3
    waiting.join(120)
    assert table.files() == 1
    assert table.whole()


def test_if_several_jobs_take_the_lease_together_one_job_gets_it(table: Table) -> None:
    table.land()
    takers = [Lease(table.spark, table.java(), name=table.name) for _ in range(4)]
    together = threading.Barrier(len(takers))
    notes: list[tuple[str, str | None]] = []

    def take(lease: Lease) -> None:
        together.wait(60)
        notes.append((lease._who, lease._take()))

    with ThreadPoolExecutor(len(takers)) as threads:
        list(threads.map(take, takers, timeout=120))
    [has] = [who for who, held in notes if held is None]
    assert [held.startswith(f"{has} ") for _, held in notes if held is not None] == [True] * 3
    assert table.whole()


def test_rewrites_are_refused_between_a_writers_request_and_its_next_commit(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(actions, "FIRST_WAIT_SECONDS", 0.01)
    for _ in range(3):
        table.land()
    IcebergLedger(table.spark, table.name, FEED).ask_for_quiet()
    report = table.maintain(table.settings("compact"))
    assert report.did.conflicts == ["at_day=2018-02-01"]
    # Iceberg's own action does not look for requests, so it stands for a rewrite that began before the request:
    # the catalog refuses its commit.
    spark_actions: Any = table.spark._jvm.org.apache.iceberg.spark.actions.SparkActions  # type: ignore[union-attr]
    rewrite = spark_actions.get(table.spark._jsparkSession).rewriteDataFiles(table.java()).option("rewrite-all", "true")
    with pytest.raises(Exception, match="A writer has paused rewrites") as refused:
        rewrite.execute()
    assert actions.is_conflict(str(refused.value))
    assert table.files() == 3
    table.land()
    assert table.maintain(table.settings("compact")).did.files_before == 4
    assert table.whole()


def test_an_unused_lease_expires_and_a_used_lease_is_renewed(table: Table) -> None:
    abandoned = Lease(table.spark, table.java(), name=table.name, seconds=2)
    assert abandoned._take() is None
    with Lease(table.spark, table.java(), name=table.name, wait=60, seconds=1.5) as second:
        time.sleep(4)
        assert not second.lost.is_set()
        with pytest.raises(TableBusy), Lease(table.spark, table.java(), name=table.name):
            pass
    assert "lakefeed.upkeep.lease" not in dict(table.java().properties())


def test_upkeep_ends_after_the_current_partition_at_a_stop_or_a_deadline(table: Table) -> None:
    for day in (1, 1, 1, 2, 2, 2, 3, 3, 3):
        table.land(day=day)
    stop = threading.Event()
    report = table.maintain(table.settings("compact"), stop=stop, say=lambda line: stop.set())
    assert report.unfinished == "stopped"
    assert report.did.partitions == 1
    report = table.maintain(table.settings("compact", max_minutes=1e-9))
    assert report.unfinished == "time"
    assert report.did.partitions == 0
    report = table.maintain(table.settings("compact"))
    assert report.unfinished is None
    assert report.did.partitions == 2
    assert table.whole()


def test_a_rewrite_that_conflicts_is_retried_and_finally_abandoned(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another writer replaces the files after the rewrite was planned, so that its commit really conflicts."""
    monkeypatch.setattr(actions, "FIRST_WAIT_SECONDS", 0.01)
    times = [0]
    load = actions.MaintenanceActions.load

    def stale(self: actions.MaintenanceActions) -> Any:
        """Load the table, then let another writer commit, so that the loaded table is outdated."""
        found = load(self)
        if times[0]:
            times[0] -= 1
            table.spark.sql(f"DELETE FROM {table.name} WHERE id = {table.landed - 1}")
            table.spark.sql(f"INSERT INTO {table.name} VALUES ({table.landed - 1}, TIMESTAMP '2018-02-01 12:00:00')")
        return found

    monkeypatch.setattr(actions.MaintenanceActions, "load", stale)
    for _ in range(4):
        table.land()
    times[0] = 3
    report = table.maintain(table.settings("compact"))
    assert not report.gave_up
    assert table.files() == 1
    assert table.whole()
    for _ in range(4):
        table.land()
    times[0] = 99
    report = table.maintain(table.settings("compact"))
    assert report.did.conflicts == ["at_day=2018-02-01"]
    assert "left to the writers" in report.sentence
    assert table.whole()
