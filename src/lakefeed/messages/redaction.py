"""The last fence for secrets: messages lose every secret that this process knows, whatever their origin."""

from __future__ import annotations

import re
from collections.abc import Iterable

HIDDEN = "**********"
SHORTEST = 4
"""Letters that a secret has at least to be looked for: what is shorter is in every text."""
SHORTEST_OF_FREE = 8
"""The same of a value that is only taken for a secret, and may be a number or a word."""

_known: set[str] = set()


def remember(secrets: Iterable[str], *, shortest: int = SHORTEST) -> None:
    """Add texts that no message of this process may have; of one with several lines each line too."""
    for secret in secrets:
        _known.update(each for each in (secret, *secret.splitlines()) if len(each) >= shortest)


def redacted(text: str) -> str:
    """Return a text without any secret that is known.

    A short secret is hidden where it stands as a word: the password "only" would otherwise garble "commonly".
    """
    for secret in sorted(_known, key=len, reverse=True):
        if len(secret) >= SHORTEST_OF_FREE:
            text = text.replace(secret, HIDDEN)
        elif secret in text:
            text = re.sub(rf"(?<![A-Za-z0-9]){re.escape(secret)}(?![A-Za-z0-9])", HIDDEN, text)
    return text
