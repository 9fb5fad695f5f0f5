"""The reference of errors has the texts that the sources raise, with their hints and pages."""

import ast
import re
from collections.abc import Iterator

import lakefeed.errors
from tools.errors_reference import errors
from tools.references import DOCS
from tools.source_tree import PACKAGES

MOST_WITHOUT_HINT = 3
"""The number of errors without a hint; this limit may only be lowered, because errors say what to do next."""
NAMES = {name for name in vars(lakefeed.errors) if name[0].isupper()} | {"ConfigProblem"}
FOUND = errors()


def raised() -> Iterator[str]:
    """Yield the literal texts in calls that create errors, with a zero byte for each field of an f-string."""
    for file in (file for package in PACKAGES for file in package.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.Call) and node.args and getattr(node.func, "id", "") in NAMES:
                parts = getattr(node.args[0], "values", node.args[:1])
                yield "".join(str(part.value) if isinstance(part, ast.Constant) else "\0" for part in parts)


def test_each_text_in_the_sources_is_in_the_reference() -> None:
    listed = "\n".join(text for _, text, _, _ in FOUND)
    texts = set(raised())
    assert len(texts) > 500
    missing = {text for text in texts if not re.search(".*".join(map(re.escape, text.split("\0"))), listed)}
    assert missing == set()


def test_each_error_is_listed_once_and_its_page_exists() -> None:
    assert len({(area, text) for area, text, _, _ in FOUND}) == len(FOUND)
    assert [page for *_, page in FOUND if not (DOCS / f"{page}.md").exists()] == []


def test_the_number_of_errors_without_a_hint_does_not_grow() -> None:
    without = [f"{area}: {text}" for area, text, hint, _ in FOUND if not hint]
    assert len(without) <= MOST_WITHOUT_HINT, "\n".join(without)
