"""Of two drivers on one checkpoint, one continues and one stops with Spark's message; every row lands once."""

import json
import uuid
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.support.checkpoint import rows_of_log
from tests.support.faults.drivers import Driver, driver
from tests.support.stores import Bucket, Store

BATCHES = 6
# Messages of Spark with which a driver may stop. The last message is from Spark's check before batch 0, when no entry
# has been written.
MESSAGES = (
    "CONCURRENT_STREAM_LOG_UPDATE",
    "Multiple streaming queries",
    "multiple streaming queries",
    "should be empty on batch 0",
)


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("rounds", [3, pytest.param(50, marks=pytest.mark.slow)])
def test_of_two_drivers_on_one_checkpoint_one_continues(store: Store, tmp_path: Path, rounds: int) -> None:
    bucket = store.new_bucket()
    with ExitStack() as running:
        child, environment = "tests.support.faults.two_drivers_child", store.as_environment()
        started = [driver(child, environment=environment, log=tmp_path / f"driver-{n}.log") for n in range(2)]
        drivers = [running.enter_context(each) for each in started]
        for number in range(rounds):
            play(drivers, bucket, f"round-{number}-{uuid.uuid4().hex[:6]}", tmp_path)


def play(drivers: list[Driver], bucket: Bucket, name: str, folder: Path) -> None:
    """Let both drivers run a query on the same checkpoint; check that one continued, and that every row landed once."""
    job = {"checkpoint": bucket.url(name, "c"), "table": bucket.url(name, "table"), "batches": BATCHES}
    for each in drivers:
        each.tell(json.dumps(job))
    for each in drivers:
        assert each.hear() == "ready"
    for each in drivers:
        each.tell("go")
    ends: list[dict[str, Any]] = [json.loads(each.hear()) for each in drivers]
    for each, end in zip(drivers, ends, strict=True):
        if end["survived"]:
            each.tell("stop")
            assert each.hear() == "stopped"
    assert [end["survived"] for end in ends].count(True) == 1, ends
    for end in ends:
        if not end["survived"]:
            assert any(message in end["message"] for message in MESSAGES), end["message"]
    rows = rows_of_log(bucket, f"{name}/table", folder)
    assert rows == list(range(len(rows)))
    assert len(rows) >= BATCHES
