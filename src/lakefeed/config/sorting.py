"""The order of rows within a file, as a pipeline file writes it."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import BeforeValidator

from lakefeed.config.base import Model, readable
from lakefeed.config.names import Identifier


class SortColumn(Model):
    """A column that files are sorted by, which lets readers skip more of them."""

    column: str
    descending: bool = False
    nulls_first: bool = True

    @classmethod
    def parse(cls, text: str) -> SortColumn:
        """Reads ``at``, ``at desc`` or ``at desc nulls first``; nulls are the smallest where it is not said.

        Raises:
            ValueError: if the text is none of these.
        """
        name = rf"({Identifier}(?:\.{Identifier})*)"
        match = re.fullmatch(rf"\s*{name}(?:\s+(asc|desc))?(?:\s+nulls\s+(first|last))?\s*", text, re.IGNORECASE)
        if not match:
            raise ValueError(f"'{text}' is no sort column: write column, column desc or column desc nulls last")
        descending = (match[2] or "asc").lower() == "desc"
        nulls_first = match[3].lower() == "first" if match[3] else not descending
        return cls(column=match[1], descending=descending, nulls_first=nulls_first)


SortOrder = Annotated[list[str], BeforeValidator(readable(SortColumn.parse))]
