"""Send records at a constant rate, and record when a reader sees them. Both run in a separate process."""

from __future__ import annotations

import json
import sqlite3
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lakefeed.clients.iceberg.reader import open_catalog
from lakefeed.clients.spark.session import log_path
from lakefeed.config.connections import Connections
from lakefeed.errors import JobFailed
from lakefeed_local.stack import Endpoints

if TYPE_CHECKING:
    from pyiceberg.table import Table

START_SECONDS, DRAIN_SECONDS = 180.0, 120.0
POLL_SECONDS = 0.01
"""The interval between two queries of the catalog."""
CATALOG, NAMESPACE = "lake", "bench"


@dataclass(frozen=True, kw_only=True)
class Load:
    """The load: records per second, the seconds of the warm-up and of the measurement, and the topic's partitions."""

    rate: int
    seconds: int
    warm_up: int
    partitions: int


@dataclass(frozen=True, kw_only=True)
class Observed:
    """The reader's observations of the records that were sent during the measurement.

    Attributes:
        records: the number of records sent.
        took: sorted nanoseconds from the producer's call until a reader saw the record.
        copies: how often a record arrived again.
        began, ended: the start and the end of the measurement, in seconds since 1970.
        files: new data files in the table; None for a topic.
    """

    records: int
    took: list[int]
    copies: int
    began: float
    ended: float
    files: int | None

    @property
    def missing(self) -> int:
        return self.records - len(self.took)


class _Reader(ABC):
    """Reads the pipeline's output."""

    count = 0
    """The number of records in the output so far."""

    @abstractmethod
    def poll(self) -> None:
        """Look for new records; return after 50 ms at most."""

    @abstractmethod
    def arrivals(self) -> Iterator[tuple[int, int]]:
        """Yield each new record's number, and the nanoseconds from sending until the reader saw it."""

    def files(self, began: float, ended: float) -> int | None:
        """Return the number of data files that became visible between the two times; None for a topic."""
        return None


def observe(target: str, name: str, endpoints: Endpoints, load: Load, drain: float) -> Observed:
    """Send records to the topic, read the pipeline's output, and wait up to ``drain`` seconds for the last records."""
    reader: _Reader = _TableReader(name, endpoints) if target == "table" else _TopicReader(name, endpoints)
    with _sending(name, endpoints, load.rate) as sender:
        _follow(reader, START_SECONDS, until=lambda: reader.count > 0)
        if not reader.count:
            what = f"the pipeline wrote no record within {START_SECONDS:.0f} s"
            raise JobFailed(what, where=name, hint=f"read Spark's log: {log_path('bench-latency')}")
        _follow(reader, load.warm_up)
        first, began = sender.count, time.time()
        _follow(reader, load.seconds)
        measured, ended = range(first, sender.count), time.time()
        # Keep sending: without new records, the last batches would be smaller and faster.
        _follow(reader, drain, until=lambda: reader.count >= measured.stop)
    took: dict[int, int] = {}
    copies = 0
    for number, nanoseconds in reader.arrivals():
        if number in measured:
            copies += number in took
            took[number] = min(nanoseconds, took.get(number, nanoseconds))
    files = reader.files(began, ended)
    times = sorted(took.values())
    return Observed(records=len(measured), took=times, copies=copies, began=began, ended=ended, files=files)


def _follow(reader: _Reader, seconds: float, until: Callable[[], bool] = lambda: False) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and not until():
        reader.poll()


@dataclass
class _Sender:
    """Sends records that contain their number and the time of the producer's call."""

    count: int = 0
    ended: threading.Event = field(default_factory=threading.Event)

    def send(self, topic: str, endpoints: Endpoints, rate: int) -> None:
        from confluent_kafka import Producer

        producer = Producer({"bootstrap.servers": endpoints.bootstrap_servers, "linger.ms": 0, "log_level": 0})
        began = time.monotonic()
        while not self.ended.wait(max(0.0, began + self.count / rate - time.monotonic())):
            value = {"id": self.count, "sent": time.time_ns(), "zip": f"z{self.count % 100}"}
            producer.produce(topic, value=json.dumps(value).encode())
            producer.poll(0)
            self.count += 1
        producer.flush(30)


