"""Executors in separate JVMs keep state: every row lands once after restarts, and after the kill of an executor."""

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
def test_executors_in_separate_jvms_keep_state_over_a_kill(store: Store, tmp_path: Path, provider: str) -> None:
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
            if not run["kill"]:  # A killed executor has not reported the counts of its last second.
                assert_counts_agree(running, proxy)
    rows = rows_of_log(bucket, "table", tmp_path)
    # The source gives each number in two batches: without state, each row would land twice.
    assert rows == list(range(len(rows)))
    assert len(rows) >= 11
    if bucket.versioned:
        assert bucket.versions("c/")[1] == []


def counted(running: Driver) -> dict[str, Any]:
    """Return the counts of the driver's meter, which include the requests of the executors."""
    running.tell("count")
    counts: dict[str, Any] = json.loads(running.hear())
    return counts


def assert_counts_agree(running: Driver, proxy: FaultProxy) -> None:
    """Wait until the driver's meter equals the proxy's counts; executors report their counts once a second."""
    for _ in range(20):
        if counted(running)["requests"] == proxy.counted():
            return
        time.sleep(1)
    assert counted(running)["requests"] == proxy.counted()
