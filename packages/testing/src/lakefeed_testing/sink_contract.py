"""Tests for a sink that stores its rows and the ledger's entries together; the sink's package runs them.

    class TestMySink(SinkContract):
        def block(self, folder):
            return {"my_sink": {"path": str(folder / "rows.db")}}

The tests need the installed package, ``lakefeed[spark,read,testing]``, pytest and Java, but no broker.
docs/extension-points.md has more.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import pytest

from lakefeed.clients.spark.session import session
from lakefeed.config.connections import Connections
from lakefeed.config.models import PipelineConfig
from lakefeed.errors import CheckpointMismatch, DriverReplaced
from lakefeed.lazy import DataFrame, SparkSession, sf
from lakefeed.ledger.checkpoint import Claim, Owner
from lakefeed.ledger.entries import Batch
from lakefeed.ledger.outcomes import ZERO
from lakefeed.ledger.snapshot_summary import Commit, PositionReset
from lakefeed.offsets.ranges import OffsetRange, OffsetRanges
from lakefeed.sinks.definition import Sink
from lakefeed.sinks.factory import sink_of

COLUMNS = "id BIGINT, kafka_topic STRING, kafka_partition INT, kafka_offset BIGINT"


@dataclass
class SinkDriver:
    """A driver of a feed, which has opened the sink, created the columns and taken the fence."""

    spark: SparkSession
    feed: str
    sink: Sink
    fence: str | None = field(init=False)

    def __post_init__(self) -> None:
        self.sink.apply_schema(self.rows(0, 0).schema)
        self.fence = self.sink.take_fence()

    def rows(self, start: int, end: int) -> DataFrame:
        """Return a row for each offset from ``start`` to ``end - 1``, with the offset as its id."""
        return self.spark.createDataFrame([(at, "topic", 0, at) for at in range(start, end)], COLUMNS)

    def batch(self, number: int, start: int, end: int) -> Commit:
        """Return the commit of a batch with the offsets from ``start`` to ``end``."""
        ranges = OffsetRanges((OffsetRange("topic", 0, start, end),), {"topic": "id-of-the-topic"})
        return Commit(self.feed, number, ranges, fence=self.fence)

    def land(self, number: int, start: int, end: int, rows: DataFrame | None = None) -> None:
        """Write a batch as a feed does: only if the sink does not have it yet."""
        commit = self.batch(number, start, end)
        if not self.sink.has(commit):
            self.force(commit, rows)

    def force(self, commit: Commit, rows: DataFrame | None = None) -> None:
        """Write a batch without a check of the ledger, like a driver that was suspended after its check."""
        [span] = commit.ranges.ranges
        rows = self.rows(span.start, span.end) if rows is None else rows
        self.sink.land(rows, commit, commit_id=uuid.uuid4().hex)


@dataclass
class SinkPlace:
    """A destination that the sinks of several drivers and feeds write to."""

    spark: SparkSession
    block: dict[str, Any]
    folder: Path

    def config(self, feed: str) -> PipelineConfig:
        document = {"name": feed, "source": {"rate": {}}, "sink": self.block}
        return PipelineConfig.model_validate({**document, "checkpoint": f"{self.folder}/checkpoint-{feed}"})

    def definition(self, feed: str) -> Any:
        return sink_of(self.config(feed), Connections())

    def driver(self, feed: str = "contract") -> SinkDriver:
        """Start a driver of the feed as a new process would."""
        config = self.config(feed)
        claim = Claim(self.spark, str(config.checkpoint), Owner.of(config))
        return SinkDriver(self.spark, feed, self.definition(feed).open(self.spark, claim))

    def ends_at(self, feed: str = "contract") -> int | None:
        """Return the feed's end offset in the sink, as ``lakefeed status`` reads it; None before the first commit."""
        position = self.definition(feed).state().position()
        return None if position is None else int(position.ranges.ends["topic", 0])

    def ids(self) -> list[int]:
        """Return the ids of all rows, as ``lakefeed verify --deep`` reads them."""
        return sorted(self.definition("contract").own.read(["id"]).read_all().column("id").to_pylist())


