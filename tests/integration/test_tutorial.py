"""The commands of README.md and docs/tutorial.md work in an empty folder, with only lakefeed's wheel installed."""

import os
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from lakefeed_deploy.image import write_wheels
from lakefeed_local.stack import Stack
from tests.support.blocks import ROOT, blocks_of
from tests.support.page_reader import Reader

TEST = "tests/integration/test_tutorial.py"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the wheel as pip does; return the folder with the installed files."""
    folder = tmp_path_factory.mktemp("installed")
    with zipfile.ZipFile(write_wheels(folder)[0]) as wheel:
        wheel.extractall(folder / "site")
    return folder / "site"


@pytest.fixture
def stranger(installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Reader]:
    """Yield a new user, who works in an empty folder on a machine without running servers."""
    home, folder = tmp_path / "home", tmp_path / "folder"
    folder.mkdir()
    monkeypatch.chdir(folder)
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "JAVA_HOME", "JDK_JAVA_OPTIONS") if name in os.environ}
    cache = {name: value for name, value in os.environ.items() if name.startswith(("LAKEFEED_CACHE", "XDG_"))}
    environment = {**kept, **cache, "LAKEFEED_HOME": str(home), "PYTHONPATH": str(installed), "COLUMNS": "110"}
    yield Reader(folder, environment, {}, seconds=25, in_process=False, test=TEST)
    Stack(home).down(erase=True)


@pytest.mark.slow
@pytest.mark.parametrize("page", ["README.md", "docs/tutorial.md"])
def test_commands_of_the_tutorial_work(stranger: Reader, installed: Path, page: str) -> None:
    where = stranger.type(f"{sys.executable} -c 'import lakefeed; print(lakefeed.__file__)'")
    assert where.startswith(str(installed))
    assert stranger.follow(blocks_of(ROOT / page)) == []