@contextmanager
def _sending(topic: str, endpoints: Endpoints, rate: int) -> Iterator[_Sender]:
    sender = _Sender()
    thread = threading.Thread(target=sender.send, args=(topic, endpoints, rate), daemon=True)
    thread.start()
    try:
        yield sender
    finally:
        sender.ended.set()
        thread.join()


class _TopicReader(_Reader):
    """Consumes the topic that the pipeline writes to."""

    def __init__(self, name: str, endpoints: Endpoints) -> None:
        from confluent_kafka import Consumer, TopicPartition

        settings = {"bootstrap.servers": endpoints.bootstrap_servers, "group.id": name, "enable.auto.commit": False}
        self._consumer = Consumer({**settings, "fetch.wait.max.ms": 10, "log_level": 0})
        self._consumer.assign([TopicPartition(f"{name}_out", 0, 0)])
        self._arrivals: list[tuple[int, int]] = []
        self._numbers: set[int] = set()

    def poll(self) -> None:
        message = self._consumer.poll(0.05)
        if message is None or message.error():
            return
        at, row = time.time_ns(), json.loads(message.value() or b"{}")
        self._arrivals.append((row["id"], at - row["sent"]))
        self._numbers.add(row["id"])
        self.count = len(self._numbers)

    def arrivals(self) -> Iterator[tuple[int, int]]:
        yield from self._arrivals


class _TableReader(_Reader):
    """Records when a reader of an Iceberg table can first see each snapshot.

    The reader queries the catalog's database for the table's metadata file. If there is a new file, pyiceberg loads the
    table, and the new snapshots count as visible from then on.
    """

    def __init__(self, name: str, endpoints: Endpoints) -> None:
        self._name = name
        self._database = sqlite3.connect(f"file:{endpoints.catalog_file}?mode=ro", uri=True)
        connections = Connections.from_environment(endpoints.as_environment())
        self._catalog = open_catalog(CATALOG, connections=connections)
        self._location: str | None = None
        self._table: Table | None = None
        self._visible_at: dict[int, int] = {}

    def poll(self) -> None:
        query = "SELECT metadata_location FROM iceberg_tables WHERE table_namespace = ? AND table_name = ?"
        # Fetch all rows: an unfinished query would keep a lock that blocks the writer.
        rows = self._database.execute(query, (NAMESPACE, self._name)).fetchall()
        if rows and rows[0][0] != self._location:
            self._location, self._table = rows[0][0], self._catalog.load_table((NAMESPACE, self._name))
            now = time.time_ns()
            for snapshot in self._table.metadata.snapshots:
                self._visible_at.setdefault(snapshot.snapshot_id, now)
            newest = self._table.current_snapshot()
            self.count = int(newest.summary["total-records"] or 0) if newest and newest.summary else 0
        time.sleep(POLL_SECONDS)

    def _entries(self) -> list[tuple[str, int]]:
        assert self._table is not None  # If no record was visible, ``observe`` has raised an error.
        entries = self._table.inspect.entries().select(["snapshot_id", "data_file"]).to_pylist()
        return [(entry["data_file"]["file_path"], self._visible_at[entry["snapshot_id"]]) for entry in entries]

    def arrivals(self) -> Iterator[tuple[int, int]]:
        import pyarrow.parquet as pq

        assert self._table is not None
        for path, visible_at in self._entries():
            with self._table.io.new_input(path).open() as file:
                rows = pq.read_table(file, columns=["id", "sent"]).to_pydict()
            yield from ((number, visible_at - sent) for number, sent in zip(rows["id"], rows["sent"], strict=True))

    def files(self, began: float, ended: float) -> int | None:
        return sum(began * 1e9 <= visible_at < ended * 1e9 for _, visible_at in self._entries())
