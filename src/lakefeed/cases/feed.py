"""The feed of a case: the pipeline's own, with the case's records as source and local tables as sinks."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from lakefeed.cases.records import RecordFiles
from lakefeed.config.case_sink import table_in_place
from lakefeed.config.cases import CaseTable
from lakefeed.config.connections import Registry
from lakefeed.config.decoding import Decode, Encoded
from lakefeed.config.failures import DeadLetters
from lakefeed.config.models import PipelineConfig
from lakefeed.config.transform import StaticTable, Transform
from lakefeed.config.upserts import kept_metadata
from lakefeed.config.values import AVAILABLE_NOW
from lakefeed.errors import ConfigError
from lakefeed.feed.feed import Feed, FeedSource
from lakefeed.lazy import DataFrame, SparkSession, sf
from lakefeed.offsets.ranges import OffsetRange, OffsetRanges, Partition

AnyEncoded = TypeVar("AnyEncoded", bound=Encoded)


@dataclass(frozen=True)
class CaseSource(FeedSource):
    """Reads the records of a case in place of the topics."""

    records: RecordFiles

    def read_stream(
        self,
        spark: SparkSession,
        *,
        starting: Mapping[str, Mapping[int, int]] | None = None,
        marks: Mapping[Partition, str] | None = None,
        gather: bool = True,
        bounded: bool = True,
    ) -> DataFrame:
        return self._marked(self._completed(self.records.read_stream(spark, headers=self.reads_headers)))

    def read_case(self, spark: SparkSession, batch_id: int) -> DataFrame:
        """Read one batch of the case."""
        return self._completed(self.records.read_batch(spark, batch_id, headers=self.keeps_headers))

    def reread(self, spark: SparkSession, ranges: Sequence[OffsetRange]) -> DataFrame:
        return self._completed(self.records.reread(spark, ranges, headers=self.keeps_headers))

    def reread_with_headers(self, spark: SparkSession, spans: Sequence[OffsetRange], of: OffsetRanges) -> DataFrame:
        return self._completed(self.records.reread(spark, spans, headers=True))

    def _marked(self, records: DataFrame) -> DataFrame:
        return self._mark_duplicates(records) if self.config.source.kafka is not None else records

    def _completed(self, records: DataFrame) -> DataFrame:
        if self.config.source.kinesis is None:
            return records
        return records.withColumn("sequence_number", sf.col("offset").cast("string"))


@dataclass(frozen=True, kw_only=True, eq=False)
class CaseFeed(Feed):
    """A feed that reads the records of a case."""

    records: RecordFiles = field(repr=False)

    @cached_property
    def source(self) -> CaseSource:
        return CaseSource(self.config, self.connections, self.records)


@dataclass(frozen=True, kw_only=True)
class CasePlaces:
    """The places of one case in place of the pipeline's servers.

    Attributes:
        namespace: of its tables, with the catalog.
        folder: of its checkpoint, and of the rows of static tables.
        registry: the address of its schemas.
    """

    namespace: str
    folder: Path
    registry: str

    @property
    def table(self) -> str:
        return f"{self.namespace}.rows"

    @property
    def history(self) -> str:
        return f"{self.namespace}.history"

    @property
    def dead_letters(self) -> str:
        return f"{self.namespace}.dead_letters"


def config_of_case(config: PipelineConfig, places: CasePlaces, tables: Mapping[str, CaseTable]) -> PipelineConfig:
    """Return the pipeline with the case's places; all that makes rows of records stays as it is."""
    budget = config.dead_letters.budget if config.dead_letters is not None else None
    letters = None if config.dead_letters is None else DeadLetters(table=places.dead_letters, budget=budget)
    return config.model_copy(
        update={
            "decode": _decode(config, places.registry),
            "transform": _transform(config.transform, tables, places.folder),
            "sink": table_in_place(config, table=places.table, history=places.history),
            "sinks": {},
            "dead_letters": letters,
            "checkpoint": f"file:{places.folder}/checkpoint",
            "trigger": AVAILABLE_NOW,
            "fast_path": "off",
            "upkeep": None,
            "budget": None,
        }
    )


def _decode(config: PipelineConfig, registry: str) -> Decode:
    key = None if config.decode.key is None else _with_registry(config.decode.key, registry)
    # The pipeline's own sink may need more metadata than the table in its place.
    own = {"key": key, "metadata": list(kept_metadata(config))}
    return _with_registry(config.decode, registry).model_copy(update=own)


def _with_registry(encoded: AnyEncoded, address: str) -> AnyEncoded:
    registered = encoded.registered
    if registered is None or registered.registry is None:
        return encoded
    return encoded.model_copy(update={encoded.kind: registered.model_copy(update={"registry": Registry(url=address)})})


def _transform(transform: Transform | None, tables: Mapping[str, CaseTable], folder: Path) -> Transform | None:
    given = transform.tables if transform is not None else {}
    if unknown := next((name for name in tables if name not in given), None):
        raise ConfigError(
            f"tests.tables has rows of {unknown}, and transform.tables has no such table",
            where=f"tests.tables.{unknown}",
            hint=f"it has {', '.join(given) or 'none'}",
        )
    if transform is None or not given:
        return transform
    found = {name: _static(name, table, tables.get(name), folder) for name, table in given.items()}
    return transform.model_copy(update={"tables": found})


def _static(name: str, table: StaticTable, rows: CaseTable | None, folder: Path) -> StaticTable:
    if rows is not None:
        file = folder / "tables" / f"{name}.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        lines: list[dict[str, Any]] = rows.rows
        file.write_text("".join(f"{json.dumps(line, default=str)}\n" for line in lines), "utf-8")
        return StaticTable(format="json", path=str(file), schema_ddl=rows.schema_ddl, options={"mode": "FAILFAST"})
    if table.path is not None and "://" not in table.path:
        return table
    raise ConfigError(
        f"the transform joins with {name}, and the tests have no rows of it",
        where=f"transform.tables.{name}",
        hint=f"tests: {{tables: {{{name}: {{schema_ddl: …, rows: […]}}}}}}",
    )
