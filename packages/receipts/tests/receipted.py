"""Feeds whose commits have receipts."""

import json
from collections.abc import Mapping
from typing import Any

from pyspark.sql import SparkSession

from lakefeed.pipeline import Pipeline
from lakefeed_receipts.content import ContentProof, verify_content
from tests.support.feed import Feed

DDL = (
    "id BIGINT, small INT, share FLOAT, price DECIMAL(9,2), name STRING, good BOOLEAN, at TIMESTAMP, "
    "parts ARRAY<STRUCT<a: INT, b: STRING>>, tags MAP<STRING, INT>"
)
METADATA = ["topic", "partition", "offset"]


def values(numbers: range) -> list[bytes]:
    return [
        json.dumps(
            {
                "id": number,
                "small": number % 7 - 3,
                "share": number / 3,
                "price": number / 4,
                "name": f"name {number}" if number % 5 else None,
                "good": number % 2 == 0,
                "at": f"2018-02-{number % 27 + 1:02}T10:00:00Z",
                "parts": [{"a": number, "b": None}, {"a": None, "b": "x" * (number % 40)}],
                "tags": {f"t{number % 3}": number},
            }
        ).encode()
        for number in numbers
    ]


def pipeline(
    feed: Feed,
    *,
    ddl: str = DDL,
    limit: int = 100_000,
    receipts: Any = True,
    environment: Mapping[str, str] | None = None,
    **blocks: Any,
) -> Pipeline:
    decode = {"json": {"schema_ddl": ddl}, "metadata": METADATA}
    source = feed.source(max_records_per_batch=limit)
    file = feed.write_file(**{"source": source, "decode": decode, "receipts": receipts, **blocks})
    return Pipeline.from_file(file, environment={**feed.environment, **(environment or {})})


def proven(part: Pipeline, lake: SparkSession, **chosen: Any) -> ContentProof:
    proof = verify_content(part, spark=lake, **chosen)
    assert proof.faults == ()
    return proof


def compact(feed: Feed, lake: SparkSession) -> None:
    options = "options => map('rewrite-all', 'true')"
    lake.sql(f"CALL {feed.catalog}.system.rewrite_data_files(table => '{feed.name}.rows', {options})")


def offsets(proof: ContentProof) -> int:
    return sum(span.records for span in proof.proven)
