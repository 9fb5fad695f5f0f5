"""The topics that ``lakefeed bench scale`` reads, filled without Spark: small records, and single large ones."""

from __future__ import annotations

import base64
import json
import random
import struct
from collections.abc import Callable
from dataclasses import dataclass

from lakefeed.clients.kafka.topics import Topics
from lakefeed.errors import JobFailed
from lakefeed.local import Endpoints
from lakefeed.records.decode.registry import SchemaRegistry

_SCHEMA = json.dumps(
    {
        "type": "record",
        "name": "Reading",
        "fields": [{"name": "id", "type": "long"}, {"name": "zone", "type": "string"}],
    }
)
_OVERHEAD = 20
"""The bytes of a record beside its text: Confluent's header, the number, the text's length."""
LARGEST_RECORD = 4_000_000
# Index files of a thousand partitions would otherwise take 20 GB, before the first record.
_TOPIC = {"segment.index.bytes": "65536", "max.message.bytes": str(LARGEST_RECORD)}


@dataclass(frozen=True)
class TopicFiller:
    """Creates topics on one broker, and fills them."""

    endpoints: Endpoints

    def create(self, topic: str, *, partitions: int) -> None:
        """Create a topic for records of all sizes."""
        Topics(self.endpoints.bootstrap_servers).create(topic, partitions=partitions, config=_TOPIC)

    def fill(self, topic: str, *, records: int, partitions: int, bytes_each: int | None = None) -> None:
        """Create a topic and send as many records to each partition; they are small, or have about so many bytes."""
        from confluent_kafka import Producer

        self.create(topic, partitions=partitions)
        registry = SchemaRegistry(self.endpoints.schema_registry_url)
        header = b"\0" + struct.pack(">I", registry.register(f"{topic}-value", _SCHEMA))
        text = _zone if bytes_each is None else _texts(max(1, bytes_each - _OVERHEAD))
        producer = Producer(
            {
                "bootstrap.servers": self.endpoints.bootstrap_servers,
                "linger.ms": 20,
                "message.max.bytes": LARGEST_RECORD,
                "log_level": 0,
            }
        )
        for number in range(records):
            encoded = text(number)
            value = header + _long(number) + _long(len(encoded)) + encoded
            while True:
                try:
                    producer.produce(topic, value, partition=number % partitions)
                    break
                except BufferError:
                    producer.poll(0.1)
        if producer.flush(300):
            raise JobFailed("the broker has not taken all records", where=f"topic {topic}")


def _zone(number: int) -> bytes:
    return b"zone-%d" % (number % 100)


def _texts(length: int) -> Callable[[int], bytes]:
    """Return texts that no codec makes much smaller, each cut from one pool at a place of its own."""
    pool = base64.b64encode(random.Random(1).randbytes(length + 1_000_000))  # noqa: S311  (the same each time)
    return lambda number: pool[(at := number * 7919 % 1_000_000) : at + length]


def _long(number: int) -> bytes:
    """Encode a number that is not negative as Avro's variable-length long."""
    number, encoded = number << 1, bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)
