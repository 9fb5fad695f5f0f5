"""Build the documentation's site into build/site: ``python -m tools.build_site``, or ``make docs-site``.

The site has the pages of ``docs/``, and below ``repository/`` a page for each other file to which they link. Its
navigation follows the index of pages in ``docs/README.md``. A broken link or anchor fails the build.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lakefeed_local.docs_command import Page, indexed_pages

ROOT = Path(__file__).resolve().parents[1]
SETTINGS = ROOT / "tools" / "site.toml"
SOURCE = ROOT / "build" / "site-source"
SITE = ROOT / "build" / "site"
FENCE = re.compile(r"^(```|~~~).*?^\1", re.S | re.M)
# The first alternative matches inline code, which has no link target: brackets in it are no link.
LINK = re.compile(r"`[^`\n]*`|(?<=\]\()(?P<target>[^)\s]+)")
LANGUAGES = {".py": "python", ".yaml": "yaml", ".sql": "sql", ".proto": "protobuf", ".json": "json", ".toml": "toml"}


def stage(folder: Path) -> list[Path]:
    """Write the site's pages into an empty folder; return their source paths, relative to the repository."""
    copied: list[Path] = []
    waiting = sorted(path.relative_to(ROOT) for path in (ROOT / "docs").rglob("*") if path.is_file())
    while waiting:
        path = waiting.pop()
        if path in copied:
            continue
        copied.append(path)
        target = folder / staged(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        if path.parts[0] == "docs" and path.suffix != ".md":
            shutil.copyfile(ROOT / path, target)
        else:
            text = content(path)
            target.write_text(relinked(text, path), "utf-8")
            waiting += linked(text, path)
    return copied


def staged(path: Path) -> Path:
    """Return the path of a file's or folder's page within the site's pages."""
    if path.parts[0] == "docs":
        inside = path.relative_to("docs")
        return inside.with_name("index.md") if inside.name == "README.md" else inside
    inside = Path("repository") / path
    if (ROOT / path).is_dir():
        return inside / "index.md"
    return inside if path.suffix == ".md" else inside.with_name(f"{inside.name}.md")


def content(path: Path) -> str:
    """Return a file as Markdown, or a folder as a list of links to its files."""
    source = ROOT / path
    if source.is_dir():
        files = sorted(file for file in source.rglob("*") if file.is_file() and "__pycache__" not in file.parts)
        names = [file.relative_to(source).as_posix() for file in files]
        return f"# {path.as_posix()}\n\n" + "\n".join(f"- [{name}]({name})" for name in names) + "\n"
    text = source.read_text("utf-8")
    if path.suffix == ".md":
        return text
    return f"# {path.as_posix()}\n\n````{LANGUAGES.get(path.suffix, 'text')}\n{text.rstrip()}\n````\n"


def linked(text: str, page: Path) -> Iterator[Path]:
    """Yield the files and folders outside docs/ to which a page links."""
    for match in LINK.finditer(FENCE.sub("", text)):
        path = resolved(match["target"], page)
        if path and path.parts[0] != "docs":
            yield path


def resolved(target: str | None, page: Path) -> Path | None:
    """Return the target of a relative link as a path in the repository; None for other links and broken ones."""
    file = (target or "").partition("#")[0]
    if not file or re.match(r"[a-z]+:", file):
        return None
    folder = page if (ROOT / page).is_dir() else page.parent
    path = Path(os.path.normpath(ROOT / folder / file))
    return path.relative_to(ROOT) if path.exists() and path.is_relative_to(ROOT) else None


def relinked(text: str, page: Path) -> str:
    """Return a page's text with its links changed to the site's paths; code and broken links stay unchanged."""

    def replace(match: re.Match[str]) -> str:
        path = resolved(match["target"], page)
        if path is None:
            return match[0]
        _, mark, anchor = match[0].partition("#")
        return f"{Path(os.path.relpath(staged(path), staged(page).parent)).as_posix()}{mark}{anchor}"

    parts, end = [], 0
    for fence in FENCE.finditer(text):
        parts += [LINK.sub(replace, text[end : fence.start()]), fence[0]]
        end = fence.end()
    return "".join([*parts, LINK.sub(replace, text[end:])])


def navigation(pages: list[Page]) -> list[Any]:
    """Return zensical's navigation: the index's headings with their pages; a heading with one page is that page."""
    tree: dict[str, Any] = {}
    for page in pages:
        part = tree
        for heading in page.parts:
            part = part.setdefault(heading, {})
        part[page.path] = staged(Path(os.path.normpath(Path("docs") / page.path))).as_posix()
    return [{"Home": "index.md"}, *_branches(tree)]


def _branches(tree: dict[str, Any]) -> list[Any]:
    entries: list[Any] = []
    for name, below in tree.items():
        if isinstance(below, str):
            entries.append(below)
        else:
            inner = _branches(below)
            entries.append({name: inner[0] if len(inner) == 1 and isinstance(inner[0], str) else inner})
    return entries


def as_toml(value: Any) -> str:
    """Format lists, tables and texts as TOML on one line."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {as_toml(item)}" for key, item in value.items()) + "}"
    return "[" + ", ".join(map(as_toml, value)) + "]" if isinstance(value, list) else json.dumps(value)


def settings() -> str:
    """Return zensical's settings for the staged pages."""
    own = {"docs_dir": "pages", "site_dir": "site", "nav": navigation(indexed_pages(ROOT / "docs"))}
    lines = "".join(f"{name} = {as_toml(value)}\n" for name, value in own.items())
    return SETTINGS.read_text("utf-8").replace("[project]\n", f"[project]\n{lines}", 1)


def main() -> int:
    """Build the site, and return the exit status of zensical, which fails at a broken link."""
    shutil.rmtree(SOURCE, ignore_errors=True)
    stage(SOURCE / "pages")
    (SOURCE / "zensical.toml").write_text(settings(), "utf-8")
    command = [str(Path(sys.executable).with_name("zensical")), "build", "--strict", "--config-file", "zensical.toml"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}  # Zensical must be able to import tools.site_anchors.
    status = subprocess.run(command, cwd=SOURCE, env=environment, check=False).returncode
    if status == 0:
        shutil.rmtree(SITE, ignore_errors=True)
        (SOURCE / "site").replace(SITE)
        print(f"the site is in {SITE.relative_to(ROOT)}: {len(list(SITE.rglob('*.html')))} pages")
    return status


if __name__ == "__main__":
    sys.exit(main())
