"""Generate docs/python-reference.md from the signatures and docstrings of the public names of ``lakefeed``."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any

import lakefeed
import lakefeed.errors
from lakefeed_local import Topic

_SECTION = re.compile(r"^(Args|Attributes|Raises|Returns|Yields|Example|Examples):$", re.M)
_NAMED = re.compile(r"^(?P<name>[\w.*]+): (?P<text>.*)$", re.S)
_WIDTH = 100


def python_reference() -> str:
    return "\n".join([*_head(), *_entries(), *_errors()])


def _head() -> Iterator[str]:
    yield "# Python reference\n"
    yield "The names in `lakefeed`, and `Topic` in `lakefeed[local]`. How to use them: [python.md](python.md).\n"


def _entries() -> Iterator[str]:
    names = [("lakefeed", name, getattr(lakefeed, name)) for name in lakefeed.__all__]
    for package, name, found in [*names, ("lakefeed_local", "Topic", Topic)]:
        if name.startswith("_") or found is lakefeed.errors.LakefeedError:
            continue
        yield f"## `{package}.{name}`\n"
        yield from _described(found, name)
        if inspect.isclass(found):
            for member, value in _members(found):
                yield f"### `{name}.{member}`\n"
                yield from _described(value, member)


def _members(owner: type) -> Iterator[tuple[str, Any]]:
    """Yield the methods and properties of a class that have a docstring, in source order."""
    for name, value in vars(owner).items():
        if name.startswith("_"):
            continue
        if isinstance(value, classmethod | staticmethod):
            value = getattr(owner, name)
        if (inspect.isroutine(value) or isinstance(value, property)) and inspect.getdoc(value):
            yield name, value


def _described(found: Any, name: str) -> Iterator[str]:
    if callable(found):
        yield f"```python\n{_signature(found, name)}\n```\n"
    yield from markdown(inspect.getdoc(found) or "")


class _Plain:
    """An annotation or default whose text is shown in a signature without quotes."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


def _shown(argument: inspect.Parameter) -> inspect.Parameter:
    """Return a default as the page shows it; "…" for a function, because its text differs between runs."""
    if isinstance(argument.annotation, str):
        argument = argument.replace(annotation=_Plain(argument.annotation))
    if inspect.isroutine(argument.default):
        argument = argument.replace(default=_Plain("…"))
    return argument


def _signature(found: Any, name: str) -> str:
    """Return a signature on one line, or if that is too long, with one argument per line."""
    signature = inspect.signature(found)
    arguments = [_shown(each) for each in signature.parameters.values() if each.name != "self"]
    returns = (
        ""
        if inspect.isclass(found) or not isinstance(signature.return_annotation, str)
        else (f" -> {signature.return_annotation}")
    )
    line = f"{name}{inspect.Signature(arguments)}{returns}"
    if len(line) <= _WIDTH:
        return line
    parts = []
    for before, each in zip([None, *arguments], arguments, strict=False):
        if each.kind is each.KEYWORD_ONLY and (before is None or before.kind is not each.KEYWORD_ONLY):
            parts.append("*")
        parts.append(str(each))
    return f"{name}(\n" + "".join(f"    {part},\n" for part in parts) + f"){returns}"


def markdown(docstring: str) -> Iterator[str]:
    """Convert a Google-style docstring to paragraphs, lists and examples in Markdown."""
    before, *sections = _SECTION.split(docstring)
    yield _inline(before.strip()) + "\n"
    for title, body in zip(sections[::2], sections[1::2], strict=True):
        section, after = _cut(body)
        if title.startswith("Example"):
            yield f"```text\n{inspect.cleandoc(section)}\n```\n"
        elif title in ("Returns", "Yields"):
            yield f"**{title}:** {_inline(inspect.cleandoc(section))}\n"
        else:
            yield f"**{title}**\n"
            yield "\n".join(_items(section)) + "\n"
        if after.strip():
            yield _inline(after.strip()) + "\n"


def _cut(body: str) -> tuple[str, str]:
    match = re.search(r"^\S", body, re.M)
    return (body[: match.start()], body[match.start() :]) if match else (body, "")


def _items(section: str) -> Iterator[str]:
    for item in re.split(r"\n(?=\S)", inspect.cleandoc(section)):
        text = " ".join(line.strip() for line in item.splitlines())
        named = _NAMED.match(text)
        yield f"- `{named['name']}`: {_inline(named['text'])}" if named else f"- {_inline(text)}"


def _inline(text: str) -> str:
    return re.sub(r":\w+:`~?([^`]+)`", r"`\1`", text).replace("``", "`")


def _errors() -> Iterator[str]:
    yield "## Errors\n"
    yield from markdown(inspect.getdoc(lakefeed.errors.LakefeedError) or "")
    yield "| class of `lakefeed.errors` | is a | exit status | raised when | page |"
    yield "|---|---|---|---|---|"
    for each in _below(lakefeed.errors.LakefeedError):
        what = " ".join((inspect.getdoc(each) or "").split())
        base = each.__mro__[1].__name__
        yield (
            f"| `{each.__name__}` | `{base}` | {each.exit_status} | {_inline(what)} "
            f"| [{each.topic}.md]({each.topic}.md) |"
        )
    yield ""


def _below(base: type[lakefeed.errors.LakefeedError]) -> Iterator[type[lakefeed.errors.LakefeedError]]:
    for each in base.__subclasses__():
        if each.__module__ == lakefeed.errors.__name__:
            yield each
            yield from _below(each)
