"""Send records at a rate, and note when each is visible at the other end: a process beside the measured pipeline."""

from __future__ import annotations

import json
import sqlite3
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lakefeed.clients.iceberg.reader import open_catalog
from lakefeed.config.connections import Connections
from lakefeed.errors import JobFailed
from lakefeed.local import Endpoints

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.table import Table

START_SECONDS, DRAIN_SECONDS = 180.0, 120.0
POLL_SECONDS = 0.01
"""So often the catalog is asked for the table's newest state."""
CATALOG, NAMESPACE = "lake", "bench"


@dataclass(frozen=True, kw_only=True)
class Load:
    """The records to send: how many a second, for how many seconds after a warm-up, into how many partitions."""

    rate: int
    seconds: int
    warm_up: int
    partitions: int


@dataclass(frozen=True, kw_only=True)
class Observed:
    """The fate of the records that were sent while it was measured, and when that was, in seconds since 1970.

    Attributes:
        took: nanoseconds from the producer's call until the record was visible, in order.
        copies: records that came more than once, each further time.
        files: data files that the table got meanwhile; None for a topic.
    """

    records: int
    took: list[int]
    copies: int
    began: float
    ended: float
    files: int | None = None

    @property
    def missing(self) -> int:
        return self.records - len(self.took)


def observe(target: str, name: str, endpoints: Endpoints, load: Load, drain: float) -> Observed:
    """Send records to a topic, and read what the pipeline writes; the last ones may take ``drain`` seconds."""
    reader = _TableReader(name, endpoints) if target == "table" else _TopicReader(name, endpoints)
    with closing(_Sender(name, endpoints, load.rate)) as sender, closing(reader):
        return _observe(sender, reader, load, drain=drain)


def _observe(sender: _Sender, reader: _TopicReader | _TableReader, load: Load, *, drain: float) -> Observed:
    reader.read(START_SECONDS, until=lambda: reader.count > 0)
    if not reader.count:
        raise JobFailed(f"no record came through within {START_SECONDS:.0f} s", where=sender.topic)
    reader.read(load.warm_up)
    first, began = sender.count, time.time()
    reader.read(load.seconds)
    measured, ended = range(first, sender.count), time.time()
    # The load continues: otherwise the end of a stream would be measured.
    reader.read(drain, until=lambda: reader.has_all(measured))
    took, copies = reader.times(measured)
    files = reader.files(began, ended) if isinstance(reader, _TableReader) else None
    return Observed(records=len(measured), took=took, copies=copies, began=began, ended=ended, files=files)


class _Sender:
    """Sends records at a rate, each with its number and the time of the call."""

    def __init__(self, topic: str, endpoints: Endpoints, rate: int) -> None:
        from confluent_kafka import Producer

        self._producer = Producer({"bootstrap.servers": endpoints.bootstrap_servers, "linger.ms": 0, "log_level": 0})
        self.topic = topic
        self._rate = rate
        self._ended = threading.Event()
        self.count = 0
        self._thread = threading.Thread(target=self._send, daemon=True)
        self._thread.start()

    def _send(self) -> None:
        began = time.monotonic()
        while not self._ended.is_set():
            value = {"id": self.count, "sent": time.time_ns(), "zip": f"z{self.count % 100}"}
            self._producer.produce(self.topic, value=json.dumps(value).encode())
            self._producer.poll(0)
            self.count += 1
            self._ended.wait(max(0.0, began + self.count / self._rate - time.monotonic()))

    def close(self) -> None:
        self._ended.set()
        self._thread.join()
        self._producer.flush(30)


class _TopicReader:
    """Notes by its number how many nanoseconds a record's first copy took, and how many copies came after it."""

    def __init__(self, name: str, endpoints: Endpoints) -> None:
        from confluent_kafka import Consumer, TopicPartition

        self._arrived: dict[int, int] = {}
        self._copies: list[int] = []
        settings = {"bootstrap.servers": endpoints.bootstrap_servers, "group.id": name, "enable.auto.commit": False}
        self._consumer = Consumer({**settings, "fetch.wait.max.ms": 10, "log_level": 0})
        self._consumer.assign([TopicPartition(f"{name}_out", 0, 0)])

    @property
    def count(self) -> int:
        return len(self._arrived)

    def read(self, seconds: float, *, until: Callable[[], bool] = lambda: False) -> None:
        """Read until the condition holds or the time is up."""
        deadline, look = time.monotonic() + seconds, 0.0
        while (now := time.monotonic()) < deadline:
            if now >= look:
                if until():
                    return
                look = now + 0.5
            message = self._consumer.poll(0.05)
            if message is None or message.error():
                continue
            at = time.time_ns()
            row = json.loads(message.value() or b"{}")
            if row["id"] in self._arrived:
                self._copies.append(row["id"])
            else:
                self._arrived[row["id"]] = at - row["sent"]

    def has_all(self, numbers: range) -> bool:
        return all(number in self._arrived for number in numbers)

    def times(self, numbers: range) -> tuple[list[int], int]:
        """Return the times of these records in order, and how many copies came of them."""
        took = sorted(self._arrived[number] for number in numbers if number in self._arrived)
        return took, sum(number in numbers for number in self._copies)

    def close(self) -> None:
        self._consumer.close()


