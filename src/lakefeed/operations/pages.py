"""The pages of the documentation that come with the package, and their index: ``docs/README.md``.

The index is the navigation of the site, too: a heading is a part of it, a link of a table is a page.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from lakefeed.errors import ResourceMissing
from lakefeed.messages.pages import page_command
from lakefeed.operations.packaged import packaged_root

FOLDER = "docs"
INDEX = "README.md"
DESIGN = "design"
_HEADING = re.compile(r"(#{2,3}) (.+)")
_ROW = re.compile(r"\| (?P<purpose>.+) \| (?P<links>\[.+\]\(.+\)) \|")
_LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)\)")

_PAGE_LINK = re.compile(r"\[(?P<text>[^\]]*)\]\((?P<path>[\w./-]+\.md)(?:#[\w-]*)?\)")


@dataclass(frozen=True)
class Page:
    """One page, as the index lists it.

    Attributes:
        topic: its name for ``lakefeed docs``.
        path: relative to the folder of the pages.
        parts: the headings of the index that it is below, such as How-to and Operate.
        purpose: what a reader finds there.
    """

    topic: str
    path: str
    parts: tuple[str, ...]
    purpose: str


def page_folder() -> Path:
    """Return the folder that has the pages: the installed package's, or a checkout's."""
    return packaged_root(FOLDER) / FOLDER


def indexed_pages(folder: Path) -> list[Page]:
    """Return the pages in the order of the index; a page that is listed twice counts where it is first."""
    found: dict[str, Page] = {}
    for page in _rows((folder / INDEX).read_text("utf-8")):
        found.setdefault(page.path, page)
    return list(found.values())


def all_pages(folder: Path) -> list[Page]:
    """Return the pages of the index, and those that only other pages lead to."""
    indexed = indexed_pages(folder)
    paths = {page.path for page in indexed} | {INDEX}
    others = sorted(file.relative_to(folder).as_posix() for file in folder.rglob("*.md"))
    return indexed + [Page(_topic(path), path, (), "") for path in others if path not in paths]


def find_page(pages: list[Page], topic: str) -> Page:
    """Return a page by its topic or its file; a design note is found without its prefix where no page has that name.

    Raises:
        ResourceMissing: no page has this topic; the hint names the nearest.
    """
    there = {page.topic: page for page in pages}
    path = Path(topic)
    name = path.name.removesuffix(".md").lower().replace(" ", "-").replace("_", "-")
    if path.parent.name == DESIGN or (name not in there and f"{DESIGN}-{name}" in there):
        name = f"{DESIGN}-{name}"
    if name in there:
        return there[name]
    near = difflib.get_close_matches(name, there, n=1) or [other for other in there if name and name in other][:1]
    hint = f"did you mean {near[0]}? lakefeed docs lists all" if near else "lakefeed docs lists all topics"
    raise ResourceMissing(f"there is no page '{topic}'", hint=hint)


def with_commands(text: str) -> str:
    """Replace links to other pages by the commands that print them, for a terminal."""

    def command(match: re.Match[str]) -> str:
        topic = _topic(match["path"])
        name = match["text"]
        return f"`{page_command(topic)}`" if name.removesuffix(".md") == topic else f"{name} (`{page_command(topic)}`)"

    return _PAGE_LINK.sub(command, text)


def _rows(index: str) -> Iterator[Page]:
    parts: tuple[str, ...] = ()
    for line in index.splitlines():
        if heading := _HEADING.fullmatch(line):
            parts = (*parts[: len(heading[1]) - 2], heading[2])
        elif parts and (row := _ROW.fullmatch(line)):
            for path in _LINK.findall(row["links"]):
                yield Page(_topic(path), path, parts, re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", row["purpose"]))


def _topic(path: str) -> str:
    file = Path(path)
    # A design note may have the name of a page: both have one subject.
    name = f"{DESIGN}-{file.stem}" if file.parent.name == DESIGN else file.stem
    return (file.parent.name if file.name == INDEX else name).lower()
