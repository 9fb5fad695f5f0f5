"""Install a package, with its modules and entry points, into a folder on this process's path."""

import sys
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from lakefeed.config.loading.explain import all_settings
from lakefeed.config.models import added_models, pipeline_model
from lakefeed.plugins import FOLLOWERS_GROUP, FORMATS_GROUP, SETTINGS_GROUP
from tests.support.blocks import ROOT, blocks_in

CACHES: tuple[Callable[[], object], ...] = (
    added_models.cache_clear,
    pipeline_model.cache_clear,
    all_settings.cache_clear,
)


def put_on_path(folder: Path, entry_points: Mapping[str, str], monkeypatch: pytest.MonkeyPatch, **modules: str) -> None:
    """Install a package for one test.

    Args:
        folder: the folder for the package's files.
        entry_points: the lines of each group of entry points.
        monkeypatch: the test's fixture, which removes the package at the end; the fixture ``fresh_blocks`` forgets the
            package's blocks.
        modules: the source of each module.
    """
    for name, source in modules.items():
        file = folder / f"{name.replace('.', '/')}.py"
        file.parent.mkdir(exist_ok=True)
        file.write_text(source)
        for loaded in (name, name.rpartition(".")[0]):
            monkeypatch.delitem(sys.modules, loaded, raising=False)
    info = folder / "stranger-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: stranger\nVersion: 1.0\n")
    text = "".join(f"[{group}]\n{lines}\n" for group, lines in entry_points.items())
    (info / "entry_points.txt").write_text(text)
    monkeypatch.syspath_prepend(folder)
    forget_blocks()


def put_page_on_path(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Install the package of docs/extension-points.md, made of all blocks of the page that run."""
    page = ROOT / "docs" / "extension-points.md"
    groups, modules = dict[str, str](), dict[str, str]()
    for block in blocks_in(page.read_text("utf-8"), page):
        if block.language == "toml":
            for group, entries in tomllib.loads(block.text)["project"]["entry-points"].items():
                groups[group] = "\n".join(f"{name} = {value}" for name, value in entries.items())
        elif block.text.startswith("# my_package/"):
            modules[block.text.split(".py", 1)[0].removeprefix("# ").replace("/", ".")] = block.text
    kept = {group: groups[group] for group in (SETTINGS_GROUP, FOLLOWERS_GROUP, FORMATS_GROUP)}
    put_on_path(folder, kept, monkeypatch, **modules)


def forget_blocks() -> None:
    """Forget the blocks of installed packages, so that the next file is read with the packages of that moment."""
    for clear in CACHES:
        clear()
