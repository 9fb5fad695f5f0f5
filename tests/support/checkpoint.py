"""Drive the checkpoint manager from tests, through the JVM of a Spark session."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from lakefeed.feed.s3_requests import s3_requests
from tests.support.lake import spark_in
from tests.support.stores import REGION, Bucket

CLASS = "io.lakefeed.checkpoint.ObjectStoreCheckpointFileManager"
CLASS_KEY = "spark.sql.streaming.checkpointFileManagerClass"


@contextmanager
def checkpoint_session(folder: Path) -> Iterator[SparkSession]:
    """Yield a session on two threads without a configured object store; Spark's log is in ``folder``."""
    with spark_in(folder) as running:
        running.conf.set(CLASS_KEY, CLASS)
        yield running


def introduce(spark: SparkSession, bucket: Bucket) -> None:
    """Configure S3A's access to the bucket, by settings of only this bucket."""
    conf = spark.sparkContext._jsc.hadoopConfiguration()
    for key, value in s3a_options(bucket).items():
        conf.set(key, value)


def s3a_options(bucket: Bucket) -> dict[str, str]:
    """Return S3A's endpoint and credentials for the bucket, with few enough retries for a test."""
    options = {
        "endpoint": bucket.store.endpoint,
        "endpoint.region": REGION,
        "path.style.access": "true",
        "access.key": bucket.store.access_key,
        "secret.key": bucket.store.secret_key,
        "connection.ssl.enabled": "false",
        "attempts.maximum": "2",
        "retry.limit": "3",
        "retry.interval": "50ms",
        "retry.throttle.limit": "3",
        "retry.throttle.interval": "50ms",
        "retry.http.5xx.errors": "true",
    }
    return {f"fs.s3a.bucket.{bucket.name}.{key}": value for key, value in options.items()}


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """One checkpoint manager, with the root ``root``."""

    spark: SparkSession
    root: str
    conf: Mapping[str, str] = field(default_factory=dict)
    java: Any = None

    @classmethod
    def at(cls, root: str, *, spark: SparkSession, conf: Mapping[str, str] | None = None) -> Checkpoint:
        """Create the manager as Spark creates it."""
        gateway: Any = spark._jvm
        hadoop = gateway.org.apache.hadoop.conf.Configuration(spark.sparkContext._jsc.hadoopConfiguration())
        for key, value in (conf or {}).items():
            hadoop.set(key, value)
        java = gateway.io.lakefeed.checkpoint.ObjectStoreCheckpointFileManager(
            gateway.org.apache.hadoop.fs.Path(root), hadoop
        )
        return cls(spark=spark, root=root, conf=conf or {}, java=java)

    def path(self, name: str = "") -> Any:
        """Return a Hadoop path below the root."""
        gateway: Any = self.spark._jvm
        return gateway.org.apache.hadoop.fs.Path(f"{self.root}/{name}" if name else self.root)

    def begin(self, name: str, content: bytes, *, overwrite: bool = False) -> Any:
        """Return an open output stream with content written to it."""
        stream = self.java.createAtomic(self.path(name), overwrite)
        stream.write(content)
        return stream

    def write(self, name: str, content: bytes, *, overwrite: bool = False) -> None:
        """Write a whole file."""
        self.begin(name, content, overwrite=overwrite).close()

    def read(self, name: str) -> bytes:
        """Return the content of a file."""
        gateway: Any = self.spark._jvm
        stream = self.java.open(self.path(name))
        try:
            content: bytes = gateway.org.apache.commons.io.IOUtils.toByteArray(stream)
        finally:
            stream.close()
        return bytes(content)

    def names(self, name: str = "", *, glob: str | None = None) -> list[str]:
        """Return the names in a directory; with a glob, through Hadoop's PathFilter."""
        gateway: Any = self.spark._jvm
        found = (
            self.java.list(self.path(name))
            if glob is None
            else self.java.list(self.path(name), gateway.org.apache.hadoop.fs.GlobFilter(glob))
        )
        return [str(status.getPath().getName()) for status in found]

    def exists(self, name: str = "") -> bool:
        """Check that a file or directory exists."""
        return bool(self.java.exists(self.path(name)))

    def delete(self, name: str = "") -> None:
        """Delete a file or a directory with all that is in it."""
        self.java.delete(self.path(name))

    def flush(self) -> None:
        """Send the deferred deletes of this bucket only, because the stores of other buckets may have stopped."""
        self.java.close()


@dataclass(frozen=True)
class Counted:
    """The number of requests by S3 operation; filled in when the block ends."""

    requests: dict[str, int] = field(default_factory=dict)


@contextmanager
def counting(spark: SparkSession) -> Iterator[Counted]:
    """Count the requests that the block sends."""
    before = s3_requests(spark).by_operation
    counted = Counted()
    yield counted
    after = s3_requests(spark).by_operation
    counted.requests.update(
        {name: count - before.get(name, 0) for name, count in after.items() if count > before.get(name, 0)}
    )


def java_class(error: Py4JJavaError) -> str:
    """Return the class of the Java exception behind an error."""
    return str(error.java_exception.getClass().getName())
