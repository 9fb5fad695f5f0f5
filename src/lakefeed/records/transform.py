"""Applies a user's transform, steps in Spark SQL and Python, to decoded rows; finds which state its query keeps."""

from __future__ import annotations

import hashlib
import importlib
import inspect
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import ndiff
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lakefeed.clients.spark import jvm
from lakefeed.clients.spark.errors import quietly
from lakefeed.clients.spark.python_files import find_imports
from lakefeed.clients.spark.statements import run
from lakefeed.config.models import PipelineConfig
from lakefeed.config.transform import OutputMode, Step, Transform, Watermark
from lakefeed.errors import CheckpointMismatch, ConfigError, LakefeedError, MissingExtra, install_command
from lakefeed.lazy import DataFrame, SparkSession, sf, spark_errors, t

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


PANDAS = ("pyarrow", "protobuf", "google.protobuf", "numpy", "pandas")
"""The packages that pandas functions and transformWithState need besides PySpark; an error names one."""
_imported: dict[str, Path] = {}
"""By name, the file of each module from a pipeline's folder: another pipeline's module may have the same name."""


class TransformSteps:
    """A pipeline's transform. Its SQL reads the rows from the view ``view``; its Python functions are in ``folder``."""

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
        """Return the transformed rows of all decoded rows, or of the streams' rows by name. Opens the static tables."""
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
    """Return the rows of all records, or with ``streams`` the rows of each stream by its name.

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
        # Skip modules that are imported later, in a function's body, and a module of the same name from another file.
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

    A parameter gets the rows of the earlier step, table or pipeline of the same name. The first parameter with another
    name gets the rows of the previous step. ``options`` are passed by name.
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
    """Raise a ConfigError instead of Spark's error, with Spark's reason and the columns that exist."""
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


HINTS = {
    "NON_TIME_WINDOW_NOT_SUPPORTED_IN_STREAMING": "group by window(…) or session_window(…), or use a deduplicate step",
    "without watermark": "set how late rows may be, transform.watermark: {column: …, delay: 10 minutes}, and group by "
    "a window of that column; or set output_mode: update",
    "Sorting is not supported": "a stream has no end, so nothing is ever sorted; sort where the table is read",
}
"""Hints by a substring of Spark's error."""
PROCESSOR = "transformWithState in Python"
PARTS = "spark.sql.shuffle.partitions"
LEAST_PARTS, MOST_PARTS = 4, 200
STATE_STORE = "spark.sql.streaming.stateStore.providerClass"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


@dataclass(frozen=True)
class QueryPlan:
    """The state that a transform keeps between batches."""

    state: tuple[str, ...] = ()
    """The operators with state, from ``io.lakefeed.query.StreamingPlan``; empty if a row depends on one record only."""

    @property
    def stateful(self) -> bool:
        """Return whether the transform has to be a part of the streaming query."""
        return bool(self.state)

    @classmethod
    def of(cls, frame: DataFrame, *, output_mode: OutputMode = "append", streams: int = 0) -> QueryPlan:
        """Analyze Spark's plan of a transformed stream; raise ConfigError if Spark cannot run it in this output mode.

        ``streams`` is the number of topics that the transform reads separately; 0 for one view of all topics.
        """
        java = jvm.java(frame.sparkSession).query.StreamingPlan
        dataset: Any = frame
        variables = iter([state_variables(each) for each in java.processors(dataset._jdf)])
        operators = [str(operator) for operator in java.state(dataset._jdf)]
        plan = cls(tuple(f"{each}; {next(variables)}" if each.startswith(PROCESSOR) else each for each in operators))
        where = f"transform, output_mode: {output_mode}"
        if any(operator.startswith("distinct") for operator in plan.state):
            raise ConfigError(
                "SELECT DISTINCT over a stream would keep every row in its state forever",
                where=where,
                hint="use a step deduplicate: [columns], with a watermark that limits how long rows are kept",
            )
        readings: Any = java.readings(dataset._jdf)
        if readings is None or ((streams or len(readings) > 1) and len(readings) != streams):
            raise ConfigError(
                "the transform has to read each stream exactly once, so that each record is counted once",
                where=where,
                hint="replace the second reading by a group or by an explode of each row; to join topics, name them in "
                "transform.streams, and read each of them once",
            )
        if output_mode != "append" and not any(operator.startswith("aggregate") for operator in plan.state):
            what = f"output_mode: {output_mode} is for aggregates, but the transform has no aggregate"
            raise ConfigError(what, where=where, hint="remove output_mode")
        try:
            with quietly():
                java.check(dataset._jdf, output_mode)
        except spark_errors.PySparkException as error:
            reason = " ".join(str(error).split("\n")[0].split(";"))
            hint = next((hint for text, hint in HINTS.items() if text in str(error)), None)
            raise ConfigError(f"Spark cannot run this as a stream: {reason}", where=where, hint=hint) from None
        return plan

    @contextmanager
    def settings(self, spark: SparkSession) -> Iterator[None]:
        """Set Spark's settings for the state of a query that the ``with`` block starts, unless the user has set them.

        These are the number of partitions (Spark's default is 200, and each partition costs a PUT per batch) and the
        state store (Spark's default store supports only one state variable per operator). A query with a checkpoint
        keeps the settings of its first start.
        """
        requested: dict[str, str] = {}
        given = spark.conf.getAll if self.state else {}  # To read all settings would take a call for each.
        if self.state and PARTS not in given:
            requested[PARTS] = str(max(LEAST_PARTS, min(MOST_PARTS, 2 * spark.sparkContext.defaultParallelism)))
        needs_variables = any(operator.startswith("transformWithState") for operator in self.state)
        if needs_variables and "HDFSBackedStateStore" in given.get(STATE_STORE, "HDFSBackedStateStore"):
            requested[STATE_STORE] = ROCKSDB
        for key, value in requested.items():
            spark.conf.set(key, value)
        try:
            yield
        finally:
            for key in requested:
                spark.conf.unset(key) if key not in given else spark.conf.set(key, given[key])

    def require_same_state(self, noted: Sequence[str], *, checkpoint: str) -> None:
        """Raise an error that lists the differences if a transform with other state has written the checkpoint."""
        if tuple(noted) == self.state:
            return
        lines = [line for line in ndiff(list(noted), list(self.state)) if not line.startswith("?")]
        raise CheckpointMismatch(
            "the transform keeps other state than the checkpoint has:\n    " + "\n    ".join(lines),
            where=checkpoint,
            hint="change the transform back; or name a new table and a new checkpoint location, to read the topics "
            "again from source.kafka.start",
        )


