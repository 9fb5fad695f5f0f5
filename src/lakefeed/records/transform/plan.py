"""Analyzes a transform as a stream: whether Spark can run it, and which state it keeps between batches."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import ndiff
from pathlib import Path
from typing import Any

from lakefeed.clients.spark import jvm
from lakefeed.clients.spark.errors import quietly
from lakefeed.config.models import PipelineConfig
from lakefeed.config.transform import OutputMode
from lakefeed.errors import CheckpointMismatch, ConfigError, LakefeedError
from lakefeed.lazy import DataFrame, SparkSession, spark_errors, t

HINTS = {
    "NON_TIME_WINDOW_NOT_SUPPORTED_IN_STREAMING": "group by window(…) or session_window(…), or use a deduplicate step",
    "without watermark": "set how late rows may be, transform.watermark: {column: …, delay: 10 minutes}, and group by "
    "a window of that column; or set output_mode: update",
    "Sorting is not supported": "a stream has no end, so nothing is ever sorted; sort where the table is read",
}
"""Hints for errors of Spark, by a part of their text."""
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
                "transform.streams, and read each of these once",
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

        The settings are the number of partitions (Spark's default is 200, and each partition costs a PUT per batch) and
        the state store (Spark's default store has only one kind of value per operator). A query with a checkpoint keeps
        the settings of its first start.
        """
        requested = {}
        given = spark.conf.getAll
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
        """Raise an error with the differences if the checkpoint's state comes from another transform."""
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
    """Stands in for Spark's ``StatefulProcessorHandle`` and records the variables that ``init`` declares."""

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
    # Sort, because the state stays the same if the declarations change places.
    return "; ".join(sorted(variables.texts)) or "nothing"


def keeps_no_state(config: PipelineConfig) -> bool:
    """Return whether the pipeline file alone, without Spark's plan, shows that the query keeps no state."""
    return config.transform is None and config.source.numbered is not None and not _deduplicates(config)


def transform_id(config: PipelineConfig, *, folder: Path | None) -> str | None:
    """Return an id of the transform without Spark; None if the query keeps no state.

    Two transforms with the same id keep the same state, unless a module that a Python function imports has changed: the
    next start notices that by Spark's plan. ``folder`` is the folder of the pipeline file, which has the Python
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
