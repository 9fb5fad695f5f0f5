"""Python functions that a pipeline file names, looked up in their source: nothing is imported."""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Iterator
from pathlib import Path

from lakefeed.config.blocks import PipelineBlocks
from lakefeed.config.problem import Problem


def function_problems(config: PipelineBlocks, folder: Path, *, static: bool = False) -> list[Problem]:
    """Functions and classes that are not there.

    Args:
        config: the pipeline.
        folder: where the pipeline file is.
        static: look beside the file alone, not in what is installed.
    """
    return [problem for key, path in _named(config) for problem in _problems(key, path, folder, static=static)]


def _named(config: PipelineBlocks) -> Iterator[tuple[str, str]]:
    transforms = {"transform": config.transform}
    for topic, special in (config.tables.topics if config.tables is not None else {}).items():
        transforms[f"tables.topics.{topic}.transform"] = special.transform
    for place, transform in transforms.items():
        for name, step in (transform.steps if transform is not None else {}).items():
            if step.python is not None:
                yield f"{place}.steps.{name}.python", step.python
    for place, sink in config.sink_blocks:
        if sink.python is not None:
            yield f"{place}.python.path", sink.python.path


def _problems(key: str, path: str, folder: Path, *, static: bool) -> Iterator[Problem]:
    module, _, name = path.partition(":")
    file = _file(module, folder)
    if file is None:
        if static:
            what = f"{path} was not looked at: the module is not beside the file"
            yield Problem(what=what, key=key, severity="warning")
        elif (missing := _missing(module)) is not None:
            hint = f"looked in {folder} and PYTHONPATH; write package.module:name"
            yield Problem(what=f"there is no Python module {missing}", key=key, hint=hint)
        return
    try:
        tree = ast.parse(file.read_bytes(), filename=str(file))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = f", line {error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
        what = f"the module {module} cannot be imported: {getattr(error, 'msg', None) or error}"
        yield Problem(what=what, key=key, about=f"{file}{line}")
        return
    except OSError as error:
        yield Problem(what=f"the module {module} cannot be read: {error.strerror}", key=key, about=str(file))
        return
    names, certain = _defined(tree)
    if name not in names and certain:
        hint = (
            f"it has {', '.join(sorted(each for each in names if not each.startswith('_'))[:20]) or 'nothing to call'}"
        )
        yield Problem(what=f"the module {module} has no {name}", key=key, hint=hint)


def _file(module: str, folder: Path) -> Path | None:
    base = folder.joinpath(*module.split("."))
    return next((each for each in (base / "__init__.py", base.with_suffix(".py")) if each.is_file()), None)


def _missing(module: str) -> str | None:
    """The package of an installed module, if there is none of that name; what is below it, only an import shows."""
    package = module.partition(".")[0]
    try:
        return package if importlib.util.find_spec(package) is None else None
    except (ImportError, ValueError):
        return None


def _defined(tree: ast.Module) -> tuple[set[str], bool]:
    """The names that a module has, and whether these are all."""
    names: set[str] = set()
    certain = True
    todo: list[ast.stmt] = list(tree.body)
    while todo:
        each = todo.pop()
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(each.name)
            certain = certain and each.name != "__getattr__"
            continue
        if isinstance(each, ast.Import | ast.ImportFrom):
            certain = certain and all(alias.name != "*" for alias in each.names)
            names |= {(alias.asname or alias.name).partition(".")[0] for alias in each.names}
        for node in ast.iter_child_nodes(each):
            if isinstance(node, ast.stmt):
                todo.append(node)
            elif isinstance(node, ast.ExceptHandler | ast.match_case):
                todo += node.body
            else:
                names |= {
                    below.id
                    for below in ast.walk(node)
                    if isinstance(below, ast.Name) and isinstance(below.ctx, ast.Store)
                }
        # exec, globals() and setattr can define anything.
        certain = certain and not any(
            isinstance(below, ast.Name) and below.id in ("exec", "globals", "setattr", "vars")
            for below in ast.walk(each)
        )
    return names, certain
