"""State stores on executors in separate JVMs: after a restart, or a kill of one executor, every row is there once."""

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.checkpoint import rows_of_log
from tests.support.faults.drivers import Driver, driver
from tests.support.faults.s3_fault_proxy import FaultProxy, fault_proxy
from tests.support.stores import Store

PACKAGE = "org.apache.spark.sql.execution.streaming.state"


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("provider", ["HDFSBackedStateStoreProvider", "RocksDBStateStoreProvider"])
def test_state_is_kept_by_executors_in_jvms_of_their_own(store: Store, tmp_path: Path, provider: str) -> None:
    bucket = store.new_bucket()
    job = {"checkpoint": bucket.url("c"), "table": bucket.url("table"), "provider": f"{PACKAGE}.{provider}"}
    runs = [{"until": 6, "kill": False}, {"until": 16, "kill": True}, {"until": 22, "kill": False}]
    for number, run in enumerate(runs):
        with (
            fault_proxy(store.endpoint) as proxy,
            driver(
                "tests.support.faults.executors_child",
                environment=replace(store, endpoint=proxy.endpoint).as_environment(),
                log=tmp_path / f"{number}.log",
            ) as running,
        ):
            running.tell(json.dumps(job | run))
            seen = json.loads(running.hear())
            assert seen["driver"] not in seen["executors"]
            assert len(seen["executors"]) >= (3 if run["kill"] else 2)
            assert counted(running)["state"] > 0
            if not run["kill"]:  # The counts of an executor's last second are lost when it is killed.
                assert_counts_agree(running, proxy)
    rows = rows_of_log(bucket, "table", tmp_path)
    # Each number is in two batches: without state each one would be there twice.
    assert rows == list(range(len(rows)))
    assert len(rows) >= 11
    if bucket.versioned:
        assert bucket.versions("c/")[1] == []


def counted(running: Driver) -> dict[str, Any]:
    """Return the counts of the driver's meter, which include its executors' requests."""
    running.tell("count")
    counts: dict[str, Any] = json.loads(running.hear())
    return counts


def assert_counts_agree(running: Driver, proxy: FaultProxy) -> None:
    """Wait until the meter has the proxy's counts; executors report theirs once a second."""
    for _ in range(20):
        if counted(running)["requests"] == proxy.counted():
            return
        time.sleep(1)
    assert counted(running)["requests"] == proxy.counted()
