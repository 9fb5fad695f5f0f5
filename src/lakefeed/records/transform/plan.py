"""How Spark would run a transform as a stream: what it remembers from batch to batch, and whether it can at all."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import ndiff
from typing import TYPE_CHECKING, Any

from lakefeed.clients.spark import jvm
from lakefeed.clients.spark.errors import quietly
from lakefeed.config.transform import OutputMode
from lakefeed.errors import CheckpointMismatch, ConfigError
from lakefeed.records.transform.processors import declared

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, SparkSession

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
    """What a transform keeps from batch to batch.

    Attributes:
        state: each operator that keeps state, and what it keeps, as ``io.lakefeed.query.StreamingPlan`` says it; empty
            if every row is made of one record alone.
    """

    state: tuple[str, ...] = ()

    @property
    def stateful(self) -> bool:
        """Whether it has to be a part of the streaming query."""
        return bool(self.state)

    @classmethod
    def of(cls, frame: DataFrame, *, output_mode: OutputMode = "append", streams: int = 0) -> QueryPlan:
        """Looks at a streaming DataFrame: at what Spark made of it, never at the text.

        Args:
            frame: the transformed stream.
            output_mode: what a batch hands to the sink.
            streams: how many topics it takes apart from each other; 0 if it has one view of all.

        Raises:
            ConfigError: Spark cannot run it as a stream in this output mode, with the reason.
        """
        from pyspark.errors import PySparkException

        java = jvm.java(frame.sparkSession).query.StreamingPlan
        dataset: Any = frame
        kept = iter([declared(each) for each in java.processors(dataset._jdf)])
        message = [str(each) for each in java.state(dataset._jdf)]
        plan = cls(tuple(f"{each}; {next(kept)}" if each.startswith(PROCESSOR) else each for each in message))
        where = f"transform, output_mode: {output_mode}"
        if any(each.startswith("distinct") for each in plan.state):
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
        if output_mode != "append" and not any(each.startswith("aggregate") for each in plan.state):
            raise ConfigError(
                f"output_mode: {output_mode} is for aggregates, and the transform has none: no row of it changes later",
                where=where,
                hint="leave output_mode out",
            )
        try:
            with quietly():
                java.check(dataset._jdf, output_mode)
        except PySparkException as error:
            said = " ".join(str(error).split("\n")[0].split(";"))
            hint = next((hint for text, hint in HINTS.items() if text in str(error)), None)
            raise ConfigError(f"Spark cannot run this as a stream: {said}", where=where, hint=hint) from None
        return plan

    @contextmanager
    def settings(self, spark: SparkSession) -> Iterator[None]:
        """Gives a query that is started inside the settings that its state requires, where ``spark:`` names none.

        Parts: each is a PUT of every batch, and Spark's default is 200. Store: Spark's default has one kind of value
        for each operator. A query that has a checkpoint keeps the parts and the store that it has begun with.
        """
        requested = {}
        said = spark.conf.getAll
        if self.state and PARTS not in said:
            requested[PARTS] = str(max(LEAST_PARTS, min(MOST_PARTS, 2 * spark.sparkContext.defaultParallelism)))
        needs_variables = any(each.startswith("transformWithState") for each in self.state)
        if needs_variables and "HDFSBackedStateStore" in said.get(STATE_STORE, "HDFSBackedStateStore"):
            requested[STATE_STORE] = ROCKSDB
        for key, value in requested.items():
            spark.conf.set(key, value)
        try:
            yield
        finally:
            for key in requested:
                spark.conf.unset(key) if key not in said else spark.conf.set(key, said[key])

    def require_same_state(self, noted: Sequence[str], *, checkpoint: str) -> None:
        """Refuses to resume with state that another transform has made.

        Args:
            noted: the state as the checkpoint location has it noted.
            checkpoint: that location.

        Raises:
            CheckpointMismatch: naming what is another, line by line.
        """
        if tuple(noted) == self.state:
            return
        lines = [each for each in ndiff(list(noted), list(self.state)) if not each.startswith("?")]
        raise CheckpointMismatch(
            "the transform keeps other state than the checkpoint has:\n    " + "\n    ".join(lines),
            where=checkpoint,
            hint="put the transform back; or name a new table and a new checkpoint location, which read the topics "
            "again from source.kafka.start",
        )