class SinkContract:
    """The tests of a sink. A subclass defines ``block``, and has a name that begins with Test."""

    spark_settings: ClassVar[Mapping[str, str]] = {}
    """Further settings that the tests' Spark session needs, such as those of the sink."""

    def block(self, folder: Path) -> dict[str, Any]:
        """Return the sink's block of a pipeline file for an empty destination; no other test uses ``folder``."""
        raise NotImplementedError

    @pytest.fixture(scope="class")
    @classmethod
    def spark(cls, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
        log = tmp_path_factory.mktemp("spark") / "spark.log"
        settings = {"spark.sql.shuffle.partitions": "2", "spark.ui.enabled": "false", **cls.spark_settings}
        running = session("sink-contract", connections=Connections(), master="local[2]", conf=settings, log_file=log)
        yield running
        running.stop()

    @pytest.fixture
    def place(self, spark: SparkSession, tmp_path: Path) -> SinkPlace:
        return SinkPlace(spark, self.block(tmp_path), tmp_path)

    def test_batches_are_stored_in_order_with_the_position(self, place: SinkPlace) -> None:
        assert place.ends_at() is None
        driver = place.driver()
        assert place.ends_at() is None
        driver.land(0, 0, 3)
        driver.land(1, 3, 5)
        assert place.ids() == [0, 1, 2, 3, 4]
        assert place.ends_at() == 5

    def test_an_empty_batch_moves_the_position(self, place: SinkPlace) -> None:
        driver = place.driver()
        driver.land(0, 0, 3, driver.rows(0, 0))
        assert place.ids() == []
        assert place.ends_at() == 3

    def test_a_batch_that_is_repeated_after_a_crash_is_stored_once(self, place: SinkPlace) -> None:
        place.driver().land(0, 0, 3)
        # The first driver died before Spark recorded the batch. With a new checkpoint, the same batch gets another id.
        restarted = place.driver()
        restarted.land(7, 0, 3)
        restarted.land(8, 3, 4)
        assert place.ids() == [0, 1, 2, 3]

    def test_a_refused_write_stores_no_row_and_no_entry(self, place: SinkPlace) -> None:
        driver = place.driver()
        driver.land(0, 0, 3)
        entries = list(self.own(place).entries())
        # Each sink's client raises its own class of error.
        with pytest.raises(Exception):  # noqa: B017, PT011
            self.own(place).write(driver.rows(3, 5), Batch("contract", len(entries), entries[0]))
        assert place.ids() == [0, 1, 2]
        assert list(self.own(place).entries()) == entries
        # The sink must refuse the number of an older entry, even for a batch without rows.
        with pytest.raises(Exception):  # noqa: B017, PT011
            self.own(place).write(None, Batch("contract", 1, entries[-1]))
        assert list(self.own(place).entries()) == entries

    def test_a_batch_with_a_gap_or_an_overlap_is_refused(self, place: SinkPlace) -> None:
        driver = place.driver()
        driver.land(0, 0, 3)
        for start, end in ((4, 6), (2, 6)):
            with pytest.raises(CheckpointMismatch, match="the table ends at 3"):
                driver.land(1, start, end)
            with pytest.raises(CheckpointMismatch, match="the table ends at 3"):
                driver.force(driver.batch(1, start, end))
        assert place.ids() == [0, 1, 2]

    def test_a_replaced_driver_cannot_write(self, place: SinkPlace, monkeypatch: pytest.MonkeyPatch) -> None:
        first = place.driver()
        first.land(0, 0, 3)
        kind = type(self.own(place))
        write = kind.write

        def suspended(own: Any, rows: DataFrame | None, batch: Batch) -> None:
            monkeypatch.setattr(kind, "write", write)
            place.driver()
            write(own, rows, batch)

        # The driver was replaced after it had read the ledger, so its write fails only because
        # the new driver has used the number of its ledger entry.
        monkeypatch.setattr(kind, "write", suspended)
        with pytest.raises(DriverReplaced, match="another driver has taken over"):
            first.force(first.batch(1, 3, 5))
        assert place.ids() == [0, 1, 2]
        second = place.driver()
        second.land(1, 3, 4)
        with pytest.raises(DriverReplaced, match="another driver has taken over"):
            first.force(first.batch(1, 3, 5))
        assert place.ids() == [0, 1, 2, 3]

    def test_one_of_two_concurrent_writes_is_refused(self, place: SinkPlace, tmp_path: Path) -> None:
        driver = place.driver()
        driver.land(0, 0, 3)
        entries = list(self.own(place).entries())
        taken = Batch("contract", len(entries) + 1, entries[0])
        began, resume = tmp_path / "began", tmp_path / "resume"

        def wait(number: int) -> int:
            # Spark calls ``wait`` while the write reads rows. If the store locks the feed, the other driver has to
            # wait.
            began.touch()
            deadline = time.monotonic() + 5
            while not resume.exists() and time.monotonic() < deadline:
                time.sleep(0.05)
            return number

        def take_the_number() -> bool:
            while not began.exists():
                time.sleep(0.05)
            is_stored = False
            with suppress(Exception):
                self.own(place).write(None, taken)
                is_stored = True
            resume.touch()
            return is_stored

        with ThreadPoolExecutor(1) as other:
            answer = other.submit(take_the_number)
            landed = [0, 1, 2, 3, 4]
            rows = driver.rows(3, 5).withColumn("id", sf.udf(lambda number: wait(number), "bigint")("id"))
            try:
                self.own(place).write(rows, taken)
            except Exception:
                landed = [0, 1, 2]
            are_read = began.exists()
            began.touch()
            assert answer.result() == (len(landed) == 3), "the sink must refuse one of the two writes"
        assert are_read
        assert len(list(self.own(place).entries())) == len(entries) + 1
        assert place.ids() == landed

    def test_two_feeds_have_separate_positions(self, place: SinkPlace) -> None:
        one, other = place.driver(), place.driver("other")
        one.land(0, 0, 3)
        other.land(0, 10, 12)
        one.land(1, 3, 4)
        assert (place.ends_at(), place.ends_at("other")) == (4, 12)

    def test_verify_reads_each_batch_with_its_counts(self, place: SinkPlace) -> None:
        driver = place.driver()
        driver.land(0, 0, 3)
        driver.land(1, 3, 5)
        restarted = place.driver()
        restarted.land(2, 5, 6)
        with place.definition("contract").history() as history:
            commits = history.commits
            assert history.fence == restarted.fence
            assert {"id", "kafka_topic", "kafka_partition", "kafka_offset"} <= history.rows.columns
        assert [commit.rows for commit in commits] == [3, 2, 1]
        assert [commit.ranges.ranges[0].end for commit in commits] == [3, 5, 6]
        assert [commit.snapshot_id for commit in commits] == [1, 2, 3]
        assert all(commit.counts.get(("topic", 0), ZERO).dead_letters == 0 for commit in commits)

    def test_a_reset_moves_the_position_and_changes_no_row(self, place: SinkPlace) -> None:
        driver = place.driver()
        driver.land(0, 0, 3)
        move = PositionReset("accepted-loss", {("topic", 0): (3, 9)})
        driver.sink.commit_reset(replace(driver.batch(0, 9, 9), move=move), commit_id=uuid.uuid4().hex)
        assert place.ends_at() == 9
        driver.land(1, 9, 10)
        assert place.ids() == [0, 1, 2, 9]

    def test_apply_schema_adds_a_column(self, place: SinkPlace) -> None:
        driver = place.driver()
        driver.land(0, 0, 2)
        rows = driver.rows(2, 3).withColumn("city", sf.lit("Bern"))
        driver.sink.apply_schema(rows.schema)
        driver.land(1, 2, 3, rows)
        with place.definition("contract").history() as history:
            cities = history.rows.read(["id", "city"]).read_all().sort_by("id").column("city").to_pylist()
        assert cities == [None, None, "Bern"]

    def own(self, place: SinkPlace) -> Any:
        """Return the sink as ``lakefeed status`` opens it."""
        return place.definition("contract").own
