"""Find calls that let Spark parse composed SQL: part of ``make lint``.

Spark replaces ``${name}`` in SQL texts, and a quote in a value ends a literal. So code that composes SQL must use
``lakefeed.clients.spark.statements`` or its Java class, and pass values as parameters.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCES = (*ROOT.glob("src"), *ROOT.glob("packages/*/src"), *ROOT.glob("bench/src"), *ROOT.glob("**/jvm/src/main/java"))
OWN = ("clients/spark/statements.py", "io/lakefeed/query/Statements.java")

PARSED = {"sql", "expr", "selectExpr"}
"""Functions of Spark that parse all of their arguments as SQL."""

CONDITIONS = {"filter", "where", "overwrite"}
"""Functions of Spark that parse a text as SQL, but also accept columns."""

THROUGH = {"run", "expression", "Statement.of", "with_properties"}
"""Functions of ``lakefeed.clients.spark.statements`` that take SQL."""

IN_JAVA = re.compile(r"\b(?:spark\.sql|selectExpr|expr)\((?!\")|\bsqlParser\(\)")


def in_python(source: str) -> Iterator[tuple[int, str]]:
    """Yield the line and the fault of each call whose SQL is composed, or has a formatted value between quotes."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call):
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        name = f"Statement.{name}" if ast.unparse(node.func) == "Statement.of" else name
        given = [*node.args, *(each.value for each in node.keywords if each.arg in ("row_filter", "sqlQuery"))]
        if (name in PARSED and not all(map(_is_literal, given))) or (
            (name in CONDITIONS or len(given) > len(node.args)) and any(map(_is_composed, given))
        ):
            yield node.lineno, f"{name}(…) gets composed SQL: use lakefeed.clients.spark.statements"
        elif name in THROUGH and any(map(_quotes_value, given)):
            yield node.lineno, f"{name}(…) has a value between quotes: pass it as a parameter, :name"


def in_java(source: str) -> Iterator[tuple[int, str]]:
    """Yield the line and the fault of each place where Java passes text to Spark's SQL parser."""
    for number, line in enumerate(source.splitlines(), start=1):
        if match := IN_JAVA.search(line):
            yield number, f"{match.group()} parses SQL: use io.lakefeed.query.Statements"


def _is_literal(node: ast.expr) -> bool:
    """Return True for a literal, and for a constant of the module (a name in capitals)."""
    inner = node.value if isinstance(node, ast.Starred) else node
    return isinstance(inner, ast.Constant) or (isinstance(inner, ast.Name) and inner.id.isupper())


def _is_composed(node: ast.expr) -> bool:
    """Return True for a composed text: an f-string, ``+`` or ``%`` with a text, or a method of a literal."""
    match node:
        case ast.JoinedStr():
            return True
        case ast.BinOp(left=left, op=ast.Add() | ast.Mod(), right=right):
            return any(_is_composed(side) or isinstance(getattr(side, "value", None), str) for side in (left, right))
        case ast.Call(func=ast.Attribute(value=ast.Constant(value=str()))):
            return True
    return False


def _quotes_value(node: ast.expr) -> bool:
    """Return True for an f-string in which a value is inside an SQL literal."""
    text = ""
    for part in node.values if isinstance(node, ast.JoinedStr) else ():
        if isinstance(part, ast.Constant):
            text += str(part.value)
        elif text.count("'") % 2:
            return True
    return False


def main() -> int:
    found = []
    for path in sorted(file for folder in SOURCES for kind in ("*.py", "*.java") for file in folder.rglob(kind)):
        if not path.as_posix().endswith(OWN):
            check = in_python if path.suffix == ".py" else in_java
            faults = check(path.read_text(encoding="utf-8"))
            found += [f"{path.relative_to(ROOT)}:{line}: {fault}" for line, fault in faults]
    print("\n".join(found) or "SQL: all composed texts use the statements module")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
