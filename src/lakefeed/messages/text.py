"""Prepares text for one line of a terminal or a log: short, and without secrets and control characters."""

from __future__ import annotations

import json
from typing import Any

from lakefeed.messages.printable import printable, printable_json
from lakefeed.messages.redaction import redacted

LONGEST = 300
LONGEST_IN_LOG = 2000


def one_line(text: str, *, most: int = LONGEST) -> str:
    """Return the first ``most`` characters on one line, without secrets and control characters."""
    # Hide secrets first, because cutting the text could leave a part of a secret.
    words = " ".join(redacted(text).split())
    return printable(shortened(words, most=most))


def shortened(text: str, *, most: int) -> str:
    """Cut a text after ``most`` characters and append its full length."""
    if len(text) <= most:
        return text
    return f"{text[:most]}… ({len(text):,} characters)"


def json_line(document: Any) -> str:
    """Return a document as one line of JSON, with long texts cut, secrets hidden and unprintable characters escaped."""
    # Hide secrets in each value: in the whole line, to hide a secret such as 1234 or true could break the JSON.
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
    """Cut a key and hide secrets in it, unless it is a name or a number, as lakefeed's own keys are."""
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
