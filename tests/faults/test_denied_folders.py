"""A folder that a run may not write, or that is a file, is an error with status 2, cause, place and next step.

Root may write to any folder, so the commands drop this capability; unwritable folders have mode 0500.
"""

import sys
from pathlib import Path
from typing import Any

import pytest

from lakefeed_local.stack import Endpoints
from tests.support.cli import COMMAND, lakefeed
from tests.support.faults.drivers import SHORT_LIVED
from tests.support.feed import Feed

PR_CAPBSET_DROP, CAP_DAC_OVERRIDE = 24, 1
OF_ORDINARY_RIGHTS = f"""
import ctypes, os, sys
if os.getuid() == 0 and ctypes.CDLL(None).prctl({PR_CAPBSET_DROP}, {CAP_DAC_OVERRIDE}, 0, 0, 0):
    sys.exit("the right to write everywhere could not be given up")
os.execv(sys.argv[1], sys.argv[1:])
"""
COMMAND_OF_ORDINARY_RIGHTS = (sys.executable, "-c", OF_ORDINARY_RIGHTS, *COMMAND)


@pytest.fixture
def locked(tmp_path: Path) -> Path:
    """Return a folder in which no user may create a file."""
    folder = tmp_path / "locked"
    folder.mkdir(mode=0o500)
    return folder


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Return the path of a file, for settings that expect a folder."""
    path = tmp_path / "file"
    path.touch()
    return path


@pytest.fixture
def on_disk(stack: Endpoints, tmp_path: Path) -> Feed:
    feed = Feed(stack, tmp_path, disk=tmp_path / "lake")
    feed.create_topic(partitions=1)
    feed.send(feed.avro([{"id": 1, "zone": "a"}]))
    return feed


def refusal(feed: Feed, *options: str | Path, environment: dict[str, str] | None = None, **blocks: Any) -> str:
    """Run the feed, which lakefeed must refuse; return the printed error."""
    done = lakefeed(
        *("run", feed.write_file(**blocks), "--once", *options),
        environment={**feed.environment, **SHORT_LIVED, **(environment or {})},
        command=COMMAND_OF_ORDINARY_RIGHTS,
        status=2,
    )
    assert "Traceback" not in done.stderr, done.stderr
    assert "\tat " not in done.stderr, done.stderr
    assert "next:" in done.stderr, done.stderr
    assert done.stdout == ""
    return done.stderr


@pytest.mark.parametrize("kind", ["locked", "file"])
def test_an_unwritable_folder_is_an_error_before_the_start(
    on_disk: Feed, request: pytest.FixtureRequest, kind: str
) -> None:
    place: Path = request.getfixturevalue(kind)
    why = {"locked": ("Permission denied",), "file": ("Not a directory", "File exists", "it is a file")}[kind]
    refusals = {
        "checkpoint": refusal(on_disk, checkpoint=f"file://{place}/checkpoint"),
        "warehouse": refusal(on_disk, catalogs={on_disk.catalog: {"warehouse": f"{place}/warehouse"}}),
        "Spark's folder": refusal(on_disk, spark={"spark.local.dir": f"{place}/spark"}),
        "log": refusal(on_disk, "--log-file", place / "jvm.log"),
    }
    for name, said in refusals.items():
        print(f"{name}: {said}")
        assert any(each in said for each in why), said
        assert str(place) in said, said


@pytest.mark.parametrize("kind", ["locked", "file"])
def test_a_feed_runs_without_a_writable_home_folder_and_warns_that_commands_cannot_see_it(
    on_disk: Feed, request: pytest.FixtureRequest, kind: str
) -> None:
    place: Path = request.getfixturevalue(kind)
    done = lakefeed(
        *("run", on_disk.write_file(), "--once"),
        environment={**on_disk.environment, **SHORT_LIVED, "LAKEFEED_HOME": f"{place}/home"},
        command=COMMAND_OF_ORDINARY_RIGHTS,
    )
    print(done.stderr)
    assert "Traceback" not in done.stderr
    why = {"locked": "Permission denied", "file": "Not a directory"}[kind]
    assert f"do not find this driver: {place}/home/run/drivers cannot be written: {why}" in done.stderr
    assert [row["id"] for row in on_disk.rows()] == [1]


@pytest.mark.parametrize("place", ["table", "checkpoint"])
def test_a_folder_that_becomes_unwritable_is_an_error_within_a_batch(on_disk: Feed, place: str) -> None:
    """The folder was writable when the first run started, and is not any more when the second run writes a batch."""
    lakefeed("run", on_disk.write_file(), "--once", environment={**on_disk.environment, **SHORT_LIVED})
    on_disk.send(on_disk.avro([{"id": 2, "zone": "a"}]))
    assert on_disk.disk is not None
    folder = {
        "table": on_disk.disk / "warehouse" / on_disk.name / "rows" / "data",
        "checkpoint": on_disk.disk / "checkpoints" / on_disk.name / "offsets",
    }[place]
    folder.chmod(0o500)
    said = refusal(on_disk)
    print(said)
    assert "a file cannot be written" in said
    assert str(folder) in said
    folder.chmod(0o700)
    lakefeed("run", on_disk.write_file(), "--once", environment={**on_disk.environment, **SHORT_LIVED})
    assert sorted(row["id"] for row in on_disk.rows()) == [1, 2]
