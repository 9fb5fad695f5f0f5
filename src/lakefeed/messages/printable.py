"""Text from outside, made harmless for a terminal: records, schemas and servers may say anything.

A control character can move the cursor, change colours or the title of the window; a mark of direction can make a line
read as something else. Both are written as escapes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

_LONG = re.compile(r"\S{501,}")
_ESCAPE = re.compile(r"\\x([0-9a-f]{2})|\\u([0-9a-f]{4})|\\U([0-9a-f]{8})")


def printable(text: str, *, keep: str = "") -> str:
    r"""Return the text with ``\x1b``, ``\u202e`` and the like for what does not print."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() or char in keep else _escape(char) for char in text)


def shortened(text: str) -> str:
    """Return the text with each word of more than 500 letters cut after 200: names from outside have any length."""
    return _LONG.sub(lambda word: f"{word[0][:200]}… ({len(word[0]):,} letters)", text) if len(text) > 500 else text


def printable_json(text: str) -> str:
    """Return a JSON document with JSON's own escapes for what does not print; its values stay the same."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() or char == "\n" else json.dumps(char)[1:-1] for char in text)


def unescaped(text: str) -> str:
    """Return the text that ``printable`` has been given."""

    def char(match: re.Match[str]) -> str:
        number = int(next(filter(None, match.groups())), 16)
        return chr(number) if number <= 0x10FFFF else match[0]

    return _ESCAPE.sub(char, text)


def _escape(char: str) -> str:
    number = ord(char)
    return f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"


def aligned(rows: Sequence[Sequence[str]], *, left: int) -> list[str]:
    """Align cells in columns: words in the first ``left`` columns, figures in the others."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) if at < left else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
