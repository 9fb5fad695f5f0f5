"""A feed's life at random: kills, bad days of store, catalog and brokers, transactions; nothing is lost or doubled.

``make faults SEEDS=3`` throws three seeds, ``make faults SEED=17`` plays one again. What the seed decides is the same
then; how threads and processes interleave is not.
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
# What a REST catalog does with a change, and what it says: see ``rest_catalog``.
ANSWERS = (
    "not-applied-503",
    "not-applied-401",
    "not-applied-hung-up",
    "applied-503",
    "applied-hung-up",
    "applied-silent",
)
# Most of what a driver asks for is a PUT.
OPERATIONS = ("PutObject", "PutObject", "PutObject", "GetObject", "HeadObject", "ListObjectsV2")
ENDS: tuple[Literal["commit", "abort"], ...] = ("commit", "abort")
Spoilt = tuple[Kind, str, int]


def seeds() -> list[int]:
    """SEED alone, or as many new ones as SEEDS says; one that is always the same by default.

    All workers of one run must draw the same seeds, else pytest-xdist refuses what they collect. Hence they draw
    from the id of the run, which is None, and then random, without workers.
    """
    if seed := os.environ.get("SEED"):
        return [int(seed)]
    if count := os.environ.get("SEEDS"):
        dice = random.Random(os.environ.get("PYTEST_XDIST_TESTRUNUID"))
        return [dice.randrange(1_000_000) for _ in range(int(count))]
    return [1]


@dataclass(frozen=True)
class Run:
    """One run of the driver: what is sent before it, where it dies, what the servers do to it."""

    records: int
    transaction: int
    end: Literal["commit", "abort"]
    dies: KillPoint
    spoilt: tuple[Spoilt, ...]
    answers: tuple[str, ...]


@dataclass(frozen=True)
class Plan:
    """All that a seed decides."""

    sink: SinkKind
    batch: int
    runs: tuple[Run, ...]
    has_checkpoint: bool
    is_rest: bool
    """Whether a REST catalog has the tables."""
    rolls: bool
    """Whether the topic is of three brokers, which are restarted one after the other during each run."""

    @classmethod
    def of(cls, seed: int) -> Plan:
        """Return the same for the same seed."""
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
    # The first changes of a table are those of the start.
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
def test_whatever_happens_each_record_is_there_once(
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
    """One feed's life."""
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
            # A store that fails at the start is reported at once, and nothing has begun.
            proxy.spoil(kind, on(operation), times=times, after=[batch_begun(landing)])
        if catalog is not None:
            catalog.fail_next(*run.answers)
        victim = Running(["run", file, "--once"], through, feed.folder / f"{number}.log")
        proxy.victim = victim.kill
        with rolling(brokers):
            status = victim.process.wait(500)
        print(f"run {number}: {'killed' if status < 0 else f'exit status {status}'}", flush=True)
        # A server that fails may end a run, with an error that a user can read.
        assert "Traceback" not in victim.said(), victim.said()
        if catalog is not None:
            catalog.fail_next()
        assert_nothing_wrong(landing, work)
        assert open_one is not None
        open_one.commit()
    done = lakefeed("run", file, "--once", environment={**feed.environment, **SHORT_LIVED})
    assert done.returncode == 0, done.stderr
    assert_all_landed(landing, work)


@contextmanager
def rolling(brokers: Cluster | None) -> Iterator[None]:
    """Restart the brokers one after the other, once, beside the block."""
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
