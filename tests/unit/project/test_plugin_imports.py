"""Our plug-ins import only modules that docs/extension-points.md names; the list of exceptions may not grow."""

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "extension-points.md").read_text("utf-8")
PUBLIC = set(re.findall(r"`(lakefeed[a-z0-9_.]*)`", PAGE.partition("## What a package may import")[2]))
BESIDE: dict[str, list[str]] = tomllib.loads((ROOT / "tools" / "plugin_imports.toml").read_text("utf-8"))
PARTS = sorted(path.parent.parent.name for path in ROOT.glob("packages/*/src/lakefeed_*"))


def is_module(name: str) -> bool:
    path = ROOT / "src" / Path(*name.split("."))
    return path.with_suffix(".py").is_file() or (path / "__init__.py").is_file()


def imported(source: str) -> Iterator[str]:
    """Yield the modules of the core that a file imports anywhere, also within functions and only for types."""
    for node in ast.walk(ast.parse(source)):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            inner = [f"{node.module}.{alias.name}" for alias in node.names]
            names = [name if is_module(name) else node.module for name in inner]
        yield from (name for name in names if name.partition(".")[0] == "lakefeed")


@pytest.mark.parametrize("part", PARTS)
def test_a_plugin_imports_only_public_modules(part: str) -> None:
    files = (ROOT / "packages" / part / "src").rglob("*.py")
    found = {name for file in files for name in imported(file.read_text("utf-8"))}
    # Remove a module from BESIDE when no plug-in imports it. Instead of adding a module, document it on the page or
    # avoid it.
    assert sorted(found - PUBLIC) == BESIDE.get(part, [])


def test_the_public_modules_on_the_page_exist() -> None:
    assert {name for name in PUBLIC if not is_module(name)} == set()
    assert set(BESIDE) <= set(PARTS)
