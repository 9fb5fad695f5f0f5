"""Generate docs/errors.md: the texts of all errors in the sources, with their hints and pages.

A field of an f-string appears by its name, such as ``{topic}``. Texts from outside, such as a server's answer, are
omitted.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from importlib import import_module
from itertools import groupby, product
from typing import Any

import lakefeed.errors
from lakefeed.config.base import ConfigProblem
from lakefeed.config.problem import Problem
from lakefeed.messages.pages import GENERAL, page_of_module, page_of_setting, page_of_text, pages
from tools.source_tree import PACKAGES

Arguments = dict[str | None, Any]


def errors() -> list[tuple[str, str, str, str]]:
    """Return package, text, hint and page of each error, sorted; the hint is empty for an error without one."""
    rows: dict[tuple[str, str], tuple[set[str], str]] = {}
    for package, file in ((each, file) for each in PACKAGES for file in each.rglob("*.py") if file.stem != "__main__"):
        names = file.relative_to(package.parent).with_suffix("").parts
        module, tree = ".".join(names).removesuffix(".__init__"), ast.parse(file.read_text("utf-8"))
        area = ".".join(names[: 2 if names[0] == "lakefeed" and len(names) > 2 else 1])
        for body in (each for each in ast.walk(tree) if isinstance(each, ast.Module | ast.ClassDef)):
            for unit in (each for each in body.body if not isinstance(each, ast.ClassDef)):
                for text, hint, page in _errors_of(unit, module, getattr(body, "name", "")):
                    rows.setdefault((area, text), (set(), page))[0].add(hint)
    return sorted((*key, " Or: ".join(sorted(hints - {""})), page) for key, (hints, page) in rows.items())


def errors_reference() -> str:
    lines = ["# Errors\n", "The texts of all errors, by the package that raises them: `lakefeed docs WORDS` finds one."]
    lines += ["A word in braces, or `…`, stands for a value of the error. The error itself may name a page that is"]
    lines += ["nearer to its setting than the page here. Frequent errors: [troubleshooting.md](troubleshooting.md)."]
    for area, rows in groupby(errors(), key=lambda row: row[0]):
        lines += [f"\n## {area}\n", "| error | next | page |", "|---|---|---|"]
        for _, *texts, page in rows:
            cells = (" ".join(text.replace("|", "\\|").split()) for text in texts)
            shown = (f"`` {cell} ``" if "`" in cell else cell and f"`{cell}`" for cell in cells)
            lines.append(f"| {' | '.join(shown)} | [{page}.md]({page}.md) |")
    return "\n".join([*lines, ""])


def _errors_of(unit: ast.stmt, module: str, owner: str) -> Iterator[tuple[str, str, str]]:
    """Yield text, hint and page of each error that a statement of a module or class can raise."""
    known = vars(lakefeed.errors) | vars(import_module(module))
    texts = _Texts(unit, known)
    for call in sorted((each for each in ast.walk(unit) if isinstance(each, ast.Call)), key=lambda each: each.lineno):
        name = ast.unparse(call.func)
        made: Any = known.get(owner if name == "cls" else name)
        is_problem = made in (ConfigProblem, Problem) or name == "document.problem"
        if is_problem or (isinstance(made, type) and issubclass(made, lakefeed.errors.LakefeedError)):
            given: Arguments = {each.arg: each.value for each in call.keywords}
            given |= zip(("place", "what", "hint")[name != "document.problem" :], call.args, strict=False)
            topic = "" if is_problem else made.topic
            yield from ((what, hint, _page(topic, what, given, module)) for what, hint in texts.of(given, call.lineno))


def _page(topic: str, text: str, given: Arguments, module: str) -> str:
    """Return the page that ``LakefeedError`` would show; for a mistake in the pipeline file, the page of its key."""
    own, key = (getattr(given.get(part), "value", None) for part in ("page", "key"))
    if own or topic not in ("", *GENERAL):
        return str(own or topic)
    found = {page for setting, page in pages()["settings"].items() if setting.split(".")[-1] == key}
    if not (topic or key):
        found = set(list(filter(None, (page_of_setting(word.strip("':,;")) for word in text.split())))[:1])
    return page_of_text(text) or (found.pop() if len(found) == 1 else page_of_module(module)) or topic or GENERAL[1]


class _Texts:
    """Finds the texts that the expressions in a function can evaluate to."""

    def __init__(self, unit: ast.stmt, known: dict[str, Any]) -> None:
        self.known, self.used = known, dict[str, int]()
        self.assigned: list[tuple[str, int, Any]] = []
        for node in (each for each in ast.walk(unit) if isinstance(each, ast.Assign | ast.NamedExpr)):
            names, values = [node.targets[0] if isinstance(node, ast.Assign) else node.target], [node.value]
            if isinstance(names[0], ast.Tuple) and isinstance(values[0], ast.Tuple):
                names, values = names[0].elts, values[0].elts
            self.assigned += ((ast.unparse(name), node.lineno, it) for name, it in zip(names, values, strict=False))

    def of(self, given: Arguments, line: int) -> Iterator[tuple[str, str]]:
        """Yield each error text with its hint; the hint ``…`` means that the function does not contain its text."""
        whats, hints = (self.at(given.get(part), line) for part in ("what", "hint"))
        joined = " Or: ".join(hints) or ("" if isinstance(given.get("hint"), ast.Constant | None) else "…")
        yield from zip(whats, hints if len(hints) == len(whats) else [joined] * len(whats), strict=True)
        self.used |= {each.id: line for each in given.values() if isinstance(each, ast.Name)}

    def at(self, node: ast.expr | None, line: int) -> list[str]:
        """Return the texts that an expression on a line can have; none if the code does not show them."""
        match node:
            case ast.Constant(value=str(text)):
                return [text]
            case ast.JoinedStr(values=parts):
                return ["".join(each) for each in product(*(self.at(part, line) for part in parts))]
            case ast.FormattedValue(value=value):
                return (getattr(value, "id", "what") == "what" and self.at(value, line)) or [self.field(value)]
            case ast.IfExp(body=one, orelse=other):
                return [*self.at(one, line), *self.at(other, line)]
            case ast.BinOp(left=left, right=right, op=ast.Add()) if first := self.at(left, line):
                return ["".join(each) for each in product(first, self.at(right, line) or ["…"])]
            case ast.Name(id=name) if isinstance(fixed := self.known.get(name), str):
                return [fixed]
            case ast.Name(id=name):
                found = [(at, value) for other, at, value in self.assigned if other == name and at <= line]
                found = [each for each in found if each[0] > self.used.get(name, 0)] or found[-1:]
                return [text for at, value in found for text in self.at(value, at - 1)]
        return []

    def field(self, node: ast.expr) -> str:
        """Return a constant's value; for any other expression, its last name in braces."""
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name):
                fixed = self.known.get(name) if name.isupper() else None
                return str(fixed) if isinstance(fixed, str | int) else f"{{{name}}}"
            case ast.Call(args=[it, *_]) | ast.Call(func=it) | ast.Subscript(value=it) | ast.BoolOp(values=[it, *_]):
                return self.field(it)
        return "…"
