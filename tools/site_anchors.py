"""Anchors of headings as code hosts make them, so that a link to a heading works in the site and there."""

from __future__ import annotations

from collections.abc import Callable

from lakefeed.operations.pages import heading_anchor


def slugify() -> Callable[[str, str], str]:
    """Return the function that Python-Markdown calls for each heading; zensical stores it by its name."""
    return heading_anchor
