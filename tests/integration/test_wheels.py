"""``make wheels`` builds the files for PyPI; pip installs lakefeed from them by the command of the README."""

import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

import lakefeed
from lakefeed.clients.spark.jars import cache_directory
from tests.support.blocks import ROOT
from tests.support.feed import Feed
from tests.support.installed import Shell
from tests.support.package_index import package_index
from tools import build_jvm, build_wheels, references, runtimes

README = (ROOT / "README.md").read_text("utf-8")
PARTS = sorted(path.name for path in (ROOT / "packages").iterdir())
TRIPS = [{"id": number, "zone": f"z{number % 5}"} for number in range(200)]


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build all wheels, without PySpark and Java in the environments of the builds."""
    folder = tmp_path_factory.mktemp("clone") / "dist"
    path = tmp_path_factory.mktemp("without-java")
    assert not (path / "javac").exists()
    build_wheels.build(folder, environment={**os.environ, "PATH": str(path), "JAVA_HOME": ""})
    return folder


def files_of(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as opened:
        return {name: opened.read(name) for name in opened.namelist()}


def test_the_wheels_are_built_from_the_source_archive_and_pass_twines_check(dist: Path) -> None:
    version = lakefeed.__version__
    wheels = {f"lakefeed{part}-{version}-py3-none-any.whl" for part in ("", *(f"_{each}" for each in PARTS))}
    assert {path.name for path in dist.iterdir()} == {f"lakefeed-{version}.tar.gz", *wheels}
    subprocess.run([Path(sys.executable).with_name("twine"), "check", "--strict", *dist.iterdir()], check=True)
    core = files_of(dist / f"lakefeed-{version}-py3-none-any.whl")
    assert {f"lakefeed/docs/{name}" for name in references.NAMES} <= core.keys()
    assert core["lakefeed/lakefeed-jvm.jar"] == build_jvm.JAR.read_bytes()
    page = files_of(dist / f"lakefeed_dashboard-{version}-py3-none-any.whl")
    assert "lakefeed_dashboard/static/vendor/uPlot.iife.min.js" in page


@pytest.mark.slow
def test_the_jars_in_the_wheels_equal_those_of_a_build_from_the_sources(dist: Path) -> None:
    build_jvm.build(force=True)
    packed = [
        content for wheel in dist.glob("*.whl") for name, content in files_of(wheel).items() if name[-4:] == ".jar"
    ]
    built = [build_jvm.JAR, *(plugin.jar for plugin in build_jvm.PLUGINS if "packages" in plugin.jar.parts)]
    assert sorted(packed) == sorted(jar.read_bytes() for jar in built)


@pytest.fixture
def index(dist: Path, tmp_path: Path) -> Iterator[tuple[str, list[str]]]:
    with package_index(tmp_path / "simple", sorted(dist.glob("*.whl"))) as served:
        yield served


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("python", "command"),
    [
        ("3.11", r"^pip install --find-links dist '\S+'"),
        ("3.12", r"`(pip install '\S+')`"),
        ("3.13", r"`(pip install '\S+')`"),
    ],
)
def test_lakefeed_installed_by_the_readmes_command_lands_a_topic(
    feed: Feed, dist: Path, index: tuple[str, list[str]], tmp_path: Path, python: str, command: str
) -> None:
    found = re.search(command, README, re.M)
    assert found is not None
    subprocess.run([runtimes.interpreter(python), "-m", "venv", tmp_path / "env"], check=True)
    url, fetched = index
    own = {
        "HOME": str(tmp_path),
        "PATH": f"{tmp_path}/env/bin:{os.environ['PATH']}",
        "PIP_NO_WARN_SCRIPT_LOCATION": "1",
    }
    shell = Shell(dist.parent, {**os.environ, **own, "LAKEFEED_CACHE": str(cache_directory())})
    shell.variables.setdefault("PIP_CACHE_DIR", str(Path.home() / ".cache" / "pip"))
    if "find-links" not in found[0]:
        shell.variables["PIP_EXTRA_INDEX_URL"] = url
    shell("sh", "-c", found[found.lastindex or 0], timeout=1500)
    if "find-links" not in found[0]:
        assert {path.name for path in dist.glob("*.whl")} <= set(fetched)

    shell.variables |= feed.environment
    assert lakefeed.__version__ in shell("lakefeed", "--version")
    feed.create_topic(partitions=2)
    feed.send(feed.avro(TRIPS))
    file = str(feed.write_file())
    assert "no mistakes" in shell("lakefeed", "check", file, "--connect")
    assert "200 rows" in shell("lakefeed", "run", file, "--once")
    assert "each record once" in shell("lakefeed", "verify", file)


def test_only_the_job_that_publishes_may_ask_pypi_for_a_token() -> None:
    release = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text())
    assert release["permissions"] == {"contents": "read"}
    build, publish = release["jobs"]["build"], release["jobs"]["publish"]
    assert "make wheels" in [step.get("run") for step in build["steps"]]
    assert "permissions" not in build
    assert (publish["needs"], publish["permissions"]) == ("build", {"id-token": "write"})
    assert [step for step in publish["steps"] if "run" in step] == []
    assert "password" not in str(release)
