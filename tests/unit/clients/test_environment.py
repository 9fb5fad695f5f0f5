"""Find the running local stack, and write files atomically."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from lakefeed.clients.environment import (
    ENDPOINT_VARIABLES,
    StackEnvironment,
    default_connections,
    default_environment,
    process_start,
    running_stack_environment,
    stack_environment_file,
    write_whole,
)

ENDPOINTS = {"KAFKA_BOOTSTRAP_SERVERS": "127.0.0.1:1", "AWS_ENDPOINT_URL_S3": "http://127.0.0.1:4"}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty home of a local stack; the environment has no variable with a server's address."""
    for name in ENDPOINT_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("LAKEFEED_HOME", str(tmp_path))
    stack_environment_file(tmp_path).parent.mkdir()
    return tmp_path


def publish(home: Path, processes: dict[int, str]) -> None:
    stack = StackEnvironment(environment=ENDPOINTS, processes=processes)
    stack_environment_file(home).write_text(stack.model_dump_json())


def this_process() -> dict[int, str]:
    began = process_start(os.getpid())
    assert began is not None
    return {os.getpid(): began}


def test_the_endpoints_of_a_running_stack_are_used(home: Path) -> None:
    publish(home, this_process())
    assert default_environment() == {**os.environ, **ENDPOINTS}
    assert default_connections().s3.endpoint == "http://127.0.0.1:4"


@pytest.mark.parametrize("name", sorted(ENDPOINT_VARIABLES))
def test_the_stack_is_not_used_if_a_variable_names_an_endpoint(
    home: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    publish(home, this_process())
    monkeypatch.setenv(name, "named")
    assert default_environment() == dict(os.environ)


def test_a_stack_with_an_ended_process_is_not_used(home: Path) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    publish(home, {**this_process(), ended.pid: "1"})
    assert running_stack_environment() == {}


def test_a_new_process_with_the_id_of_an_ended_stack_is_not_mistaken_for_it(home: Path) -> None:
    publish(home, {os.getpid(): "1"})
    assert running_stack_environment() == {}
    publish(home, {})
    assert running_stack_environment() == {}


@pytest.mark.parametrize("text", [None, "", "{", '{"environment": {}, "other": 1}'])
def test_an_unreadable_environment_file_counts_as_no_running_stack(home: Path, text: str | None) -> None:
    if text is not None:
        stack_environment_file(home).write_text(text)
    assert default_environment() == dict(os.environ)


@pytest.mark.parametrize("overwrite", [True, False])
def test_the_error_of_a_full_disk_names_the_file_and_no_file_is_left(
    tmp_path: Path, overwrite: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left on device") as failed:
        write_whole(tmp_path / "lakefeed.json", "{}", overwrite=overwrite)
    assert failed.value.filename == str(tmp_path / "lakefeed.json")
    assert list(tmp_path.iterdir()) == []
