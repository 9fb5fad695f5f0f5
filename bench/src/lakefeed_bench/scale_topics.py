"""The topics that ``lakefeed-bench scale`` reads: small records, single large ones, and rows of many columns."""

from __future__ import annotations

import base64
import io
import json
import random
import struct

import fastavro

from lakefeed.clients.kafka.topics import Topics
from lakefeed.clients.spark.session import session
from lakefeed.clients.spark.statements import expression
from lakefeed.errors import JobFailed
from lakefeed.local import Endpoints
from lakefeed.operations.produce.write import produce
from lakefeed.records.decode.registry import SchemaRegistry
from lakefeed.records.encode.encode import to_records

_SCHEMA = {
    "type": "record",
    "name": "Reading",
    "fields": [{"name": "id", "type": "long"}, {"name": "zone", "type": "string"}],
}
_OVERHEAD = 20
"""The bytes of a record beside its text: Confluent's header, the number, the text's length."""
LARGEST_RECORD = 4_000_000
# Index files of a thousand partitions would otherwise take 20 GB, before the first record.
_TOPIC = {"segment.index.bytes": "65536", "max.message.bytes": str(LARGEST_RECORD)}
_COLUMNS = (
    "cast(id * {n} % 1000003 AS BIGINT)",
    "cast(hash(id, {n}) / 1000.0D AS DOUBLE)",
    "concat('text-', cast(hash(id, {n}) % 1000 AS STRING))",
    "timestamp_micros(1700000000000000 + id * {n})",
)
"""The values of the columns of wide rows, in turn."""


def create_topic(topic: str, endpoints: Endpoints, *, partitions: int) -> None:
    """Create a topic for records of all sizes."""
    Topics(endpoints.bootstrap_servers).create(topic, partitions=partitions, config=_TOPIC)


def fill_topic(
    topic: str, endpoints: Endpoints, *, records: int, partitions: int, bytes_each: int | None = None
) -> None:
    """Create a topic and fill its partitions evenly, without Spark; records are small, or have about so many bytes."""
    from confluent_kafka import Producer

    create_topic(topic, endpoints, partitions=partitions)
    schema_id = SchemaRegistry(endpoints.schema_registry_url).register(f"{topic}-value", json.dumps(_SCHEMA))
    length = max(1, (bytes_each or 0) - _OVERHEAD)
    # Texts that no codec makes much smaller, each cut from one pool at a place of its own.
    pool = base64.b64encode(random.Random(1).randbytes(length + 1_000_000)).decode()  # noqa: S311  (the same each time)
    settings = {"linger.ms": 20, "message.max.bytes": LARGEST_RECORD, "log_level": 0}
    producer = Producer({"bootstrap.servers": endpoints.bootstrap_servers, **settings})
    for number in range(records):
        at = number * 7919 % 1_000_000
        zone = f"zone-{number % 100}" if bytes_each is None else pool[at : at + length]
        value = io.BytesIO()
        value.write(b"\0" + struct.pack(">I", schema_id))
        fastavro.schemaless_writer(value, _SCHEMA, {"id": number, "zone": zone})
        while True:
            try:
                producer.produce(topic, value.getvalue(), partition=number % partitions)
                break
            except BufferError:
                producer.poll(0.1)
    if producer.flush(300):
        raise JobFailed("the broker has not taken all records", where=f"topic {topic}")


def produce_columns(columns: int, rows: int, topic: str, endpoints: Endpoints) -> None:
    """Produce rows of so many columns: whole numbers, floating ones, texts and times in turn."""
    spark = session("bench-scale")
    texts = [_COLUMNS[number % len(_COLUMNS)].format(n=number + 1) for number in range(columns)]
    named = [expression(spark, text).alias(f"c{number}") for number, text in enumerate(texts)]
    records = to_records(spark.range(rows).select(*named), topic=topic, registry=endpoints.schema_registry_url)
    produce(records, topic, bootstrap_servers=endpoints.bootstrap_servers)
