"""Partition transforms as a pipeline file writes them."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import BeforeValidator

from lakefeed.config.base import Model, readable
from lakefeed.config.names import Identifier


class PartitionTransform(Model):
    """One of Iceberg's partition transforms (https://iceberg.apache.org/spec/#partition-transforms)."""

    name: Literal["identity", "years", "months", "days", "hours", "bucket", "truncate"]
    column: str
    width: int | None = None

    @classmethod
    def parse(cls, text: str) -> PartitionTransform:
        """Reads ``days(at)``, ``bucket(16, id)`` or a bare column.

        Raises:
            ValueError: if the text is neither.
        """
        column = rf"({Identifier}(?:\.{Identifier})*)"
        if match := re.fullmatch(rf"\s*{column}\s*", text):
            return cls(name="identity", column=match[1])
        if match := re.fullmatch(rf"\s*(year|month|day|hour)s?\(\s*{column}\s*\)\s*", text):
            return cls.model_validate({"name": f"{match[1]}s", "column": match[2]})
        if match := re.fullmatch(rf"\s*(bucket|truncate)\(\s*([1-9]\d*)\s*,\s*{column}\s*\)\s*", text):
            return cls.model_validate({"name": match[1], "width": int(match[2]), "column": match[3]})
        raise ValueError(
            f"'{text}' is no partition transform: write column, days(column), bucket(16, column) or the like"
        )


PartitionTransforms = Annotated[list[str], BeforeValidator(readable(PartitionTransform.parse))]
