"""Upkeep is killed at each of its steps: no row is lost or doubled, and the next upkeep removes the orphan files.

The S3 proxy kills the process at the step's request. The tests find lost rows by reading all rows, and files that the
kill left by listing the table's folders.
"""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest
from pyspark.sql import SparkSession

from lakefeed.pipeline import Pipeline
from lakefeed_local.stack import Endpoints
from packages.upkeep.tests.integration.test_upkeep import DECODE, every_record_once, look_after, nothing_is_too_young
from tests.support.cli import Running
from tests.support.faults.drivers import SHORT_LIVED
from tests.support.faults.s3_fault_proxy import FaultProxy, Matcher, Request, fault_proxy, put
from tests.support.feed import Feed, trips
from tests.support.table_files import leave_an_orphan, left_behind

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

ROWS = 10
UPKEEP: dict[str, Any] = {
    "compact": {"min_files": 2},
    "manifests": {"more_than": 1},
    "expire": {"older_than": "1 second", "keep": 10},
}
When = Literal["before", "after", "then"]
"""Before the store receives the request, after it has done it, or at the next request: after the catalog's swap."""

DATA = put(r"/data/.*[.]parquet$")
MANIFEST = put(r"/metadata/(optimized-m-[^/]*|[^/]*-m[0-9]+)[.]avro$")
LIST = put(r"/metadata/snap-[^/]*[.]avro$")
METADATA = put(r"/metadata/[^/]*[.]metadata[.]json$")
COMPACTED = (LIST, METADATA)
REWRITTEN = (*COMPACTED, LIST, METADATA)
EXPIRED = (*REWRITTEN, METADATA)


def listing(request: Request) -> bool:
    return request.operation == "ListObjectsV2"


def deletion(request: Request) -> bool:
    return request.operation.startswith("DeleteObject") or "delete" in request.query


@dataclass(frozen=True)
class Point:
    """A step of upkeep at which the process is killed.

    Attributes:
        name: the step.
        when: the moment, relative to the step's request.
        place: matches the step's request.
        after: matches the requests that must have been answered before the step's request counts.
    """

    name: str
    when: When
    place: Matcher
    after: Sequence[Matcher] = ()

    def __str__(self) -> str:
        return f"{self.when} {self.name}"

    def arm(self, proxy: FaultProxy) -> None:
        if self.when == "then":
            proxy.spoil("kill before", lambda request: True, after=[*self.after, self.place])
        else:
            proxy.spoil("kill before" if self.when == "before" else "kill after", self.place, after=self.after)


POINTS = (
    Point("the lease", "then", METADATA),
    Point("a compacted file", "before", DATA),
    Point("a compacted file", "after", DATA),
    Point("compaction's manifest", "after", MANIFEST),
    Point("compaction's manifest list", "after", LIST),
    Point("compaction's commit", "before", METADATA, (LIST,)),
    Point("compaction's commit", "after", METADATA, (LIST,)),
    Point("compaction's commit", "then", METADATA, (LIST,)),
    Point("a rewritten manifest", "after", MANIFEST, COMPACTED),
    Point("the manifests' commit", "after", METADATA, (*COMPACTED, LIST)),
    Point("the manifests' commit", "then", METADATA, (*COMPACTED, LIST)),
    Point("expiry's commit", "after", METADATA, REWRITTEN),
    Point("expiry's commit", "then", METADATA, REWRITTEN),
    Point("expiry's deletions", "before", deletion, EXPIRED),
    Point("expiry's deletions", "after", deletion, EXPIRED),
    Point("the listing of orphans", "after", listing),
    Point("the deletion of orphans", "before", deletion, (listing,)),
    Point("the deletion of orphans", "after", deletion, (listing,)),
)


@dataclass
class Kept:
    """The table that all kill points share, and the number of records that its feed has landed."""

    feed: Feed
    file: Path
    spark: SparkSession
    sent: int = 0

    def land(self, batches: int) -> None:
        self.feed.send(self.feed.avro(trips(self.sent, self.sent + batches * ROWS)))
        self.sent += batches * ROWS
        self.pipeline().run(spark=self.spark, once=True)

    def pipeline(self) -> Pipeline:
        return Pipeline.from_file(self.file, environment=self.feed.environment)

    def nothing_is_lost(self) -> None:
        assert sorted(row["id"] for row in self.feed.rows()) == list(range(self.sent))
        every_record_once(self.pipeline())


@pytest.fixture(scope="module")
def proxy(stack: Endpoints) -> Iterator[FaultProxy]:
    with fault_proxy(stack.s3_endpoint) as running:
        yield running


@pytest.fixture(scope="module")
def kept(lake: SparkSession, stack: Endpoints, tmp_path_factory: pytest.TempPathFactory) -> Kept:
    feed = Feed(stack, tmp_path_factory.mktemp("upkeep-kills"))
    feed.create_topic(partitions=1)
    file = feed.write_file(decode=DECODE, source=feed.source(max_records_per_batch=ROWS), upkeep=UPKEEP)
    made = Kept(feed, file, lake)
    made.land(9)
    return made


@pytest.mark.parametrize("point", POINTS, ids=str)
def test_a_killed_upkeep_loses_no_row_and_the_next_upkeep_removes_the_orphan_files(
    kept: Kept, proxy: FaultProxy, point: Point, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept.land(4)
    leave_an_orphan(kept.feed)
    proxy.heal()
    point.arm(proxy)
    environment = {**kept.feed.environment, **SHORT_LIVED, "AWS_ENDPOINT_URL_S3": proxy.endpoint}
    command = (sys.executable, "-m", "tests.support.faults.upkeep_child")
    victim = Running([kept.file], environment, kept.feed.folder / f"{kept.sent}.log", command)
    proxy.victim = victim.kill
    assert victim.process.wait(500) < 0, victim.said()
    kept.nothing_is_lost()
    kept.land(1)
    kept.nothing_is_lost()
    # Remove the lease of the killed process, so that it does not block the next upkeep for two minutes.
    kept.spark.sql(f"ALTER TABLE {kept.feed.table} UNSET TBLPROPERTIES IF EXISTS ('lakefeed.upkeep.lease')")
    nothing_is_too_young(monkeypatch)
    report = look_after(kept.feed, kept.spark, **UPKEEP)
    assert not report.gave_up
    assert left_behind(kept.feed) == set()
    kept.nothing_is_lost()
