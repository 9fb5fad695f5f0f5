"""Make anchors of headings like code hosts, so that a link to a heading works in the site and on a code host."""

from __future__ import annotations

from collections.abc import Callable

from lakefeed.operations.pages import heading_anchor


def slugify() -> Callable[[str, str], str]:
    """Return the function that Python-Markdown calls for headings; zensical stores it by its name."""
    return heading_anchor
