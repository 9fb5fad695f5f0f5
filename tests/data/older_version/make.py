# mypy: ignore-errors
"""Write what ``tests/integration/test_older_version.py`` resumes, with the code of an older commit.

Check out the commit (``ca04350`` wrote the files here), run ``make setup`` there, and run this file from its root::

    PYTHONPATH=. .venv/bin/python /path/to/make.py

It lands the records of ``cases.json`` and keeps, for each case in a zip file, all objects that the feed left in the
store, where the catalog finds its tables, and the ids of the topic and of the schemas.
"""

from __future__ import annotations

import json
import sqlite3
import tempfile
import zipfile
from contextlib import closing
from pathlib import Path
from typing import Any

import boto3
from lakefeed.kafka.topics import Topics
from tests.feed import Feed
from tests.lake import spark_on

from lakefeed.local import Stack

HERE = Path(__file__).parent


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        stack = Stack(Path(folder) / "stack")
        endpoints = stack.up()
        try:
            with spark_on(endpoints, name="older", folder=Path(folder)) as spark:
                for name, case in json.loads((HERE / "cases.json").read_text()).items():
                    write(Feed(endpoints, Path(folder), name=name), case, spark)
        finally:
            stack.down(erase=True)


def write(feed: Feed, case: dict[str, Any], spark: Any) -> None:
    """Land a case's records in batches, and zip what is then stored."""
    feed.create_topic(partitions=case["partitions"])
    for batch in case["batches"]:
        for group in batch:
            values = group["values"]
            framed = feed.avro(values, group["schema"]) if "schema" in group else [each.encode() for each in values]
            feed.send(framed, partition=group["partition"])
        feed.pipeline(**case["blocks"]).run(spark=spark, once=True)
    stack = feed.stack
    store = boto3.client(
        "s3",
        endpoint_url=stack.s3_endpoint,
        aws_access_key_id=stack.access_key,
        aws_secret_access_key=stack.secret_key.get_secret_value(),
        region_name=stack.region,
    )
    found = Topics(stack.bootstrap_servers).describe(feed.topic)
    with closing(sqlite3.connect(feed.stack.catalog_file)) as catalog:
        tables = dict(
            catalog.execute(
                "SELECT table_namespace || '.' || table_name, metadata_location FROM iceberg_tables "
                "WHERE table_namespace = ?",
                [feed.name],
            )
        )
    with zipfile.ZipFile(HERE / f"{feed.name}.zip", "w", zipfile.ZIP_DEFLATED) as kept:
        kept.writestr("written.json", json.dumps({"topic_id": found.topic_id, "tables": tables}, indent=2))
        for page in store.get_paginator("list_objects_v2").paginate(Bucket=stack.bucket):
            for item in page.get("Contents", ()):
                if f"/{feed.name}/" in item["Key"]:
                    body = store.get_object(Bucket=stack.bucket, Key=item["Key"])["Body"].read()
                    kept.writestr(f"objects/{item['Key']}", body)


if __name__ == "__main__":
    main()
