"""Runs a user's transform, steps in Spark SQL and Python, over the decoded rows of a stream or a batch."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lakefeed.clients.spark.errors import quietly
from lakefeed.clients.spark.python_files import find_imports
from lakefeed.clients.spark.statements import run
from lakefeed.config.transform import Step, Transform, Watermark
from lakefeed.errors import ConfigError, LakefeedError, MissingExtra, install_command
from lakefeed.lazy import sf, spark_errors, t

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PANDAS = ("pyarrow", "protobuf", "google.protobuf", "numpy", "pandas")
"""The packages that pandas functions and transformWithState need besides PySpark; an error names the first one."""
_imported: dict[str, Path] = {}
"""The files of modules from pipelines' folders: another pipeline may have another module of the same name."""


class TransformSteps:
    """A pipeline's transform; its SQL reads the rows from ``view``, its Python functions are in ``folder``."""

    def __init__(self, transform: Transform | None, *, view: str, folder: Path | None = None) -> None:
        self._transform = transform
        self._view = view
        self._functions = {
            name: Function(step.python, step.options, where=f"transform.steps.{name}", folder=folder)
            for name, step in (transform.all_steps.items() if transform else ())
            if step.python is not None
        }

    @property
    def streams(self) -> Mapping[str, str]:
        """The topics that the transform reads separately, by stream name; empty if the transform reads one view."""
        return {name: stream.topic for name, stream in self._transform.streams.items()} if self._transform else {}

    def __call__(self, rows: DataFrame | Mapping[str, DataFrame]) -> DataFrame:
        """Transform all decoded rows, or the streams' rows by name; this opens the static tables."""
        views = rows if isinstance(rows, Mapping) else {self._view: rows}
        result = next(iter(views.values()))
        transform = self._transform
        if transform is None:
            return result
        frames: dict[str, DataFrame] = {}
        for name, view in views.items():
            stream = transform.streams.get(name)
            where, late = (f"transform.streams.{name}", stream) if stream else ("transform", transform)
            _add_view(frames, name, _with_watermark(view, late.watermark, where=where))
        result = next(iter(frames.values()))
        for name, table in transform.tables.items():
            with _explain_errors(f"transform.tables.{name}", frames):
                if table.table is not None:
                    frame = result.sparkSession.table(table.table)
                else:
                    reader = result.sparkSession.read.format(table.format or "").options(**table.options)
                    reader = reader if table.schema_ddl is None else reader.schema(table.schema_ddl)
                    frame = reader.load(table.path)
                _add_view(frames, name, frame)
        for name, step in transform.all_steps.items():
            where = "transform.sql" if transform.sql is not None else f"transform.steps.{name}"
            with _explain_errors(where, frames):
                result = _with_watermark(self._run(name, step, result, frames), step.watermark, where=where)
                if transform.sql is None:
                    _add_view(frames, name, result)
        return result

    def _run(self, name: str, step: Step, before: DataFrame, frames: dict[str, DataFrame]) -> DataFrame:
        if step.sql is not None:
            return run(before.sparkSession, step.sql)
        if step.deduplicate is not None:
            keys = list(step.deduplicate)
            _require_columns(before, keys, where=f"transform.steps.{name}.deduplicate")
            return before.dropDuplicatesWithinWatermark(keys) if before.isStreaming else before.dropDuplicates(keys)
        return self._functions[name](before, frames)


def split_by_topic(
    records: DataFrame, streams: Mapping[str, str], read: Callable[[DataFrame], DataFrame]
) -> DataFrame | Mapping[str, DataFrame]:
    """Return the rows of all records; if there are ``streams``, return the rows by the streams' names.

    Topics are separated before they are decoded, so that every record is decoded, classified and counted once.
    """
    if not streams:
        return read(records)
    return {name: read(records.where(sf.col("topic") == topic)) for name, topic in streams.items()}


def load(path: str, *, where: str, folder: Path | None = None) -> Any:
    """Import ``package.module:name`` and return the object; the pipeline file's ``folder`` is searched first.

    Executors need no copies of modules from this folder, because they get the code by value.
    """
    from pyspark import cloudpickle

    module_name, _, name = path.partition(":")
    where = f"{where}: {path}"
    added = [str(folder.absolute())] if folder else []
    own = find_imports(folder.absolute(), [module_name]).modules if folder else {}
    for module_here, file in own.items():
        if _imported.get(module_here, file) != file:
            sys.modules.pop(module_here, None)
    sys.path[:0] = added
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name in PANDAS:
            raise _missing_pandas(error.name, where=where) from None
        places = f"{folder} and PYTHONPATH" if folder else "PYTHONPATH"
        hint = f"put the module into {places}, and write package.module:name"
        raise ConfigError(f"there is no Python module {error.name or module_name}", where=where, hint=hint) from None
    except Exception as error:
        what = f"the module {module_name} cannot be imported: {type(error).__name__}: {error}"
        raise ConfigError(
            what, where=where, hint=f"correct the module until python -c 'import {module_name}' works"
        ) from error
    finally:
        for place in added:
            sys.path.remove(place)
    value = getattr(module, name, None)
    if value is None:
        names = [key for key, each in vars(module).items() if not key.startswith("_") and callable(each)]
        hint = f"name one of {', '.join(names)}" if names else "define the function in the module"
        raise ConfigError(f"the module {module_name} has no {name}", where=where, hint=hint)
    for module_here, file in own.items():
        # Skip a module that is imported only later, in a function's body, and another file's module of the same name.
        imported = sys.modules.get(module_here)
        if imported is not None and getattr(imported, "__file__", None) == str(file):
            _imported[module_here] = file
            cloudpickle.register_pickle_by_value(imported)  # type: ignore[no-untyped-call]
    return value


