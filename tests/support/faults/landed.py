"""Read a feed's sink and check it, at any moment, without Spark and without the driver."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any, Literal
from urllib.parse import unquote, urlsplit

from deltalake import DeltaTable
from pyarrow.parquet import read_table

from lakefeed.clients.iceberg.reader import open_table
from lakefeed.errors import ResourceMissing
from lakefeed.pipeline import Pipeline
from lakefeed_delta.log import storage_options
from tests.support.cli import Running
from tests.support.faults.drivers import SHORT_LIVED
from tests.support.faults.s3_fault_proxy import Fault, FaultProxy
from tests.support.faults.workload import Workload, is_whole
from tests.support.feed import Feed
from tests.support.stores import Bucket, Store

SinkKind = Literal["iceberg", "parquet", "delta"]


@dataclass(frozen=True)
class Landing:
    """A feed of these tests: its sink, its dead letters, and its pipeline file.

    Attributes:
        feed: the names of table, checkpoint and folder.
        sink: the kind of sink.
        batch: the most records of a batch.
        topic: the topic, if it is not the feed's own.
        has_checkpoint: whether the pipeline file names a checkpoint.
        settings: further settings of the table's block.
    """

    feed: Feed
    sink: SinkKind
    batch: int = 100
    topic: str | None = None
    has_checkpoint: bool = True
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def letters(self) -> str:
        """The dead-letter table."""
        return f"{self.feed.catalog}.{self.feed.name}.letters"

    @property
    def path(self) -> str:
        """The path of the files below the bucket."""
        return f"parquet/{self.feed.name}"

    def write_file(self) -> Path:
        """Write the pipeline file and return its path."""
        kafka = {
            "bootstrap_servers": "${KAFKA_BOOTSTRAP_SERVERS}",
            "topics": [self.topic or self.feed.topic],
            "max_records_per_batch": self.batch,
        }
        sinks = {
            "iceberg": {"iceberg": {"table": self.feed.table, **self.settings}},
            "parquet": {"parquet": {"path": self.feed.place(self.path)}},
            "delta": {"delta": {"path": self.feed.place(self.path)}},
        }
        return self.feed.write_file(
            source={"kafka": kafka},
            decode={"avro": {"registry": "${SCHEMA_REGISTRY_URL}"}, "metadata": ["topic", "partition", "offset"]},
            sink=sinks[self.sink],
            dead_letters={"table": self.letters},
            checkpoint=self.feed.checkpoint if self.has_checkpoint else "",
        )

    def rows(self) -> list[dict[str, Any]]:
        """Return the rows that a reader sees now; fail if a listed data file is missing or has another size."""
        if self.sink == "iceberg":
            return self._table(self.feed.table)
        if self.sink == "delta":
            return self._delta()
        rows: list[dict[str, Any]] = []
        for key, size in self._listed():
            content = self._content(key)
            assert len(content) == size, key
            rows += read_table(BytesIO(content)).to_pylist()
        return rows

    def dead_letters(self) -> list[bytes]:
        """Return the values of the dead letters."""
        return [row["value"] for row in self._table(self.letters)]

    def _table(self, name: str) -> list[dict[str, Any]]:
        try:
            table = open_table(name, connections=self.feed.connections)
        except ResourceMissing:
            return []
        files = [task.file for task in table.scan().plan_files()]
        for each in files:
            assert len(self._content(self._key(each.file_path))) == each.file_size_in_bytes, each.file_path
        found: list[dict[str, Any]] = table.scan().to_arrow().to_pylist()
        return found

    def _delta(self) -> list[dict[str, Any]]:
        if not self._keys(f"{self.path}/_delta_log/"):
            return []
        uri = self.feed.place(self.path).replace("s3a://", "s3://", 1).removeprefix("file://")
        table = DeltaTable(uri, storage_options=storage_options(self.feed.connections))
        found: list[dict[str, Any]] = table.to_pyarrow_table().to_pylist()
        return found

    def lose_checkpoint(self) -> None:
        """Remove the checkpoint."""
        for key in self._keys(f"checkpoints/{self.feed.name}/"):
            self._bucket().remove(key)

    def _listed(self) -> Iterator[tuple[str, int]]:
        """Yield the files and sizes of the sink's log, read as Spark does: from the last ``.compact`` entry on."""
        entries: dict[int, str] = {}
        for key in self._keys(f"{self.path}/_spark_metadata/"):
            name = key.rpartition("/")[2]
            if name.removesuffix(".compact").isdigit():
                entries[int(name.removesuffix(".compact"))] = key
        assert sorted(entries) == list(range(len(entries))), "a batch is missing in the log"
        compacted = max((number for number, key in entries.items() if key.endswith(".compact")), default=0)
        for number in range(compacted, len(entries)):
            for line in self._content(entries[number]).decode().splitlines()[1:]:
                entry = json.loads(line)
                # Spark writes the path as a URI, with a space as %20.
                yield self._key(unquote(entry["path"])), entry["size"]

    def _key(self, url: str) -> str:
        return url.partition("://")[2].partition("/")[2] if self.feed.disk is None else urlsplit(url).path

    def _keys(self, prefix: str) -> list[str]:
        if self.feed.disk is None:
            return self._bucket().keys(prefix)
        return [str(path) for path in (self.feed.disk / prefix).glob("*")]

    def _content(self, key: str) -> bytes:
        return self._bucket().request("GET", key) if self.feed.disk is None else Path(key).read_bytes()

    def _bucket(self) -> Bucket:
        stack = self.feed.stack
        store = Store(
            endpoint=stack.s3_endpoint, access_key=stack.access_key, secret_key=stack.secret_key.get_secret_value()
        )
        return Bucket(name=stack.bucket, store=store)


