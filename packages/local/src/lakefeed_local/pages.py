"""Find pages of the documentation by name or by words; ``docs/README.md`` is their index."""

import difflib
import itertools
import math
import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from html import escape, unescape
from pathlib import Path

from markdown_it import MarkdownIt

from lakefeed.clients.environment import packaged_root
from lakefeed.errors import ResourceMissing
from lakefeed.messages.pages import page_command

INDEX = "README.md"
DESIGN = "design"
MOST_FOUND = 9
_LINK = re.compile(r"!?\[([^\]]*)\]\(([^)#\s]*)[^)]*\)")
# Matches a code block with its empty lines; or a heading, a paragraph, a list, a table.
_BLOCK = re.compile(r"^```.*?^```$|(?:^(?!```)[^\n]+\n?)+", re.S | re.M)


@dataclass(frozen=True)
class Page:
    """One page: its name for ``lakefeed docs``, its path, the headings above it in the index, and its text."""

    topic: str
    path: str
    parts: tuple[str, ...]
    text: str

    @cached_property
    def blocks(self) -> list[str]:
        """The page's headings, paragraphs, tables and examples."""
        return [block.strip() for block in _BLOCK.findall(self.text) if not block.startswith(("<!--", "!["))]

    @property
    def description(self) -> str:
        """The page's first sentence."""
        opening = next((block for block in self.blocks if not block.startswith(("#", "```"))), "")
        return re.split(r"(?<=[.?]) ", _LINK.sub(r"\1", " ".join(opening.split())))[0]


def page_folder() -> Path:
    return packaged_root("docs") / "docs"


def indexed_pages(folder: Path) -> list[Page]:
    """Return the pages in the order of the index; a page that is listed twice appears once, at its first place."""
    found: dict[str, Page] = {}
    parts: tuple[str, ...] = ()
    for line in (folder / INDEX).read_text("utf-8").splitlines():
        if heading := re.fullmatch(r"(#{2,3}) (.+)", line):
            parts = (*parts[: len(heading[1]) - 2], heading[2])
        elif parts and line.startswith("|"):
            for _, path in _LINK.findall(line.rsplit(" | ", 1)[-1]):
                if path not in found and (folder / path).exists():
                    found[path] = Page(_topic(path), path, parts, (folder / path).read_text("utf-8"))
    return list(found.values())


def find_page(pages: list[Page], name: str) -> Page | None:
    """Return the page with this topic or file name, or else the design note of this name; None if neither exists."""
    by_topic = {page.topic: page for page in pages}
    path = Path(name)
    name = path.name.removesuffix(".md").lower().replace(" ", "-").replace("_", "-")
    design = f"{DESIGN}-{name}"
    return by_topic.get(design) if path.parent.name == DESIGN else by_topic.get(name) or by_topic.get(design)


def search_pages(pages: list[Page], words: str) -> list[tuple[Page, str]]:
    """Return the pages that contain the words, best first, with their best passages.

    Raises:
        ResourceMissing: no page contains any of the words; the hint names pages with similar names.
    """
    asked = _normal(words).split()
    # A pair of adjacent words is a term, too. A term that few pages contain has more weight.
    stems = [re.sub(r"(?<=\w\w\w)s$", "", word) for word in asked]
    terms = {f" {term}" for term in (*stems, *map(" ".join, itertools.pairwise(asked)))}
    texts = [_normal(page.text) for page in pages]
    having = {term: sum(term in text for text in texts) for term in terms}
    weights = {term: math.log(1 + len(pages) / count) for term, count in having.items() if count}
    if not weights:
        names = [page.topic for page in pages]
        near = [name for word in asked for name in difflib.get_close_matches(word, names, n=2, cutoff=0.5)]
        hint = f"pages with similar names: {', '.join(near)}; " if near else ""
        raise ResourceMissing(f"no page contains '{words}'", hint=f"{hint}lakefeed docs lists all pages")
    scores = {page.topic: _score(page, text, weights) for page, text in zip(pages, texts, strict=True)}
    ranked = sorted((page for page in pages if scores[page.topic]), key=lambda page: -scores[page.topic])
    return [(page, _passage(page, weights)) for page in ranked[:MOST_FOUND]]