class _StateVariables:
    """Replaces Spark's ``StatefulProcessorHandle``, to record the variables that ``init`` declares."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def getValueState(self, stateName: str, schema: Any, ttlDurationMs: int | None = None) -> None:
        self._add("value", stateName, [schema], ttlDurationMs)

    def getListState(self, stateName: str, schema: Any, ttlDurationMs: int | None = None) -> None:
        self._add("list", stateName, [schema], ttlDurationMs)

    def getMapState(self, stateName: str, userKeySchema: Any, valueSchema: Any, ttlDurationMs: Any = None) -> None:
        self._add("map", stateName, [userKeySchema, valueSchema], ttlDurationMs)

    def deleteIfExists(self, stateName: str) -> None:
        pass

    def _add(self, kind: str, name: str, schemas: list[Any], ttl: int | None) -> None:
        # Parse DDL, because the same types may have different texts.
        types = [schema if isinstance(schema, t.DataType) else t.DataType.fromDDL(schema) for schema in schemas]
        text = " to ".join(type_.simpleString() for type_ in types)
        self.texts.append(f"{kind} {name} {text}{f', for {ttl} ms' if ttl else ''}")


def state_variables(pickled: bytes) -> str:
    """Return the variables that the ``init`` of a pickled stateful processor declares."""
    from pyspark.serializers import CloudPickleSerializer

    serializer: Any = CloudPickleSerializer()  # type: ignore[no-untyped-call]
    command = serializer.loads(bytes(pickled))
    if not isinstance(command, tuple):
        # PySpark broadcasts a command that is larger than a megabyte.
        command = serializer.loads(command.value)
    processor = command[0].__self__._stateful_processor
    variables = _StateVariables()
    try:
        processor.init(variables)
    except LakefeedError:
        raise
    except Exception as error:
        what = f"init(handle) of {type(processor).__name__} fails: {type(error).__name__}: {error}"
        hint = "in init, call only getValueState, getListState, getMapState and deleteIfExists of the handle"
        raise ConfigError(what, where="transform", hint=hint) from error
    # Sort, because the order of the declarations does not change the state.
    return "; ".join(sorted(variables.texts)) or "nothing"


def keeps_no_state(config: PipelineConfig) -> bool:
    """Return whether the pipeline file alone, without Spark's plan, shows that the query keeps no state."""
    return config.transform is None and config.source.numbered is not None and not _deduplicates(config)


def transform_id(config: PipelineConfig, *, folder: Path | None) -> str | None:
    """Return an id of the transform, computed without Spark; None if the query keeps no state.

    Two transforms with the same id keep the same state, unless a module that a Python function imports has changed; the
    next start finds such a change in Spark's plan. ``folder`` is the folder of the pipeline file, which has the Python
    functions.
    """
    if keeps_no_state(config):
        return None
    parts: dict[str, Any] = {"deduplicate": _deduplicates(config)}
    if (transform := config.transform) is not None:
        # Omit options of static tables and texts in options of functions, because they may be secrets.
        parts |= transform.model_dump(exclude={"tables": {"__all__": {"options"}}, "steps": {"__all__": {"options"}}})
        for name, step in transform.all_steps.items():
            plain = {key: value for key, value in step.options.items() if not isinstance(value, str)}
            parts[f"{name}."] = [plain, _hash_source(step.python, folder)]
    text = json.dumps(parts, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _deduplicates(config: PipelineConfig) -> bool:
    return config.source.kafka is not None and config.source.kafka.deduplicate


def _hash_source(function: str | None, folder: Path | None) -> str | None:
    if function is None or folder is None:
        return None
    module = folder.joinpath(*function.partition(":")[0].split("."))
    for file in (module.with_suffix(".py"), module / "__init__.py"):
        if file.is_file():
            return hashlib.sha256(file.read_bytes()).hexdigest()
    return None
