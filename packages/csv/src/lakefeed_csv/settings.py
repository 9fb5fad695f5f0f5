"""``decode.csv``: every value is one line of CSV."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

from pydantic import Field

from lakefeed.config.base import spelled
from lakefeed.config.decoding import SCHEMA_FILE, InstalledFormat, JavaFormat
from lakefeed.config.sql import Ddl

_Character = Annotated[str, spelled(r"[^\r\n\x80-\U0010ffff]", "one ASCII character is expected")]


class CsvFormat(InstalledFormat):
    """Values that are single lines of CSV (RFC 4180), without a header line."""

    schema_ddl: Ddl | None = Field(None, description="Columns in the order of the line, as Spark DDL.")
    schema_file: Path | None = Field(None, description=SCHEMA_FILE)
    delimiter: _Character = Field(",", description="The character between values, such as ';' or \"\\t\".")
    quote: _Character = Field('"', description="The character around values with a delimiter, quote or line end.")
    escape: _Character = Field('"', description="The character before a quote within quotes. Default: another quote.")
    null_value: str = Field("", description="The text, without quotes, that means null.")

    def _contradictions(self) -> Iterator[str]:
        if (self.schema_ddl is None) == (self.schema_file is None):
            yield "csv requires either schema_ddl or schema_file"
        if self.delimiter == self.quote:
            yield "delimiter and quote are the same character"

    def decoder(self) -> JavaFormat:
        schema = self.schema_file.read_text("utf-8") if self.schema_file else self.schema_ddl or ""
        dialect = {"delimiter": self.delimiter, "quote": self.quote, "escape": self.escape}
        options = {**dialect, "null-value": self.null_value}
        return JavaFormat(name="CSV", reader="io.lakefeed.csv.CsvReader", schema=schema, options=options)
