"""SQL as a pipeline file writes it: what can be said of a text without Spark's parser."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator

_PIECE = re.compile(
    r"""--[^\n]*|/\*|\*/|\b[rR]'[^']*'|\b[rR]"[^"]*"|'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`(?:[^`]|``)*`|['"`()\[\];]""",
    re.DOTALL,
)
_CLOSES = {")": "(", "]": "["}


def unreadable(sql: str) -> str | None:
    """Why a text can be no SQL: quotes and brackets that do not close, or nothing at all; None if these are right."""
    opened: list[str] = []
    comments, said, ended = 0, False, False
    position = 0
    while position < len(sql):
        found = _PIECE.search(sql, position)
        between = sql[position : found.start()] if found else sql[position:]
        if not comments and between.strip():
            if ended:
                return "one statement is required, and there are two"
            said = True
        if found is None:
            break
        piece, position = found[0], found.end()
        if piece == "/*":
            comments += 1
        elif comments:
            # Within a comment nothing else counts; a quote there opens no text.
            comments -= piece == "*/"
            if piece not in ("/*", "*/"):
                position = found.start() + 1
        elif piece in ("'", '"', "`"):
            return f"the quote {piece} at character {found.start() + 1} is not closed"
        elif piece in "([":
            opened.append(piece)
        elif piece in _CLOSES:
            if not opened or opened.pop() != _CLOSES[piece]:
                return f"the {piece} at character {found.start() + 1} closes nothing"
        elif piece == ";":
            ended = True
        elif not piece.startswith("--"):
            said = True
    if comments:
        return "a comment /* is not closed"
    if opened:
        return f"a {opened[-1]} is not closed"
    return None if said else "it is empty"


def _checked(sql: str) -> str:
    if (why := unreadable(sql)) is not None:
        raise ValueError(f"this is no SQL: {why}")
    return sql


Sql = Annotated[str, AfterValidator(_checked)]
"""A statement or an expression; Spark's own parser looks at it before a run."""
