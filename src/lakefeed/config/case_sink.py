"""The sink of test cases: an Iceberg table that keeps the same rows as the pipeline's own sink."""

from __future__ import annotations

from typing import Any

from lakefeed.config.blocks import PipelineBlocks, SinkChoice
from lakefeed.config.iceberg_sink import IcebergSinkConfig

KEPT = ("mode", "keys", "order_by", "delete", "on_delete")
"""Settings of a sink that say which rows it keeps."""


def table_in_place(config: PipelineBlocks, *, table: str, history: str) -> SinkChoice:
    """Return the pipeline's table under these names; for a sink of another kind, a table with its mode and keys."""
    # Not validated: the rules were checked in the file, and a copy with other names cannot break them.
    return SinkChoice.model_construct(iceberg=_iceberg(config, table, history))


def _iceberg(config: PipelineBlocks, table: str, history: str) -> IcebergSinkConfig:
    own = config.sink.iceberg
    if own is not None:
        names: dict[str, Any] = {"table": table, "history": None if own.history is None else history, "properties": {}}
        # A case is about rows, and not about when readers see them.
        names |= {"branch": None, "publish": None}
        return own.model_copy(update=names).with_names_made(())
    chosen = config.sink.chosen
    kept: dict[str, Any] = {name: getattr(chosen, name) for name in KEPT if name in chosen.model_fields_set}
    if config.output_mode == "complete":
        kept = {"mode": "overwrite"}
    elif config.output_mode == "update":
        # A sink without keys gets each change of a group as a row.
        keys = list(getattr(chosen, "keys", ()))
        kept = {"mode": "upsert", "keys": keys} if keys else {}
    return IcebergSinkConfig(table=table).model_copy(update=kept)
