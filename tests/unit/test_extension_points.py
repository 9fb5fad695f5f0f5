"""The package of docs/extension-points.md, as its page shows it: its block is checked, its follower is called."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from lakefeed import plugins
from lakefeed.config.connections import Connections
from lakefeed.config.loading.load import read
from lakefeed.errors import Unreachable
from lakefeed.monitor.feed_monitor import FeedMonitor
from lakefeed.operations.followers import FollowedRun, following
from tests.support.blocks import ROOT, blocks_in
from tests.support.plugin import forget_blocks, put_on_path

PAGE = ROOT / "docs" / "extension-points.md"
FILE = "name: taxi\nsource: {rate: {}}\nsink: memory\npager: {url: https://pager.example.org}\n"


@pytest.fixture(autouse=True)
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("LAKEFEED_HOME", str(tmp_path / "home"))
    groups, modules = dict[str, str](), dict[str, str]()
    for block in blocks_in(PAGE.read_text("utf-8"), PAGE):
        if block.language == "toml":
            for group, entries in tomllib.loads(block.text)["project"]["entry-points"].items():
                groups[group] = "\n".join(f"{name} = {value}" for name, value in entries.items())
        elif block.text.startswith("# my_package/"):
            name = block.text.split(".py", 1)[0].removeprefix("# ").replace("/", ".")
            modules[name] = block.text
    kept = {group: groups[group] for group in (plugins.SETTINGS_GROUP, plugins.FOLLOWERS_GROUP)}
    put_on_path(tmp_path, kept, monkeypatch, **modules)
    yield
    monkeypatch.undo()
    forget_blocks()


def test_the_block_is_checked(tmp_path: Path) -> None:
    path = tmp_path / "pipeline.yaml"
    path.write_text(FILE.replace("url:", "urll:"))
    [problem] = read(path).problems
    assert (problem.line, problem.hint) == (4, "did you mean 'url'?")
    path.write_text(f"{FILE}trigger: available-now\n")
    [problem] = read(path).problems
    assert (problem.line, problem.what) == (4, "a run that ends by itself calls no pager")


def test_the_follower_is_called(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "pipeline.yaml"
    path.write_text(FILE)
    config = read(path).config
    assert config is not None
    monitor = FeedMonitor("taxi")
    run = FollowedRun(config=config, monitor=monitor, connections=Connections())
    with pytest.raises(Unreachable), following(run), monitor.until_end():
        raise Unreachable("the broker does not answer")
    assert "call https://pager.example.org: taxi has failed" in capsys.readouterr().out