class _TableReader:
    """Follows an Iceberg table: notes when a reader that has loaded it could first see each snapshot.

    The catalog's database is asked each ``POLL_SECONDS`` where the table's newest metadata is; when it names another
    file pyiceberg loads the table, and the snapshots count as visible when that is done.
    """

    def __init__(self, name: str, endpoints: Endpoints) -> None:
        self._name = name
        self._connections = Connections.from_environment(endpoints.as_environment())
        self._database = sqlite3.connect(f"file:{endpoints.catalog_file}?mode=ro", uri=True)
        self._catalog = open_catalog(CATALOG, connections=self._connections)
        self._location: str | None = None
        self._table: Table | None = None
        self._seen: dict[int, int] = {}

    @property
    def count(self) -> int:
        """Return the number of rows, as the newest snapshot says."""
        snapshot = self._table.current_snapshot() if self._table is not None else None
        return int(snapshot.summary["total-records"] or 0) if snapshot is not None and snapshot.summary else 0

    def read(self, seconds: float, *, until: Callable[[], bool] = lambda: False) -> None:
        """Follow the table until the condition holds or the time is up."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if (location := self._newest()) not in (None, self._location):
                self._location, self._table = location, self._catalog.load_table((NAMESPACE, self._name))
                now = time.time_ns()
                for snapshot in self._table.metadata.snapshots:
                    self._seen.setdefault(snapshot.snapshot_id, now)
                if until():
                    return
            time.sleep(POLL_SECONDS)

    def _newest(self) -> str | None:
        query = "SELECT metadata_location FROM iceberg_tables WHERE table_namespace = ? AND table_name = ?"
        # All rows: a query that is not at its end holds a lock against the writer.
        found = self._database.execute(query, (NAMESPACE, self._name)).fetchall()
        return str(found[0][0]) if found else None

    def has_all(self, numbers: range) -> bool:
        return self.count >= numbers.stop

    def times(self, numbers: range) -> tuple[list[int], int]:
        """Return the times of these records in order, and how many copies the table has of them."""
        import pyarrow as pa
        import pyarrow.compute as pc

        rows = self._rows()
        inside = pc.and_(pc.greater_equal(rows["id"], numbers.start), pc.less(rows["id"], numbers.stop))
        first = rows.filter(inside).group_by("id").aggregate([("took", "min"), ("took", "count")])
        took = pc.take(first["took_min"], pc.sort_indices(first["took_min"]))
        copies = (pc.sum(first["took_count"]).as_py() or 0) - first.num_rows
        assert pa.types.is_int64(took.type)
        return took.to_pylist(), copies

    def _rows(self) -> pa.Table:
        """Read number and time of each row, file by file: a manifest says which snapshot has brought a file."""
        import pyarrow as pa

        with ThreadPoolExecutor(4) as pool:
            return pa.concat_tables(pool.map(lambda entry: self._rows_of(*entry), self._entries()))

    def _entries(self) -> list[tuple[str, int]]:
        assert self._table is not None  # The first row has been seen.
        entries = self._table.inspect.entries().select(["snapshot_id", "data_file"]).to_pylist()
        return [(entry["data_file"]["file_path"], entry["snapshot_id"]) for entry in entries]

    def _rows_of(self, path: str, snapshot_id: int) -> pa.Table:
        import pyarrow as pa
        import pyarrow.compute as pc
        import pyarrow.parquet as pq

        assert self._table is not None
        with self._table.io.new_input(path).open() as file:
            rows: Any = pq.read_table(file, columns=["id", "sent"])
        visible = pa.scalar(self._seen[snapshot_id], pa.int64())
        return pa.table({"id": rows["id"], "took": pc.subtract(visible, rows["sent"])})

    def files(self, began: float, ended: float) -> int:
        """Count the data files that became visible between two times."""
        return sum(began * 1e9 <= self._seen[snapshot_id] < ended * 1e9 for _, snapshot_id in self._entries())

    def close(self) -> None:
        self._database.close()
