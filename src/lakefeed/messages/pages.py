"""Finds the page of the documentation about an error, and the command that prints this page."""

from __future__ import annotations

import sys
from functools import cache

GENERAL = ("troubleshooting", "pipeline-files", "check")
"""Pages about errors with many causes. If the setting or the raising module has a page, it is shown instead."""


def page_command(topic: str) -> str:
    """Return the command that prints a page; the topic is the name of its file without ``.md``."""
    return f"lakefeed docs {topic}"


@cache
def pages() -> dict[str, dict[str, str]]:
    """Return the tables ``texts``, ``settings`` and ``modules`` of pages.toml, which name pages."""
    import tomllib
    from importlib.resources import files

    return tomllib.loads(files("lakefeed.messages").joinpath("pages.toml").read_text("utf-8"))


def page_of_text(what: str) -> str | None:
    """Return the page for an error's text; None if the page depends on the setting or the raising module."""
    return next((page for words, page in pages()["texts"].items() if words in what), None)


def page_of_setting(key: str) -> str | None:
    """Return the page of a setting such as ``sinks.copy.jdbc.url``; None if no single page explains it."""
    parts = key.split(".")
    if parts[0] == "sinks":
        parts[:2] = ["sink"]
    return _longest(parts, pages()["settings"])


def page_of_module(module: str) -> str | None:
    """Return the page for errors that a module raises; None if there is no such page.

    A plug-in names its page in the variable ``PAGE`` of the module's package, or of a package that contains it.
    """
    package, *parts = module.split(".")
    if package != "lakefeed":
        packages = (".".join([package, *parts[:length]]) for length in range(len(parts), -1, -1))
        return next((page for name in packages if (page := getattr(sys.modules.get(name), "PAGE", None))), None)
    return _longest(parts, pages()["modules"])


def _longest(parts: list[str], pages: dict[str, str]) -> str | None:
    prefixes = (".".join(parts[:length]) for length in range(len(parts), 0, -1))
    return next((pages[prefix] for prefix in prefixes if prefix in pages), None)
