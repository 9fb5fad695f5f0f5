"""The Python modules beside a pipeline file that its functions need."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from lakefeed.config.checks import named_functions
from lakefeed.config.models import PipelineConfig


def python_files(config: PipelineConfig, folder: Path) -> list[Path]:
    """Return the modules in the folder that hold the pipeline's functions, and those that they import from it."""
    todo = [path.partition(":")[0] for _, path in named_functions(config)]
    found: dict[Path, None] = {}
    while todo:
        for file in _files_of(todo.pop(), folder):
            if file not in found:
                found[file] = None
                todo += _imported(file, folder)
    return sorted(found)


def _files_of(module: str, folder: Path) -> Iterator[Path]:
    """Yield the file of a module, and ``__init__.py`` of each package around it."""
    parts = module.split(".")
    for length in range(1, len(parts) + 1):
        base = folder.joinpath(*parts[:length])
        yield from (file for file in (base / "__init__.py", base.with_suffix(".py")) if file.is_file())


def _imported(file: Path, folder: Path) -> Iterator[str]:
    try:
        tree = ast.parse(file.read_bytes(), filename=str(file))
    except (SyntaxError, ValueError):
        return  # The check of the pipeline file reports it.
    package = list(file.relative_to(folder).parts[:-1])
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            around = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*around, *([node.module] if node.module else [])])
            # A name may be a module of the package, or something in the module.
            yield from (f"{module}.{alias.name}" if module else alias.name for alias in node.names)
