"""Parses YAML within limits into nodes with locations, applies ``--set``, and finds the places that the models have."""

from __future__ import annotations

import types
import typing
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, NoReturn

import yaml
from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from lakefeed.config.base import ConfigProblems, OneOf, ParsedText
from lakefeed.config.problem import Problem

Place = tuple[str | int, ...]

_WORDS: dict[Any, str] = {
    str: "text",
    SecretStr: "text",
    Path: "the path of a file",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    datetime: "a time",
    Any: "any value",
}


def members(annotation: Any) -> tuple[Any, ...]:
    """Return the member types of an annotation's union, without None and without Annotated's metadata."""
    origin = typing.get_origin(annotation)
    if origin is typing.Annotated:
        return members(typing.get_args(annotation)[0])
    if origin in (typing.Union, types.UnionType):
        return tuple(each for part in typing.get_args(annotation) if part is not type(None) for each in members(part))
    if isinstance(annotation, type) and issubclass(annotation, ParsedText):
        return (str,)
    return (annotation,)


def is_model(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def model_of(annotation: Any) -> type[BaseModel] | None:
    """Return the first model among an annotation's types, or None."""
    return next((each for each in members(annotation) if is_model(each)), None)


def fields(model: type[BaseModel] | None) -> dict[str, FieldInfo]:
    """Return a model's fields by their keys in the file, including kinds of installed packages; empty for None."""
    if model is None:
        return {}
    found = {field.alias or name: field for name, field in model.model_fields.items()}
    if issubclass(model, OneOf):
        for name in model.kinds():
            if name in found:
                continue
            with suppress(ConfigProblems):  # The validation of the block reports a package that cannot be imported.
                found[name] = FieldInfo(annotation=model.installed_kind(name), default=None)
    return found


def step(annotation: Any, segment: str | int) -> Any | None:
    """Return the type of the entry ``name`` in a block or list of the type ``annotation``; None without it."""
    if model := model_of(annotation):
        field = fields(model).get(str(segment))
        return field and field.annotation
    return free_form(annotation) or (items(annotation) if isinstance(segment, int) else None)


def at(root: Any, place: Place) -> Any | None:
    """Return the type at ``place`` below ``root``; None if there is no such place."""
    annotation = root
    for segment in place:
        annotation = step(annotation, segment)
        if annotation is None:
            return None
    return annotation


def is_secret(annotation: Any) -> bool:
    return SecretStr in members(annotation)


def accepts_text(annotation: Any) -> bool:
    """Return whether a type accepts text; if so, the value of ``${NAME}`` stays text and is not read as a number."""
    return bool(choices(annotation)) or any(each in (str, SecretStr, Path, Any) for each in members(annotation))


def _arguments(annotation: Any, origin: Any) -> tuple[Any, ...]:
    """Return the arguments of the first generic type with ``origin``, such as ``dict``; empty without such a type."""
    return next((typing.get_args(each) for each in members(annotation) if typing.get_origin(each) is origin), ())


def free_form(annotation: Any) -> Any | None:
    """Return the type of the values in a block with free keys, such as Kafka options; None for other types."""
    return next(iter(_arguments(annotation, dict)[1:]), None)


def items(annotation: Any) -> Any | None:
    """Return the type of a list's items; None for other types."""
    return next(iter(_arguments(annotation, list)), None)


def choices(annotation: Any) -> list[str]:
    """Return the allowed words of a choice; empty for other types."""
    literals = [each for each in members(annotation) if typing.get_origin(each) is Literal]
    return [str(word) for each in literals for word in typing.get_args(each)]


def expected(annotation: Any) -> str:
    """Describe the accepted values for an error message."""
    if words := choices(annotation):
        return f"one of {', '.join(words)}"
    phrases = []
    for each in members(annotation):
        if is_model(each):
            phrases.append(f"a block with {', '.join(fields(each))}" if fields(each) else "an empty block")
        elif (item := items(each)) is not None:
            phrases.append(f"a list, each item {expected(item)}")
        elif free_form(each) is not None:
            phrases.append("a block of 'name: value' lines")
        else:
            phrases.append(_WORDS.get(each, str(each)))
    return " or ".join(dict.fromkeys(phrases))


def walk(model: type[BaseModel], place: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], FieldInfo]]:
    """Yield all fields below a model with their places; ``<name>`` stands for a free key."""
    for name, field in fields(model).items():
        here = (*place, name)
        yield here, field
        if below := model_of(field.annotation):
            yield from walk(below, here)
        elif (values := free_form(field.annotation)) is not None and (below := model_of(values)):
            yield from walk(below, (*here, "<name>"))


