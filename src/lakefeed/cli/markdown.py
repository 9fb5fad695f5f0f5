"""Pages in a terminal: rich's Markdown, whose tables lose nothing."""

from __future__ import annotations

from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import Markdown, TableElement
from rich.table import Table


class WholeTable(TableElement):
    """A table that folds a word which is wider than its column; rich cuts it."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for part in super().__rich_console__(console, options):
            if isinstance(part, Table):
                for column in part.columns:
                    column.overflow = "fold"
            yield part


class MarkdownPage(Markdown):
    """A page of the documentation."""

    elements = {**Markdown.elements, "table_open": WholeTable}  # noqa: RUF012  # as rich declares it
