"""The order of rows within a file, as a pipeline file writes it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Self

from lakefeed.config.base import ParsedText
from lakefeed.config.names import Identifier


@dataclass(frozen=True, kw_only=True)
class SortColumn(ParsedText):
    """A column that files are sorted by, so that readers can skip more of them."""

    column: str
    descending: bool = False
    nulls_first: bool = True

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read ``at``, ``at desc`` or ``at desc nulls first``; by default nulls are the smallest values.

        Raises:
            ValueError: the text is none of these.
        """
        name = rf"({Identifier}(?:\.{Identifier})*)"
        match = re.fullmatch(rf"\s*{name}(?:\s+(asc|desc))?(?:\s+nulls\s+(first|last))?\s*", text, re.IGNORECASE)
        if not match:
            raise ValueError(f"'{text}' is no sort column: write column, column desc or column desc nulls last")
        descending = (match[2] or "asc").lower() == "desc"
        nulls_first = match[3].lower() == "first" if match[3] else not descending
        return cls(column=match[1], descending=descending, nulls_first=nulls_first)

    def __str__(self) -> str:
        return f"{self.column} {'desc' if self.descending else 'asc'} nulls {'first' if self.nulls_first else 'last'}"
