"""Forget the secrets that a process remembers, because tests share a process and use ordinary words as passwords."""

from collections.abc import Iterator
from contextlib import contextmanager

from lakefeed.messages import redaction


@contextmanager
def forget_afterwards() -> Iterator[None]:
    """Forget the secrets that the block adds."""
    before = set(redaction._known)
    try:
        yield
    finally:
        redaction._known.intersection_update(before)
