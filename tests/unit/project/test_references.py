"""References are not committed; they are built from the code when they are missing or outdated."""

from __future__ import annotations

import os
from pathlib import Path

from lakefeed_local.docs_command import page_folder
from tools import references


def test_references_are_built_if_a_file_is_missing_or_older_than_the_code(tmp_path: Path) -> None:
    assert references.build(tmp_path)
    built = {name: (tmp_path / name).read_text("utf-8") for name in references.NAMES}
    assert not references.build(tmp_path)
    (tmp_path / "commands.md").write_text("older")
    os.utime(tmp_path / "commands.md", (0, 0))
    assert references.build(tmp_path)
    assert {path.name: path.read_text("utf-8") for path in tmp_path.iterdir()} == built
    assert {name: (page_folder() / name).read_text("utf-8") for name in built} == built


def test_git_ignores_the_references_and_make_clean_removes_them() -> None:
    ignored = (references.ROOT / ".gitignore").read_text("utf-8")
    makefile = (references.ROOT / "Makefile").read_text("utf-8")
    assert all(f"docs/{name}" in ignored and f"docs/{name}" in makefile for name in references.NAMES)
