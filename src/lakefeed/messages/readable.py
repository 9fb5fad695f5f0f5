"""Results that say themselves in one line in Python, and as a small table in a notebook."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from html import escape

from lakefeed.messages.printable import printable


class ReadableResult:
    """A result with a headline and a few figures.

    A dataclass that derives from it is declared with ``repr=False``: its own text would list every request.
    """

    @property
    @abstractmethod
    def headline(self) -> str:
        """Say the result in one line."""

    @property
    def figures(self) -> Mapping[str, str]:
        """Return what a notebook shows below the headline, by name."""
        return {}

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {printable(self.headline)}>"

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><th style='text-align:left'>{_cell(name)}</th><td style='text-align:left'>{_cell(value)}</td></tr>"
            for name, value in self.figures.items()
        )
        return f"<p><b>{_cell(self.headline)}</b></p>" + (f"<table>{rows}</table>" if rows else "")


def html_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table for a notebook; all text in it is escaped."""
    left = "text-align:left"
    head = "".join(f"<th style='{left}'>{_cell(name)}</th>" for name in columns)
    body = "".join("<tr>" + "".join(f"<td style='{left}'>{_cell(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def counted(count: int, name: str, names: str | None = None) -> str:
    """Write ``1 batch`` or ``1,200 batches``; without ``names`` an s is added."""
    return f"{count:,} {name if count == 1 else names or name + 's'}"


def _cell(text: str) -> str:
    return escape(printable(text), quote=True)
