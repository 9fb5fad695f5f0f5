"""Checks SQL and Spark DDL in a pipeline file without Spark, so that ``lakefeed check`` is quick."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable
from typing import Annotated

from lakefeed.config.base import checked

# SQL. Only quotes, brackets and the number of statements are checked here; Spark parses the SQL before a run.

PIECE = re.compile(
    r"""--[^\n]*|/\*|\*/|\b[rR]'[^']*'|\b[rR]"[^"]*"|'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`(?:[^`]|``)*`|['"`()\[\];]""",
    re.DOTALL,
)
"""Matches what ends or nests SQL: a comment or its begin or end, a quoted text or name, a bracket, a semicolon."""
_CLOSES = {")": "(", "]": "["}


def unreadable(sql: str) -> str | None:
    """Return why a text is not one SQL statement, for example because of an open quote; None if it may be one."""
    opened: list[str] = []
    comments, has_statement, ended = 0, False, False
    position = 0
    while position < len(sql):
        found = PIECE.search(sql, position)
        between = sql[position : found.start()] if found else sql[position:]
        if not comments and between.strip():
            if ended:
                return "it has two statements, and only one is allowed"
            has_statement = True
        if found is None:
            break
        piece, position = found[0], found.end()
        if piece == "/*":
            comments += 1
        elif comments:
            # Inside a comment, look only for the comment's end: a quote there begins no quoted text.
            comments -= piece == "*/"
            if piece != "*/":
                position = found.start() + 1
        elif piece in ("'", '"', "`"):
            return f"the quote {piece} at character {found.start() + 1} is not closed"
        elif piece in "([":
            opened.append(piece)
        elif piece in _CLOSES:
            if not opened or opened.pop() != _CLOSES[piece]:
                return f"the {piece} at character {found.start() + 1} has no opening bracket"
        elif piece == ";":
            ended = True
        elif not piece.startswith("--"):
            has_statement = True
    if comments:
        return "a comment /* is not closed"
    if opened:
        return f"a {opened[-1]} is not closed"
    return None if has_statement else "it is empty"


def _require_sql(sql: str) -> None:
    if (why := unreadable(sql)) is not None:
        raise ValueError(f"the SQL is wrong: {why}")


Sql = Annotated[str, checked(_require_sql)]
"""An SQL statement or expression."""


# DDL. The parser finds the names and types of columns, and mistakes in the types.

_TOKEN = re.compile(r"\s*(?:(`(?:[^`]|``)+`)|([A-Za-z0-9_]+)|('(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")|(.))", re.DOTALL)
_NO_NUMBERS = (
    "BOOLEAN TINYINT BYTE SMALLINT SHORT INT INTEGER BIGINT LONG FLOAT REAL DOUBLE DATE BINARY VOID VARIANT "
    "TIMESTAMP TIMESTAMP_LTZ TIMESTAMP_NTZ STRING"
)
# By type: the least and the largest number of arguments in parentheses.
_TYPES: dict[str, tuple[int, int]] = {
    **dict.fromkeys(_NO_NUMBERS.split(), (0, 0)),
    **dict.fromkeys(("DECIMAL", "DEC", "NUMERIC"), (0, 2)),
    **dict.fromkeys(("CHAR", "CHARACTER", "VARCHAR"), (1, 1)),
    "TIME": (0, 1),
}
_NESTED = {"ARRAY": "ARRAY<STRING>", "MAP": "MAP<STRING, BIGINT>", "STRUCT": "STRUCT<a: BIGINT>"}
_UNITS = ("YEAR", "MONTH", "DAY", "HOUR", "MINUTE", "SECOND", "TO")
_MAX_DEPTH = 50


def columns_of_ddl(text: str) -> list[str]:
    """Return the names of the columns in ``id BIGINT, name STRING``."""
    return _DdlParser(text).columns()


def types_of_ddl(text: str) -> list[tuple[str, str]]:
    """Return columns and nested fields: the dotted path as in Iceberg, and the first word of the type."""
    parser = _DdlParser(text)
    parser.columns()
    return parser.types


Ddl = Annotated[str, checked(columns_of_ddl)]
"""Columns as Spark DDL."""


class _DdlParser:
    def __init__(self, text: str) -> None:
        bare = re.sub(r"--[^\n]*", "", text)
        # Accept STRUCT<…>, too, because Spark prints schemas in this form.
        if whole := re.fullmatch(r"(?is)\s*STRUCT\s*<(.+)>\s*", bare):
            bare = whole[1]
        self._words = [found[0].strip() for found in _TOKEN.finditer(bare) if found[0].strip()]
        self._at = 0
        self._path: list[str] = []
        self.types: list[tuple[str, str]] = []

    def columns(self) -> list[str]:
        if not self._words:
            raise ValueError("it has no columns: write 'id BIGINT, name STRING'")
        names = self._separated(self._field)
        if self._peek():
            raise ValueError(f"a comma is required before '{self._peek()}'")
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise ValueError(f"the column {twice} occurs twice")
        return names

    def _separated(self, parse: Callable[[], str]) -> list[str]:
        found = [parse()]
        while self._accept(","):
            found.append(parse())
        return found

    def _field(self) -> str:
        name = self._next()
        if name.startswith("`"):
            name = name[1:-1].replace("``", "`")
        elif not re.fullmatch(r"[A-Za-z0-9_]+", name) or name.isdigit():
            shown = f"found '{name}'" if name else "the text ends"
            raise ValueError(f"the name of a column is required, but {shown}; put other letters in `backticks`")
        self._accept(":")
        self._part(name, column=name)
        if self._accept("COLLATE"):
            self._next(after="COLLATE")
        if self._accept("NOT"):
            self._expect("NULL")
        if self._accept("COMMENT"):
            self._next(after="COMMENT")
        return name

    def _part(self, name: str, *, column: str) -> None:
        self._path.append(name)
        self._type(column)
        self._path.pop()

    def _type(self, column: str) -> None:
        word = self._next()
        kind = word.upper()
        self.types.append((".".join(self._path), kind))
        if not word or word in (",", ">", ")"):
            raise ValueError(f"the column {column} has no type")
        if kind in _NESTED:
            if not self._accept("<"):
                raise ValueError(f"the column {column}: {kind} requires its inner type: {_NESTED[kind]}")
            if len(self._path) > _MAX_DEPTH:
                raise ValueError(f"types are nested deeper than {_MAX_DEPTH}")
            self._inner(kind, column)
        elif kind == "INTERVAL":
            while self._peek().upper() in _UNITS:
                self._next()
        elif kind in ("GEOMETRY", "GEOGRAPHY") and self._accept("("):
            self._next()
            self._expect(")")
        elif kind in _TYPES:
            self._numbers(kind, column)
        else:
            near = difflib.get_close_matches(kind, [*_TYPES, *_NESTED], n=1, cutoff=0.6)
            meant = f"; did you mean {near[0]}?" if near else ""
            raise ValueError(f"the column {column} has the type '{word}', which Spark does not know{meant}")

    def _inner(self, kind: str, column: str) -> None:
        if kind == "ARRAY":
            self._part("element", column=column)
        elif kind == "MAP":
            self._part("key", column=column)
            self._expect(",")
            self._part("value", column=column)
        elif self._peek() != ">":
            self._separated(self._field)
        self._expect(">")

    def _numbers(self, kind: str, column: str) -> None:
        least, most = _TYPES[kind]
        numbers: list[str] = []
        if self._accept("("):
            numbers = self._separated(self._next)
            self._expect(")")
        if not least <= len(numbers) <= most or not all(each.isascii() and each.isdigit() for each in numbers):
            expected = "no numbers" if most == 0 else "one number, its length" if least else f"{most} numbers at most"
            raise ValueError(f"the column {column}: {kind} accepts {expected}")
        if kind in ("DECIMAL", "DEC", "NUMERIC") and numbers:
            precision, scale = int(numbers[0]), int(numbers[1]) if len(numbers) > 1 else 0
            if not 1 <= precision <= 38 or scale > precision:
                raise ValueError(f"the column {column}: DECIMAL has 1 to 38 digits, and its scale is not larger")

    def _peek(self) -> str:
        return self._words[self._at] if self._at < len(self._words) else ""

    def _next(self, *, after: str = "") -> str:
        word = self._peek()
        if after and not word:
            raise ValueError(f"a value is required after {after}")
        self._at += 1
        return word

    def _accept(self, word: str) -> bool:
        is_next = self._peek().upper() == word
        self._at += is_next
        return is_next

    def _expect(self, word: str) -> None:
        if not self._accept(word):
            shown = f"found {self._peek()!r}" if self._peek() else "the text ends"
            raise ValueError(f"'{word}' is required, but {shown}")
