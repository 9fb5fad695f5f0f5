"""``--set a.b=c``: sets one value of a pipeline file from the command line.

The path is dotted, list items go by index, and the value is read as YAML. Where keys are free, the rest of
the path is one key: ``--set source.kafka.options.kafka.max.poll.records=5000``.
"""

from __future__ import annotations

from typing import Any

from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from lakefeed.config.base import OneOf
from lakefeed.config.loading import shape
from lakefeed.config.loading.nodes import OVERRIDE, Unreadable, compose
from lakefeed.config.problem import Problem

_MAP, _SEQ, _STR = (f"tag:yaml.org,2002:{kind}" for kind in ("map", "seq", "str"))


def apply(node: Node | None, override: str, *, root: type) -> Node:
    """The node tree with one override put in; its nodes name the override as the place they stand in.

    Raises:
        Unreadable: if it is no ``path=value``, its value is no YAML, or its path leads nowhere.
    """
    path, equals, text = override.partition("=")
    path = path.strip()
    name = f"{OVERRIDE}{path}"
    if not equals or not path or not all(path.split(".")):
        raise _no(f"{OVERRIDE}{override.partition('=')[0]}", "an override is written path=value")
    try:
        value = compose(text, name=name) or _scalar("", name)
    except Unreadable as unreadable:
        raise _no(name, f"its value: {unreadable.problem.what}", key=path) from None
    tree = node if node is not None else _block(name)
    _put(tree, path.split("."), value, name=name, annotation=root)
    return tree


def _no(name: str, what: str, *, key: str = "") -> Unreadable:
    hint = "for instance --set source.kafka.start=latest, or --set source.kafka.topics.0=orders"
    return Unreadable(Problem(what=what, file=name, key=key, hint=hint))


def _put(node: Node, path: list[str], value: Node, *, name: str, annotation: Any) -> None:
    if isinstance(node, MappingNode):
        values = shape.free_form(annotation)
        if values is not None and shape.model_of(values) is None:
            path = [".".join(path)]
        _put_key(node, path, value, name=name, annotation=annotation)
    elif isinstance(node, SequenceNode):
        _put_item(node, path, value, name=name, annotation=annotation)
    else:
        raise _no(name, f"'{path[0]}' leads nowhere: what holds it is a single value", key=name[len(OVERRIDE) :])


def _put_key(node: MappingNode, path: list[str], value: Node, *, name: str, annotation: Any) -> None:
    key, rest = path[0], path[1:]
    below = shape.step(annotation, key)
    for index, (key_node, old) in enumerate(node.value):
        if isinstance(key_node, ScalarNode) and key_node.value == key:
            if not rest:
                node.value[index] = (_scalar(key, name), value)
                return
            old = _opened(old, name=name, annotation=below)
            node.value[index] = (key_node, old)
            _put(old, rest, value, name=name, annotation=below)
            return
    if rest:
        items = rest[0].isdigit() and shape.model_of(below) is None and shape.free_form(below) is None
        inner: Node = SequenceNode(_SEQ, [], value.start_mark, value.end_mark) if items else _block(name)
        _put(inner, rest, value, name=name, annotation=below)
        value = inner
    node.value.append((_scalar(key, name), value))


def _put_item(node: SequenceNode, path: list[str], value: Node, *, name: str, annotation: Any) -> None:
    index, rest = path[0], path[1:]
    count = len(node.value)
    if not index.isascii() or not index.isdigit() or int(index) > count:
        what = f"'{index}' is no item of a list of {count}: write an index from 0 to {count}, which adds one"
        raise _no(name, what, key=name[len(OVERRIDE) :])
    position, below = int(index), shape.step(annotation, int(index))
    if rest:
        inner = node.value[position] if position < count else _block(name)
        _put(inner, rest, value, name=name, annotation=below)
        value = inner
    node.value[position : position + 1] = [value]


def _opened(node: Node, *, name: str, annotation: Any) -> Node:
    """A block for what the file wrote in short: nothing, ``decode: raw``, ``registry: http://…``."""
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
    mark = compose("x", name=name).start_mark  # type: ignore[union-attr]
    return ScalarNode(_STR, text, mark, mark, style=None)
