"""``lakefeed jars``: fetches, lists and verifies the locked jars in the cache, and creates the class-data archive."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click
from click.exceptions import Exit

from lakefeed.cli.options import CommandGroup, output_option
from lakefeed.cli.output import emit
from lakefeed.clients.environment import default_connections
from lakefeed.clients.spark import jars as locked
from lakefeed.clients.spark.class_archive import VARIABLE, WRITE
from lakefeed.clients.spark.driver_jvm import require_java
from lakefeed.clients.spark.jars import cache_directory
from lakefeed.clients.spark.session import class_path, log_path
from lakefeed.errors import LakefeedError, WorldError
from lakefeed_deploy.archive_follower import archives, make_at_exit
from lakefeed_deploy.commands import load_command

PAGE = "jars"

group_option = click.option(
    "--group", "groups", multiple=True, help="Only jars of this group; repeatable. Default: all groups but the tests'."
)


@click.group(cls=CommandGroup)
def jars() -> None:
    """Fetch and verify the locked jars.

    The jars are in LAKEFEED_CACHE (default ~/.cache/lakefeed); lakefeed checks their SHA-256 at each use.
    LAKEFEED_MAVEN_REPOSITORY names a mirror; LAKEFEED_MAVEN_USER and LAKEFEED_MAVEN_PASSWORD are its login.
    """


@jars.command()
@group_option
@output_option
def fetch(groups: tuple[str, ...]) -> None:
    """Fetch missing jars, so that later commands work offline."""
    begun = time.monotonic()
    paths = locked.fetch(groups or _usual_groups(locked.read_lock()))
    seconds = round(time.monotonic() - begun, 1)
    directory = locked.cache_directory()
    document = {"directory": str(directory), "files": len(paths), "seconds": seconds}
    emit(document, f"{len(paths)} files verified in {directory} ({seconds} s)")


@jars.command()
@output_option
def archive() -> None:
    """Make a class-data archive, which speeds up Spark's start.

    A start then takes a third less CPU. To make the archive, a small feed runs in a separate process, whose JVM writes
    the loaded classes. This takes a minute of CPU, and 150 to 250 MB in the cache. Sessions on a local master use the
    archive automatically until Java or the jars change.
    """

    made = make_archive()
    size = made.path.stat().st_size / 1e6
    emit(made.as_dict(), f"{made.path} ({size:,.0f} MB) made in {made.seconds} s; the next start uses it")


@jars.command("list")
@group_option
@output_option
def list_(groups: tuple[str, ...]) -> None:
    """List the lock's jars: coordinate, groups, size."""
    artifacts = _locked(groups)
    lines = [f"{jar.size / 1e6:8.2f} MB  {','.join(jar.groups):15} {jar.coordinate}" for jar in artifacts]
    keys = ("coordinate", "groups", "size", "sha256")
    document = [{**{key: getattr(jar, key) for key in keys}, "path": str(jar.path)} for jar in artifacts]
    emit(document, "\n".join(lines))


@jars.command()
@group_option
@output_option
def verify(groups: tuple[str, ...]) -> None:
    """Compare the cache with the lock, offline. Exit status 1 if a jar is missing or damaged."""
    states = {jar.coordinate: jar.state() for jar in _locked(groups)}
    wrong = {coordinate: state for coordinate, state in states.items() if state != "ok"}
    counts = Counter(states.values())
    lines = [f"{state:8} {coordinate}" for coordinate, state in wrong.items()]
    lines.append(", ".join(f"{counts[state]} {state}" for state in ("ok", "missing", "damaged")))
    if wrong:
        lines.append("fix with: lakefeed jars fetch")
    emit({"ok": len(states) - len(wrong), "wrong": wrong}, "\n".join(lines))
    raise Exit(1 if wrong else 0)


def _locked(groups: tuple[str, ...]) -> list[locked.Artifact]:
    lock = locked.read_lock()
    return lock.of(groups or _usual_groups(lock))


def _usual_groups(lock: locked.Lock) -> tuple[str, ...]:
    """Return the groups for users, without those of servers that only lakefeed's tests start."""
    return tuple(group for group in lock.groups if not group.startswith("test-"))


# A separate process runs two small feeds as test cases, one of them with state, and opens the clients of Kafka and S3
# against a port where no server listens. When this process ends, its JVM writes all classes that were loaded into the
# archive.
_NO_SERVER = "127.0.0.1:9"
_TAIL_LINES = 5
_SCHEMA = (
    "{type: record, name: Trip, fields: [{name: zone, type: string}, {name: fare, type: double}, "
    "{name: at, type: {type: long, logicalType: timestamp-millis}}]}"
)
_FEED = f"""
name: NAME
source: {{kafka: {{bootstrap_servers: "{_NO_SERVER}", topics: [NAME]}}}}
decode: {{avro: {{registry: "http://{_NO_SERVER}"}}}}
expect: {{fare_is_positive: {{rule: fare >= 0, on_violation: dead_letter}}}}
dead_letters: {{table: lake.archive.dead}}
transform: TRANSFORM
sink: {{iceberg: {{table: lake.archive.rows}}}}
checkpoint: s3a://lake/checkpoints/NAME
tests:
  schemas: {{1: {{schema: {_SCHEMA}}}}}
  cases:
    archive:
      records:
        - value: {{zone: A, fare: 12.5, at: "2026-01-01T00:01:00Z"}}
        - {{value: {{zone: B, fare: -1, at: "2026-01-01T00:31:00Z"}}, batch: 2}}
      dead_letters: [{{offset: 1}}]
"""
_TRANSFORMS = {
    "rows": '{sql: "SELECT zone, fare * 2 AS twice FROM rows"}',
    "windows": (
        "{watermark: {column: at, delay: 10 minutes}, "
        "sql: \"SELECT window.start AS begins, count(*) AS trips FROM windows GROUP BY window(at, '10 minutes')\"}"
    ),
}


