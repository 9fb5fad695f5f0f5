"""Parses YAML within limits into PyYAML's nodes, which have locations, and applies ``--set`` to them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, NoReturn

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from lakefeed.config.base import OneOf
from lakefeed.config.loading import shape
from lakefeed.config.problem import Problem

# A pipeline file is a page of text. The limits refuse documents that expand to gigabytes ("billion laughs").
MAX_BYTES = 1 << 20
_MAX_ALIASES = 100
_MAX_DEPTH = 50

OVERRIDE = "--set "
"""The prefix of the name that an override's nodes have instead of a file's name."""
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
    """Replace a block of the tree by the content of another file; a tree that is no block stays unchanged."""
    if not isinstance(node, MappingNode):
        return node
    return _put(node, [key], block, name=block.start_mark.name, annotation=root)


def leave_out(node: Node, keys: Collection[str]) -> Node:
    """Copy a tree without these top-level keys."""
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
    values = shape.free_form(annotation)
    if node is None:
        is_list = path[0].isdigit() and shape.model_of(annotation) is None and values is None
        node = SequenceNode(_SEQ, [], value.start_mark, value.end_mark) if is_list else _block(name)
    node = _expanded(node, name=name, annotation=annotation)
    if not isinstance(node, MappingNode | SequenceNode):
        what = f"there is no '{path[0]}': the setting above it is a single value, not a block"
        raise _wrong_override(name, what, key=name[len(OVERRIDE) :])
    if isinstance(node, MappingNode) and values is not None and shape.model_of(values) is None:
        path = [".".join(path)]
    step, rest, count = path[0], path[1:], len(node.value)
    if isinstance(node, SequenceNode):
        if not step.isascii() or not step.isdigit() or int(step) > count:
            what = f"'{step}' is not an item of a list of {count}: write an index from 0 to {count}, which adds one"
            raise _wrong_override(name, what, key=name[len(OVERRIDE) :])
        at = int(step)
        old = node.value[at] if at < count else _block(name)
        node.value[at : at + 1] = [_put(old, rest, value, name=name, annotation=shape.step(annotation, at))]
        return node
    keys = [key.value if isinstance(key, ScalarNode) else None for key, _ in node.value]
    at = keys.index(step) if step in keys else count
    key, old = node.value[at] if at < count else (_scalar(step, name), None)
    new = _put(old, rest, value, name=name, annotation=shape.step(annotation, step))
    node.value[at : at + 1] = [(key if rest else _scalar(step, name), new)]
    return node


def _expanded(node: Node, *, name: str, annotation: Any) -> Node:
    """Expand a short form to a block: an empty value, ``decode: raw`` or ``registry: http://…``."""
    model = shape.model_of(annotation)
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
