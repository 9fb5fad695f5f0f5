"""The site's anchors of headings: the same as on code hosts, so that a link to a heading works on both."""

from __future__ import annotations

from collections.abc import Callable

from lakefeed_local.docs_command import heading_anchor


def slugify() -> Callable[[str, str], str]:
    """Return the function that Python-Markdown calls for each heading."""
    return heading_anchor
