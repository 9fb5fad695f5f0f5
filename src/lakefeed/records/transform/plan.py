"""Finds how Spark would run a transform as a stream: what it keeps from batch to batch, and whether it can at all."""

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
    """The state that a transform keeps from batch to batch.

    Attributes:
        state: each operator that keeps state, and what it keeps, in the words of ``io.lakefeed.query.StreamingPlan``;
            empty if every row is made of one record alone.
    """

    state: tuple[str, ...] = ()

    @property
    def stateful(self) -> bool:
        """Check that it has to be a part of the streaming query."""
        return bool(self.state)

    @classmethod
    def of(cls, frame: DataFrame, *, output_mode: OutputMode = "append", streams: int = 0) -> QueryPlan:
        """Analyze Spark's plan of a transformed stream, never the text of the transform.

        Args:
            frame: the transformed stream.
            output_mode: refused, with Spark's reason, where Spark cannot run the stream in it.
            streams: the number of topics that it reads separately; 0 if it has one view of all.
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
        """Give a query that is started inside the settings that its state requires, where ``spark:`` names none.

        Parts: each is a PUT of every batch, and Spark's default is 200. Store: Spark's default has one kind of value
        for each operator. A query that has a checkpoint keeps the parts and the store that it has begun with.
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
        """Refuse to resume a checkpoint whose noted state another transform has made, with the differences."""
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
    """Stands in for Spark's ``StatefulProcessorHandle``: ``init`` declares variables by a DDL text or a StructType."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def getValueState(self, stateName: str, schema: Any, ttlDurationMs: int | None = None) -> None:
        self._add("value", stateName, [schema], ttlDurationMs)

    def getListState(self, stateName: str, schema: Any, ttlDurationMs: int | None = None) -> None:
        self._add("list", stateName, [schema], ttlDurationMs)

    def getMapState(self, stateName: str, userKeySchema: Any, valueSchema: Any, ttlDurationMs: Any = None) -> None:
        self._add("map", stateName, [userKeySchema, valueSchema], ttlDurationMs)

    def deleteIfExists(self, stateName: str) -> None:
        """Accept a removed variable, which is not reported."""

    def _add(self, kind: str, name: str, schemas: list[Any], ttl: int | None) -> None:
        # The same types have the same text, however they are written.
        types = [schema if isinstance(schema, t.DataType) else t.DataType.fromDDL(schema) for schema in schemas]
        text = " to ".join(type_.simpleString() for type_ in types)
        self.texts.append(f"{kind} {name} {text}{f', for {ttl} ms' if ttl else ''}")


def state_variables(pickled: bytes) -> str:
    """List the variables that the ``init`` of a stateful processor declares; PySpark hands it to the JVM pickled."""
    from pyspark.serializers import CloudPickleSerializer

    serializer: Any = CloudPickleSerializer()  # type: ignore[no-untyped-call]
    command = serializer.loads(bytes(pickled))
    if not isinstance(command, tuple):
        # Larger than a megabyte: PySpark hands out a broadcast in its place.
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
    # Sorted: the order of the declarations does not matter.
    return "; ".join(sorted(variables.texts)) or "nothing"


def keeps_no_state(config: PipelineConfig) -> bool:
    """Return whether the pipeline file alone shows that the query keeps nothing from batch to batch."""
    return config.transform is None and config.source.numbered is not None and not _deduplicates(config)


def transform_id(config: PipelineConfig, *, folder: Path | None) -> str | None:
    """Identify the transform, without Spark; None where the pipeline file alone shows that there is no state.

    Two transforms with the same id keep the same state. A function in Python may import others, whose change is not
    noticed here but by the next start. Python functions are looked up in the folder of the pipeline file.
    """
    if keeps_no_state(config):
        return None
    found: dict[str, Any] = {"deduplicate": _deduplicates(config)}
    if (transform := config.transform) is not None:
        # Options of static tables hold no state, and may hold secrets: so may texts among a function's options.
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
