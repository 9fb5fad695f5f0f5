"""Find the Python files and packages that a pipeline's functions import, and pack them for executors."""

from __future__ import annotations

import ast
import hashlib
import importlib.metadata
import os
import re
import sys
import tempfile
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path

from lakefeed.clients.spark.jars import cache_directory
from lakefeed.errors import ConfigError

# Packages that executors have from their own Spark, so that they are not sent.
_OF_SPARK = {"pyspark", "py4j"}
# Spark itself imports pandas for these methods, even if the user's file does not.
_NEEDS_PANDAS = re.compile(r"\b(pandas_udf|\w+InPandas\w*|\w+InArrow|transformWithState|toPandas)\b")
_PANDAS = ("pandas", "pyarrow", "numpy", "protobuf")
_REQUIREMENT = re.compile(r"\s*([A-Za-z0-9._-]+)\s*(?:\[([^\]]*)\])?[^;]*(?:;(.*))?")
_EXTRA = re.compile(r"""extra\s*==\s*['"]([^'"]+)['"]""")
# Executors unpack the archive into this folder of their working directory.
_FOLDER = "lakefeed-python"


@dataclass
class Imports:
    """The files of a folder's modules that are imported, and the top-level names of the packages that are imported."""

    modules: dict[str, Path] = field(default_factory=dict)
    packages: set[str] = field(default_factory=set)

    @property
    def files(self) -> set[Path]:
        return set(self.modules.values())


def find_imports(folder: Path, modules: Iterable[str]) -> Imports:
    """Parse these modules' files, and return the modules with everything that they import.

    The imports of a file that is not valid Python are left out: the check of the pipeline file reports the file.
    """
    imports, waiting, visited = Imports(), list(modules), set[str]()
    while waiting:
        module = waiting.pop()
        if module in visited:
            continue
        visited.add(module)
        parts = module.split(".")
        base = folder.joinpath(*parts)
        own = next((file for file in (base / "__init__.py", base.with_suffix(".py")) if file.is_file()), None)
        if own is None:
            # In ``from package import name``, ``name`` may be a function of ``package``: look for the package, too. A
            # folder without __init__.py is also a package.
            if len(parts) > 1:
                waiting.append(".".join(parts[:-1]))
            elif parts[0] not in sys.stdlib_module_names | _OF_SPARK and not base.is_dir():
                imports.packages.add(parts[0])
            continue
        imports.modules[module] = own
        waiting += [".".join(parts[:count]) for count in range(1, len(parts))]
        text = own.read_bytes()
        if _NEEDS_PANDAS.search(text.decode("utf-8", "replace")):
            imports.packages |= {"pandas", "pyarrow"}
        with suppress(SyntaxError, ValueError):
            tree = ast.parse(text, filename=str(own))
            waiting += _imported(tree, parts if own.name == "__init__.py" else parts[:-1])
    return imports


def _imported(tree: ast.AST, package: list[str]) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*above, *([node.module] if node.module else [])])
            yield from (f"{module}.{alias.name}" if module else alias.name for alias in node.names)


def distributions_of(packages: Iterable[str]) -> set[str]:
    """Return the names of the distributions with these packages; raise a ConfigError if a package is not installed."""
    installed: Mapping[str, list[str]] = importlib.metadata.packages_distributions()
    names = set[str]()
    for package in packages:
        if package not in installed:
            hint = "install the package in the driver's environment, from which lakefeed sends it to the executors"
            raise ConfigError(f"the pipeline's functions import {package}, which is not installed", hint=hint)
        names.update(_normal(name) for name in installed[package])
    if "pandas" in names:
        names.update(_PANDAS)
    return names


