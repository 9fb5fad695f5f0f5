"""A command in another shell reports whether a driver runs, hangs or was killed."""

import json
import os
import signal
import stat
from pathlib import Path
from typing import Any

import pytest

from lakefeed.monitor.drivers import read
from tests.support.cli import Running, lakefeed
from tests.support.drivers import address
from tests.support.feed import JSON_ROWS, Feed, records, until
from tests.support.pages import answer


@pytest.fixture
def environment(feed: Feed, tmp_path: Path) -> dict[str, str]:
    return {**feed.environment, "LAKEFEED_HOME": str(tmp_path / "home")}


def status(path: Path, environment: dict[str, str]) -> tuple[int, dict[str, Any]]:
    done = lakefeed("status", path, "--output", "json", environment=environment, status=None)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def is_live(environment: dict[str, str]) -> bool:
    """Return whether the driver counts as live: /health answers in time with status 200."""
    url, token = address(environment)
    try:
        return answer(f"{url}/health", headers={"Authorization": f"Bearer {token}"}, seconds=3)[0] == 200
    except OSError:
        return False


def test_status_in_another_shell_shows_that_a_driver_runs_hangs_or_is_dead(
    feed: Feed, tmp_path: Path, environment: dict[str, str]
) -> None:
    feed.create_topic(partitions=1)
    feed.send(records(100))
    path = feed.write_file(decode=JSON_ROWS)
    with Running(["run", path, "--log-format", "json"], environment, tmp_path / "log") as running:
        running.wait_until_it_says('"event":"batch"')
        code, document = status(path, environment)
        assert (code, document["state"]) == (0, "running"), document
        assert document["driver"]["pid"] == running.process.pid
        assert document["fence"] == document["progress"]["fence"]
        assert (document["lag"]["lag"], document["progress"]["totals"]["records"]) == (0, 100)
        [file] = (tmp_path / "home" / "run" / "drivers").iterdir()
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        driver = read(file)
        assert driver is not None
        assert driver.token
        for secret in (driver.token, environment["AWS_SECRET_ACCESS_KEY"]):
            assert secret not in running.said() + json.dumps(document)
        everything = lakefeed("status", "--all", environment=environment, status=None)
        assert (everything.returncode, "running" in everything.stdout) == (0, True)

        assert is_live(environment)
        os.kill(running.process.pid, signal.SIGSTOP)
        assert not is_live(environment)
        code, document = status(path, environment)
        assert (code, document["state"]) == (1, "hangs"), document
        os.kill(running.process.pid, signal.SIGCONT)
        until(lambda: status(path, environment)[1]["state"] == "running")
        assert is_live(environment)
        # On another machine, which does not have the driver's file, the status is read from the ledger.
        elsewhere = {**environment, "LAKEFEED_HOME": str(tmp_path / "elsewhere")}
        assert status(path, elsewhere)[1]["state"] in ("probably running", "unknown")
    assert not is_live(environment)
    code, document = status(path, environment)
    assert (code, document["state"]) == (1, "killed"), document
    for line in running.said().splitlines():
        event = json.loads(line)
        assert event["feed"] == feed.name
        assert {"time", "level", "event"} <= event.keys()
    [batch] = [event for line in running.said().splitlines() if (event := json.loads(line))["event"] == "batch"]
    assert batch["offsets_read"] == [{"topic": feed.topic, "partition": 0, "start": 0, "end": 100}]
