"""Parquet sink: Spark's own file sink, whose log ``_spark_metadata`` lists each batch's files exactly once.

Guarantee: exactly-once for readers that honour ``_spark_metadata``, that is Spark reading the root path. Others
see the files of failed attempts too. The log is keyed by batch id alone, so a path belongs to one checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from lakefeed import jvm
from lakefeed.commit.checkpoint import Claim
from lakefeed.commit.ledger import Commit, SnapshotProperties
from lakefeed.config.models import ParquetSink
from lakefeed.errors import ConfigError
from lakefeed.schema.history import Entry
from lakefeed.schema.reader import Recorded

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


class ParquetFiles:
    """One feed's files below a path.

    Args:
        spark: the session.
        sink: its block in the pipeline file.
        claim: the feed's checkpoint, where the schema is noted.
    """

    keeps_ledger = False

    def __init__(self, spark: SparkSession, sink: ParquetSink, claim: Claim) -> None:
        session: Any = spark
        self._sink = sink
        self._claim = claim
        self._files = jvm.java(spark).sink.ParquetFiles(
            session._jsparkSession, sink.path, list(sink.partition_by), {"compression": sink.compression}
        )

    def recorded_schema(self) -> Recorded | None:
        """The reader's schema that the feed had last."""
        return None if self._claim.schema is None else Recorded.of_json(self._claim.schema)

    def follow(self, rows: StructType, recorded: Recorded | None = None, entries: Sequence[Entry] = ()) -> None:
        """Remembers the reader's schema. The files need nothing: each has its own columns, which readers merge.

        Raises:
            ConfigError: if a partition column is not among the rows' columns.
        """
        check_partition_columns(self._sink, rows)
        if recorded is not None and recorded.to_json() != self._claim.schema:
            self._claim.note_schema(recorded.to_json())

    def location(self) -> str:
        """Where the files are."""
        return self._sink.path

    def take_fence(self) -> None:
        """There is none: two drivers meet at the checkpoint and at the log, whose entries are written once."""

    def commits(self) -> Iterator[Commit]:
        """None: the log has files, not offsets."""
        return iter(())

    def position(self) -> None:
        """Not known: the log has files, not offsets."""

    def logged(self) -> int | None:
        """The newest batch in the log; None if it is empty."""
        newest = int(self._files.logged())
        return None if newest < 0 else newest

    def land_move(self, commit: Commit, *, commit_id: str, delete_where: str | None = None) -> None:
        """Refused: there is no ledger to move in.

        Raises:
            ConfigError: always.
        """
        raise ConfigError(
            "a Parquet feed cannot be moved: its log is numbered by batches and knows no offsets",
            where=self._sink.path,
            hint="name another path and another checkpoint location, which reads the topics again; or land the feed in "
            "an Iceberg table",
        )

    def has(self, commit: Commit) -> bool:
        """Never known beforehand: Spark's sink itself leaves a batch out that its log has, without one more request."""
        return False

    def land(self, rows: DataFrame, commit: SnapshotProperties, *, commit_id: str) -> int | None:
        """Writes the rows of one micro-batch and lists them; does not tell how many they were.

        Raises:
            Py4JJavaError: Spark could not, or the commit was refused.
        """
        if not isinstance(commit, Commit):
            raise ConfigError(
                "a Parquet feed takes batches only: its log is numbered by them",
                where=self._sink.path,
                hint="land the feed in an Iceberg table, or read these records with lakefeed.read_topic",
            )
        frame: Any = rows
        self._files.add(commit.batch_id, commit_id, frame._jdf)
        return None


def check_partition_columns(sink: ParquetSink, rows: StructType) -> None:
    """Refuses rows without a column that becomes directories.

    Raises:
        ConfigError: naming the first that is missing.
    """
    missing = [name for name in sink.partition_by if name not in rows.names]
    if missing:
        raise ConfigError(
            f"partition_by names the column '{missing[0]}', which the rows do not have",
            where=f"path {sink.path}, columns {', '.join(rows.names)}",
            hint="name one of these columns, or make the column in transform.sql",
        )
