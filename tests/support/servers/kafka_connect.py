"""Run Kafka Connect with Apache Iceberg's sink, in a standalone worker with one connector, which tests may kill."""

import json
import os
import shutil
import tempfile
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pyspark

from lakefeed.clients.spark import jars
from lakefeed_local.home import write_properties
from lakefeed_local.part import LOOPBACK, choose_free
from lakefeed_local.stack import Endpoints
from tests.support.servers.java import java_command
from tests.support.servers.process import Restartable, restartable

WORKER = "org.apache.kafka.connect.cli.ConnectStandalone"
SINK = "org.apache.iceberg.connect.IcebergSinkConnector"
INSERT_FIELD = "org.apache.kafka.connect.transforms.InsertField$Value"
_LOGGING = """\
status = error
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d %p %c{1}: %m%n
rootLogger.level = info
rootLogger.appenderRef.out.ref = out
"""


@dataclass(frozen=True)
class IcebergSink:
    """A connector that lands JSON records of a topic in a table of the stack's catalog.

    Attributes:
        name: the connector's name; ``connect-NAME`` is its tasks' consumer group.
        table: the full name of an existing table: catalog, namespace and name.
        control_topic: an existing topic for the connector's coordination.
        keeps_offsets: whether rows have the columns ``topic``, ``part`` and ``at``.
        commit_ms: the time from one commit to the next.
    """

    stack: Endpoints
    name: str
    topic: str
    table: str
    control_topic: str
    keeps_offsets: bool = False
    tasks: int = 2
    commit_ms: int = 1000
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def group(self) -> str:
        return f"connect-{self.name}"

    def settings(self) -> dict[str, str]:
        """Return the connector's configuration."""
        catalog, _, table = self.table.partition(".")
        stack = self.stack
        of_catalog = {
            "type": "jdbc",
            "uri": stack.catalog_uri,
            "jdbc.schema-version": "V1",
            "warehouse": stack.warehouse.replace("s3a://", "s3://"),
            "io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
            "http-client.type": "urlconnection",
            "client.region": stack.region,
            "s3.endpoint": stack.s3_endpoint,
            "s3.path-style-access": "true",
        }
        settings = {
            "name": self.name,
            "connector.class": SINK,
            "tasks.max": str(self.tasks),
            "topics": self.topic,
            "iceberg.catalog": catalog,
            "iceberg.tables": table,
            "iceberg.control.topic": self.control_topic,
            "iceberg.control.commit.interval-ms": str(self.commit_ms),
            "iceberg.control.commit.timeout-ms": "20000",
            # With these short timeouts, the brokers soon detect a killed worker.
            "iceberg.kafka.transaction.timeout.ms": "10000",
            "iceberg.kafka.session.timeout.ms": "6000",
            "consumer.override.session.timeout.ms": "6000",
            "consumer.override.auto.offset.reset": "earliest",
            **{f"iceberg.catalog.{key}": value for key, value in of_catalog.items()},
        }
        if self.keeps_offsets:
            settings |= {
                "transforms": "place",
                "transforms.place.type": INSERT_FIELD,
                "transforms.place.topic.field": "topic",
                "transforms.place.partition.field": "part",
                "transforms.place.offset.field": "at",
            }
        return {**settings, **self.options}

    @contextmanager
    def running(self) -> Iterator[Restartable]:
        """Run the connector in a separate worker until the block ends; stop the worker, unless it was killed."""
        folder = Path(tempfile.mkdtemp(prefix="lakefeed-connect-"))
        port = choose_free(avoid=())
        worker = {
            "bootstrap.servers": self.stack.bootstrap_servers,
            "key.converter": "org.apache.kafka.connect.storage.StringConverter",
            "value.converter": "org.apache.kafka.connect.json.JsonConverter",
            "value.converter.schemas.enable": "false",
            "offset.storage.file.filename": str(folder / "offsets"),
            "offset.flush.interval.ms": "1000",
            "listeners": f"http://{LOOPBACK}:{port}",
        }
        write_properties(folder / "worker.properties", worker)
        (folder / "connector.json").write_text(json.dumps(self.settings()))
        (folder / "log4j2.properties").write_text(_LOGGING)
        logging = f"-Dlog4j2.configurationFile={folder / 'log4j2.properties'}"
        files = (folder / "worker.properties", folder / "connector.json")
        command = java_command(_class_path(), WORKER, *files, memory="512m")
        command[1:1] = [logging]
        keys = {
            "AWS_ACCESS_KEY_ID": self.stack.access_key,
            "AWS_SECRET_ACCESS_KEY": self.stack.secret_key.get_secret_value(),
            "AWS_REGION": self.stack.region,
        }
        try:
            with restartable(
                command, log=folder / "log", ready=lambda: self._runs(port), environment={**os.environ, **keys}
            ) as server:
                yield server
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _runs(self, port: int) -> bool:
        """Check that all tasks run; raise an AssertionError with the trace of a failed task."""
        try:
            with urllib.request.urlopen(f"http://{LOOPBACK}:{port}/connectors/{self.name}/status", timeout=2) as answer:
                status = json.load(answer)
        except OSError:
            return False
        failed = [task["trace"] for task in status["tasks"] if task["state"] == "FAILED"]
        assert not failed, failed[0]
        return len(status["tasks"]) == self.tasks and all(task["state"] == "RUNNING" for task in status["tasks"])


def _class_path() -> list[Path]:
    bundled = Path(pyspark.__file__).parent / "jars"
    hadoop = [path for path in bundled.iterdir() if path.name.startswith(("hadoop-client", "jcl-over"))]
    # Use the S3 client and SQLite of the Spark sessions, but the worker's own Kafka and Iceberg.
    sessions = [
        path for path in jars.fetch(["spark"]) if not path.name.startswith(("iceberg", "spark", "kafka", "lz4"))
    ]
    return [*jars.fetch(["test-kafka-connect"]), *hadoop, *sessions]
