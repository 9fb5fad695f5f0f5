"""A user's own functions and classes, by dotted path."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lakefeed.clients.spark.errors import quietly
from lakefeed.config.transform import StaticTable, Step, Transform, Watermark
from lakefeed.errors import ConfigError, LakefeedError, MissingExtra

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


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


class TransformSteps:
    """A pipeline's transform.

    Args:
        transform: its block in the pipeline file; None if rows stay as they are.
        view: what the decoded rows are called.
        folder: where the pipeline file is: Python modules are looked for there too.

    Raises:
        ConfigError: a function that is not there, or does not take its options.
    """

    def __init__(self, transform: Transform | None, *, view: str, folder: Path | None = None) -> None:
        self._transform = transform
        self._view = view
        self._functions = {
            name: Function(each.python, each.options, where=f"transform.steps.{name}", folder=folder)
            for name, each in (transform.all_steps.items() if transform else ())
            if each.python is not None
        }

    @property
    def streams(self) -> Mapping[str, str]:
        """The topic of each stream that the transform joins, by the stream's name; empty if it has but one view."""
        return {name: each.topic for name, each in self._transform.streams.items()} if self._transform else {}

    def __call__(self, rows: DataFrame | Mapping[str, DataFrame]) -> DataFrame:
        """What the transform makes of decoded rows; static tables are looked up now.

        Args:
            rows: all, or those of each stream by its name: see ``split_by_topic``.

        Raises:
            ConfigError: with Spark's reason, if a step does not fit the rows.
        """
        views = rows if isinstance(rows, Mapping) else {self._view: rows}
        result = next(iter(views.values()))
        if self._transform is None:
            return result
        frames: dict[str, DataFrame] = {}
        for name, each in views.items():
            stream = self._transform.streams.get(name)
            where, late = (f"transform.streams.{name}", stream) if stream else ("transform", self._transform)
            frames[name] = _late(each, late.watermark, where=where)
            frames[name].createOrReplaceTempView(name)
        for name, table in self._transform.tables.items():
            with _explained(f"transform.tables.{name}", frames):
                frames[name] = _static(result.sparkSession, table)
                frames[name].createOrReplaceTempView(name)
        result = next(iter(frames.values()))
        for name, step in self._transform.all_steps.items():
            where = "transform.sql" if self._transform.sql is not None else f"transform.steps.{name}"
            with _explained(where, frames):
                made = self._made(name, step, result, frames)
                result = _late(made, step.watermark, where=where)
                if self._transform.sql is None:
                    frames[name] = result
                    result.createOrReplaceTempView(name)
        return result

    def _made(self, name: str, step: Step, before: DataFrame, frames: dict[str, DataFrame]) -> DataFrame:
        if step.sql is not None:
            return before.sparkSession.sql(step.sql)
        if step.deduplicate is not None:
            keys = list(step.deduplicate)
            _require(before, keys, where=f"transform.steps.{name}.deduplicate")
            return before.dropDuplicatesWithinWatermark(keys) if before.isStreaming else before.dropDuplicates(keys)
        return self._functions[name](before, frames)


def split_by_topic(
    records: DataFrame, streams: Mapping[str, str], read: Callable[[DataFrame], DataFrame]
) -> DataFrame | Mapping[str, DataFrame]:
    """The rows of all records; or where a transform joins streams, of each stream's topic by the stream's name.

    The topics are separated before anything is read out of a record: each is then decoded, judged and counted once.

    Args:
        records: with the column topic.
        streams: see ``Steps.streams``.
        read: from records to rows.
    """
    from pyspark.sql import functions as sf

    if not streams:
        return read(records)
    return {name: read(records.where(sf.col("topic") == topic)) for name, topic in streams.items()}


def _late(rows: DataFrame, watermark: Watermark | None, *, where: str) -> DataFrame:
    """The rows with their watermark; in a batch nothing is late."""
    from pyspark.sql.types import TimestampType

    if watermark is None:
        return rows
    place = f"{where}.watermark"
    _require(rows, [watermark.column], where=place)
    found = rows.select(watermark.column).schema.fields[0].dataType
    if not isinstance(found, TimestampType):
        raise ConfigError(
            f"the column {watermark.column} is {found.simpleString()}, and a watermark requires a timestamp",
            where=place,
            hint="make one in a step, to_timestamp(…) AS …, and give that step the watermark",
        )
    return rows.withWatermark(watermark.column, watermark.delay) if rows.isStreaming else rows


def _require(rows: DataFrame, columns: list[str], *, where: str) -> None:
    have = {each.lower() for each in rows.columns}
    for column in columns:
        if column.lower() not in have:
            raise ConfigError(f"there is no column {column}", where=where, hint=f"there are {', '.join(rows.columns)}")


def _static(spark: SparkSession, table: StaticTable) -> DataFrame:
    if table.table is not None:
        return spark.table(table.table)
    reader = spark.read.format(table.format or "").options(**table.options)
    if table.schema_ddl is not None:
        reader = reader.schema(table.schema_ddl)
    return reader.load(table.path) if table.path is not None else reader.load()


@contextmanager
def _explained(where: str, frames: dict[str, DataFrame]) -> Iterator[None]:
    """Reports Spark's reason and the columns that exist."""
    from pyspark.errors import AnalysisException, ParseException

    try:
        with quietly():
            yield
    except (AnalysisException, ParseException) as error:
        columns = "; ".join(f"{name}: {', '.join(frame.columns)}" for name, frame in frames.items())
        raise ConfigError(f"{where} does not fit the rows: {_reason(error)}", where=f"columns of {columns}") from None


def _reason(error: Exception) -> str:
    return next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)


RowTransform = Callable[[Any], "DataFrame"]
"""From decoded rows, or those of each stream by its name, to the sink's."""
