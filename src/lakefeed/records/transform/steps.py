"""A transform's steps over decoded rows: Spark SQL and Python functions, on a stream and on a batch alike."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lakefeed.clients.spark.errors import quietly
from lakefeed.config.transform import StaticTable, Step, Transform, Watermark
from lakefeed.errors import ConfigError
from lakefeed.records.transform.functions import Function

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


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
            rows: all, or those of each stream by its name: see ``by_topic``.

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


def by_topic(
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


Transformed = Callable[[Any], "DataFrame"]
"""From decoded rows, or those of each stream by its name, to the sink's."""