def dotted(place: Place) -> str:
    """Return a place as a dotted text, as in messages and in ``--set``."""
    return ".".join(str(segment) for segment in place)


# A pipeline file is a page of text. The limits refuse documents that expand to gigabytes ("billion laughs").
MAX_BYTES = 1 << 20
_MAX_ALIASES = 100
_MAX_DEPTH = 50

OVERRIDE = "--set "
"""The nodes of an override have a name with this prefix where other nodes have the file's name."""
_MAP, _SEQ, _STR = (f"tag:yaml.org,2002:{kind}" for kind in ("map", "seq", "str"))


class Unreadable(Exception):
    """The text is not a YAML document or exceeds a limit, so nothing else can be checked."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        super().__init__(str(problem))


@dataclass(frozen=True, kw_only=True)
class Location:
    """The location of a node. Line and column are counted from 1; they are None for an override."""

    file: str
    line: int | None
    column: int | None

    @classmethod
    def of(cls, mark: Any) -> Location:
        """Convert a mark of PyYAML, which counts from 0."""
        if mark.name.startswith(OVERRIDE):
            return cls(file=mark.name, line=None, column=None)
        return cls(file=mark.name, line=mark.line + 1, column=mark.column + 1)


def refuse(what: str, location: Location, hint: str | None = None) -> NoReturn:
    """Raise ``Unreadable`` with a problem at a location."""
    raise Unreadable(Problem(what=what, file=location.file, line=location.line, column=location.column, hint=hint))


def compose(text: str, *, name: str) -> Node | None:
    """Return a document's root node; None if the document is empty."""
    try:
        _require_limits(text, name)
        node: Node | None = _loader(text, name).get_single_node()
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        column = error.position - (text.rfind("\n", 0, error.position) + 1) + 1
        what = f"a character that YAML does not allow: #x{ord(text[error.position]):04x}"
        location = Location(file=name, line=line, column=column)
        refuse(what, location, hint="remove the character, or write it as an escape in double quotes")
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        what, hint = _explain_syntax(error)
        refuse(what, Location.of(mark) if mark else Location(file=name, line=None, column=None), hint=hint)
    return node


def _loader(text: str, name: str) -> Any:
    loader = yaml.SafeLoader(text)
    loader.name = name
    return loader


def _require_limits(text: str, name: str) -> None:
    # Check events, not nodes: events do not expand aliases, so their number is bounded by the length of the text.
    aliases = depth = 0
    loader = _loader(text, name)
    while loader.check_event():
        event = loader.get_event()
        aliases += isinstance(event, yaml.AliasEvent)
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if aliases > _MAX_ALIASES:
            refuse(f"more than {_MAX_ALIASES} aliases (*name)", Location.of(event.start_mark))
        if depth > _MAX_DEPTH:
            refuse(f"blocks nested deeper than {_MAX_DEPTH}", Location.of(event.start_mark))


def _explain_syntax(error: yaml.MarkedYAMLError) -> tuple[str, str | None]:
    problem = error.problem or "not YAML"
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
    return f"not YAML: {problem}{context}", hint


def apply_override(node: Node, override: str, *, root: type) -> Node:
    """Apply one ``--set path=value`` to a tree; the new nodes are located in the override, not in the file.

    The path is dotted, with an index for a list item; the value is YAML. In a block with free keys, the rest of the
    path is one key: ``--set source.kafka.options.kafka.max.poll.records=5000``.

    Raises:
        Unreadable: the text is no ``path=value``, the value is not YAML, or the path does not exist.
    """
    path, equals, text = override.partition("=")
    path = path.strip()
    if not equals or not path or not all(path.split(".")):
        raise _wrong_override(f"{OVERRIDE}{override.partition('=')[0]}", "an override is written path=value")
    name = f"{OVERRIDE}{path}"
    try:
        value = compose(text, name=name) or _scalar("", name)
    except Unreadable as unreadable:
        raise _wrong_override(name, f"its value: {unreadable.problem.what}", key=path) from None
    return _put(node, path.split("."), value, name=name, annotation=root)


