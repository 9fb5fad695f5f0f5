"""Spark's DDL of columns, ``id BIGINT, name STRING``, read without Spark: for mistakes, and for the columns' names."""

from __future__ import annotations

import difflib
import re
from typing import Annotated

from pydantic import AfterValidator

_TOKEN = re.compile(r"\s*(?:(`(?:[^`]|``)+`)|([A-Za-z0-9_]+)|('(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")|(.))", re.DOTALL)

# How many numbers each type takes in parentheses, at least and at most.
TYPES: dict[str, tuple[int, int]] = {
    **dict.fromkeys(("BOOLEAN", "TINYINT", "BYTE", "SMALLINT", "SHORT", "INT", "INTEGER", "BIGINT", "LONG"), (0, 0)),
    **dict.fromkeys(("FLOAT", "REAL", "DOUBLE", "DATE", "BINARY", "VOID", "VARIANT"), (0, 0)),
    **dict.fromkeys(("TIMESTAMP", "TIMESTAMP_LTZ", "TIMESTAMP_NTZ", "STRING"), (0, 0)),
    **dict.fromkeys(("DECIMAL", "DEC", "NUMERIC"), (0, 2)),
    **dict.fromkeys(("CHAR", "CHARACTER", "VARCHAR"), (1, 1)),
    "TIME": (0, 1),
}
_NESTED = ("ARRAY", "MAP", "STRUCT")
_UNITS = ("YEAR", "MONTH", "DAY", "HOUR", "MINUTE", "SECOND")
MAX_DEPTH = 50


def columns_of_ddl(text: str) -> list[str]:
    """The names of the columns.

    Raises:
        ValueError: it is no DDL of columns; says what is wrong and at which word.
    """
    return _Ddl(text).columns()


def _checked(text: str) -> str:
    columns_of_ddl(text)
    return text


Ddl = Annotated[str, AfterValidator(_checked)]
"""Columns as Spark DDL."""


class _Ddl:
    def __init__(self, text: str) -> None:
        bare = re.sub(r"--[^\n]*", "", text)
        # A schema that Spark has printed stands inside of STRUCT<…>.
        if whole := re.fullmatch(r"(?is)\s*STRUCT\s*<(.+)>\s*", bare):
            bare = whole[1]
        self._words = [found[0].strip() for found in _TOKEN.finditer(bare) if found[0].strip()]
        self._at = 0
        self._depth = 0

    def columns(self) -> list[str]:
        if not self._words:
            raise ValueError("it has no columns: write 'id BIGINT, name STRING'")
        names = self._fields(end=None)
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise ValueError(f"the column {twice} is there twice")
        return names

    def _fields(self, *, end: str | None) -> list[str]:
        names = [self._field()]
        while self._peek() == ",":
            self._next()
            names.append(self._field())
        if end is not None:
            self._expect(end)
        elif self._peek():
            raise ValueError(f"a comma is required before '{self._peek()}'")
        return names

    def _field(self) -> str:
        name = self._next()
        if name.startswith("`"):
            name = name[1:-1].replace("``", "`")
        elif not re.fullmatch(r"[A-Za-z0-9_]+", name) or name.isdigit():
            found = f"'{name}'" if name else "the end"
            raise ValueError(f"a column's name is required, and {found} is there; other letters go in `backticks`")
        if self._peek() == ":":
            self._next()
        self._type(name)
        for word, value in (("COLLATE", None), ("NOT", "NULL"), ("COMMENT", None)):
            if self._peek().upper() == word:
                self._next()
                if value is not None:
                    self._expect(value)
                elif not self._next():
                    raise ValueError(f"a value is required after {word}")
        return name

    def _type(self, column: str) -> None:
        word = self._next()
        kind = word.upper()
        if not word or word in (",", ">", ")"):
            raise ValueError(f"the column {column} has no type")
        if kind in _NESTED and self._peek() == "<":
            self._depth += 1
            if self._depth > MAX_DEPTH:
                raise ValueError(f"types are nested deeper than {MAX_DEPTH}")
            self._next()
            self._inner(kind, column)
            self._depth -= 1
        elif kind in _NESTED:
            raise ValueError(f"the column {column}: {kind} requires its inner type: {_example(kind)}")
        elif kind == "INTERVAL":
            while self._peek().upper() in (*_UNITS, "TO"):
                self._next()
        elif kind in ("GEOMETRY", "GEOGRAPHY") and self._peek() == "(":
            self._next()
            self._next()
            self._expect(")")
        elif kind in TYPES:
            self._numbers(kind, column)
        else:
            near = difflib.get_close_matches(kind, [*TYPES, *_NESTED], n=1, cutoff=0.6)
            meant = f"; did you mean {near[0]}?" if near else ""
            raise ValueError(f"the column {column} has the type '{word}', which Spark does not know{meant}")

    def _inner(self, kind: str, column: str) -> None:
        if kind == "STRUCT":
            if self._peek() == ">":
                self._next()
                return
            self._fields(end=">")
            return
        self._type(column)
        if kind == "MAP":
            self._expect(",")
            self._type(column)
        self._expect(">")

    def _numbers(self, kind: str, column: str) -> None:
        least, most = TYPES[kind]
        numbers: list[str] = []
        if self._peek() == "(":
            self._next()
            numbers.append(self._next())
            while self._peek() == ",":
                self._next()
                numbers.append(self._next())
            self._expect(")")
        if not least <= len(numbers) <= most or not all(each.isascii() and each.isdigit() for each in numbers):
            takes = {(0, 0): "no numbers", (1, 1): "one number, its length"}.get(
                (least, most), f"{most} numbers at most"
            )
            raise ValueError(f"the column {column}: {kind} takes {takes}")
        if kind in ("DECIMAL", "DEC", "NUMERIC") and numbers:
            precision, scale = int(numbers[0]), int(numbers[1]) if len(numbers) > 1 else 0
            if not 1 <= precision <= 38 or scale > precision:
                raise ValueError(f"the column {column}: DECIMAL has 1 to 38 digits, and no more of them in its scale")

    def _peek(self) -> str:
        return self._words[self._at] if self._at < len(self._words) else ""

    def _next(self) -> str:
        word = self._peek()
        self._at += 1
        return word

    def _expect(self, word: str) -> None:
        found = self._next()
        if found.upper() != word:
            raise ValueError(f"'{word}' is required, and {f'{found!r}' if found else 'the end'} is there")


def _example(kind: str) -> str:
    return {"ARRAY": "ARRAY<STRING>", "MAP": "MAP<STRING, BIGINT>", "STRUCT": "STRUCT<a: BIGINT>"}[kind]
