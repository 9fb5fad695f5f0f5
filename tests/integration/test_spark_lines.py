"""The decoder and the checkpoint manager work in jobs on Spark 3.5 and 4.0, and say so on a line they are not for."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import boto3  # type: ignore[import-untyped]
import pyspark
import pytest
from pyarrow import fs

from tests.support.checkpoint import CLASS, CLASS_KEY
from tests.support.faults.drivers import ROOT
from tests.support.feed import TRIP, Feed
from tools import spark_lines
from tools.build_jvm import JAR
from tools.spark_lines import LINES, Installed, Line

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]

SCRIPT = ROOT / "tests" / "support" / "line_job.py"
LATER_TRIP = {**TRIP, "fields": [*TRIP["fields"], {"name": "fare", "type": "double", "default": 1.5}]}
NAMES = [line.name for line in LINES]


def conf(jar: Path, libraries: list[Path], feed: Feed) -> dict[str, str]:
    """Return the settings that docs/jvm-module.md names, and those of the servers."""
    known = feed.environment
    return {
        "spark.master": "local[2]",
        "spark.ui.enabled": "false",
        "spark.jars": str(jar),
        "spark.driver.extraClassPath": ":".join(map(str, libraries)),
        CLASS_KEY: CLASS,
        "spark.sql.catalog.trips": "io.lakefeed.decode.DecodeCatalog",
        "spark.sql.catalog.trips.registry-url": known["SCHEMA_REGISTRY_URL"],
        "spark.sql.catalog.trips.reader-schema": json.dumps(LATER_TRIP),
        "spark.hadoop.fs.s3a.endpoint": known["AWS_ENDPOINT_URL_S3"],
        "spark.hadoop.fs.s3a.endpoint.region": known["AWS_REGION"],
        "spark.hadoop.fs.s3a.path.style.access": "true",
        "spark.hadoop.fs.s3a.connection.ssl.enabled": "false",
        "spark.hadoop.fs.s3a.access.key": known["AWS_ACCESS_KEY_ID"],
        "spark.hadoop.fs.s3a.secret.key": known["AWS_SECRET_ACCESS_KEY"],
    }


@contextmanager
def job(
    feed: Feed, settings: dict[str, str], log: IO[bytes], installed: Installed, **how: Any
) -> Iterator[subprocess.Popen[bytes]]:
    """Start the job in its own process group, which is killed when the block ends."""
    given = {
        "conf": settings,
        "topic": feed.topic,
        "servers": feed.stack.bootstrap_servers,
        "table": feed.place(f"tables/{feed.name}"),
        "checkpoint": feed.checkpoint,
    }
    own = {"SPARK_HOME": str(installed.home), "PYSPARK_PYTHON": str(installed.python), "SPARK_LOCAL_IP": "127.0.0.1"}
    running = subprocess.Popen(
        [installed.python, "-I", "-W", "ignore", SCRIPT],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=log,
        env={**os.environ, **own},
        start_new_session=True,
    )
    try:
        assert running.stdin is not None
        running.stdin.write(json.dumps({**given, **how}).encode() + b"\n")
        running.stdin.flush()
        yield running
    finally:
        if running.poll() is None:
            os.killpg(running.pid, signal.SIGKILL)
        running.communicate()


@pytest.mark.parametrize("name", NAMES)
def test_a_job_that_is_killed_and_restarted_has_each_record_once(feed: Feed, tmp_path: Path, name: str) -> None:
    line = next(each for each in LINES if each.name == name)
    settings, installed = conf(spark_lines.build(line), spark_lines.libraries(line), feed), spark_lines.install(line)
    feed.create_topic(partitions=3)
    sent = 1200
    feed.send(feed.avro([{"id": at, "zone": f"z{at % 7}"} for at in range(sent)]))
    feed.send([b"no Avro", b"\0\0\0\xff\xffunknown"])

    store, entries = feed.store(), fs.FileSelector(f"{feed.stack.bucket}/checkpoints/{feed.name}/offsets")
    chance = random.Random(name)
    for batches in (2, 7):
        log = tmp_path / f"until-{batches}.log"
        with log.open("wb") as written, job(feed, settings, written, installed) as running:
            deadline = time.monotonic() + 240
            while store.get_file_info(entries.base_dir).type == fs.FileType.NotFound or (
                len(store.get_file_info(entries)) < batches
            ):
                assert running.poll() is None, log.read_text()[-4000:]
                assert time.monotonic() < deadline, log.read_text()[-4000:]
                time.sleep(0.05)
            time.sleep(chance.random())
            os.killpg(running.pid, signal.SIGKILL)

    log = tmp_path / "once.log"
    with log.open("wb") as written, job(feed, settings, written, installed, once=True) as last:
        printed, _ = last.communicate(timeout=600)
    assert last.returncode == 0, log.read_text()[-4000:]
    version, rows = json.loads(printed.splitlines()[-1])
    assert version == line.pyspark
    assert len({(row["partition"], row["offset"]) for row in rows}) == len(rows) == sent + 2
    whole = [row for row in rows if row["error"] is None]
    assert sorted(row["id"] for row in whole) == list(range(sent))
    assert {(row["zone"], row["fare"]) for row in whole} == {(f"z{at}", 1.5) for at in range(7)}
    assert len([row for row in rows if row["error"] is not None]) == 2

    # The manager writes no temporary objects, and marks each entry with the id of its writer.
    names = [each.base_name for each in store.get_file_info(entries)]
    assert all(each.isdigit() for each in names), names
    known = feed.environment
    s3 = boto3.client(
        "s3",
        endpoint_url=known["AWS_ENDPOINT_URL_S3"],
        region_name=known["AWS_REGION"],
        aws_access_key_id=known["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=known["AWS_SECRET_ACCESS_KEY"],
    )
    entry = s3.head_object(Bucket=feed.stack.bucket, Key=f"checkpoints/{feed.name}/offsets/{names[-1]}")
    assert entry["Metadata"]["lakefeed-write"]


def refused(feed: Feed, tmp_path: Path, line: Line | None, settings: dict[str, str], **how: Any) -> str:
    """Return the stderr of a job that fails; without a line on the Spark of this process."""
    own = Installed(Path(sys.executable), Path(pyspark.__file__).parent)
    installed = own if line is None else spark_lines.install(line)
    log = tmp_path / "refused.log"
    with log.open("wb") as written, job(feed, settings, written, installed, once=True, **how) as running:
        running.communicate(timeout=300)
    assert running.returncode not in (0, None)
    return log.read_text()


@pytest.mark.parametrize("only_decode", [False, True])
@pytest.mark.parametrize(
    ("jar", "on", "reason"),
    [
        ("4.1", "3.5_2.12", "is for Spark 4.1 with Scala 2.13, and this is Spark 3.5.9 with Scala 2.12."),
        ("4.1", "4.0_2.13", "is for Spark 4.1 with Scala 2.13, and this is Spark 4.0.5 with Scala 2.13."),
        ("3.5_2.12", "4.0_2.13", "is for Spark 3.5 with Scala 2.12, and this is Spark 4.0.5 with Scala 2.13."),
        (
            "4.0_2.13",
            None,
            f"is for Spark 4.0 with Scala 2.13, and this is Spark {pyspark.__version__} with Scala 2.13.",
        ),
    ],
)
def test_a_jar_for_another_line_is_refused_with_the_reason(
    feed: Feed, tmp_path: Path, jar: str, on: str | None, reason: str, only_decode: bool
) -> None:
    feed.create_topic()
    line = next((each for each in LINES if each.name == on), None)
    built = JAR if jar == "4.1" else spark_lines.build(next(each for each in LINES if each.name == jar))
    libraries = spark_lines.libraries(line or LINES[-1])
    said = refused(feed, tmp_path, line, conf(built, libraries, feed), only_decode=only_decode)
    assert f"IllegalStateException: this jar of lakefeed {reason}" in said


def test_an_older_hadoop_is_refused_with_the_reason(feed: Feed, tmp_path: Path) -> None:
    feed.create_topic()
    line = LINES[0]
    others = [path for path in spark_lines.libraries(line) if not path.name.startswith("hadoop-")]
    # Without hadoop-aws, Spark itself fails at a path on S3 before it makes a checkpoint manager.
    local = {name: f"file:{tmp_path}/{name}" for name in ("table", "checkpoint")}
    said = refused(feed, tmp_path, line, conf(spark_lines.build(line), others, feed), **local)
    assert (
        "the checkpoint manager needs Hadoop 3.4.2, whose S3A can write conditionally, and this is Hadoop 3.3.4" in said
    )


def test_there_is_no_jar_for_an_unknown_line() -> None:
    ran = subprocess.run(
        [sys.executable, ROOT / "tools" / "build_jvm.py", "--spark", "3.4"], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 1
    assert "there is no jar for Spark 3.4 with Scala 2.13: choose 3.5_2.12, 4.0_2.13" in ran.stderr
