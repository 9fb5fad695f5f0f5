"""Makes text from records, schemas and servers harmless for a terminal.

A control character can move the cursor, or change colours or the window's title. A direction mark can make a line look
like another line. Both are replaced by escapes.
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
    r"""Return the text with unprintable characters as escapes such as ``\x1b`` and ``\u202e``."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() or char in keep else _escape(char) for char in text)


def shortened(text: str) -> str:
    """Cut each word of more than 500 letters after 200: a name from a server or a file may have any length."""
    return _LONG.sub(lambda word: f"{word[0][:200]}… ({len(word[0]):,} letters)", text) if len(text) > 500 else text


def printable_json(text: str) -> str:
    """Return a JSON document with JSON's own escapes for unprintable characters; its values stay the same."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() or char == "\n" else json.dumps(char)[1:-1] for char in text)


def unescaped(text: str) -> str:
    """Undo the escapes of ``printable``."""

    def char(match: re.Match[str]) -> str:
        number = int(next(filter(None, match.groups())), 16)
        return chr(number) if number <= 0x10FFFF else match[0]

    return _ESCAPE.sub(char, text)


def _escape(char: str) -> str:
    number = ord(char)
    return f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"


def aligned(rows: Sequence[Sequence[str]], *, left: int) -> list[str]:
    """Align cells in columns: the first ``left`` columns to the left, others, such as numbers, to the right."""
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

    A dataclass that derives from this class needs ``repr=False``, because a dataclass's own repr lists all fields.
    """

    @property
    @abstractmethod
    def headline(self) -> str:
        """The result in one line."""

    @property
    def figures(self) -> Mapping[str, str]:
        """The figures that a notebook shows below the headline, by name."""
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
    """Return a table in HTML for a notebook; all text in it is escaped."""
    left = "text-align:left"
    head = "".join(f"<th style='{left}'>{_cell(name)}</th>" for name in columns)
    body = "".join("<tr>" + "".join(f"<td style='{left}'>{_cell(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def counted(count: int, name: str, names: str | None = None) -> str:
    """Return ``1 batch``, ``1,200 batches``, …; the default plural is ``name`` with an s."""
    return f"{count:,} {name if count == 1 else names or name + 's'}"


def _cell(text: str) -> str:
    return escape(printable(text), quote=True)


LEFT_OUT = "…"
LONGEST = 500

# Matches the class of Spark's error; classes that only wrap another error are skipped.
_CLASS = re.compile(r"\[(?!STREAM_FAILED|TASK_WRITE_FAILED|FOREACH_BATCH)([A-Z][A-Z0-9_.]+)\]")
_STATE = re.compile(r"SQLSTATE: (\w{5})")
# The SQLSTATE of an error in values begins with one of these: cardinality, data, constraint, functions, raise_error.
_OF_DATA = ("21", "22", "23", "38", "39", "P0")
_CAST = re.compile(r'.* of the type ("[^"]*") cannot be cast to ("[^"]*")', re.DOTALL)
_COLUMN = re.compile(r"column(?: or variable)? (`[^`]*`)")
# Spark's message has the last line of the failing expression in the user's SQL, with carets below this line.
_CONTEXT = re.compile(r"^== SQL[^\n]*==\n(?:.*\n)*?(.*)\n( *)(\^+)$", re.MULTILINE)

# For each message of Java or a database that quotes a value: the text before it, the quote, the text after it.
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
# Iceberg's message about a decimal has the number without quotation marks.
_DECIMAL = re.compile(r"(Cannot write value as decimal\(\d+,\d+\), too large: )\S+")
_DETAIL = re.compile(r"\s*(?:Detail: |DETAIL: |Where: )?(?:Key \(.*?\)=\(|Failing row contains ).*", re.DOTALL)
_PREVIEW = re.compile(
    r"[.:]?\s*(?:preview of field's value|prefix of the first immense term).*", re.DOTALL | re.IGNORECASE
)


def without_values(text: str) -> str:
    """Return an error message without values of records, but with the error's class and its position in the SQL.

    LAKEFEED_DEBUG=1 shows the original message.
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