def _missing_pandas(package: str, *, where: str) -> MissingExtra:
    what = f"the function needs the Python package {package}, which is not installed"
    hint = f"install the package on the driver and on the executors; {install_command('pandas')}"
    return MissingExtra(what, where=where, hint=hint)


class Function:
    """A user's function from DataFrames to a DataFrame.

    A parameter with the name of an earlier step, a table or the pipeline gets the rows of this step, table or pipeline.
    The first other parameter gets the rows of the previous step. ``options`` are passed by name.
    """

    def __init__(self, path: str, options: Mapping[str, Any], *, where: str, folder: Path | None = None) -> None:
        self._where = f"{where}: {path}"
        self._call = load(path, where=where, folder=folder)
        self._options = dict(options)
        if not callable(self._call):
            raise ConfigError("this is not a function", where=self._where, hint="write package.module:function")
        self._parameters = inspect.signature(self._call).parameters
        takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in self._parameters.values())
        for name in self._options:
            if name not in self._parameters and not takes_any:
                hint = (
                    f"the function's parameters are {', '.join(self._parameters)}"
                    if self._parameters
                    else "remove the option"
                )
                raise ConfigError(f"the function has no parameter {name}", where=self._where, hint=hint)

    def __call__(self, before: DataFrame, frames: Mapping[str, DataFrame]) -> DataFrame:
        from pyspark.sql import DataFrame

        arguments: dict[str, DataFrame] = {}
        rows: DataFrame | None = before
        for name, parameter in self._parameters.items():
            if name in self._options or parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL):
                continue
            if name in frames:
                arguments[name] = frames[name]
            elif parameter.default is parameter.empty and rows is not None:
                arguments[name], rows = rows, None
            elif parameter.default is parameter.empty:
                hint = f"rename the parameter to one of {', '.join(frames)}, or give its value in options"
                what = f"the function has a parameter {name}, but no step, table or option has this name"
                raise ConfigError(what, where=self._where, hint=hint)
        try:
            result = self._call(**arguments, **self._options)
        except (spark_errors.AnalysisException, spark_errors.ParseException, LakefeedError):
            raise
        except (ModuleNotFoundError, spark_errors.PySparkImportError) as error:
            text = str(error).lower()
            if package := next((name for name in PANDAS if name in text), None):
                raise _missing_pandas(package, where=self._where) from None
            what = f"the function needs a module that is not installed: {error}"
            raise ConfigError(what, where=self._where, hint="install the module's package on the driver") from None
        except Exception as error:
            what, hint = f"the function failed: {type(error).__name__}: {error}", "correct the function"
            raise ConfigError(what, where=self._where, hint=hint) from error
        if not isinstance(result, DataFrame):
            what = f"the function returned {type(result).__name__} instead of a DataFrame"
            raise ConfigError(what, where=self._where, hint="return the rows of the step, a DataFrame")
        return result


def _add_view(frames: dict[str, DataFrame], name: str, frame: DataFrame) -> None:
    frames[name] = frame
    frame.createOrReplaceTempView(name)


def _with_watermark(rows: DataFrame, watermark: Watermark | None, *, where: str) -> DataFrame:
    """Add a watermark to a stream; a batch needs none, because no row is late."""
    if watermark is None:
        return rows
    place = f"{where}.watermark"
    _require_columns(rows, [watermark.column], where=place)
    type_ = rows.select(watermark.column).schema.fields[0].dataType
    if not isinstance(type_, t.TimestampType):
        what = f"the column {watermark.column} is {type_.simpleString()}, but a watermark needs a timestamp"
        hint = "convert the column in a step by to_timestamp(…), and move the watermark to that step"
        raise ConfigError(what, where=place, hint=hint)
    return rows.withWatermark(watermark.column, watermark.delay) if rows.isStreaming else rows


def _require_columns(rows: DataFrame, columns: list[str], *, where: str) -> None:
    have = {name.lower() for name in rows.columns}
    for column in columns:
        if column.lower() not in have:
            hint = f"the columns are {', '.join(rows.columns)}"
            raise ConfigError(f"there is no column {column}", where=where, hint=hint)


@contextmanager
def _explain_errors(where: str, frames: dict[str, DataFrame]) -> Iterator[None]:
    """Replace Spark's error by a ConfigError with its reason and the existing columns."""
    try:
        with quietly():
            yield
    except (spark_errors.AnalysisException, spark_errors.ParseException) as error:
        columns = "; ".join(f"{name}: {', '.join(frame.columns)}" for name, frame in frames.items())
        reason = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
        hint = None
        if error.getCondition() == "TABLE_OR_VIEW_NOT_FOUND":
            views = " or ".join(f"FROM {name}" for name in frames)
            hint = f"read the rows by the view's name: {views}; declare other tables in transform.tables"
        raise ConfigError(
            f"{where} does not fit the rows: {reason}", where=f"columns of {columns}", hint=hint
        ) from None
