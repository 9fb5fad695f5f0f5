"""Feeds into a Delta table, for the tests."""

from typing import Any

from deltalake import DeltaTable

from lakefeed.pipeline import Pipeline
from lakefeed_delta.log import storage_options
from tests.support.feed import Feed

POSITIONS = {"metadata": ["topic", "partition", "offset"]}


def path_of(feed: Feed) -> str:
    return feed.place(f"tables/{feed.name}")


def table_of(feed: Feed) -> DeltaTable:
    uri = path_of(feed).replace("s3a://", "s3://", 1).removeprefix("file://")
    return DeltaTable(uri, storage_options=storage_options(feed.connections) if feed.disk is None else None)


def ids_of(feed: Feed) -> list[int]:
    return sorted(table_of(feed).to_pyarrow_table(columns=["id"]).column("id").to_pylist())


def pipeline_of(
    feed: Feed, *, columns: str = "id BIGINT", sink: dict[str, Any] | None = None, **blocks: Any
) -> Pipeline:
    decode = {"json": {"schema_ddl": columns}, **POSITIONS}
    return feed.pipeline(decode=decode, sink={"delta": {"path": path_of(feed), **(sink or {})}}, **blocks)
