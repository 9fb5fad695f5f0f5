"""YAML text → PyYAML's nodes, which know their line, within limits; what is no YAML is said for people."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NoReturn

import yaml
from yaml.nodes import Node

from lakefeed.config.problem import Problem

# A pipeline is a page of text. The limits stop documents that unfold into gigabytes ("billion laughs").
MAX_BYTES = 1 << 20
MAX_ALIASES = 100
MAX_DEPTH = 50

# How the marks of an override's nodes begin, in place of a file's name.
OVERRIDE = "--set "


class Unreadable(Exception):
    """The text is no YAML document that can be looked at further."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        super().__init__(str(problem))


@dataclass(frozen=True, kw_only=True)
class Location:
    """Where something stands; line and column are 1-based, and None for an override."""

    file: str
    line: int | None
    column: int | None

    @classmethod
    def of(cls, mark: Any) -> Location:
        """From PyYAML's mark, which counts from 0."""
        if mark.name.startswith(OVERRIDE):
            return cls(file=mark.name, line=None, column=None)
        return cls(file=mark.name, line=mark.line + 1, column=mark.column + 1)


def compose(text: str, *, name: str) -> Node | None:
    """The node tree of a document; None if it is empty.

    Raises:
        Unreadable: if the text is no YAML, holds several documents, or exceeds a limit.
    """
    try:
        _within_limits(text, name=name)
        node: Node | None = _loader(text, name).get_single_node()
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        column = error.position - (text.rfind("\n", 0, error.position) + 1) + 1
        what = f"a character that YAML does not allow: #x{ord(text[error.position]):04x}"
        location = Location(file=name, line=line, column=column)
        refuse(what, location, hint="remove it, or write it as an escape in double quotes")
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        location = Location.of(mark) if mark else Location(file=name, line=None, column=None)
        what, hint = _syntax(error)
        refuse(what, location, hint=hint)
    return node


def _loader(text: str, name: str) -> Any:
    loader = yaml.SafeLoader(text)
    loader.name = name
    return loader


def _within_limits(text: str, *, name: str) -> None:
    """Looks at the events alone, which cost no more than the text is long."""
    aliases = depth = 0
    loader = _loader(text, name)
    while loader.check_event():
        event = loader.get_event()
        aliases += isinstance(event, yaml.AliasEvent)
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if aliases > MAX_ALIASES:
            refuse(f"more than {MAX_ALIASES} aliases (*name)", Location.of(event.start_mark))
        if depth > MAX_DEPTH:
            refuse(f"blocks nested deeper than {MAX_DEPTH}", Location.of(event.start_mark))


def refuse(what: str, location: Location, hint: str | None = None) -> NoReturn:
    """Gives the document up.

    Raises:
        Unreadable: always.
    """
    raise Unreadable(Problem(what=what, file=location.file, line=location.line, column=location.column, hint=hint))


def _syntax(error: yaml.MarkedYAMLError) -> tuple[str, str | None]:
    """What PyYAML found, said for people, and a hint."""
    problem = error.problem or "no YAML"
    if r"'\t'" in problem:
        return "a tab where YAML requires spaces", "indent with spaces"
    if "expected a single document" in (error.context or ""):
        return "a second document: a file holds one pipeline", "remove the line '---' and what follows it"
    if "found undefined alias" in problem:
        return problem, "define it above with &name, or put the text in quotes"
    context = f" {error.context}" if error.context else ""
    hint = None
    if "mapping values are not allowed" in problem:
        hint = "text with ': ' in it needs quotes; otherwise look at the indentation here and a line above"
    elif "expected <block end>" in problem or "could not find expected ':'" in problem:
        hint = "look at the indentation of this and the line above"
    elif "flow mapping" in context or "flow sequence" in context:
        hint = 'inside { } and [ ] put ${NAME} in quotes: {registry: "${SCHEMA_REGISTRY_URL}"}'
    return f"no YAML: {problem}{context}", hint
