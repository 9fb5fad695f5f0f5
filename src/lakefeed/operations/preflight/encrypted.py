"""Warns of subjects whose newest schema has rules that encrypt fields."""

from __future__ import annotations

from lakefeed.config.connections import Registry
from lakefeed.config.problem import Problem
from lakefeed.errors import LakefeedError


def encrypted_fields(registry: Registry, subject: str, *, part: str, key: str) -> list[Problem]:
    """Return a warning if the rules of a subject's newest version encrypt fields of the records' keys or values.

    Another check reports a subject that cannot be read.
    """
    from lakefeed.records.decode.encryption import encryption_of
    from lakefeed.records.decode.registry import SchemaRegistry

    try:
        what = encryption_of(SchemaRegistry.of(registry).latest(subject))
    except LakefeedError:
        return []
    if what is None:
        return []
    hint = "let the records be decrypted before lakefeed; decode.on_encrypted decides what happens to them"
    text = f"{what} of the {part}s of {subject}, and lakefeed does not decrypt"
    return [Problem(what=text, key=key, about=registry.url, hint=hint, severity="warning")]
