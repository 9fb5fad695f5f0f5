"""Check that the code raises the messages that the documentation explains."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tools.source_tree import PACKAGES, ROOT

PAGES = sorted((ROOT / "docs").glob("*.md"))
TABLE = re.compile(r"^\| (?:it says|message) \|.* (?:do|what to do) \|\n\|[-|]+\|\n((?:\|.*\n)+)", re.M)
PLACEHOLDER = "\0"


@cache
def texts() -> str:
    """Return the packages' strings without docstrings; a placeholder replaces each value of an f-string."""
    found = []
    for file in (file for package in PACKAGES for file in package.rglob("*.py")):
        nodes = list(ast.walk(ast.parse(file.read_text("utf-8"))))
        docstrings = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
        for node in nodes:
            if id(node) in docstrings:
                continue
            if isinstance(node, ast.JoinedStr):
                found.append(
                    "".join(str(part.value) if isinstance(part, ast.Constant) else PLACEHOLDER for part in node.values)
                )
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.append(node.value)
    java = "\n".join(file.read_text("utf-8") for file in ROOT.glob("**/jvm/**/*.java") if "/test/" not in str(file))
    return "\n".join([*found, re.sub(r'"\s*\+\s*"', "", java)])


def messages(page: Path) -> list[str]:
    """Return the messages in the first column of a page's tables of messages."""
    rows = re.findall(r"^\| (`.*?) \|", "".join(TABLE.findall(page.read_text("utf-8"))), re.M)
    return [message for row in rows for message in re.findall(r"`([^`]+)`", row)]


def explained() -> list[Any]:
    """Return the explained messages as parameters of a test, with the page in the id."""
    return [pytest.param(message, id=f"{page.name}: {message}") for page in PAGES for message in messages(page)]


def unknown_parts(message: str) -> list[str]:
    """Return the parts of a message, without its placeholders, that no string in the code contains."""
    parts = re.split(r"…|\bN\b|\bTOPIC-P\b", message)
    return [part for part in (part.strip(" ,:") for part in parts) if part and part not in texts()]


@pytest.mark.parametrize("page", ["troubleshooting.md", "catalogs.md", "jars.md", "quickstart.md"])
def test_a_page_has_a_table_of_messages(page: str) -> None:
    assert len(messages(ROOT / "docs" / page)) > 5


@pytest.mark.parametrize("message", explained())
def test_the_code_has_each_message_that_a_page_explains(message: str) -> None:
    assert unknown_parts(message) == []


def test_a_message_that_is_not_in_the_code_is_found() -> None:
    assert unknown_parts("the checkpoint is another's: feed …") == ["the checkpoint is another's: feed"]
