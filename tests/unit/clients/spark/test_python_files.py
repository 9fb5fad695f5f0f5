"""The files and packages that a pipeline's functions import are sent to executors."""

import zipfile
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from lakefeed.clients.spark.python_files import executor_settings, find_imports, with_requirements
from lakefeed.errors import ConfigError


def write(folder: Path, **modules: str) -> None:
    for name, text in modules.items():
        path = folder.joinpath(*name.split("__")).with_suffix(".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_imports_of_imported_modules_are_found(tmp_path: Path) -> None:
    write(
        tmp_path,
        main="import json, yaml\nfrom parts.one import f\nfrom pyspark.sql import DataFrame\n",
        parts__one="from . import two\nfrom .three import x\ndef f():\n    import click\n",
        parts__two="import os.path\n",
        parts__three="from parts import one\nx = 1\n",
        unused="import numpy\n",
    )
    found = find_imports(tmp_path, ["main"])
    names = sorted(file.relative_to(tmp_path).as_posix() for file in found.files)
    assert names == ["main.py", "parts/one.py", "parts/three.py", "parts/two.py"]
    assert found.packages == {"yaml", "click"}


def test_the_init_file_of_a_package_is_sent_with_each_module(tmp_path: Path) -> None:
    write(tmp_path, main="import kit.tools\n", kit__tools="")
    (tmp_path / "kit" / "__init__.py").write_text("import yaml\n")
    names = {file.relative_to(tmp_path).as_posix() for file in find_imports(tmp_path, ["main"]).files}
    assert names == {"main.py", "kit/__init__.py", "kit/tools.py"}


def test_pandas_and_pyarrow_are_sent_if_a_function_uses_pandas(tmp_path: Path) -> None:
    write(tmp_path, main="def f(rows):\n    return rows.mapInPandas(g, rows.schema)\n")
    assert find_imports(tmp_path, ["main"]).packages == {"pandas", "pyarrow"}


def test_the_archive_has_imported_packages_with_their_requirements(tmp_path: Path) -> None:
    write(tmp_path, main="import rich\n")
    settings = executor_settings(tmp_path, ["main"])
    url, _, folder = settings["spark.archives"].partition("#")
    assert settings["spark.executorEnv.PYTHONPATH"] == folder
    with zipfile.ZipFile(urlsplit(url).path) as archive:
        names = set(archive.namelist())
    assert {"main.py", "rich/console.py", "pygments/lexer.py"} <= names
    assert not [name for name in names if name.startswith(("pyspark/", "yaml/")) or "__pycache__" in name]
    assert executor_settings(tmp_path, ["main"]) == settings  # The second call returns the cached archive.


def test_installed_modules_are_not_sent() -> None:
    assert executor_settings(None, ["json"]) == {}


def test_an_import_of_a_missing_package_is_an_error(tmp_path: Path) -> None:
    write(tmp_path, main="import no_such_package_here\n")
    with pytest.raises(ConfigError, match="import no_such_package_here, which is not installed"):
        executor_settings(tmp_path, ["main"])


def test_a_distribution_requires_only_the_named_extras() -> None:
    plain, more = with_requirements(["lakefeed"]), with_requirements(["lakefeed[postgresql]"])
    assert {"lakefeed", "pydantic", "pydantic-core", "confluent-kafka"} <= plain.keys()
    assert "pyspark" not in plain
    assert more.keys() - plain.keys() >= {"psycopg", "psycopg-binary"}
