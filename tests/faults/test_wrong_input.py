"""Wrong input is a readable error with cause, place and next step and exit status 1 or 2, and leaves nothing behind."""

import json
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
    """Return the keys of this feed's objects in the store: checkpoint and files of the table."""
    everything = feed.store().get_file_info(pyarrow.fs.FileSelector(feed.stack.bucket, recursive=True))
    return [info.path for info in everything if feed.name in info.path]


def run(feed: Feed, *, environment: dict[str, str] | None = None, **blocks: Any) -> Done:
    return lakefeed(
        "run", feed.write_file(**blocks), "--once", environment={**feed.environment, **(environment or {})}, status=None
    )


@pytest.fixture
def ready(feed: Feed) -> Feed:
    """Return a feed whose topic has a valid record, so that it could run."""
    feed.create_topic(partitions=1)
    feed.send(feed.avro([{"id": 1, "zone": "a"}]))
    return feed


@pytest.mark.parametrize(
    ("environment", "blocks", "status", "message"),
    [
        ({"SCHEMA_REGISTRY_URL": "http://127.0.0.1:1"}, {}, 1, "http://127.0.0.1:1"),
        ({"KAFKA_BOOTSTRAP_SERVERS": "127.0.0.1:1"}, {}, 1, "127.0.0.1:1"),
        ({"AWS_SECRET_ACCESS_KEY": "wrong-secret-of-the-test"}, {}, 2, "AWS_SECRET_ACCESS_KEY"),
        ({}, {"checkpoint": "s3a://no-such-bucket/checkpoints/x"}, 2, "no-such-bucket"),
        ({"PATH": "/nonexistent", "JAVA_HOME": ""}, {}, 2, "Java"),
    ],
    ids=["registry", "broker", "credentials", "bucket", "Java"],
)
def test_a_run_is_refused_if_a_topic_a_setting_or_a_server_is_missing(
    ready: Feed, environment: dict[str, str], blocks: dict[str, Any], status: int, message: str
) -> None:
    done = run(ready, environment=environment, **blocks)
    assert_refused(done, status, message)
    assert "wrong-secret-of-the-test" not in done.stderr
    assert objects(ready) == []


def test_a_run_is_refused_if_a_port_is_in_use(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        done = lakefeed("local", "up", "--home", home, "--port-kafka", str(port), status=None)
    assert_refused(done, 1, str(port))
    status = lakefeed("local", "status", "--home", home, status=None)
    assert " up " not in status.stdout


def test_a_missing_pipeline_file_is_refused(tmp_path: Path) -> None:
    assert_refused(lakefeed("run", tmp_path / "none.yaml", status=None), 2, "none.yaml")


@pytest.mark.quick
def test_errors_are_printed_as_json_with_output_json(feed: Feed) -> None:
    done = lakefeed("run", feed.write_file(), "--once", "--output", "json", environment=feed.environment, status=2)
    error = json.loads(done.stdout)
    assert error["error"] == "ResourceMissing"
    assert feed.topic in error["what"]
