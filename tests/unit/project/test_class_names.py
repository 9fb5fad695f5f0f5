"""A class name means one thing in the package."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

PACKAGE = Path(__file__).parents[3] / "src" / "lakefeed"


def test_no_two_public_classes_have_the_same_name() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for file in PACKAGE.rglob("*.py"):
        for node in ast.parse(file.read_text("utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(str(file.relative_to(PACKAGE)))
    assert {name: files for name, files in places.items() if len(files) > 1} == {}
