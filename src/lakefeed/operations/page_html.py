"""The pages of the documentation as HTML files, for a browser without a server."""

from __future__ import annotations

import os
import re
import shutil
from html import escape
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

_STYLE = """
html { color-scheme: light dark }
body { font: 16px/1.55 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem }
pre, code { font: 14px/1.45 ui-monospace, monospace; background: #8882 } pre { padding: .8rem; overflow-x: auto }
code { padding: 0 .2em } pre code { padding: 0; background: none } img { max-width: 100%; background: #fff }
table { border-collapse: collapse; display: block; overflow-x: auto }
td, th { border: 1px solid #8886; padding: .3rem .6rem; vertical-align: top; text-align: left }
"""


def write_pages(folder: Path, target: Path, page: str) -> Path:
    """Write the pages of a folder as HTML below ``target``, with their pictures; return the file of one of them.

    Args:
        page: its path, relative to the folder. It may lie beside the folder, as the changelog does.
    """
    sources = {*folder.rglob("*.md"), Path(os.path.normpath(folder / page))}
    for source in sources:
        written = _written(source, folder, target)
        written.parent.mkdir(parents=True, exist_ok=True)
        written.write_text(_document(source, sources), "utf-8")
    if (folder / "images").is_dir():
        shutil.copytree(folder / "images", target / folder.name / "images", dirs_exist_ok=True)
    return _written(Path(os.path.normpath(folder / page)), folder, target)


def heading_anchor(text: str, separator: str = "-") -> str:
    """Return the anchor of a heading as code hosts make it, so that links between pages hold everywhere."""
    return re.sub(r"[^\w\- ]", "", text.strip().lower()).replace(" ", separator)


def _written(source: Path, folder: Path, target: Path) -> Path:
    return (target / source.relative_to(folder.parent)).with_suffix(".html")


def _document(source: Path, sources: set[Path]) -> str:
    parser = MarkdownIt("commonmark").enable("table")
    tokens = parser.parse(source.read_text("utf-8"))
    title = source.stem
    for token, content in zip(tokens, [*tokens[1:], Token("", "", 0)], strict=True):
        if token.type == "heading_open":
            text = "".join(child.content for child in content.children or [])
            token.attrSet("id", heading_anchor(text))
            title = text if token.tag == "h1" else title
        for link in token.children or []:
            if link.type == "link_open":
                link.attrSet("href", _href(str(link.attrGet("href")), source, sources))
    body = parser.renderer.render(tokens, parser.options, {})
    head = f'<meta charset="utf-8"><title>{escape(title)}</title><style>{_STYLE}</style>'
    return f"<!doctype html><html lang=en><head>{head}</head><body>{body}</body></html>\n"


def _href(href: str, source: Path, sources: set[Path]) -> str:
    """Point a link to another page at its HTML file, and one to any other file at the file itself."""
    path, mark, anchor = href.partition("#")
    if not path or re.match(r"[a-z]+:", path):
        return href
    file = Path(os.path.normpath(source.parent / path))
    if file in sources:
        return f"{path.removesuffix('.md')}.html{mark}{anchor}"
    return file.as_uri()
