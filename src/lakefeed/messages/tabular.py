"""Text in columns."""

from __future__ import annotations

from collections.abc import Sequence


def aligned(rows: Sequence[Sequence[str]], *, left: int) -> list[str]:
    """One line for each row, its cells two spaces apart.

    Args:
        rows: of as many cells each.
        left: how many columns, from the first, hold words; the others hold figures and end together.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) if at < left else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
