"""Pages of the documentation site are in the navigation, within three clicks, and short."""

import os
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lakefeed_local.docs_command import indexed_pages
from tools import build_site

DOCS = build_site.ROOT / "docs"
PARTS = ["Tutorial", "How-to", "Concepts", "Reference", "Design", "Changelog"]
MOST_WORDS = 2_000
MOST_CLICKS = 3


def pages_of(navigation: list[Any]) -> Iterator[str]:
    for entry in navigation:
        if isinstance(entry, str):
            yield entry
        else:
            for below in entry.values():
                yield from [below] if isinstance(below, str) else pages_of(below)


@pytest.fixture(scope="module")
def staged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pages")
    build_site.stage(folder)
    return folder


def links(folder: Path, page: str) -> set[str]:
    """Return the pages of the site to which a page links."""
    text = build_site.FENCE.sub("", (folder / page).read_text("utf-8"))
    targets = {match["target"] or "" for match in build_site.LINK.finditer(text)}
    paths = {target.partition("#")[0] for target in targets if not re.match(r"[a-z]+:", target)}
    here = Path(page).parent
    return {os.path.normpath(here / path) for path in paths if path.endswith(".md")}


def test_the_settings_of_the_site_are_toml_and_have_the_navigation() -> None:
    project = tomllib.loads(build_site.settings())["project"]
    assert [name for entry in project["nav"] for name in entry] == ["Home", *PARTS]
    assert project["validation"] == {"invalid_links": True, "invalid_link_anchors": True}


def test_every_page_is_in_the_navigation() -> None:
    navigation = list(pages_of(build_site.navigation(indexed_pages(DOCS))))
    assert len(navigation) == len(set(navigation))
    missing = {page.name for page in DOCS.glob("*.md")} - {"README.md"} - set(navigation)
    assert missing == set()


def test_every_page_is_reached_within_three_clicks(staged: Path) -> None:
    reached = {"index.md"}
    for _ in range(MOST_CLICKS):
        reached |= {target for page in reached for target in links(staged, page)}
    pages = {path.relative_to(staged).as_posix() for path in staged.rglob("*.md")}
    assert pages - reached == set()
    assert len(pages) > len(list(DOCS.rglob("*.md")))


def test_links_on_staged_pages_lead_to_staged_pages(staged: Path) -> None:
    pages = {path.relative_to(staged).as_posix() for path in staged.rglob("*.md")}
    broken = {(page, target) for page in pages for target in links(staged, page) if target not in pages}
    assert broken == set()


def test_only_references_may_be_long_pages() -> None:
    references = {page.path for page in indexed_pages(DOCS) if page.parts[0] in ("Reference", "Changelog")}
    words = {page.name: len(page.read_text("utf-8").split()) for page in DOCS.glob("*.md")}
    assert {name: count for name, count in words.items() if count > MOST_WORDS and name not in references} == {}
    assert words["commands.md"] > MOST_WORDS


def test_links_in_code_are_not_changed() -> None:
    text = "[a](../examples/taxi/pipeline.yaml#x) `[b](../README.md)` [c](run.md)\n\n```text\n[d](../README.md)\n```\n"
    assert build_site.relinked(text, Path("docs/quickstart.md")) == (
        "[a](repository/examples/taxi/pipeline.yaml.md#x) `[b](../README.md)` [c](run.md)\n\n"
        "```text\n[d](../README.md)\n```\n"
    )
    assert (
        build_site.relinked("[e](run.md) [f](../no-such.md)", Path("CHANGELOG.md")) == "[e](run.md) [f](../no-such.md)"
    )
