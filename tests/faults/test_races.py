"""Two drivers of one feed start at the same moment; together they land each record once. Repeated many times."""

import random
from collections import Counter
from pathlib import Path

import pytest

from lakefeed_local.stack import Endpoints
from tests.support.faults.drivers import SHORT_LIVED, Driver
from tests.support.faults.landed import Landing, SinkKind, assert_all_landed
from tests.support.faults.races import REPLACED, draw_pauses, run_together, said, two_drivers
from tests.support.faults.workload import PARTITIONS, Workload
from tests.support.feed import Feed
from tests.support.shop import Shop

# The errors that stop a driver whose sink has no fence: in the checkpoint, or in Spark's log of files.
IN_USE = ("CheckpointInUse: ", "the path of feed", "is behind its checkpoint")
BEFORE = ("nothing", "batch begun", "checkpoint lost")


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("rounds", [24])
@pytest.mark.parametrize(
    ("sink", "has_checkpoint"),
    [("iceberg", True), ("iceberg", False), ("parquet", True)],
    ids=["table", "table without checkpoint", "files"],
)
def test_one_of_two_drivers_that_start_together_lands_each_record_once(
    stack: Endpoints, feed: Feed, tmp_path: Path, sink: SinkKind, has_checkpoint: bool, rounds: int
) -> None:
    work = Workload(feed)
    feed.create_topic(partitions=PARTITIONS)
    work.send(80)
    work.transaction(20, end="abort")
    work.transaction(40, end="commit")
    environment = {**stack.as_environment(), **SHORT_LIVED}
    dice = random.Random(20180208)
    ends: Counter[str] = Counter()
    with two_drivers(environment, tmp_path) as both:
        for number in range(rounds):
            landing = Landing(Feed(stack, tmp_path), sink, 70, topic=feed.topic, has_checkpoint=has_checkpoint)
            pauses = draw_pauses(dice)
            before = BEFORE[number % (3 if has_checkpoint and sink == "iceberg" else 2)]
            if before == "checkpoint lost":
                both[0].run(landing.write_file())
                landing.lose_checkpoint()
                work.send(30)
            errors = play(both, landing, pauses, begun=before == "batch begun", apart=dice.uniform(-1.0, 1.0))
            lost = [error for error in errors if error is not None]
            ends[f"{len(lost)} of 2 stopped"] += 1
            print(number, pauses, lost, flush=True)
            # Both drivers may succeed if one ends before the other takes the fence.
            assert len(lost) < 2, lost
            expected = (REPLACED,) if sink == "iceberg" else IN_USE
            assert all(any(each in error for each in expected) for error in lost), lost
            assert_all_landed(landing, work)
    again = said(both, "tries again")
    print(dict(ends), f"{again} times a driver has tried again")
    assert ends["1 of 2 stopped"]
    assert again or not (sink == "iceberg" and has_checkpoint), "no driver has disturbed its successor"


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("rounds", [8])
def test_one_of_two_jobs_that_start_together_lands_the_records_of_all_tables(
    stack: Endpoints, tmp_path: Path, rounds: int
) -> None:
    """Each table has a separate fence, so at first each job may take the fences of some tables."""
    environment = {**stack.as_environment(), **SHORT_LIVED}
    dice = random.Random(20180208)
    ends: Counter[int] = Counter()
    with two_drivers(environment, tmp_path) as both:
        for _ in range(rounds):
            shop = Shop(Feed(stack, tmp_path))
            names = [f"t{number}" for number in range(4)]
            for name in names:
                shop.create(name)
                shop.feed.send_ids(range(20), topic=shop.topic(name))
            shop.pipeline(decode={"json": {"schema_ddl": "id BIGINT"}}, tables={"at_once": 2})
            apart = dice.uniform(-0.5, 0.5)
            pauses = [{"begin_writer": 3.0, "commit_rows": 2.0}] * 2
            ended = run_together(both, shop.feed.folder / "many.yaml", pauses, apart=apart)
            lost = [error for error in ended if error is not None]
            ends[len(lost)] += 1
            print(apart, lost, flush=True)
            assert len(lost) < 2, lost
            assert all(REPLACED in error for error in lost), lost
            for name in names:
                assert sorted(row["id"] for row in shop.rows(name)) == list(range(20))
    print(dict(ends), f"{said(both, 'began at the same time')} tables were taken back")
    assert ends[1]


def play(
    both: list[Driver], landing: Landing, pauses: list[dict[str, float]], *, begun: bool, apart: float
) -> list[str | None]:
    """Start both drivers, `apart` seconds apart, and return their errors.

    With `begun`, an earlier driver has begun a batch and not landed it.
    """
    file = landing.write_file()
    if begun:
        both[0].prepare(file, begin_only=True)
        both[0].tell("0")
        assert both[0].ended() is None
    return run_together(both, file, pauses, apart=apart)
