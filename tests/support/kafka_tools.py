"""Read the offsets of a consumer group without lakefeed: with Kafka's command, kcat and kafkatop."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import Consumer, KafkaException, TopicPartition

from lakefeed.clients.spark import jars
from lakefeed.clients.spark.driver_jvm import require_java
from tests.support.servers.debian import unpack_packages

GROUP_COMMAND = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
KAFKATOP = "kafkatop==1.16"
HEADINGS = ("GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG")

# kcat and its libraries. Further libraries, such as OpenSSL, are part of Debian's base and of Python's images.
KCAT_PACKAGES = ("kcat", "librdkafka1", "libyajl2", "libcurl4")


@dataclass(frozen=True)
class GroupPosition:
    """A group's position in a partition, as ``kafka-consumer-groups --describe`` prints it; None stands for ``-``."""

    committed: int | None
    end: int | None
    lag: int | None


def commit_offsets(servers: str, group: str, offsets: Mapping[tuple[str, int], int]) -> None:
    """Commit offsets as a group; retry, because the coordinator of a new broker refuses requests while it loads."""
    client = Consumer({"bootstrap.servers": servers, "group.id": group, "enable.auto.commit": False})
    until = time.monotonic() + 60
    while True:
        try:
            client.commit(offsets=[TopicPartition(*at, offset) for at, offset in offsets.items()], asynchronous=False)
            break
        except KafkaException:
            assert time.monotonic() < until
            time.sleep(0.5)
    client.close()


def describe_group(servers: str, group: str) -> dict[tuple[str, int], GroupPosition]:
    """Run ``kafka-consumer-groups --describe`` by its Java class, as Kafka's script does."""
    paths = os.pathsep.join(map(str, jars.fetch(["kafka", "test-kafka-tools"])))
    java = [str(require_java()), "-XX:TieredStopAtLevel=1", "-Xmx128m", "-cp", paths, GROUP_COMMAND]
    done = subprocess.run(
        [*java, "--bootstrap-server", servers, "--describe", "--group", group, "--timeout", "20000"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    lines = [line.split() for line in done.stdout.splitlines() if line.strip()]
    assert done.returncode == 0, done.stdout + done.stderr
    assert lines, done.stderr
    assert tuple(lines[0][:6]) == HEADINGS, done.stdout + done.stderr
    return {(line[1], int(line[2])): GroupPosition(*map(_number, line[3:6])) for line in lines[1:]}


def _number(text: str) -> int | None:
    return None if text == "-" else int(text)


def lag_by_kafkatop(servers: str, group: str) -> dict[str, tuple[int, int]]:
    """Return each topic's smallest and largest partition lag, as kafkatop, a lag monitor of PyPI, measures it."""
    uv = shutil.which("uv") or Path(sys.executable).with_name("uv")
    command = [uv, "tool", "run", "--from", KAFKATOP, "kafkatop"]
    done = subprocess.run(
        [*command, "--kafka-broker", servers, "--summary-json", "--all", "--group-filter-pattern", f"^{group}$"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    topics = json.loads(done.stdout)[group]["topics"]
    return {name: (topic["lag_min"], topic["lag_max"]) for name, topic in topics.items()}


@dataclass(frozen=True)
class Kcat:
    """A kcat that is unpacked from its package and not installed."""

    root: Path

    def __call__(self, *arguments: str) -> str:
        libraries = [*self.root.glob("usr/lib/*-linux-gnu"), *self.root.glob("lib/*-linux-gnu")]
        done = subprocess.run(
            [self.root / "usr/bin/kcat", *arguments],
            env={**os.environ, "LD_LIBRARY_PATH": os.pathsep.join(map(str, libraries))},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def first_after_position(self, servers: str, group: str, topic: str, partition: int) -> int | None:
        """Read and commit one record as the group, with kcat; return its offset, or None at the partition's end."""
        position = ["-C", "-q", "-e", "-c", "1", "-t", topic, "-p", str(partition), "-o", "stored", "-f", "%o\\n"]
        text = self("-b", servers, *position, "-X", f"group.id={group}")
        return int(text) if text.strip() else None


def unpacked_kcat() -> Kcat:
    """Return kcat and its libraries from Debian's packages."""
    return Kcat(unpack_packages(*KCAT_PACKAGES))
