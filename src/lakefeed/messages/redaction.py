"""Hides the secrets that this process has read, in all of its messages."""

from __future__ import annotations

import re
from collections.abc import Iterable

HIDDEN = "**********"
SHORTEST = 4
"""Secrets with fewer letters are not hidden, because so few letters occur in any text."""
SHORTEST_OF_FREE = 8
"""The same for values that are only presumed to be secrets: shorter values may be numbers or ordinary words."""

_known: set[str] = set()


def remember(secrets: Iterable[str], *, shortest: int = SHORTEST) -> None:
    """Hide these texts in all messages of this process; if a text has several lines, hide each line, too."""
    for secret in secrets:
        _known.update(each for each in (secret, *secret.splitlines()) if len(each) >= shortest)


def redacted(text: str) -> str:
    """Hide all remembered secrets in a text.

    A short secret is hidden only where it is a whole word, since otherwise the password "only" would garble "commonly".
    """
    for secret in sorted(_known, key=len, reverse=True):
        if len(secret) >= SHORTEST_OF_FREE:
            text = text.replace(secret, HIDDEN)
        elif secret in text:
            text = re.sub(rf"(?<![A-Za-z0-9]){re.escape(secret)}(?![A-Za-z0-9])", HIDDEN, text)
    return text
