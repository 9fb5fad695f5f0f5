"""Remove the values of records from messages of other software: they may be private data."""

from __future__ import annotations

import re

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
