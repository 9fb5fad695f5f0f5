"""Text from outside, made harmless for a terminal: records, schemas and servers may say anything.

A control character can move the cursor, change colours or the title of the window; a mark of direction can make a line
read as something else. Both are written as escapes.
"""

from __future__ import annotations

import json
import re
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from html import escape

_LONG = re.compile(r"\S{501,}")
_ESCAPE = re.compile(r"\\x([0-9a-f]{2})|\\u([0-9a-f]{4})|\\U([0-9a-f]{8})")


def printable(text: str, *, keep: str = "") -> str:
    r"""Return the text with ``\x1b``, ``\u202e`` and the like for what does not print."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() or char in keep else _escape(char) for char in text)


def shortened(text: str) -> str:
    """Return the text with each word of more than 500 letters cut after 200: names from outside have any length."""
    return _LONG.sub(lambda word: f"{word[0][:200]}… ({len(word[0]):,} letters)", text) if len(text) > 500 else text


def printable_json(text: str) -> str:
    """Return a JSON document with JSON's own escapes for what does not print; its values stay the same."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() or char == "\n" else json.dumps(char)[1:-1] for char in text)


def unescaped(text: str) -> str:
    """Return the text that ``printable`` has been given."""

    def char(match: re.Match[str]) -> str:
        number = int(next(filter(None, match.groups())), 16)
        return chr(number) if number <= 0x10FFFF else match[0]

    return _ESCAPE.sub(char, text)


def _escape(char: str) -> str:
    number = ord(char)
    return f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"


def aligned(rows: Sequence[Sequence[str]], *, left: int) -> list[str]:
    """Align cells in columns: words in the first ``left`` columns, figures in the others."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) if at < left else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


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


LEFT_OUT = "…"
LONGEST = 500

# What Spark calls its errors, but for those that only wrap another one.
_CLASS = re.compile(r"\[(?!STREAM_FAILED|TASK_WRITE_FAILED|FOREACH_BATCH)([A-Z][A-Z0-9_.]+)\]")
_STATE = re.compile(r"SQLSTATE: (\w{5})")
# States of errors that the data cause: cardinality, data, constraint, what a function or raise_error says.
_OF_DATA = ("21", "22", "23", "38", "39", "P0")
_CAST = re.compile(r'.* of the type ("[^"]*") cannot be cast to ("[^"]*")', re.DOTALL)
_COLUMN = re.compile(r"column(?: or variable)? (`[^`]*`)")
# Where in the user's SQL it is: the last line of the expression, with carets below it.
_CONTEXT = re.compile(r"^== SQL[^\n]*==\n(?:.*\n)*?(.*)\n( *)(\^+)$", re.MULTILINE)

# What stands before a quoted value in messages of Java and of databases, and what after it.
_QUOTED = (
    (r"[Ff]or input string: ", '"', ""),
    (r"Text ", "'", " could not be parsed"),
    (r"Duplicate entry ", "'", " for key "),
    (r"(?:The value|Incorrect [\w ]+ value:|Truncated incorrect [\w ]+ value:) ", "'", ""),
    (r"invalid (?:input syntax for [\w ]+|input value for enum [^:]+): ", '"', ""),
    (r"date/time field value out of range: ", '"', ""),
    (r"value ", '"', " is out of range"),
)
_VALUES = tuple(re.compile(rf"({before}){quote}.*{quote}(?={after})", re.DOTALL) for before, quote, after in _QUOTED)
# A number stands without quotes in what Iceberg says of a decimal.
_DECIMAL = re.compile(r"(Cannot write value as decimal\(\d+,\d+\), too large: )\S+")
_DETAIL = re.compile(r"\s*(?:Detail: |DETAIL: |Where: )?(?:Key \(.*?\)=\(|Failing row contains ).*", re.DOTALL)
_PREVIEW = re.compile(
    r"[.:]?\s*(?:preview of field's value|prefix of the first immense term).*", re.DOTALL | re.IGNORECASE
)


def without_values(text: str) -> str:
    """Return a message without the values in it: the class of the error, and where it is, stay.

    LAKEFEED_DEBUG=1 shows messages as they are.
    """
    state = next((each for each in _STATE.findall(text) if each.startswith(_OF_DATA)), None)
    if state and (found := _CLASS.search(text)):
        return _of_data(found[1], state, text)[:LONGEST]
    text = _PREVIEW.sub("", _DETAIL.sub("", text))
    for each in (*_VALUES, _DECIMAL):
        text = each.sub(rf"\g<1>{LEFT_OUT}", text)
    return text.partition("\n")[0].strip()[:LONGEST]


def _of_data(name: str, state: str, text: str) -> str:
    said = [f"[{name}]"]
    if cast := _CAST.search(text):
        said.append(f"a value of the type {cast[1]} cannot be cast to {cast[2]};")
    context = _CONTEXT.search(text)
    if column := _COLUMN.search(text[: context.start()] if context else text):
        said.append(f"column {column[1]};")
    if context:
        begin = len(context[2])
        said.append(f"in {context[1][begin : begin + len(context[3])]};")
    return " ".join([*said, f"SQLSTATE {state}"])
