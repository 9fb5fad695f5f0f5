"""How messages and generated files name a page of the documentation.

They name the command that prints it, because who has only the wheel has no folder ``docs``. A test reads each call and
checks that there is such a page.
"""

from __future__ import annotations


def page_command(topic: str) -> str:
    """Return the command that prints a page; its topic is the name of the file without ``.md``."""
    return f"lakefeed docs {topic}"


def names_page(text: str) -> bool:
    """Check that a message names a page already."""
    return "lakefeed docs " in text
