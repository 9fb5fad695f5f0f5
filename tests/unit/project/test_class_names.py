"""Each public class of our packages has a name of its own, so that a class name has only one meaning."""

import ast
from collections import defaultdict

from tools.source_tree import PACKAGES, ROOT


def test_no_two_public_classes_have_the_same_name() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for file in (file for package in PACKAGES for file in package.rglob("*.py")):
        for node in ast.parse(file.read_text("utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(str(file.relative_to(ROOT)))
    assert {name: files for name, files in places.items() if len(files) > 1} == {}
