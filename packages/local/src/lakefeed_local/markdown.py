"""Shows Markdown pages in a terminal, with tables that cut no text."""

from __future__ import annotations

from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import Markdown, TableElement
from rich.table import Table


class WholeTable(TableElement):
    """A table that folds words wider than their column; rich's own table cuts them."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for part in super().__rich_console__(console, options):
            if isinstance(part, Table):
                for column in part.columns:
                    column.overflow = "fold"
            yield part


class MarkdownPage(Markdown):
    """A page of the documentation."""

    elements = {**Markdown.elements, "table_open": WholeTable}  # noqa: RUF012  # as rich declares it
