"""Check that docs/verify.md explains the findings of ``lakefeed verify``, and no others."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import get_args

from lakefeed.ledger.snapshot_summary import Reason

ROOT = Path(__file__).parents[3]
HISTORY = "history-…"
"""The page's name for the findings about an upsert feed's history table."""


def reported() -> set[str]:
    """Return the kinds of findings in the code: arguments of ``Finding.of``, and the reasons of moves."""
    kinds = set(get_args(Reason))
    for file in (ROOT / "src/lakefeed/operations/verify").glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "Finding.of":
                kinds |= {
                    part.value
                    for part in ast.walk(node.args[0])
                    if isinstance(part, ast.Constant) and isinstance(part.value, str)
                }
    return kinds


def documented() -> set[str]:
    """Return the names in the first columns of the page's tables of faults and notes."""
    page = (ROOT / "docs/verify.md").read_text("utf-8")
    tables = re.findall(r"^\| (?:fault|note) \|.*\n\|[-|]+\|\n((?:\|.*\n)+)", page, re.M)
    return {name for table in tables for row in table.splitlines() for name in re.findall("`(.+?)`", row.split("|")[1])}


def test_the_page_on_verify_documents_every_finding() -> None:
    assert documented() - {HISTORY} == reported()
