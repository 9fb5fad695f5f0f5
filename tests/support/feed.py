"""A feed of one test on the shared stack, whose topic, subject, table and checkpoint no other test uses."""

import json
import os
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from pyarrow import fs
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import IcebergType, NestedField

from lakefeed.clients.iceberg.reader import open_catalog, open_table
from lakefeed.clients.kafka.topics import Topics
from lakefeed.config.connections import Catalog, Connections
from lakefeed.pipeline import Pipeline
from lakefeed_local.stack import Endpoints
from tests.support.clock import until as until

TRIP = {
    "type": "record",
    "name": "Trip",
    "fields": [{"name": "id", "type": "long"}, {"name": "zone", "type": "string"}],
}
JSON_ROWS = {"json": {"schema_ddl": "id BIGINT"}, "metadata": ["topic", "partition", "offset"]}
"""The block ``decode`` of records that ``Feed.send_ids`` sends."""

FAST_PATH = "LAKEFEED_TESTS_FAST_PATH"
"""Environment variable: the ``fast_path`` of all feeds whose test sets none; see ``make test-general-path``."""
STORE_VARIABLES = ("AWS_ENDPOINT_URL_S3", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION")


@dataclass
class Feed:
    """The names of one test's feed, and the operations on this feed.

    Attributes:
        fast_path: the option of the feed's pipelines; None for the default.
        disk: the local folder of tables and checkpoint, in which case the feed's environment names no store; None if
            tables and checkpoint are in the stack's store.
    """

    stack: Endpoints
    folder: Path
    name: str = field(default_factory=lambda: f"f{uuid.uuid4().hex[:10]}")
    catalog: str = "lake"
    fast_path: str | None = field(default_factory=lambda: os.environ.get(FAST_PATH))
    disk: Path | None = None

    def __post_init__(self) -> None:
        if self.disk is not None:
            # Each feed uses a separate catalog name, because a session keeps the catalogs of earlier tests open.
            self.catalog = f"disk_{self.name}"

    @property
    def topic(self) -> str:
        return f"{self.name}-topic"

    @property
    def table(self) -> str:
        return f"{self.catalog}.{self.name}.rows"

    @property
    def checkpoint(self) -> str:
        return self.place(f"checkpoints/{self.name}")

    def place(self, path: str) -> str:
        """Return the URL of a path in the feed's store or folder."""
        return f"s3a://{self.stack.bucket}/{path}" if self.disk is None else f"file://{self.disk}/{path}"

    @property
    def environment(self) -> dict[str, str]:
        known = self.stack.as_environment()
        of_store = () if self.disk is None else (*STORE_VARIABLES, "LAKEFEED_CATALOG_URI", "LAKEFEED_WAREHOUSE")
        return {name: value for name, value in known.items() if name not in of_store}

    @property
    def catalog_block(self) -> dict[str, Any]:
        """The block ``catalogs`` of a pipeline file; empty if the environment declares the catalog."""
        return {} if self.disk is None else {"catalogs": {self.catalog: {"warehouse": str(self.disk / "warehouse")}}}

    @property
    def connections(self) -> Connections:
        declared = self.catalog_block.get("catalogs", {})
        found = {name: Catalog.model_validate(block) for name, block in declared.items()}
        known = Connections.from_environment(self.environment)
        return known.model_copy(update={"catalogs": {**known.catalogs, **found}})

    @property
    def path_block(self) -> dict[str, str]:
        """The option ``fast_path`` of a pipeline file; empty for the default."""
        return {"fast_path": self.fast_path} if self.fast_path else {}

    def export(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Set the feed's variables in this process."""
        for name, value in self.environment.items():
            monkeypatch.setenv(name, value)

    def create_topic(self, *, partitions: int = 3, topic: str | None = None) -> None:
        Topics(self.stack.bootstrap_servers).create(topic or self.topic, partitions=partitions)

    def recreate_topic(self, *, partitions: int = 1) -> None:
        """Replace the topic by an empty topic of the same name."""
        topics = Topics(self.stack.bootstrap_servers)
        topics.delete(self.topic)
        until(lambda: self.topic not in topics.list())
        self.create_topic(partitions=partitions)

    def remove_records(self, before: int, *, partition: int = 0, topic: str | None = None) -> None:
        """Remove a partition's first records, as retention does."""
        admin = AdminClient({"bootstrap.servers": self.stack.bootstrap_servers})
        for removed in admin.delete_records([TopicPartition(topic or self.topic, partition, before)]).values():
            removed.result(30)

    def send_transactions(
        self, ends: str, *, count: int = 10, topic: str | None = None, partition: int = 0, values: bytes = b'{"id": %d}'
    ) -> None:
        """Send `count` records in a transaction for each letter of `ends`: c commits the transaction, a aborts it."""
        name = topic or self.topic
        servers = {"bootstrap.servers": self.stack.bootstrap_servers}
        producer = Producer({**servers, "transactional.id": f"{name}-{partition}"})
        producer.init_transactions(30)
        for at, end in enumerate(ends):
            producer.begin_transaction()
            for row in range(count):
                producer.produce(name, values % (1_000 * at + row), partition=partition)
            producer.flush(30)
            (producer.commit_transaction if end == "c" else producer.abort_transaction)(30)

    def create_table(self, columns: Mapping[str, IcebergType], *, identifier: str = "", partition_by: str = "") -> None:
        """Create the table as another tool does, without lakefeed; the identifier field is a required column."""
        named = enumerate(columns.items(), start=1)
        fields = [NestedField(at, name, kind, required=name == identifier) for at, (name, kind) in named]
        schema = Schema(*fields, identifier_field_ids=[each.field_id for each in fields if each.required])
        by = [PartitionField(each.field_id, 1000, IdentityTransform(), each.name) for each in fields]
        spec = PartitionSpec(*(each for each in by if each.name == partition_by))
        catalog = open_catalog(self.catalog, connections=self.connections)
        catalog.create_namespace_if_not_exists(self.name)
        catalog.create_table(f"{self.name}.rows", schema, partition_spec=spec, properties={"format-version": "2"})

    def send_ids(self, ids: Iterable[int], *, topic: str | None = None, partition: int = -1) -> None:
        """Send JSON records with the field ``id`` only."""
        self.send([json.dumps({"id": each}).encode() for each in ids], topic=topic, partition=partition)

    def send(
        self,
        values: Iterable[bytes | None],
        *,
        topic: str | None = None,
        partition: int = -1,
        headers: Sequence[tuple[str, bytes]] = (),
    ) -> None:
        """Send values, each with its number as key; return when the broker has all values."""
        producer = Producer({"bootstrap.servers": self.stack.bootstrap_servers, "linger.ms": 5})
        failed: list[Any] = []
        for number, value in enumerate(values):
            producer.produce(
                topic or self.topic,
                key=str(number).encode(),
                value=value,
                headers=list(headers) or None,
                on_delivery=lambda error, _: failed.append(error) if error else None,
                partition=partition,
            )
            producer.poll(0)
        assert producer.flush(30) == 0
        assert not failed

    def avro(
        self, rows: Iterable[dict[str, Any]], schema: dict[str, Any] = TRIP, *, topic: str | None = None
    ) -> list[bytes]:
        """Encode rows with Confluent's serialiser, which also registers the schema."""
        client = SchemaRegistryClient({"url": self.stack.schema_registry_url})
        serializer = AvroSerializer(client, json.dumps(schema))
        context = SerializationContext(topic or self.topic, MessageField.VALUE)
        return [serializer(row, context) for row in rows]

    def source(self, **settings: Any) -> dict[str, Any]:
        """Return the block ``source``."""
        return {"kafka": {"bootstrap_servers": "${KAFKA_BOOTSTRAP_SERVERS}", "topics": [self.topic], **settings}}

    def pipeline(self, **blocks: Any) -> Pipeline:
        """Write the pipeline file, with some blocks replaced, and load it."""
        return Pipeline.from_file(self.write_file(**blocks), environment=self.environment)

    def write_file(self, **blocks: Any) -> Path:
        """Write the pipeline file as JSON, which is valid YAML."""
        document: dict[str, Any] = {
            "name": self.name,
            "source": self.source(max_records_per_batch=100_000),
            "decode": {"avro": {"registry": "${SCHEMA_REGISTRY_URL}"}},
            "sink": {"iceberg": {"table": self.table}},
            "trigger": "1 second",
            "checkpoint": self.checkpoint,
            **self.path_block,
            **self.catalog_block,
        }
        path = self.folder / f"{self.name}.yaml"
        path.write_text(json.dumps({**document, **blocks}, indent=2))
        return path

    def rows(self, table: str | None = None) -> list[dict[str, Any]]:
        """Return the table's rows; read them without Spark."""
        found: list[dict[str, Any]] = (
            open_table(table or self.table, connections=self.connections).scan().to_arrow().to_pylist()
        )
        return found

    def store(self) -> fs.S3FileSystem:
        """Return a client of the stack's store."""
        return store_of(self.stack)

    def forget(self, name: str = "") -> None:
        """Delete the checkpoint, or a file or folder in it."""
        store, path = self.store(), f"{self.checkpoint}/{name}".removeprefix("s3a://").rstrip("/")
        assert store.get_file_info(path).type != fs.FileType.NotFound, path
        (store.delete_file if store.get_file_info(path).is_file else store.delete_dir)(path)


def store_of(stack: Endpoints) -> fs.S3FileSystem:
    return fs.S3FileSystem(
        access_key=stack.access_key,
        secret_key=stack.secret_key.get_secret_value(),
        endpoint_override=stack.s3_endpoint,
        region=stack.region,
    )


def records(count: int, *, first: int = 0) -> list[bytes]:
    """Return the values that ``Feed.send_ids`` sends for `count` ids."""
    return [json.dumps({"id": number}).encode() for number in range(first, first + count)]


def trips(start: int, end: int) -> list[dict[str, Any]]:
    return [{"id": number, "zone": f"zone {number % 7}"} for number in range(start, end)]


def ids(feed: Feed) -> list[int]:
    return sorted(row["id"] for row in feed.rows())