def assert_nothing_wrong(landing: Landing, work: Workload) -> None:
    """Check that no landed record is a duplicate, aborted or damaged, which must be true at any moment."""
    rows = landing.rows()
    ids = [row["id"] for row in rows]
    assert len(ids) == len(set(ids)), f"{len(ids) - len(set(ids))} rows are there twice"
    assert not set(ids) & work.never, "rows of transactions that were not committed"
    assert set(ids) <= work.rows
    assert all(is_whole(row) for row in rows)
    positions = {(row["kafka_topic"], row["kafka_partition"], row["kafka_offset"]) for row in rows}
    assert len(positions) == len(rows)
    letters = landing.dead_letters()
    assert len(letters) == len(set(letters)), "a dead letter is there twice"
    assert set(letters) <= work.poison


def assert_all_landed(landing: Landing, work: Workload) -> None:
    """Check that each acknowledged record landed once, as a row or a dead letter; with a ledger, run ``verify``."""
    assert_nothing_wrong(landing, work)
    missing = work.rows - {row["id"] for row in landing.rows()}
    assert not missing, f"{len(missing)} records are lost, {min(missing)} is one"
    lost = work.poison - set(landing.dead_letters())
    assert not lost, f"{len(lost)} dead letters are lost"
    if landing.sink != "parquet":
        proof = Pipeline.from_file(landing.write_file(), environment=landing.feed.environment).verify(deep=True)
        assert not proof.faults, proof.faults
        assert proof.rows + proof.dead_letters == len(work.rows) + len(work.poison)


def assert_killed(feed: Feed, file: Path, proxy: FaultProxy, fault: Fault) -> None:
    """Run the feed through the proxy, whose fault must kill the driver."""
    through = {**feed.environment, **SHORT_LIVED, "AWS_ENDPOINT_URL_S3": proxy.endpoint}
    victim = Running(["run", file, "--once"], through, feed.folder / "killed.log")
    proxy.victim = victim.kill
    assert victim.process.wait(500) < 0, victim.said()
    assert fault.done == 1
