"""The same pipeline file on a Spark standalone cluster: a master and two workers of the pip installation."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest

from tests.support.cli import lakefeed
from tests.support.feed import Feed

WORKERS = 2


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
    return port


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[str]:
    """A master's URL, with two workers of one core each registered."""
    spark_class = Path(pyspark.__file__).parent / "bin" / "spark-class"
    environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_WORKER_DIR": str(tmp_path / "work")}
    port, web = free_port(), free_port()
    master = f"spark://127.0.0.1:{port}"
    deploy = "org.apache.spark.deploy"
    address = ["--host", "127.0.0.1"]
    commands = [[f"{deploy}.master.Master", *address, "--port", str(port), "--webui-port", str(web)]]
    commands += [
        [f"{deploy}.worker.Worker", *address, "--webui-port", "0", "--cores", "1", "--memory", "1g", master]
        for _ in range(WORKERS)
    ]
    processes = []
    try:
        for number, command in enumerate(commands):
            with (tmp_path / f"cluster{number}.log").open("wb") as log:
                processes.append(subprocess.Popen([spark_class, *command], env=environment, stdout=log, stderr=log))
        _wait_for_workers(f"http://127.0.0.1:{web}/json/")
        yield master
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait(30)


def _wait_for_workers(url: str) -> None:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:
                if json.load(answer)["aliveworkers"] == WORKERS:
                    return
        except OSError:
            pass  # The master is not up yet.
        time.sleep(0.5)
    raise AssertionError("the workers did not register")


@pytest.mark.slow
def test_one_file_runs_on_local_and_on_a_cluster(feed: Feed, cluster: str) -> None:
    feed.create_topic(partitions=4)
    file = feed.write_file(spark={"spark.executor.memory": "700m", "spark.cores.max": "2"})
    rows = [{"id": number, "zone": f"zone {number % 7}"} for number in range(2000)]
    # The workers have nothing but what the driver sends them: no keys in their environment, no jars.
    feed.send(feed.avro(rows[:1000]))
    on_local = lakefeed("run", file, "--once", "--output", "json", environment=feed.environment)
    assert on_local.returncode == 0, on_local.stderr
    feed.send(feed.avro(rows[1000:]))
    on_cluster = lakefeed("run", file, "--once", "--master", cluster, "--output", "json", environment=feed.environment)
    assert on_cluster.returncode == 0, on_cluster.stderr
    summary = json.loads(on_cluster.stdout)
    assert summary["rows"] == 1000
    # Data files are written by the executors alone, one request each; the driver has heard of all of them.
    assert summary["requests"]["calls"]["data"] == {"PutObject": summary["files"]}
    assert summary["requests"]["calls"]["commits"]["PutObject"] == summary["batches"]
    assert sorted(feed.rows(), key=lambda row: row["id"]) == rows
