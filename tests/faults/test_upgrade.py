"""A feed is upgraded to a newer version of lakefeed and back, by the steps of docs/operate.md, and loses no record.

With ``-s`` the test prints the downtime.
"""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Event, Thread

import pytest

from lakefeed.clients.iceberg.reader import open_table
from tests.support.cli import Running, lakefeed
from tests.support.feed import JSON_ROWS, Feed, records

ROOT = Path(__file__).resolve().parents[2]
# The older version is the last commit before lakefeed had a container image and documented upgrade steps.
VERSION_BEFORE = "29ef138"
TRIGGER_SECONDS = 2


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Build an older version of lakefeed with its JVM module; return the environment that runs its commands."""
    folder = tmp_path_factory.mktemp("before")
    archive = subprocess.run(["git", "archive", VERSION_BEFORE], cwd=ROOT, capture_output=True, check=False)
    assert archive.returncode == 0, f"this test needs the history of the repository: {archive.stderr.decode()}"
    subprocess.run(["tar", "--extract", "--directory", folder], input=archive.stdout, check=True)
    subprocess.run([sys.executable, folder / "tools" / "build_jvm.py"], check=True, capture_output=True)
    return {"PYTHONPATH": str(folder / "src")}


@contextmanager
def arriving(feed: Feed) -> Iterator[list[int]]:
    """Send records until the block ends; yield the list to which their ids are added."""
    sent: list[int] = []
    stop = Event()

    def send() -> None:
        while not stop.is_set():
            feed.send(records(20, first=len(sent)))
            sent.extend(range(len(sent), len(sent) + 20))
            time.sleep(0.1)

    sender = Thread(target=send)
    sender.start()
    try:
        yield sent
    finally:
        stop.set()
        sender.join()


def snapshots(feed: Feed) -> list[float]:
    """Return the times of the feed's commits, in seconds since 1970."""
    table = open_table(feed.table, connections=feed.connections)
    return sorted(snapshot.timestamp_ms / 1000 for snapshot in table.metadata.snapshots)


def downtime(feed: Feed, stopped: float) -> float:
    """Return the seconds between the last commit before `stopped` and the first commit after it."""
    times = snapshots(feed)
    return min(each for each in times if each > stopped) - max(each for each in times if each <= stopped)


@pytest.mark.slow
def test_a_feed_is_upgraded_and_downgraded_between_two_versions_without_loss(
    feed: Feed, before: dict[str, str], tmp_path: Path
) -> None:
    # The newer version runs a changed pipeline file, v2.yaml; the older version runs v1.yaml, before and after.
    with_zone = {"sql": f"SELECT *, id % 7 AS zone FROM `{feed.name}`"}
    trigger = f"{TRIGGER_SECONDS} seconds"
    v1 = feed.write_file(decode=JSON_ROWS, trigger=trigger).rename(tmp_path / "v1.yaml")
    v2 = feed.write_file(decode=JSON_ROWS, trigger=trigger, transform=with_zone).rename(tmp_path / "v2.yaml")
    new = dict(feed.environment)
    old = {**new, **before}
    gaps = []
    feed.create_topic(partitions=2)
    with ExitStack() as started:
        with arriving(feed) as sent:
            running = started.enter_context(Running(["run", v1], old, tmp_path / "old.log"))
            running.wait_until_it_says(": batch ", times=2)
            # While the feed runs, the old version's plan reports new records as lost, so skip that plan.
            check = ["check", "--connect"]
            for file, environment, name, preflight in ((v2, new, "new", [check, ["plan"]]), (v1, old, "back", [check])):
                # While the previous version still runs, check the file with the version that starts next: a check
                # changes nothing.
                for command in preflight:
                    lakefeed(*command, file, environment=environment)
                lakefeed("feed", "stop", file, environment=environment)
                assert running.process.wait(120) == 0, running.said()
                stopped = time.time()
                running = started.enter_context(Running(["run", file], environment, tmp_path / f"{name}.log"))
                running.wait_until_it_says(": batch ", times=2)
                gaps.append(round(downtime(feed, stopped), 1))
        deadline = time.monotonic() + 60
        while len(feed.rows()) < len(sent) and time.monotonic() < deadline:
            time.sleep(1)
        assert running.ask_to_stop(signal.SIGTERM) == 0, running.said()
    print(json.dumps({"downtime_seconds": gaps, "batches": [round(gap / TRIGGER_SECONDS, 1) for gap in gaps]}))

    rows = feed.rows()
    assert sorted(row["id"] for row in rows) == sent
    assert {row["zone"] for row in rows} == {None, *range(7)}
    lakefeed("verify", v1, "--deep", environment=new)
    # A downtime is one stop and one start of a driver; the limit is high, because the machine may be busy.
    assert max(gaps) < 120, gaps
