"""One place opens feeds: each way to run one uses it, and only the status decides beside it."""

from __future__ import annotations

import ast
from pathlib import Path

import lakefeed

PACKAGE = Path(lakefeed.__file__).parent
OPENS = "feed/open.py"
ASKS = "operations/status.py"
RUNS = {"feed/streaming.py", "feed/bounded.py", "feed/multi_table/table.py", "dataframes.py"}


def callers(name: str) -> set[str]:
    """The files that call a function of this name."""
    found = set()
    for file in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call):
                called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
                if called == name:
                    found.add(str(file.relative_to(PACKAGE)))
    return found


def test_facts_are_collected_for_a_start_and_for_the_status_only() -> None:
    assert callers("collect_facts") == {OPENS, ASKS}


def test_each_way_to_run_a_feed_opens_it_in_one_place() -> None:
    assert callers("FeedStart") == RUNS
