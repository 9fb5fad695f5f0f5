"""Reads what the docstrings below the fields of a model say, for the documents and the JSON Schema.

pydantic would read them at each import, which no other command needs.
"""

from __future__ import annotations

import ast
import inspect
import sys
from functools import cache
from itertools import zip_longest

from pydantic import BaseModel


def descriptions(model: type[BaseModel]) -> dict[str, str]:
    """Return the description of each field that has one, by its key in a file: its own, else the docstring below it."""
    found: dict[str, str] = {}
    for kind in reversed(model.__mro__):
        if issubclass(kind, BaseModel) and kind is not BaseModel:
            for name, text in _docstrings(kind).items():
                found.pop(name, None)
                found.update({name: text} if text else {})
    texts = {name: field.description or found.get(name) for name, field in model.model_fields.items()}
    return {model.model_fields[name].alias or name: text for name, text in texts.items() if text}


def summary(model: type[BaseModel]) -> str:
    """Return the first paragraph of a model's docstring on one line."""
    return (model.__doc__ or "").split("\n\n")[0].replace("\n", " ").strip()


def _docstrings(model: type[BaseModel]) -> dict[str, str]:
    """Return the docstring below each field that a class declares; empty where there is none."""
    body = _classes(model.__module__).get(model.__qualname__, [])
    found = {}
    for statement, below in zip_longest(body, body[1:]):
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            value = below.value if isinstance(below, ast.Expr) else None
            text = value.value if isinstance(value, ast.Constant) else None
            found[statement.target.id] = inspect.cleandoc(text) if isinstance(text, str) else ""
    return found


@cache
def _classes(module: str) -> dict[str, list[ast.stmt]]:
    """Return the statements of each class of a module."""
    try:
        tree = ast.parse(inspect.getsource(sys.modules[module]))
    except (OSError, TypeError, KeyError):
        # Without its source, as in a frozen application.
        return {}
    return {node.name: node.body for node in tree.body if isinstance(node, ast.ClassDef)}