def put_block(node: Node | None, key: str, block: Node, *, root: type) -> Node | None:
    """Replace a block of the tree by the content of another file; if the tree's root is not a block, change nothing."""
    if not isinstance(node, MappingNode):
        return node
    return _put(node, [key], block, name=block.start_mark.name, annotation=root)


def leave_out(node: Node, keys: Collection[str]) -> Node:
    if not isinstance(node, MappingNode):
        return node
    entries = [(key, value) for key, value in node.value if key.value not in keys]
    return MappingNode(node.tag, entries, node.start_mark, node.end_mark, node.flow_style)


def _wrong_override(name: str, what: str, *, key: str = "") -> Unreadable:
    hint = "for instance --set source.kafka.start=latest, or --set source.kafka.topics.0=orders"
    return Unreadable(Problem(what=what, file=name, key=key, hint=hint))


def _put(node: Node | None, path: list[str], value: Node, *, name: str, annotation: Any) -> Node:
    """Put a value at a path below a node; a missing node becomes a block or a list, as the path requires."""
    if not path:
        return value
    values = free_form(annotation)
    if node is None:
        is_list = path[0].isdigit() and model_of(annotation) is None and values is None
        node = SequenceNode(_SEQ, [], value.start_mark, value.end_mark) if is_list else _block(name)
    node = _expanded(node, name=name, annotation=annotation)
    if not isinstance(node, MappingNode | SequenceNode):
        what = f"there is no '{path[0]}': the setting above it is a single value, not a block"
        raise _wrong_override(name, what, key=name[len(OVERRIDE) :])
    if isinstance(node, MappingNode) and values is not None and model_of(values) is None:
        path = [".".join(path)]
    part, rest, count = path[0], path[1:], len(node.value)
    if isinstance(node, SequenceNode):
        if not part.isascii() or not part.isdigit() or int(part) > count:
            what = f"'{part}' is not an item of a list of {count}: write an index from 0 to {count}, which adds one"
            raise _wrong_override(name, what, key=name[len(OVERRIDE) :])
        at = int(part)
        old = node.value[at] if at < count else _block(name)
        node.value[at : at + 1] = [_put(old, rest, value, name=name, annotation=step(annotation, at))]
        return node
    keys = [key.value if isinstance(key, ScalarNode) else None for key, _ in node.value]
    at = keys.index(part) if part in keys else count
    key, old = node.value[at] if at < count else (_scalar(part, name), None)
    new = _put(old, rest, value, name=name, annotation=step(annotation, part))
    node.value[at : at + 1] = [(key if rest else _scalar(part, name), new)]
    return node


def _expanded(node: Node, *, name: str, annotation: Any) -> Node:
    """Expand a short form to a block: an empty value, ``decode: raw`` or ``registry: http://…``."""
    model = model_of(annotation)
    if not isinstance(node, ScalarNode):
        return node
    if not node.value or node.tag == "tag:yaml.org,2002:null":
        return _block(name)
    if model is not None and issubclass(model, OneOf) and node.value in model.__kinds__:
        return MappingNode(_MAP, [(node, _block(name))], node.start_mark, node.end_mark)
    if model is not None and "url" in model.model_fields:
        return MappingNode(_MAP, [(_scalar("url", name), node)], node.start_mark, node.end_mark)
    return node


def _block(name: str) -> MappingNode:
    mark = _scalar("", name).start_mark
    return MappingNode(_MAP, [], mark, mark)


def _scalar(text: str, name: str) -> ScalarNode:
    mark = yaml.Mark(name, 0, 0, 0, None, 0)
    return ScalarNode(_STR, text, mark, mark)
