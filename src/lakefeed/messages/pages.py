"""Name pages of the documentation by the command that prints them: a wheel has no folder ``docs``."""

from __future__ import annotations

import sys
from functools import cache

GENERAL = ("troubleshooting", "pipeline-files", "check")
"""Pages about errors of many causes: a page of the setting, or of the module that makes the error, says more."""


def page_command(topic: str) -> str:
    """Return the command that prints a page; its topic is the name of the file without ``.md``."""
    return f"lakefeed docs {topic}"


@cache
def pages() -> dict[str, dict[str, str]]:
    """Return the pages of ``texts``, of ``settings`` and of ``modules``."""
    import tomllib
    from importlib.resources import files

    return tomllib.loads(files("lakefeed.messages").joinpath("pages.toml").read_text("utf-8"))


def page_of_text(what: str) -> str | None:
    """Return the page of an error with this text; None for one that its setting or module has."""
    return next((page for words, page in pages()["texts"].items() if words in what), None)


def page_of_setting(key: str) -> str | None:
    """Return the page of a setting, such as ``sinks.copy.jdbc.url``; None for one that many pages show."""
    parts = key.split(".")
    if parts[0] == "sinks":
        parts[:2] = ["sink"]
    return _longest(parts, pages()["settings"])


def page_of_module(module: str) -> str | None:
    """Return the page about the work of a module; None for one with work of many kinds.

    A plug-in names the page of its modules in ``PAGE`` of their package, or of one around it.
    """
    package, *parts = module.split(".")
    if package != "lakefeed":
        packages = (".".join([package, *parts[:length]]) for length in range(len(parts), -1, -1))
        return next((page for name in packages if (page := getattr(sys.modules.get(name), "PAGE", None))), None)
    return _longest(parts, pages()["modules"])


def _longest(parts: list[str], pages: dict[str, str]) -> str | None:
    prefixes = (".".join(parts[:length]) for length in range(len(parts), 0, -1))
    return next((pages[prefix] for prefix in prefixes if prefix in pages), None)
