"""A group's consumer that appends records to an Iceberg table, and commits its offsets afterwards.

The consumer runs in the test's process, step by step; or as ``python -m tests.support.plain_consumer``, which reads
the fields of ``PlainConsumer`` as a JSON line from stdin and runs until it is killed. The environment has the servers.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, TopicPartition

from lakefeed.clients.iceberg.reader import open_table
from lakefeed.config.connections import Connections
from tests.support import plain_process

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
        """Append `records` records, or those that arrive in time; return the offsets to commit afterwards."""
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

    def running(self, environment: Mapping[str, str], log: Path) -> AbstractContextManager[subprocess.Popen[bytes]]:
        """Run the consumer as a process, which is killed when the block ends."""
        return plain_process.running("tests.support.plain_consumer", asdict(self), environment, log)


def main() -> None:
    """Append and commit until the process is killed."""
    plain = PlainConsumer(**json.loads(sys.stdin.readline()))
    connections, consumer = Connections.from_environment(dict(os.environ)), plain.open()
    while True:
        if offsets := plain.write(consumer, connections, records=30, seconds=0.5):
            plain.commit(consumer, offsets)


if __name__ == "__main__":
    main()
