"""Generate changes of keyed rows, and compute the expected table without Spark."""

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from confluent_kafka import Producer
from pyarrow import fs

from lakefeed.clients.iceberg.reader import open_table
from tests.support.feed import Feed

CITIES = ("amsterdam", "berlin", "cairo", "delhi", "essen")
COLUMNS = "id BIGINT, city STRING, n BIGINT, op STRING"


@dataclass
class Model:
    """A generator of changes, and the rows that result from them.

    All changes of a key are in one partition. One change in five is a delete: half of the deletes are tombstones, half
    have ``op: d``. An update may change the city, by which the table is partitioned.

    Args:
        keys: the number of keys.
        partitions: the number of the topic's partitions.
        seed: decides all changes.
        moves_on: the number of changes after which new keys replace the current keys, whose rows stay; 0 means never.
    """

    keys: int
    partitions: int
    seed: int = 20180208
    moves_on: int = 0
    made: int = 0
    rows: dict[int, tuple[str, int, int, int]] = field(default_factory=dict)
    """The expected rows: id to city, n, partition, offset."""
    ends: list[int] = field(default_factory=list)
    changes: list[tuple[int, int, int, bool]] = field(default_factory=list)
    """All changes: id, partition, offset, whether it deletes."""

    def __post_init__(self) -> None:
        self._dice = random.Random(self.seed)
        self.ends = [0] * self.partitions

    def send(self, count: int, *, topic: str, servers: str, remember: bool = True) -> None:
        """Send `count` changes; return when the broker has all of them, in order."""
        settings = {
            "bootstrap.servers": servers,
            "linger.ms": 20,
            "enable.idempotence": True,
            "queue.buffering.max.messages": 500_000,
        }
        producer = Producer(settings)
        failed: list[Any] = []

        def delivered(error: Any, _: Any) -> None:
            if error:
                failed.append(error)

        for key, value, partition in self._records(count, remember=remember):
            while True:
                try:
                    producer.produce(topic, key=key, value=value, partition=partition, on_delivery=delivered)
                    break
                except BufferError:
                    producer.poll(0.5)
            producer.poll(0)
        assert producer.flush(300) == 0
        assert not failed

    def _records(self, count: int, *, remember: bool) -> Iterator[tuple[bytes, bytes | None, int]]:
        dice = self._dice
        for _ in range(count):
            key = dice.randrange(self.keys)
            if self.moves_on:
                key += self.made // self.moves_on * self.keys
            partition = key % self.partitions
            offset = self.ends[partition]
            self.ends[partition] += 1
            self.made += 1
            chance = dice.random()
            if remember:
                self.changes.append((key, partition, offset, chance < 0.2))
            if chance < 0.2:
                self.rows.pop(key, None)
                value = None if chance < 0.1 else b'{"id": %d, "op": "d"}' % key
            else:
                city = dice.choice(CITIES)
                self.rows[key] = (city, self.made, partition, offset)
                value = b'{"id": %d, "city": "%s", "n": %d, "op": "u"}' % (key, city.encode(), self.made)
            yield b'{"id": %d}' % key, value, partition

    def table(self) -> pa.Table:
        """Return the expected rows of the table."""
        ids = list(self.rows)
        columns = list(zip(*self.rows.values(), strict=True))
        return pa.table(
            {
                "id": pa.array(ids, pa.int64()),
                "city": pa.array(columns[0], pa.string()),
                "n": pa.array(columns[1], pa.int64()),
                "kafka_partition": pa.array(columns[2], pa.int32()),
                "kafka_offset": pa.array(columns[3], pa.int64()),
            }
        )

    def history(self) -> pa.Table:
        """Return the expected rows of the history: all changes."""
        ids, partitions, offsets, deleted = zip(*self.changes, strict=True)
        return pa.table(
            {
                "id": pa.array(ids, pa.int64()),
                "kafka_partition": pa.array(partitions, pa.int32()),
                "kafka_offset": pa.array(offsets, pa.int64()),
                "lakefeed_deleted": pa.array(deleted, pa.bool_()),
            }
        )


def differences(found: pa.Table, expected: pa.Table) -> list[Any]:
    """Return the first few rows that are more frequent in one table than in the other."""
    import duckdb

    connection = duckdb.connect()
    connection.register("found", found.select(expected.column_names))
    connection.register("expected", expected)
    rows: list[Any] = connection.execute(
        "(SELECT 'too much', * FROM (FROM found EXCEPT ALL FROM expected)) UNION ALL "
        "(SELECT 'missing', * FROM (FROM expected EXCEPT ALL FROM found)) LIMIT 20"
    ).fetchall()
    return rows


def write_pipeline(feed: Feed, *, batch: int, **sink: Any) -> Path:
    """Return a pipeline file that upserts a model's changes in batches of `batch` records."""
    return feed.write_file(
        source=feed.source(max_records_per_batch=batch),
        decode={"json": {"schema_ddl": COLUMNS}, "key": {"json": {"schema_ddl": "id BIGINT"}}},
        sink={
            "iceberg": {
                "table": feed.table,
                "mode": "upsert",
                "keys": ["id"],
                "delete": {"column": "op", "equals": ["d"]},
                "partition_by": ["city"],
                **sink,
            }
        },
        spark={"spark.sql.shuffle.partitions": 4},
    )


def forget_the_last_batch(feed: Feed) -> None:
    """Remove the newest ``commits/N``, so that Spark repeats that batch."""
    folder = f"{feed.stack.bucket}/checkpoints/{feed.name}/commits"
    names = [each.base_name for each in feed.store().get_file_info(fs.FileSelector(folder, allow_not_found=True))]
    if numbers := [int(name) for name in names if name.isdigit()]:
        feed.forget(f"commits/{max(numbers)}")


def rows_of(feed: Feed, table: str) -> Any:
    """Return a table's rows; read them without Spark."""
    return open_table(table, connections=feed.connections).scan().to_arrow()
