"""Send records that tests can identify later by the producer's name and a check-sum in each record."""

from __future__ import annotations

import json
import logging
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from confluent_kafka import Producer

from tests.support.feed import Feed

RECORD = {
    "type": "record",
    "name": "Numbered",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "producer", "type": "string"},
        {"name": "sequence", "type": "long"},
        {"name": "payload", "type": "string"},
        {"name": "crc", "type": "long"},
    ],
}
POISON_EVERY = 10
SILENT = logging.getLogger("tests.faults.producer")
SILENT.addHandler(logging.NullHandler())
SILENT.propagate = False
PARTITIONS = 3


def crc(producer: str, sequence: int, payload: str) -> int:
    """Return the check-sum of a record's other fields."""
    return zlib.crc32(json.dumps([producer, sequence, payload]).encode())


def is_whole(row: Mapping[str, Any]) -> bool:
    """Check that a row's check-sum matches its fields."""
    return bool(row["crc"] == crc(row["producer"], row["sequence"], row["payload"]))


@dataclass
class Workload:
    """The records sent to a feed's topic, and the expected outcome of each.

    Attributes:
        feed: the feed whose topic gets the records.
        rows: ids of acknowledged records that must become rows.
        poison: acknowledged values that must become dead letters.
        never: ids of records whose transaction was aborted or is still open.
    """

    feed: Feed
    rows: set[int] = field(default_factory=set)
    poison: set[bytes] = field(default_factory=set)
    never: set[int] = field(default_factory=set)
    _sent: int = 0

    def send(self, count: int, *, producer: str = "plain") -> None:
        """Send records, every tenth of them broken; return when the broker has all of them."""
        values = self._values(count, producer)
        self._produce(self._producer(), values)
        self._expect(values)

    def transaction(
        self, count: int, *, end: Literal["commit", "abort", "open"], partition: int = -1
    ) -> OpenTransaction | None:
        """Send records in a transaction; return the transaction if it stays open."""
        name = f"{self.feed.name}-{self._sent}"
        producer = self._producer(name)
        producer.init_transactions(30)
        producer.begin_transaction()
        values = self._values(count, name)
        self._produce(producer, values, partition=partition)
        if end == "commit":
            producer.commit_transaction(30)
            self._expect(values)
            return None
        self.never.update(number for number, _, good in values if good)
        if end == "open":
            return OpenTransaction(self, producer, values)
        producer.abort_transaction(30)
        return None

    def _producer(self, transaction: str | None = None) -> Producer:
        settings: dict[str, Any] = {
            "bootstrap.servers": self.feed.stack.bootstrap_servers,
            "enable.idempotence": True,
            "linger.ms": 5,
            "logger": SILENT,
        }
        if transaction is not None:
            # The test starts, kills and inspects a driver while the transaction is open.
            settings |= {"transactional.id": transaction, "transaction.timeout.ms": 900_000}
        return Producer(settings)

    def _values(self, count: int, producer: str) -> list[tuple[int, bytes, bool]]:
        """Return number, value, and whether the value can be decoded, for new records."""
        numbers = range(self._sent, self._sent + count)
        self._sent += count
        rows: list[dict[str, Any]] = [
            {"id": number, "producer": producer, "sequence": sequence, "payload": f"p{number * 7919}"}
            for sequence, number in enumerate(numbers)
        ]
        for row in rows:
            row["crc"] = crc(row["producer"], row["sequence"], row["payload"])
        framed = self.feed.avro(rows, RECORD)
        return [
            (number, value, True) if number % POISON_EVERY else (number, b"\x07" + value[1:], False)
            for number, value in zip(numbers, framed, strict=True)
        ]

    def _produce(self, producer: Producer, values: Iterable[tuple[int, bytes, bool]], *, partition: int = -1) -> None:
        failed: list[Any] = []
        for number, value, _ in values:
            producer.produce(
                self.feed.topic,
                key=str(number).encode(),
                value=value,
                # Choose the partition, so that each call sends records to all partitions.
                partition=number % PARTITIONS if partition < 0 else partition,
                on_delivery=lambda error, _: failed.append(error) if error else None,
            )
            producer.poll(0)
        assert producer.flush(30) == 0
        assert not failed

    def _expect(self, values: Iterable[tuple[int, bytes, bool]]) -> None:
        for number, value, good in values:
            if good:
                self.rows.add(number)
            else:
                self.poison.add(value)


@dataclass
class OpenTransaction:
    """An open transaction."""

    workload: Workload
    producer: Producer
    values: list[tuple[int, bytes, bool]]

    def commit(self) -> None:
        """Commit the transaction; expect its records to become rows from now on."""
        self.producer.commit_transaction(30)
        self.workload.never.difference_update(number for number, _, _ in self.values)
        self.workload._expect(self.values)
