"""Anchors of headings as code hosts create them, so that a link to a heading works on the site too."""

from __future__ import annotations

from collections.abc import Callable

from lakefeed.operations.pages import heading_anchor


def slugify() -> Callable[[str, str], str]:
    """Return the function that Python-Markdown calls for each heading."""
    return heading_anchor
