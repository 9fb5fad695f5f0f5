"""Text from outside, for one line of a terminal or a log: without secrets, control characters, and bounded."""

from __future__ import annotations

import json
from typing import Any

from lakefeed.messages.printable import printable, printable_json
from lakefeed.messages.redaction import redacted

LONGEST = 300
LONGEST_IN_LOG = 2000


def one_line(text: str, *, most: int = LONGEST) -> str:
    r"""Return the text on one line, at most so long; line breaks become spaces, and other controls escapes."""
    # Secrets first: a cut one would not be recognized.
    words = " ".join(redacted(text).split())
    return printable(shortened(words, most=most))


def shortened(text: str, *, most: int) -> str:
    """Cut a text, and say how long it was."""
    if len(text) <= most:
        return text
    return f"{text[:most]}… ({len(text):,} characters)"


def json_line(document: Any) -> str:
    """Write a document as one line of JSON: texts are bounded, secrets hidden, and what does not print is escaped."""
    # Not the whole line: a secret that is a number, or a word of JSON, would make it no JSON any more.
    return printable_json(
        json.dumps(
            _bounded(document),
            ensure_ascii=False,
            default=lambda value: _bounded(str(value)),
            separators=(",", ":"),
        )
    )


def _bounded(value: Any) -> Any:
    if isinstance(value, str):
        return shortened(redacted(value), most=LONGEST_IN_LOG)
    if isinstance(value, dict):
        return {_key(key): _bounded(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_bounded(entry) for entry in value]
    return value


def _key(key: Any) -> Any:
    """Bound a key as any text, but for lakefeed's own, which a secret may look like: names and numbers."""
    is_own = isinstance(key, str) and (key.isidentifier() or key.isdecimal())
    return shortened(key, most=LONGEST_IN_LOG) if is_own else _bounded(key)


def duration(seconds: float) -> str:
    """Format seconds for people: ``12 s``, ``3 min 05 s``, ``2 h 10 min``."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02} min"
