"""Wrong input: the error has cause, place and next step; exit status 2 or 1, no stack trace, nothing left behind."""

import json
import os
import socket
import subprocess
from pathlib import Path
from typing import Any

import pyarrow.fs
import pytest

from tests.support.cli import lakefeed
from tests.support.feed import Feed

Done = subprocess.CompletedProcess[str]


def assert_refused(done: Done, status: int, *texts: str) -> None:
    assert done.returncode == status, done.stderr
    for text in texts:
        assert text in done.stderr, done.stderr
    assert "Traceback" not in done.stderr + done.stdout
    assert "at org.apache" not in done.stderr + done.stdout
    assert done.stdout == ""


def objects(feed: Feed) -> list[str]:
    """Return all objects of this feed in the store: its checkpoint and its table's files."""
    store = pyarrow.fs.S3FileSystem(
        access_key=feed.stack.access_key,
        secret_key=feed.stack.secret_key.get_secret_value(),
        endpoint_override=feed.stack.s3_endpoint,
        region=feed.stack.region,
    )
    everything = store.get_file_info(pyarrow.fs.FileSelector(feed.stack.bucket, recursive=True))
    return [info.path for info in everything if feed.name in info.path]


def run(feed: Feed, *, environment: dict[str, str] | None = None, **blocks: Any) -> Done:
    return lakefeed("run", feed.write_file(**blocks), "--once", environment={**feed.environment, **(environment or {})})


@pytest.fixture
def ready(feed: Feed) -> Feed:
    """Return a feed that could run."""
    feed.create_topic(partitions=1)
    feed.send(feed.avro([{"id": 1, "zone": "a"}]))
    return feed


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
    return port


def test_an_unknown_option(ready: Feed) -> None:
    done = run(ready, triger="1 minute")
    assert_refused(done, 2, "unknown option 'triger'", "did you mean 'trigger'", f"{ready.name}.yaml:")
    assert objects(ready) == []


def test_a_missing_topic(feed: Feed) -> None:
    done = run(feed)
    assert_refused(done, 2, feed.topic, "lakefeed topics")
    assert objects(feed) == []


def test_a_registry_that_is_down(ready: Feed) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    done = run(ready, environment={"SCHEMA_REGISTRY_URL": url})
    assert_refused(done, 1, url)
    assert objects(ready) == []


def test_a_broker_that_is_down(ready: Feed) -> None:
    address = f"127.0.0.1:{free_port()}"
    done = run(ready, environment={"KAFKA_BOOTSTRAP_SERVERS": address})
    assert_refused(done, 1, address)
    assert objects(ready) == []


def test_wrong_s3_credentials(ready: Feed) -> None:
    done = run(ready, environment={"AWS_SECRET_ACCESS_KEY": "wrong-secret-of-the-test"})
    assert_refused(done, 2, "AWS_SECRET_ACCESS_KEY")
    assert "wrong-secret-of-the-test" not in done.stderr
    assert objects(ready) == []


def test_a_missing_bucket(ready: Feed) -> None:
    done = run(ready, checkpoint="s3a://no-such-bucket/checkpoints/x")
    assert_refused(done, 2, "no-such-bucket")
    assert objects(ready) == []


@pytest.mark.slow
def test_the_checkpoint_of_another_pipeline(ready: Feed) -> None:
    first = run(ready)
    assert first.returncode == 0, first.stderr
    before = objects(ready)
    done = run(ready, name=f"{ready.name}_b", sink={"iceberg": {"table": f"{ready.table}_b"}})
    assert_refused(
        done,
        2,
        f"belongs to feed '{ready.name}'",
        ready.checkpoint,
        "name a checkpoint location of this pipeline's own",
    )
    assert objects(ready) == before


def test_java_missing(ready: Feed) -> None:
    done = run(ready, environment={"PATH": "/nonexistent", "JAVA_HOME": ""})
    assert_refused(done, 2, "Java")
    assert objects(ready) == []


def test_java_too_old(ready: Feed, tmp_path: Path) -> None:
    java = tmp_path / "jdk" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\" 2019-01-15' >&2\n")
    java.chmod(0o755)
    done = run(ready, environment={"JAVA_HOME": str(java.parents[1]), "PATH": os.environ["PATH"]})
    assert_refused(done, 2, "11", "17")
    assert objects(ready) == []


def test_a_port_that_is_taken(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        done = lakefeed("local", "up", "--home", home, "--port-kafka", str(port))
    assert_refused(done, 1, str(port))
    status = lakefeed("local", "status", "--home", home)
    assert " up " not in status.stdout


def test_a_pipeline_file_that_is_not_there(tmp_path: Path) -> None:
    assert_refused(lakefeed("run", tmp_path / "none.yaml"), 2, "none.yaml")


@pytest.mark.quick
def test_errors_are_json_where_json_is_asked_for(feed: Feed) -> None:
    done = lakefeed("run", feed.write_file(), "--once", "--output", "json", environment=feed.environment)
    assert done.returncode == 2
    error = json.loads(done.stdout)
    assert error["error"] == "ResourceMissing"
    assert feed.topic in error["what"]
