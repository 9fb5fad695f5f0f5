"""A feed's life at random: kills, a store's bad days, batches and transactions; nothing is lost or doubled.

``make faults SEEDS=3`` throws three seeds, ``make faults SEED=17`` plays one again. What the seed decides is the same
then; how threads and processes interleave is not.
"""

from __future__ import annotations

import os
import random
from dataclasses import dataclass
from typing import Literal

import pytest

from tests.support.cli import Running
from tests.support.faults.drivers import SHORT_LIVED, Driver
from tests.support.faults.kill_points import POINTS, KillPoint, batch_begun
from tests.support.faults.landed import Landing, SinkKind, assert_all_landed, assert_nothing_wrong
from tests.support.faults.s3_fault_proxy import FaultProxy, Kind, on
from tests.support.faults.workload import PARTITIONS, Workload
from tests.support.feed import Feed

FAULTS: tuple[Kind, ...] = ("503", "reset", "lost reply")
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
    """One run of the driver: what is sent before it, where it dies, what the store does to it."""

    records: int
    transaction: int
    end: Literal["commit", "abort"]
    dies: KillPoint
    spoilt: tuple[Spoilt, ...]


@dataclass(frozen=True)
class Plan:
    """All that a seed decides."""

    sink: SinkKind
    batch: int
    runs: tuple[Run, ...]
    has_checkpoint: bool

    @classmethod
    def of(cls, seed: int) -> Plan:
        """The same for the same seed."""
        dice = random.Random(seed)
        sink: SinkKind = dice.choice(("iceberg", "parquet"))
        has_checkpoint = sink == "parquet" or dice.random() < 0.5
        points = [each for each in POINTS if each.sink == sink and each.has_checkpoint == has_checkpoint]
        runs = tuple(_run(dice, points) for _ in range(dice.randint(1, 3)))
        return cls(sink, dice.randint(40, 250), runs, has_checkpoint)


def _run(dice: random.Random, points: list[KillPoint]) -> Run:
    spoilt = tuple(
        (dice.choice(FAULTS), dice.choice(OPERATIONS), dice.randint(1, 2)) for _ in range(dice.randint(0, 3))
    )
    return Run(dice.randint(20, 400), dice.randint(1, 60), dice.choice(ENDS), dice.choice(points), spoilt)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", seeds())
def test_whatever_happens_each_record_is_there_once(
    feed: Feed, stack_proxy: FaultProxy, successor: Driver, seed: int
) -> None:
    plan = Plan.of(seed)
    print(f"\nseed {seed}: {plan}", flush=True)
    try:
        play(plan, feed, stack_proxy, successor)
    except BaseException as failed:
        failed.add_note(f"seed {seed} fails; to play it again: make faults SEED={seed}")
        raise


def play(plan: Plan, feed: Feed, proxy: FaultProxy, successor: Driver) -> None:
    """One feed's life."""
    landing = Landing(feed, plan.sink, plan.batch, has_checkpoint=plan.has_checkpoint)
    work = Workload(feed)
    feed.create_topic(partitions=PARTITIONS)
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
        victim = Running(["run", file, "--once"], through, feed.folder / f"{number}.log")
        proxy.victim = victim.kill
        status = victim.process.wait(500)
        print(f"run {number}: {'killed' if status < 0 else f'exit status {status}'}", flush=True)
        # A store that fails may end a run, with an error that a user can read.
        assert "Traceback" not in victim.said(), victim.said()
        assert_nothing_wrong(landing, work)
        assert open_one is not None
        open_one.commit()
    successor.prepare(file)
    successor.tell("0")
    assert successor.ended() is None
    assert_all_landed(landing, work)
