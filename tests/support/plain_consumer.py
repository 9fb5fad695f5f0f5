"""A consumer that appends records to an Iceberg table in steps, and commits the group's offsets after each step."""

import json
import time
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, TopicPartition

from lakefeed.clients.iceberg.reader import open_table
from lakefeed.config.connections import Connections

COLUMNS = "id BIGINT, part INT, at BIGINT"


@dataclass(frozen=True)
class PlainConsumer:
    """A consumer of JSON records ``{"id": …}``; the table has the columns ``COLUMNS``."""

    topic: str
    table: str
    group: str
    servers: str

    def open(self) -> Consumer:
        settings = {
            "bootstrap.servers": self.servers,
            "group.id": self.group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "session.timeout.ms": 6000,
            "heartbeat.interval.ms": 1000,
        }
        consumer = Consumer(settings)
        consumer.subscribe([self.topic])
        return consumer

    def write(
        self, consumer: Consumer, connections: Connections, *, records: int, seconds: float = 60
    ) -> dict[int, int]:
        """Append `records` records, or fewer if no more arrive in time; return the offsets to commit."""
        import pyarrow as pa

        rows: list[dict[str, Any]] = []
        until = time.monotonic() + seconds
        while len(rows) < records and time.monotonic() < until:
            message = consumer.poll(0.2)
            if message is not None and message.error() is None:
                number = json.loads(message.value() or b"")["id"]
                rows.append({"id": number, "part": message.partition(), "at": message.offset()})
        columns = pa.schema([("id", pa.int64()), ("part", pa.int32()), ("at", pa.int64())])
        if rows:
            open_table(self.table, connections=connections).append(pa.Table.from_pylist(rows, schema=columns))
        return {row["part"]: row["at"] + 1 for row in rows}

    def commit(self, consumer: Consumer, offsets: dict[int, int]) -> None:
        positions = [TopicPartition(self.topic, number, at) for number, at in offsets.items()]
        consumer.commit(offsets=positions, asynchronous=False)
