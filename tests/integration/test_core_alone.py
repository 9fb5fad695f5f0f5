"""With only the core's wheel installed, a feed lands its topic and is verified: the core needs no plug-in."""

from pathlib import Path

import pytest

from lakefeed.errors import install_command
from tests.support.feed import Feed
from tests.support.installed import install

TRIPS = [{"id": number, "zone": f"z{number % 5}"} for number in range(200)]


@pytest.mark.timeout(900)
def test_the_core_without_plug_ins_checks_plans_runs_and_verifies(feed: Feed, tmp_path: Path) -> None:
    folder = tmp_path / "alone"
    folder.mkdir()
    shell = install(folder, extras="spark,read", variables=feed.environment)
    packages = shell("python", "-c", "import importlib.metadata as m; print(*(d.name for d in m.distributions()))")
    assert {name for name in packages.split() if name.startswith("lakefeed")} == {"lakefeed"}
    feed.create_topic(partitions=2)
    feed.send(feed.avro(TRIPS))
    file = str(feed.write_file(dead_letters={"table": f"{feed.table}_dead"}))
    assert "no mistakes" in shell("lakefeed", "check", file, "--connect")
    assert "200" in shell("lakefeed", "plan", file)
    assert "200 rows" in shell("lakefeed", "run", file, "--once")
    assert "each record once" in shell("lakefeed", "verify", file)
    # A command of a missing plug-in is an error that names the command to install the plug-in.
    assert install_command("local") in shell("lakefeed", "topics", "produce", feed.topic, status=2)
    notified = feed.write_file(notify={"targets": {}})
    assert install_command("observe") in shell("lakefeed", "check", str(notified), status=2)
