"""Two drivers on one checkpoint: one goes on, the other stops with Spark's message, every row is there once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

import duckdb
import pytest

from tests.contract.stores import Bucket, Store

BATCHES = 6
ROOT = Path(__file__).resolve().parents[2]
# The last is Spark's own look before batch 0, which may come first: nothing has been written then.
MESSAGES = (
    "CONCURRENT_STREAM_LOG_UPDATE",
    "Multiple streaming queries",
    "multiple streaming queries",
    "should be empty on batch 0",
)


@dataclass(frozen=True)
class Driver:
    """A Spark driver in a process of its own."""

    process: subprocess.Popen[str]

    def tell(self, line: str) -> None:
        """One line to its stdin."""
        stdin = cast(IO[str], self.process.stdin)
        stdin.write(line + "\n")
        stdin.flush()

    def hear(self) -> str:
        """One line of its stdout."""
        line = cast(IO[str], self.process.stdout).readline().strip()
        assert line, "the driver has died"
        return line


@contextmanager
def driver(store: Store, log: Path) -> Iterator[Driver]:
    """A driver that knows the store."""
    with log.open("w") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.two_drivers_child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            cwd=ROOT,
            env={**os.environ, **store.as_environment()},
        )
    try:
        yield Driver(process)
    finally:
        for stream in (process.stdin, process.stdout):
            cast(IO[str], stream).close()
        process.terminate()
        process.wait(60)


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("rounds", [3, pytest.param(50, marks=pytest.mark.slow)])
def test_of_two_drivers_one_survives(store: Store, tmp_path: Path, rounds: int) -> None:
    bucket = store.new_bucket()
    with ExitStack() as running:
        drivers = [running.enter_context(driver(store, tmp_path / f"driver-{n}.log")) for n in range(2)]
        for number in range(rounds):
            name = f"round-{number}-{uuid.uuid4().hex[:6]}"
            play(drivers, bucket, name, tmp_path)


def play(drivers: list[Driver], bucket: Bucket, name: str, folder: Path) -> None:
    """One round."""
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
    assert_rows_once(bucket, name, folder)


def assert_rows_once(bucket: Bucket, name: str, folder: Path) -> None:
    """Reads the sink as its log says, without Spark."""
    files: set[str] = set()
    for key in bucket.keys(f"{name}/table/_spark_metadata/"):
        lines = bucket.request("GET", key).decode().splitlines()[1:]
        files |= {json.loads(line)["path"] for line in lines}
    values: list[int] = []
    for path in sorted(files):
        content = bucket.request("GET", path.removeprefix(bucket.url() + "/"))
        local = folder / "one.parquet"
        local.write_bytes(content)
        values += [row[0] for row in duckdb.execute("SELECT value FROM read_parquet(?)", [str(local)]).fetchall()]
    assert sorted(values) == list(range(len(values)))
    assert len(values) >= BATCHES
