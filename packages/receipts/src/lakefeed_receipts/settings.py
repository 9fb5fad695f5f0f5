"""The block ``receipts`` of a pipeline file."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, ClassVar

from pydantic import Field, SecretStr, model_validator

from lakefeed.config.base import ConfigProblem
from lakefeed.config.blocks import Block, PipelineBlocks
from lakefeed.config.keyed import POSITION

SHARED_KEY = "lakefeed"
"""The key of feeds without one, which everybody knows."""


class Receipts(Block):
    """Receipts of the rows' values in the table's commits, which lakefeed verify --content compares with the table."""

    only_for_runs: ClassVar[bool] = False

    enabled: bool = Field(True, description="Whether commits get receipts; `receipts: true` is short for this.")
    key: SecretStr | None = None
    """A secret, as ${NAME}. Only programs that know it can write receipts for other values. Without a key, receipts
    reveal only accidents. It cannot change later."""

    @model_validator(mode="before")
    @classmethod
    def _switch(cls, data: Any) -> Any:
        return {"enabled": data} if isinstance(data, bool) else data

    def problems(self, config: PipelineBlocks) -> Iterator[ConfigProblem]:
        if not self.enabled:
            return
        iceberg = config.sink.iceberg
        if iceberg is None:
            what = f"receipts are in the commits of an Iceberg table, and sink.{config.sink.kind} has none"
            yield ConfigProblem(what, hint="remove receipts, or write to sink.iceberg")
        elif iceberg.mode != "append" or config.output_mode != "append" or iceberg.routed_by is not None:
            what = "receipts prove rows that are appended to one table: later changes replace the rows of other tables"
            hint = "remove receipts; an upsert's changes can be proven in a second feed that appends them"
            yield ConfigProblem(what, hint=hint)
        elif iceberg.properties.get("write.format.default", "parquet").lower() != "parquet":
            yield ConfigProblem("receipts are taken by the encoder of Parquet files only", hint="remove receipts")
        if missing := [name for name in POSITION if name not in config.decode.metadata]:
            what = f"receipts find a row by its record's position, and decode.metadata lacks {', '.join(missing)}"
            yield ConfigProblem(what, hint="write decode: {metadata: [topic, partition, offset]}")

    def table(self, kind: Any) -> Any:
        from lakefeed_receipts.table import ReceiptedTable  # Imported here, because it needs Spark.

        return partial(ReceiptedTable, key=self.key) if self.enabled else kind
