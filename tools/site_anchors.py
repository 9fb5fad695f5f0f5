"""Anchors of headings as code hosts make them, so that a link to a heading works in the site and there."""

from __future__ import annotations

import re
from collections.abc import Callable


def slugify() -> Callable[[str, str], str]:
    """Return the function that Python-Markdown calls for each heading; zensical stores it by its name."""
    return anchor


def anchor(heading: str, separator: str) -> str:
    """Return the anchor of a heading's text."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", separator)
