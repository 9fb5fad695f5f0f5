"""Partition transforms as a pipeline file writes them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Self

from lakefeed.config.base import ParsedText
from lakefeed.config.names import Identifier

_COLUMN = rf"({Identifier}(?:\.{Identifier})*)"


@dataclass(frozen=True, kw_only=True)
class PartitionTransform(ParsedText):
    """One of Iceberg's partition transforms (https://iceberg.apache.org/spec/#partition-transforms).

    Attributes:
        name: identity, years, months, days, hours, bucket or truncate.
        column: with dots where it is nested.
        width: of ``bucket`` and ``truncate``.
    """

    name: str
    column: str
    width: int | None = None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read ``days(at)``, ``bucket(16, id)`` or a bare column.

        Raises:
            ValueError: the text is none of these.
        """
        if match := re.fullmatch(rf"\s*{_COLUMN}\s*", text):
            return cls(name="identity", column=match[1])
        if match := re.fullmatch(rf"\s*(year|month|day|hour)s?\(\s*{_COLUMN}\s*\)\s*", text):
            return cls(name=f"{match[1]}s", column=match[2])
        if match := re.fullmatch(rf"\s*(bucket|truncate)\(\s*([1-9]\d*)\s*,\s*{_COLUMN}\s*\)\s*", text):
            return cls(name=match[1], width=int(match[2]), column=match[3])
        raise ValueError(
            f"'{text}' is no partition transform: write column, days(column), bucket(16, column) or the like"
        )

    def __str__(self) -> str:
        if self.name == "identity":
            return self.column
        return f"{self.name}({'' if self.width is None else f'{self.width}, '}{self.column})"
