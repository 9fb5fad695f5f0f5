"""A user's own functions and classes, by dotted path."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lakefeed.errors import ConfigError, LakefeedError, MissingExtra

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


# What a pandas function or a transformWithState needs beside PySpark; the longer names first.
PANDAS = ("pyarrow", "protobuf", "google.protobuf", "numpy", "pandas")


def missing_pandas(package: str, *, where: str) -> MissingExtra:
    """The error for a function that needs what ``lakefeed[pandas]`` brings."""
    return MissingExtra(
        f"the function needs the Python package {package}, which is not installed",
        where=where,
        hint="pip install 'lakefeed[pandas]', in the driver's environment and in the executors'",
    )


def load(path: str, *, where: str, folder: Path | None = None) -> Any:
    """What ``package.module:name`` names.

    A module beside the pipeline file travels to the executors by value: they need not have it.

    Args:
        path: module and name.
        where: the setting that it stands in, for messages.
        folder: where the pipeline file is; looked in first.

    Raises:
        ConfigError: there is no such module or name, or the module cannot be imported.
        MissingExtra: it imports pandas or what belongs to it, which is not installed.
    """
    from pyspark import cloudpickle

    module_name, _, name = path.partition(":")
    with _importing_from(folder):
        try:
            module = importlib.import_module(module_name)
        except ModuleNotFoundError as error:
            if error.name in PANDAS:
                raise missing_pandas(error.name, where=f"{where}: {path}") from None
            looked = f"{folder} and PYTHONPATH" if folder else "PYTHONPATH"
            missing = error.name or module_name
            raise ConfigError(
                f"there is no Python module {missing}",
                where=f"{where}: {path}",
                hint=f"looked in {looked}; write package.module:name",
            ) from None
        except Exception as error:
            raise ConfigError(
                f"the module {module_name} cannot be imported: {type(error).__name__}: {error}",
                where=f"{where}: {path}",
            ) from error
    found = getattr(module, name, None)
    if found is None:
        names = [each for each in vars(module) if not each.startswith("_") and callable(getattr(module, each))]
        raise ConfigError(
            f"the module {module_name} has no {name}",
            where=f"{where}: {path}",
            hint=f"it has {', '.join(names) or 'nothing to call'}",
        )
    file = getattr(module, "__file__", None)
    if folder is not None and file is not None and Path(file).is_relative_to(folder.absolute()):
        cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    return found


class Function:
    """A function that takes DataFrames and returns one.

    A parameter that is called like an earlier step, a table or the pipeline gets that; the first one that is not gets
    the rows of the step before. ``options`` are given by name.

    Args:
        path: ``package.module:function``.
        options: further arguments.
        where: the setting that it stands in, for messages.
        folder: where the pipeline file is.

    Raises:
        ConfigError: there is no such function, or it does not take these options.
    """

    def __init__(self, path: str, options: Mapping[str, Any], *, where: str, folder: Path | None = None) -> None:
        self._where = f"{where}: {path}"
        self._call = load(path, where=where, folder=folder)
        self._options = dict(options)
        if not callable(self._call):
            raise ConfigError("this is no function", where=self._where)
        self._parameters = inspect.signature(self._call).parameters
        takes_any = any(each.kind is each.VAR_KEYWORD for each in self._parameters.values())
        for name in self._options:
            if name not in self._parameters and not takes_any:
                raise ConfigError(
                    f"the function takes no argument {name}",
                    where=self._where,
                    hint=f"it takes {', '.join(self._parameters) or 'nothing'}",
                )

    def __call__(self, before: DataFrame, frames: Mapping[str, DataFrame]) -> DataFrame:
        """What the function makes of the rows of the step before, or of the frames that it names.

        Raises:
            ConfigError: it requires something that does not exist, failed, or returned no DataFrame.
            MissingExtra: it needs pandas or what belongs to it, which is not installed.
        """
        from pyspark.errors import AnalysisException, ParseException, PySparkImportError
        from pyspark.sql import DataFrame

        given: dict[str, Any] = {}
        rows: DataFrame | None = before
        for name, each in self._parameters.items():
            if name in self._options or each.kind in (each.VAR_KEYWORD, each.VAR_POSITIONAL):
                continue
            if name in frames:
                given[name] = frames[name]
            elif rows is not None and each.default is each.empty:
                given[name], rows = rows, None
            elif each.default is each.empty:
                raise ConfigError(
                    f"the function requires {name}, and nothing is called so",
                    where=self._where,
                    hint=f"there are {', '.join(frames)}; other arguments belong in options",
                )
        try:
            result = self._call(**given, **self._options)
        except (AnalysisException, ParseException, LakefeedError):
            raise
        except (ModuleNotFoundError, PySparkImportError) as error:
            text = str(error).lower()
            if package := next((each for each in PANDAS if each in text), None):
                raise missing_pandas(package, where=self._where) from None
            raise ConfigError(f"the function needs a module that is missing: {error}", where=self._where) from None
        except Exception as error:
            raise ConfigError(f"the function failed: {type(error).__name__}: {error}", where=self._where) from error
        if not isinstance(result, DataFrame):
            raise ConfigError(
                f"the function returned {type(result).__name__}, and a DataFrame is expected", where=self._where
            )
        return result


@contextmanager
def _importing_from(folder: Path | None) -> Iterator[None]:
    if folder is None:
        yield
        return
    place = str(folder.absolute())
    sys.path.insert(0, place)
    try:
        yield
    finally:
        sys.path.remove(place)
