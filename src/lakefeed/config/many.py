"""The block of a pipeline file for feeds whose topics go to a table each."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from lakefeed.config.base import Model
from lakefeed.config.decoding import Decode
from lakefeed.config.durations import Period
from lakefeed.config.failures import DeadLetters, Expectation, SchemaChange
from lakefeed.config.names import Count, TableName
from lakefeed.config.partitions import PartitionTransform
from lakefeed.config.sorting import SortColumn
from lakefeed.config.transform import Transform

OnFailure = Literal["pause", "stop", "fail"]


class OneTable(Model):
    """What is special to one topic and its table; what stands here replaces what the pipeline says."""

    table: TableName | None = Field(None, description="Another table than the template makes of the topic's name.")
    partition_by: list[PartitionTransform] | None = Field(None, description="As in sink.iceberg.")
    sort_by: list[SortColumn] | None = Field(None, description="As in sink.iceberg.")
    properties: dict[str, str] | None = Field(None, description="As in sink.iceberg.")
    keys: list[str] | None = Field(None, description="As in sink.iceberg, with mode: upsert there.")
    order_by: list[str] | None = Field(None, description="As in sink.iceberg, with mode: upsert there.")
    history: TableName | None = Field(None, description="As in sink.iceberg, with mode: upsert there.")
    decode: Decode | None = None
    schema_: SchemaChange | None = Field(None, alias="schema", description="As the pipeline's schema block.")
    expect: dict[str, Expectation] | None = Field(None, description="As the pipeline's expect block.")
    dead_letters: DeadLetters | None = None
    transform: Transform | None = None
    on_failure: OnFailure | None = Field(None, description="As in tables.")


class Tables(Model):
    """How the tables of one job get along."""

    on_failure: OnFailure = Field(
        "pause",
        description="When a table cannot be written, the others continue: it waits for retry_after (pause) or for the "
        "next start (stop). Or the whole job ends (fail).",
    )
    retry_after: Period = Field(
        "5 minutes", description="How long a paused table waits: '<n> seconds|minutes|hours|days'."
    )
    at_once: Count = Field(4, description="How many tables are written at the same time.")
    topics: dict[str, OneTable] = Field(
        default_factory=dict, description="What is special to some, by the topic's name."
    )
