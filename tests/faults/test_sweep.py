"""A feed lands each record once over random kills, faults of store, catalog and brokers, and transactions.

``make faults SEEDS=3`` draws three seeds, ``make faults SEED=17`` repeats one. A repeated seed makes the same
decisions, but threads and processes may interleave differently.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import pytest

from lakefeed_local.stack import Endpoints
from tests.support.cli import Running, lakefeed
from tests.support.faults.drivers import SHORT_LIVED
from tests.support.faults.kill_points import POINTS, KillPoint, batch_begun
from tests.support.faults.landed import Landing, SinkKind, assert_all_landed, assert_nothing_wrong
from tests.support.faults.s3_fault_proxy import FaultProxy, Kind, on
from tests.support.faults.workload import PARTITIONS, Workload
from tests.support.feed import Feed
from tests.support.rest_feed import RestFeed
from tests.support.servers.kafka_cluster import BROKERS, Cluster, kafka_cluster
from tests.support.servers.rest_catalog import RestCatalog, rest_catalog_on

FAULTS: tuple[Kind, ...] = ("503", "500", "SlowDown", "reset", "lost reply")
# For each answer of the REST catalog: whether the catalog applies the change, and its reply. See ``rest_catalog``.
ANSWERS = (
    "not-applied-503",
    "not-applied-401",
    "not-applied-hung-up",
    "applied-503",
    "applied-hung-up",
    "applied-silent",
)
# PutObject is drawn more often than the others, because most requests of a driver are PUTs.
OPERATIONS = ("PutObject", "PutObject", "PutObject", "GetObject", "HeadObject", "ListObjectsV2")
ENDS: tuple[Literal["commit", "abort"], ...] = ("commit", "abort")
Spoilt = tuple[Kind, str, int]


def seeds() -> list[int]:
    """Return the seed in the variable SEED, or SEEDS new seeds, or by default a fixed seed.

    All workers of pytest-xdist must draw the same seeds, because it refuses workers with different tests. So the
    seeds are drawn from the id of the test run, or are random if there are no workers.
    """
    if seed := os.environ.get("SEED"):
        return [int(seed)]
    if count := os.environ.get("SEEDS"):
        dice = random.Random(os.environ.get("PYTEST_XDIST_TESTRUNUID"))
        return [dice.randrange(1_000_000) for _ in range(int(count))]
    return [1]


@dataclass(frozen=True)
class Run:
    """One run of the driver: the records sent before it, the point at which the driver dies, the faults of servers."""

    records: int
    transaction: int
    end: Literal["commit", "abort"]
    dies: KillPoint
    spoilt: tuple[Spoilt, ...]
    answers: tuple[str, ...]


@dataclass(frozen=True)
class Plan:
    """All decisions that are drawn from one seed: the kind of sink, the batch size, and the runs."""

    sink: SinkKind
    batch: int
    runs: tuple[Run, ...]
    has_checkpoint: bool
    is_rest: bool
    """True if the tables are in a REST catalog."""
    rolls: bool
    """True if the topic is on three brokers, which restart one after the other during each run."""

    @classmethod
    def of(cls, seed: int) -> Plan:
        """Draw all decisions from a seed."""
        dice = random.Random(seed)
        sink: SinkKind = dice.choice(("iceberg", "parquet"))
        has_checkpoint = sink == "parquet" or dice.random() < 0.5
        points = [each for each in POINTS if each.sink == sink and each.has_checkpoint == has_checkpoint]
        runs = tuple(_run(dice, points) for _ in range(dice.randint(1, 3)))
        rest = sink == "iceberg" and dice.random() < 0.5
        return cls(sink, dice.randint(40, 250), runs, has_checkpoint, is_rest=rest, rolls=dice.random() < 0.3)


def _run(dice: random.Random, points: list[KillPoint]) -> Run:
    spoilt = tuple(
        (dice.choice(FAULTS), dice.choice(OPERATIONS), dice.randint(1, 2)) for _ in range(dice.randint(0, 3))
    )
    # The catalog gives these answers to the first changes of a run; most of these changes belong to the feed's start.
    answers = tuple(dice.choice((*ANSWERS, "")) for _ in range(dice.randint(0, 6)))
    return Run(dice.randint(20, 400), dice.randint(1, 60), dice.choice(ENDS), dice.choice(points), spoilt, answers)


@pytest.fixture(scope="module")
def rest(stack: Endpoints) -> Iterator[RestCatalog]:
    with rest_catalog_on(stack) as running:
        yield running


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with kafka_cluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", seeds())
def test_each_record_lands_once_after_random_faults(
    request: pytest.FixtureRequest, stack: Endpoints, tmp_path: Path, stack_proxy: FaultProxy, seed: int
) -> None:
    plan = Plan.of(seed)
    print(f"\nseed {seed}: {plan}", flush=True)
    catalog = request.getfixturevalue("rest") if plan.is_rest else None
    brokers = request.getfixturevalue("cluster") if plan.rolls else None
    servers = stack if brokers is None else replace(stack, bootstrap_servers=brokers.addresses)
    feed = Feed(servers, tmp_path) if catalog is None else RestFeed(servers, tmp_path, server=catalog)
    try:
        play(plan, feed, stack_proxy, catalog, brokers)
    except BaseException as failed:
        failed.add_note(f"seed {seed} fails; to play it again: make faults SEED={seed}")
        raise


def play(plan: Plan, feed: Feed, proxy: FaultProxy, catalog: RestCatalog | None, brokers: Cluster | None) -> None:
    """Run a feed by this plan; after each run check that the sink has no wrong or doubled row."""
    landing = Landing(feed, plan.sink, plan.batch, has_checkpoint=plan.has_checkpoint)
    work = Workload(feed)
    if brokers is None:
        feed.create_topic(partitions=PARTITIONS)
    else:
        brokers.create_topic(feed.topic, [[1, 2], [2, 3], [3, 1]])
    file = landing.write_file()
    through = {**feed.environment, **SHORT_LIVED, "AWS_ENDPOINT_URL_S3": proxy.endpoint}
    for number, run in enumerate(plan.runs):
        work.send(run.records)
        work.transaction(run.transaction, end=run.end)
        open_one = work.transaction(run.transaction, end="open", partition=number % PARTITIONS)
        proxy.heal()
        run.dies.arm(proxy, landing)
        for kind, operation, times in run.spoilt:
            # Inject faults only after the first batch has begun, because a start does not retry a failing store.
            proxy.spoil(kind, on(operation), times=times, after=[batch_begun(landing)])
        if catalog is not None:
            catalog.fail_next(*run.answers)
        victim = Running(["run", file, "--once"], through, feed.folder / f"{number}.log")
        proxy.victim = victim.kill
        with rolling(brokers):
            status = victim.process.wait(500)
        print(f"run {number}: {'killed' if status < 0 else f'exit status {status}'}", flush=True)
        # A failing server may end the run, but the error must be readable and have no stack trace.
        assert "Traceback" not in victim.said(), victim.said()
        if catalog is not None:
            catalog.fail_next()
        assert_nothing_wrong(landing, work)
        assert open_one is not None
        open_one.commit()
    lakefeed("run", file, "--once", environment={**feed.environment, **SHORT_LIVED})
    assert_all_landed(landing, work)


@contextmanager
def rolling(brokers: Cluster | None) -> Iterator[None]:
    """Restart the brokers once, one after the other, while the block runs."""
    if brokers is None:
        yield
        return

    def restart() -> None:
        for number in BROKERS:
            brokers.restart(number, pause=1.0)

    with ThreadPoolExecutor(1) as beside:
        done = beside.submit(restart)
        yield
        done.result(120)
