"""Analyzes how Spark runs a transform as a stream: whether Spark can run it, and which state it keeps."""

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
    "without watermark": "say how late rows may be, transform.watermark: {column: …, delay: 10 minutes}, and group by "
    "a window of that column; or output_mode: update",
    "Sorting is not supported": "a stream has no end to sort up to; sort where the table is read",
}
PROCESSOR = "transformWithState in Python"
PARTS = "spark.sql.shuffle.partitions"
LEAST_PARTS, MOST_PARTS = 4, 200
STATE_STORE = "spark.sql.streaming.stateStore.providerClass"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


@dataclass(frozen=True)
class QueryPlan:
    """The state that a transform keeps between batches.

    Attributes:
        state: texts of ``io.lakefeed.query.StreamingPlan`` that describe the operators with state; empty if every row
            depends on only one record.
    """

    state: tuple[str, ...] = ()

    @property
    def stateful(self) -> bool:
        """Return whether the transform has to be a part of the streaming query."""
        return bool(self.state)

    @classmethod
    def of(cls, frame: DataFrame, *, output_mode: OutputMode = "append", streams: int = 0) -> QueryPlan:
        """Analyze Spark's plan of a transformed stream, never the text of the transform.

        Args:
            frame: the transformed stream.
            output_mode: the output mode; raises ConfigError with Spark's reason if Spark cannot run the stream in it.
            streams: the number of topics that the transform reads separately; 0 for one view of all topics.
        """
        java = jvm.java(frame.sparkSession).query.StreamingPlan
        dataset: Any = frame
        kept = iter([state_variables(each) for each in java.processors(dataset._jdf)])
        operators = [str(operator) for operator in java.state(dataset._jdf)]
        plan = cls(tuple(f"{each}; {next(kept)}" if each.startswith(PROCESSOR) else each for each in operators))
        where = f"transform, output_mode: {output_mode}"
        if any(operator.startswith("distinct") for operator in plan.state):
            raise ConfigError(
                "SELECT DISTINCT over a stream would remember every row for ever",
                where=where,
                hint="a step deduplicate: [columns], with a watermark that says how long to remember",
            )
        readings: Any = java.readings(dataset._jdf)
        if readings is None or ((streams or len(readings) > 1) and len(readings) != streams):
            raise ConfigError(
                "the transform reads a stream more than once, or not at all; each record of the source has to be "
                "counted once, so that the ledger says which records a batch is made of",
                where=where,
                hint="read it once: group it, or explode each row into several; to join topics with each other name "
                "them in transform.streams, and read each of these once",
            )
        if output_mode != "append" and not any(operator.startswith("aggregate") for operator in plan.state):
            raise ConfigError(
                f"output_mode: {output_mode} is for aggregates, and the transform has none: no row of it changes later",
                where=where,
                hint="leave output_mode out",
            )
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
        """Set Spark settings for the state of a query that this block starts, unless ``spark:`` sets them.

        Partitions: one costs a PUT per batch, and Spark's default is 200. Store: Spark's default supports only one
        kind of value per operator. A query with a checkpoint keeps the partitions and the store of its first start.
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
            hint="put the transform back; or name a new table and a new checkpoint location, which read the topics "
            "again from source.kafka.start",
        )


class _StateVariables:
    """Replaces Spark's ``StatefulProcessorHandle`` and records the variables that ``init`` declares."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def getValueState(self, stateName: str, schema: Any, ttlDurationMs: int | None = None) -> None:
        self._add("value", stateName, [schema], ttlDurationMs)

    def getListState(self, stateName: str, schema: Any, ttlDurationMs: int | None = None) -> None:
        self._add("list", stateName, [schema], ttlDurationMs)

    def getMapState(self, stateName: str, userKeySchema: Any, valueSchema: Any, ttlDurationMs: Any = None) -> None:
        self._add("map", stateName, [userKeySchema, valueSchema], ttlDurationMs)

    def deleteIfExists(self, stateName: str) -> None:
        """Ignore a removed variable."""

    def _add(self, kind: str, name: str, schemas: list[Any], ttl: int | None) -> None:
        # Parse DDL texts, so that the same types have the same text.
        types = [schema if isinstance(schema, t.DataType) else t.DataType.fromDDL(schema) for schema in schemas]
        text = " to ".join(type_.simpleString() for type_ in types)
        self.texts.append(f"{kind} {name} {text}{f', for {ttl} ms' if ttl else ''}")


def state_variables(pickled: bytes) -> str:
    """Return the variables that a stateful processor's ``init`` declares, from PySpark's pickled processor."""
    from pyspark.serializers import CloudPickleSerializer

    serializer: Any = CloudPickleSerializer()  # type: ignore[no-untyped-call]
    command = serializer.loads(bytes(pickled))
    if not isinstance(command, tuple):
        # PySpark replaces a command larger than a megabyte by a broadcast.
        command = serializer.loads(command.value)
    processor = command[0].__self__._stateful_processor
    variables = _StateVariables()
    try:
        processor.init(variables)
    except LakefeedError:
        raise
    except Exception as error:
        what = f"init(handle) of {type(processor).__name__} fails: {type(error).__name__}: {error}"
        hint = "init only declares variables: getValueState, getListState, getMapState, deleteIfExists"
        raise ConfigError(what, where="transform", hint=hint) from error
    # Sort the texts, because the order of the declarations does not matter.
    return "; ".join(sorted(variables.texts)) or "nothing"


def keeps_no_state(config: PipelineConfig) -> bool:
    """Return whether the pipeline file alone shows that the query keeps no state between batches."""
    return config.transform is None and config.source.numbered is not None and not _deduplicates(config)


def transform_id(config: PipelineConfig, *, folder: Path | None) -> str | None:
    """Return an id of the transform, without Spark; None if the pipeline file alone shows that there is no state.

    Two transforms with the same id keep the same state. If a Python function imports other modules, the id ignores
    changes of these modules; the next start notices them. Python functions are searched in the pipeline file's folder.
    """
    if keeps_no_state(config):
        return None
    found: dict[str, Any] = {"deduplicate": _deduplicates(config)}
    if (transform := config.transform) is not None:
        # Omit options of static tables: they hold no state and may be secret. A function's texts may be secret too.
        found |= transform.model_dump(exclude={"tables": {"__all__": {"options"}}, "steps": {"__all__": {"options"}}})
        for name, step in transform.all_steps.items():
            plain = {key: value for key, value in step.options.items() if not isinstance(value, str)}
            found[f"{name}."] = [plain, _hash_source(step.python, folder)]
    text = json.dumps(found, sort_keys=True, default=str)
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
