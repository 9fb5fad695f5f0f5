"""``lakefeed docs``: finds and prints the pages of the documentation in the package."""

from __future__ import annotations

import difflib
import itertools
import math
import os
import re
import shutil
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from html import escape, unescape
from itertools import groupby
from pathlib import Path

import click

from lakefeed.cli.options import output_option
from lakefeed.cli.output import column_lines, emit, is_json, styled
from lakefeed.clients.environment import packaged_root
from lakefeed.errors import ConfigError, ResourceMissing
from lakefeed.messages.pages import page_command


@click.command()
@click.argument("words", nargs=-1, metavar="[NAME | WORDS]")
@click.option("--open", "in_browser", is_flag=True, help="Open the page, or the index, in a browser.")
@output_option
def docs(words: tuple[str, ...], in_browser: bool) -> None:
    """Print the page NAME, find pages about WORDS, or list all.

    The pages are of the installed version. A terminal shows them in a pager; elsewhere they are Markdown.
    """
    folder, topic = page_folder(), " ".join(words)
    all_pages = indexed_pages(folder)
    page = find_page(all_pages, topic)
    found = search_pages(all_pages, topic) if words and page is None else []
    if in_browser:
        _open(folder, found[0][0] if found else page)
    elif found:
        emit([{**_document(page), "passage": passage} for page, passage in found], _found_lines(found))
    elif page is None:
        emit([_document(page) for page in all_pages], _list_lines(all_pages))
    elif is_json():
        emit({**_document(page), "text": page.text}, "")
    else:
        _print_page(page.text)


def _document(page: Page) -> dict[str, object]:
    return {"topic": page.topic, "parts": list(page.parts), "description": page.description}


def _list_lines(all_pages: list[Page]) -> Iterator[str]:
    for parts, group in groupby(all_pages, key=lambda page: page.parts):
        yield styled(": ".join(parts), bold=True)
        yield from _descriptions(group)
        yield ""
    yield f"{page_command('NAME')} prints a page, {page_command('WORDS')} finds pages; --open shows a page in a browser"


def _found_lines(found: list[tuple[Page, str]]) -> Iterator[str]:
    best, passage = found[0]
    yield f"{textwrap.indent(with_commands(passage), '  ')}\n"
    yield styled(f"{page_command(best.topic)} prints the page; others:", bold=True)
    yield from _descriptions(page for page, _ in found[1:])


def _descriptions(listed: Iterable[Page]) -> Iterator[str]:
    rows = [(page.topic, textwrap.shorten(page.description, 100, placeholder=" …")) for page in listed]
    return column_lines(rows, left=2)


def _print_page(text: str) -> None:
    if not sys.stdout.isatty():
        click.echo(text, nl=False)
        return
    from rich.console import Console

    from lakefeed_local.markdown import MarkdownPage

    console = Console()
    with console.capture() as captured:
        console.print(MarkdownPage(with_commands(text)))
    click.echo_via_pager(captured.get(), color=console.is_terminal and not console.no_color)


def _open(folder: Path, page: Page | None) -> None:
    from lakefeed.clients.environment import default_home

    written = write_pages(folder, default_home() / "pages", page.path if page else "README.md")
    emit({"file": str(written)}, str(written))
    if click.launch(written.as_uri()) != 0:
        raise ConfigError("no browser starts on this machine", where=str(written), hint="open this file in a browser")


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
    """Return the pages in the order of the index; a page that the index lists twice is returned once."""
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
    """Return the page with this topic or file name, or else the design note of this name; None if there is neither."""
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
    """Return a page's score, from the terms in its name, title, headings, first sentence and text."""
    title, *headings = [block for block in page.blocks if block[0] == "#"]
    places = ((9, page.topic), (4, title), (3, " ".join(headings)), (3, page.description))
    total = sum(points * _value(place, weights) for points, place in places)
    share = ((weight, text.count(term)) for term, weight in weights.items())
    total += sum(4 * weight * count / (count + 1 + len(text) / 4000) for weight, count in share)
    return total * _value(text, weights)


def _passage(page: Page, weights: Mapping[str, float]) -> str:
    """Return the block that matches the terms best, with its heading; of a table, only rows that have a term."""
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
    """Return a text's words in lower case, with a blank before each, so that a search term matches only whole words."""
    return "".join(f" {word}" for word in re.findall(r"[^\W_]+", text.lower()))


def with_commands(text: str) -> str:
    """Replace links to other pages by the commands that print those pages in a terminal."""

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
    # The prefix keeps topics unique: a design note may have the same file name as a page.
    name = f"{DESIGN}-{file.stem}" if file.parent.name == DESIGN else file.stem
    return (file.parent.name if file.name == INDEX else name).lower()


def write_pages(folder: Path, target: Path, page: str) -> Path:
    """Write a folder's pages as HTML, with their pictures; return the HTML file of the page at the path ``page``."""
    opened = Path(os.path.normpath(folder / page))
    places = {source: target / source.relative_to(folder.parent) for source in (*folder.rglob("*.md"), opened)}
    for source, place in places.items():
        place.parent.mkdir(parents=True, exist_ok=True)
        place.with_suffix(".html").write_text(_page_document(source, set(places)), "utf-8")
    shutil.copytree(folder / "images", target / folder.name / "images", dirs_exist_ok=True)
    return places[opened].with_suffix(".html")


def heading_anchor(text: str, separator: str = "-") -> str:
    """Return the anchor that GitHub gives a heading, so that links work on GitHub and in the HTML pages."""
    return re.sub(r"[^\w\- ]", "", text.strip().lower()).replace(" ", separator)


def _page_document(source: Path, pages: set[Path]) -> str:
    def heading(match: re.Match[str]) -> str:
        text = unescape(re.sub("<.*?>", "", match[2]))
        return f'<{match[1]} id="{heading_anchor(text)}">{match[2]}</{match[1]}>'

    def link(match: re.Match[str]) -> str:
        """Return the target of a link in HTML: for another page its HTML file, for any other file that file."""
        file = Path(os.path.normpath(source.parent / match[1]))
        return f'href="{match[1].removesuffix(".md")}.html' if file in pages else f'href="{file.as_uri()}'

    from markdown_it import MarkdownIt

    body = MarkdownIt("commonmark").enable("table").render(source.read_text("utf-8"))
    body = re.sub(r"<(h\d)>(.*?)</h\d>", heading, re.sub(r'href="([^"#:]+)(?=["#])', link, body))
    style = Path(__file__).with_name("page.css").read_text("utf-8")
    head = f'<meta charset="utf-8"><title>{escape(source.stem)}</title><style>{style}</style>'
    return f"<!doctype html><html lang=en><head>{head}</head><body>{body}</body></html>\n"
