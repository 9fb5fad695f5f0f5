"""A standalone cluster loses machines during a batch, and each row still lands once."""

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lakefeed.errors import ResourceMissing
from tests.support.cli import Running, lakefeed
from tests.support.cluster_feeds import SLOW_BATCH, SLOW_ROWS, assert_each_row_once, marked, send_slow_rows, slow_file
from tests.support.feed import Feed
from tests.support.servers.standalone import SECRET, Standalone, standalone

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Standalone]:
    folder = tmp_path / "cluster"
    folder.mkdir()
    with standalone(folder, workers=3) as running:
        yield running


def on_cluster(cluster: Standalone) -> dict[str, str]:
    return {
        "spark.driver.memory": "700m",
        "spark.executor.memory": "700m",
        "spark.cores.max": "2",
        "spark.pyspark.python": str(cluster.python),
        "spark.authenticate.secret": "${SPARK_AUTHENTICATE_SECRET}",
    }


def executors(cluster: Standalone) -> dict[str, list[int]]:
    """Return the process ids of the executors by worker; workers without an executor are left out."""
    found: dict[str, list[int]] = {}
    for pid in cluster.pids_of("CoarseGrainedExecutorBackend"):
        name = next(name for name, process in cluster.processes.items() if process.pid == os.getpgid(pid))
        found.setdefault(name, []).append(pid)
    return found


def test_each_row_lands_once_if_a_worker_is_lost_during_a_batch(feed: Feed, cluster: Standalone) -> None:
    rows = send_slow_rows(feed)
    marks = feed.folder / "marks"
    environment = {**feed.environment, "SPARK_AUTHENTICATE_SECRET": SECRET}
    file = slow_file(feed, marks, spark=on_cluster(cluster))
    running = Running(["run", file, "--once", "--master", cluster.master], environment, feed.folder / "run.log")
    # Kill the worker in the second batch, so that the first batch is committed.
    cluster.wait_for("the second batch", lambda: marked(marks) > SLOW_BATCH + SLOW_BATCH // 3)
    before = executors(cluster)
    assert len(before) == 2
    cluster.kill_worker(min(before))
    assert running.process.wait(300) == 0, running.said()
    # Each computation of a row leaves a mark: more marks than rows show that Spark computed the lost rows again.
    assert marked(marks) > SLOW_ROWS
    assert_each_row_once(feed, file, rows, environment)


def test_each_row_lands_once_if_a_supervised_driver_dies_and_then_its_successors_machine(
    feed: Feed, cluster: Standalone
) -> None:
    rows = send_slow_rows(feed)
    marks, stage = feed.folder / "marks", feed.folder / "stage"
    stage.mkdir()
    environment = {**feed.environment, "SPARK_AUTHENTICATE_SECRET": SECRET}
    file = slow_file(feed, marks, spark=on_cluster(cluster))
    mode = ("--deploy-mode", "cluster", "--supervise", "--stage", stage)
    sent = lakefeed(
        "deploy", "submit", file, "--master", cluster.master, *mode, "--output", "json", environment=environment
    )
    first = json.loads(sent.stdout)["driver"]

    # Kill only the driver's JVM: the driver's Python process must end, too.
    cluster.wait_for("the first batch", lambda: marked(marks) > SLOW_BATCH // 3)
    (jvm,) = cluster.pids_of("DriverWrapper")
    (python,) = cluster.pids_of("main.py")
    os.kill(jvm, signal.SIGKILL)
    cluster.wait_for("Python's end", lambda: not os.path.exists(f"/proc/{python}") or is_zombie(python), seconds=60)
    cluster.wait_for("another driver", lambda: cluster.pids_of("DriverWrapper") not in ([], [jvm]))

    # Kill the machine of the second driver: the master starts the driver again on another worker.
    so_far = marked(marks)
    cluster.wait_for("the second driver's batch", lambda: marked(marks) > so_far + SLOW_BATCH // 3, seconds=300)
    (jvm,) = cluster.pids_of("DriverWrapper")
    lost = next(name for name, process in cluster.processes.items() if process.pid == os.getpgid(jvm))
    cluster.kill_worker(lost)
    cluster.start_worker("replacement")
    cluster.wait_for("all rows", lambda: len(rows_so_far(feed)) >= SLOW_ROWS, seconds=400)

    # After SIGTERM the driver finishes its batch, and the master does not start it again.
    (jvm,) = cluster.pids_of("DriverWrapper")
    os.kill(jvm, signal.SIGTERM)
    cluster.wait_for("the end", lambda: not cluster.pids_of("DriverWrapper"))
    time.sleep(2)
    assert not cluster.pids_of("DriverWrapper")
    last = cluster.state()["completeddrivers"][-1]
    assert (last["state"], first) == ("FINISHED", first), cluster.logs()
    assert_each_row_once(feed, file, rows, environment)


BROKEN = """
from pathlib import Path

from pyspark.sql import DataFrame


def unless_broken(rows: DataFrame, mistake: str) -> DataFrame:
    if Path(mistake).exists():
        with open(mistake, "a") as file:
            file.write(".")
        raise ValueError("a mistake that only a driver finds")
    return rows
"""


def test_a_supervised_driver_that_fails_waits_longer_before_each_restart(feed: Feed, cluster: Standalone) -> None:
    feed.create_topic(partitions=1)
    rows = [{"id": number, "zone": "one"} for number in range(10)]
    feed.send(feed.avro(rows))
    mistake, stage = feed.folder / "mistake", feed.folder / "stage"
    mistake.touch()
    stage.mkdir()
    (feed.folder / "broken.py").write_text(BROKEN)
    step = {"python": "broken:unless_broken", "options": {"mistake": str(mistake)}}
    sizes = {"spark.driver.memory": "700m", "spark.executor.memory": "700m", "spark.cores.max": "1"}
    secret = {"spark.authenticate.secret": "${SPARK_AUTHENTICATE_SECRET}"}
    file = feed.write_file(
        transform={"steps": {"broken": step}}, spark={**sizes, **secret, "spark.pyspark.python": str(cluster.python)}
    )
    environment = {**feed.environment, "SPARK_AUTHENTICATE_SECRET": SECRET}
    mode = ("--deploy-mode", "cluster", "--supervise", "--stage", stage)
    lakefeed("deploy", "submit", file, "--master", cluster.master, *mode, environment=environment)

    cluster.wait_for(
        "the second failure", lambda: "has failed 2 times in a row: it ends in 20 s" in cluster.logs(), seconds=300
    )
    assert marked(mistake) == 2
    time.sleep(15)
    assert marked(mistake) == 2
    # A driver that waits for its restart holds no cores of the cluster.
    assert [each["state"] for each in cluster.state()["activeapps"]] == []
    mistake.unlink()
    cluster.wait_for("all rows", lambda: len(rows_so_far(feed)) == len(rows))
    assert_each_row_once(feed, file, rows, environment)


def rows_so_far(feed: Feed) -> list[dict[str, Any]]:
    try:
        return feed.rows()
    except ResourceMissing:
        return []


def is_zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True
