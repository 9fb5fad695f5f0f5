"""All links between documents, and all pages and tests named in documents and messages, have a target."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
FENCE = re.compile(r"^(```|~~~).*?^\1", re.S | re.M)


@cache
def anchors(page: Path) -> frozenset[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    found: dict[str, int] = {}
    for heading in re.findall(r"^#{1,6} +(.*?)#*$", FENCE.sub("", page.read_text("utf-8")), re.M):
        text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
        slug = re.sub(r"[^\w\- ]", "", text).replace(" ", "-")
        count = found.get(slug, -1) + 1
        found[slug] = count
        if count:
            found[f"{slug}-{count}"] = 0
    return frozenset(found)


def broken_links(page: Path, text: str) -> list[str]:
    """Return the relative links whose file or heading does not exist."""
    prose = re.sub(r"`[^`\n]*`", "", FENCE.sub("", text))
    broken = []
    for target in re.findall(r"\]\(([^)\s]+)\)", prose):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        if not file.exists() or (anchor and file.suffix == ".md" and anchor not in anchors(file)):
            broken.append(target)
    return broken


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_relative_link_and_anchor_resolves(page: Path) -> None:
    assert broken_links(page, page.read_text("utf-8")) == []


def test_a_broken_link_and_a_broken_anchor_are_found() -> None:
    text = "[a](no-such-page.md) [b](run.md#no-such-heading) [c](run.md) [d](https://example.org/x.md)\n"
    assert broken_links(ROOT / "docs" / "README.md", text) == ["no-such-page.md", "run.md#no-such-heading"]


def test_the_pages_that_code_and_messages_name_exist() -> None:
    sources = [
        file
        for folder in ("src", "packages", "bench", "tools", "tests", "examples", "jvm")
        for file in (ROOT / folder).rglob("*")
        if file.suffix in (".py", ".java", ".yaml", ".sh", ".lock")
    ]
    named = {
        (str(file.relative_to(ROOT)), path, anchor)
        for file in sources
        for path, anchor in re.findall(r"(?<![\w./])(docs/[\w/-]+\.md)(?:#([\w-]+))?", file.read_text("utf-8"))
    }
    assert named
    missing = [
        each
        for each in sorted(named)
        if not (ROOT / each[1]).exists() or (each[2] and each[2] not in anchors(ROOT / each[1]))
    ]
    assert missing == []


def test_the_tests_that_documents_name_exist() -> None:
    """A page names a test as the proof of a promise, so the test must exist."""
    files = [file for folder in ("tests", "packages", "bench") for file in (ROOT / folder).rglob("*.py")]
    modules = {file.name for file in files}
    functions = {name for file in files for name in re.findall(r"^ *def (test_\w+)", file.read_text("utf-8"), re.M)}
    missing = []
    for page in PAGES:
        text = page.read_text("utf-8")
        for path in re.findall(r"(?<![\w/])(?:(?:packages/\w+|bench)/)?tests/[\w/]+\.py\b", text):
            if not (ROOT / path).exists():
                missing.append(f"{page.name}: {path}")
        for name, more in re.findall(r"`(test_\w+)(\.py|…)?(?:\[[^\]`]*\])?`", text):
            if more == ".py":
                found = f"{name}.py" in modules
            elif more:
                found = any(each.startswith(name) for each in functions)
            else:
                found = name in functions
            if not found:
                missing.append(f"{page.name}: {name}{more}")
    assert missing == []


def test_the_java_classes_that_documents_name_exist() -> None:
    sources = [ROOT / "jvm/src/main/java", *ROOT.glob("packages/*/jvm/src/main/java")]
    named = {
        (page.name, name)
        for page in PAGES
        for name in re.findall(r"\bio\.lakefeed(?:\.[a-z0-9]+)+\.[A-Z]\w+", page.read_text("utf-8"))
    }
    assert named
    files = {file.relative_to(folder).as_posix() for folder in sources for file in folder.rglob("*.java")}
    missing = [each for each in sorted(named) if f"{each[1].replace('.', '/')}.java" not in files]
    assert missing == []