@dataclass(frozen=True, kw_only=True)
class MadeArchive:
    """A new archive, and the seconds that its creation took."""

    path: Path
    seconds: float

    def as_dict(self) -> dict[str, Any]:
        return {"path": str(self.path), "bytes": self.path.stat().st_size, "seconds": self.seconds}


def make_archive() -> MadeArchive:
    """Create the archive for this machine's Java and lakefeed's jars; replace an older archive of the same jars.

    Raises:
        MissingExtra: no installed package has the command ``test``, which runs the feeds.
        JavaError: there is no Java, or Spark does not run on its version.
        DownloadError: a jar could not be downloaded.
        WorldError: the JVM has written no archive.
    """
    load_command("test")  # Check for the command here: the process below would write the error only to its log.
    require_java()
    class_path(default_connections())
    began, begun_at = time.monotonic(), time.time()
    log = log_path("class-archive")
    log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with log.open("w", encoding="utf-8") as output:
        done = subprocess.run(
            [sys.executable, "-m", __name__],
            env={**os.environ, VARIABLE: WRITE},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    made = [path for path in archives(cache_directory() / "classes") if path.stat().st_mtime >= begun_at]
    if done.returncode or not made:
        lines = log.read_text("utf-8", errors="replace").splitlines()[-_TAIL_LINES:]
        raise WorldError(
            "the JVM has written no archive" + "".join(f"\n  | {line}" for line in lines),
            where=str(log),
            hint=f"make sure that {cache_directory()} has 250 MB of room; runs work without an archive, too",
        )
    return MadeArchive(path=made[0], seconds=round(time.monotonic() - began, 1))


def _run_feeds() -> None:
    """Run the feeds and open the clients; the JVM of this process writes the archive when it ends."""
    from lakefeed.clients.spark.session import session

    test = load_command("test")
    with TemporaryDirectory(prefix="lakefeed-archive-") as folder:
        for name, transform in _TRANSFORMS.items():
            file = Path(folder) / f"{name}.yaml"
            file.write_text(_FEED.replace("NAME", name).replace("TRANSFORM", transform), "utf-8")
            if status := test.main([str(file)], standalone_mode=False):
                raise SystemExit(status)
        spark = session("class-archive")
        make_at_exit(spark)
        for use in _uses_of_clients(spark):
            with suppress(Exception):  # No server answers, so the call fails; by then the JVM has loaded the classes.
                use()


def _uses_of_clients(spark: Any) -> Iterator[Any]:
    """Yield calls that make the JVM load the classes of the Kafka and S3 clients that a run needs."""
    java = spark._jvm
    keys = {"access.key": "none", "secret.key": "none", "attempts.maximum": "1", "retry.limit": "0"}
    settings = java.org.apache.hadoop.conf.Configuration(spark.sparkContext._jsc.hadoopConfiguration())
    for key, value in {**keys, "endpoint": f"http://{_NO_SERVER}", "path.style.access": "true"}.items():
        settings.set(f"fs.s3a.{key}", value)
    path = java.org.apache.hadoop.fs.Path("s3a://class-archive/checkpoint")
    yield lambda: path.getFileSystem(settings).exists(path)

    files = java.io.lakefeed.sink.TableFileIO()
    table = {"access-key-id": "none", "secret-access-key": "none", "endpoint": f"http://{_NO_SERVER}"}
    files.initialize({"client.region": "us-east-1", **{f"s3.{key}": value for key, value in table.items()}})
    yield lambda: files.newInputFile("s3://class-archive/table").exists()

    brokers = {
        "kafka.bootstrap.servers": _NO_SERVER,
        "kafka.default.api.timeout.ms": "2000",
        "kafka.request.timeout.ms": "1000",
    }
    records = spark.read.format("io.lakefeed.kafka.KafkaRecords").options(**brokers, subscribe="class-archive")
    yield lambda: records.load().count()

    consumer = java.java.util.Properties()
    deserializer = "org.apache.kafka.common.serialization.ByteArrayDeserializer"
    for key, value in {"key.deserializer": deserializer, "value.deserializer": deserializer}.items():
        consumer.setProperty(key, value)
    consumer.setProperty("bootstrap.servers", _NO_SERVER)

    def poll() -> None:
        opened = java.org.apache.kafka.clients.consumer.KafkaConsumer(consumer)
        opened.assign([java.org.apache.kafka.common.TopicPartition("class-archive", 0)])
        opened.poll(java.java.time.Duration.ofMillis(200))
        opened.close()

    yield poll


if __name__ == "__main__":
    try:
        _run_feeds()
    except (LakefeedError, OSError) as error:
        sys.exit(str(error))