def _score(page: Page, text: str, weights: Mapping[str, float]) -> float:
    """Rate how well a page fits: by its name, title, headings, first sentence, and how often its text has the terms."""
    title, *headings = [block for block in page.blocks if block[0] == "#"]
    places = ((9, page.topic), (4, title), (3, " ".join(headings)), (3, page.description))
    total = sum(points * _value(place, weights) for points, place in places)
    share = ((weight, text.count(term)) for term, weight in weights.items())
    total += sum(4 * weight * count / (count + 1 + len(text) / 4000) for weight, count in share)
    return total * _value(text, weights)


def _passage(page: Page, weights: Mapping[str, float]) -> str:
    """Return the block that matches the terms best, below its heading; of a table, only the rows that have a term."""
    heading, passages = "", []
    for block in page.blocks:
        if block[0] == "#":
            heading = block
        else:
            passages.append((_value(block, weights) + _value(heading, weights) / 2, heading, block))
    _, heading, best = max(passages, key=lambda passage: passage[0], default=(0, "", ""))
    rows = [line for line in best.splitlines() if line[:1] != "|" or _value(line, weights)]
    return "\n".join([heading, "", *rows])


def _value(text: str, weights: Mapping[str, float]) -> float:
    normal = _normal(text)
    return sum(weight for term, weight in weights.items() if term in normal)


def _normal(text: str) -> str:
    """Return the words of a text in lower case with a blank before each word; search terms have the same form."""
    return "".join(f" {word}" for word in re.findall(r"[^\W_]+", text.lower()))


def with_commands(text: str) -> str:
    """Replace links to other pages by the commands that print these pages in a terminal."""

    def command(match: re.Match[str]) -> str:
        name, path = match.groups()
        topic = _topic(path)
        shown = f"`{page_command(topic)}`"
        if not path.endswith(".md") or ":" in path:
            return match[0]
        return shown if name.removesuffix(".md") == topic else f"{name} ({shown})"

    return _LINK.sub(command, text)


def _topic(path: str) -> str:
    file = Path(path)
    # The prefix keeps the topics unique, because a design note may have the file name of a page.
    name = f"{DESIGN}-{file.stem}" if file.parent.name == DESIGN else file.stem
    return (file.parent.name if file.name == INDEX else name).lower()


def write_pages(folder: Path, target: Path, page: str) -> Path:
    """Write the pages of a folder as HTML, with their pictures; return the HTML file of the page at ``page``."""
    opened = Path(os.path.normpath(folder / page))
    places = {source: target / source.relative_to(folder.parent) for source in (*folder.rglob("*.md"), opened)}
    for source, place in places.items():
        place.parent.mkdir(parents=True, exist_ok=True)
        place.with_suffix(".html").write_text(_document(source, set(places)), "utf-8")
    shutil.copytree(folder / "images", target / folder.name / "images", dirs_exist_ok=True)
    return places[opened].with_suffix(".html")


def heading_anchor(text: str, separator: str = "-") -> str:
    """Return the anchor that GitHub gives a heading, so that links work on GitHub and in the HTML pages."""
    return re.sub(r"[^\w\- ]", "", text.strip().lower()).replace(" ", separator)


def _document(source: Path, pages: set[Path]) -> str:
    def heading(match: re.Match[str]) -> str:
        text = unescape(re.sub("<.*?>", "", match[2]))
        return f'<{match[1]} id="{heading_anchor(text)}">{match[2]}</{match[1]}>'

    def link(match: re.Match[str]) -> str:
        """Point a link to another page at its HTML file, and a link to any other file at that file."""
        file = Path(os.path.normpath(source.parent / match[1]))
        return f'href="{match[1].removesuffix(".md")}.html' if file in pages else f'href="{file.as_uri()}'

    body = MarkdownIt("commonmark").enable("table").render(source.read_text("utf-8"))
    body = re.sub(r"<(h\d)>(.*?)</h\d>", heading, re.sub(r'href="([^"#:]+)(?=["#])', link, body))
    style = Path(__file__).with_name("page.css").read_text("utf-8")
    head = f'<meta charset="utf-8"><title>{escape(source.stem)}</title><style>{style}</style>'
    return f"<!doctype html><html lang=en><head>{head}</head><body>{body}</body></html>\n"