def with_requirements(names: Iterable[str]) -> dict[str, importlib.metadata.Distribution]:
    """Return these distributions (``name`` or ``name[extra]``) and everything that they require, by name."""
    found: dict[str, importlib.metadata.Distribution] = {}
    waiting, visited = list(names), set[str]()
    while waiting:
        text = waiting.pop()
        match = _REQUIREMENT.match(text)
        assert match is not None
        name, extras = _normal(match[1]), {_normal(extra) for extra in (match[2] or "").split(",") if extra.strip()}
        key = f"{name}[{','.join(sorted(extras))}]"
        if key in visited or name in _OF_SPARK:
            continue
        visited.add(key)
        try:
            distribution = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            if match[3] is None:
                what = f"the Python package {name} is required and not installed"
                raise ConfigError(what, hint=f"pip install {name}") from None
            continue  # The requirement is only for another platform or another version of Python.
        found[name] = distribution
        for required in distribution.requires or []:
            marker = _REQUIREMENT.match(required)
            of_extra = {_normal(extra) for extra in _EXTRA.findall(marker[3] or "")} if marker else set()
            if not of_extra or of_extra & extras:
                waiting.append(required)
    return found


def files_of(distribution: importlib.metadata.Distribution) -> Iterator[tuple[str, Path]]:
    """Yield a distribution's files, with their paths below ``site-packages``."""
    name = _normal(distribution.metadata["Name"])
    is_own = name == "lakefeed" or name.startswith("lakefeed-")
    if is_own:
        # Look in the package's folder, because an editable installation does not list its files.
        package = Path(str(files(name.replace("-", "_"))))
        for path in sorted(package.rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                yield f"{package.name}/{path.relative_to(package).as_posix()}", path
    listed = distribution.files
    if listed is None:
        hint = f"install the package with pip, which writes the list: pip install --force-reinstall {name}"
        raise ConfigError(f"the Python package {name} has no list of its files", hint=hint)
    for file in listed:
        path = Path(str(distribution.locate_file(file)))
        is_metadata = ".dist-info" in file.parts[0]
        if ".." in file.parts or file.is_absolute() or "__pycache__" in file.parts or file.suffix in (".pth", ".pyc"):
            if file.suffix == ".pth" and not is_own and "editable" in file.name:
                what = f"the Python package {name} is installed as editable, so its files are not in site-packages"
                raise ConfigError(what, hint=f"install the package without --editable: pip install FOLDER OF {name}")
            continue
        if path.is_file() and (is_metadata or not is_own):
            yield file.as_posix(), path


def executor_settings(folder: Path | None, modules: Iterable[str]) -> dict[str, str]:
    """Return settings that send these modules and everything that they import to the executors.

    Executors unpack an archive: with ``spark.submit.pyFiles``, Python could not load native libraries from the zip.
    """
    if folder is None or not (imports := find_imports(folder, modules)).modules:
        return {}
    entries = {file.relative_to(folder).as_posix(): file for file in imports.files}
    for distribution in with_requirements(distributions_of(imports.packages)).values():
        entries |= dict(files_of(distribution))
    archive = _packed(entries)
    return {"spark.archives": f"{archive.as_uri()}#{_FOLDER}", "spark.executorEnv.PYTHONPATH": _FOLDER}


def _packed(entries: Mapping[str, Path]) -> Path:
    """Return a zip file with these files: an existing one from the cache, unless a file has changed."""
    digest = hashlib.sha256()
    for name, path in sorted(entries.items()):
        stat = path.stat()
        digest.update(f"{name} {path} {stat.st_size} {stat.st_mtime_ns}\n".encode())
    target = _writable_folder() / f"{digest.hexdigest()[:16]}.zip"
    if not target.exists():
        with tempfile.NamedTemporaryFile(dir=target.parent, suffix=".part", delete=False) as partial:
            try:
                with zipfile.ZipFile(
                    partial, "w", zipfile.ZIP_DEFLATED, compresslevel=1, strict_timestamps=False
                ) as archive:
                    for name, path in sorted(entries.items()):
                        archive.write(path, name)
                os.replace(partial.name, target)
            except BaseException:
                Path(partial.name).unlink(missing_ok=True)
                raise
    return target


def _writable_folder() -> Path:
    """Return a folder in the cache; if the cache is read-only, as in a container image, a new temporary folder."""
    folder = cache_directory() / "python"
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
    return folder if os.access(folder, os.W_OK) else Path(tempfile.mkdtemp(prefix="lakefeed-python-"))


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).strip().lower()
