"""The local stack before it starts: errors, ports, endpoints."""

import json
import os
import socket
from pathlib import Path

import pytest
from click.testing import CliRunner

from lakefeed.clients.environment import running_stack_environment
from lakefeed.errors import ConfigError, JavaError
from lakefeed_local.home import Memory
from lakefeed_local.local_command import local
from lakefeed_local.part import choose_free, is_free, owner_of, taken
from lakefeed_local.stack import Stack


def test_an_unknown_store_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no store named ceph") as caught:
        Stack(tmp_path, store="ceph")
    assert caught.value.hint == "the stores are: s3proxy, minio, versitygw"


def test_two_parts_cannot_have_the_same_port(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="same port"):
        Stack(tmp_path, ports={"kafka": 1, "store": 1})


def test_commands_before_the_first_up_create_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "home"
    monkeypatch.setenv("LAKEFEED_HOME", str(home))
    stack = Stack()
    assert stack.status() == []
    assert running_stack_environment() == {}
    with pytest.raises(ConfigError, match="no local stack here yet"):
        stack.endpoints()
    stack.down(erase=True)
    assert not home.exists()


def test_down_does_not_change_a_directory_without_a_stack(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "precious").touch()
    Stack(tmp_path).down(erase=True)
    assert (tmp_path / "data" / "precious").exists()


def test_up_without_java_creates_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(JavaError):
        Stack(tmp_path / "home").up()
    assert not (tmp_path / "home").exists()


def test_endpoints_become_environment_variables(tmp_path: Path) -> None:
    stack = Stack(tmp_path)
    stack.home.make()
    ports = {"kafka": 1, "controller": 2, "registry": 3, "store": 4}
    stack.home.remember(Memory(store="s3proxy", cluster_id="x", ports=ports))
    endpoints = stack.endpoints()
    secret = endpoints.secret_key.get_secret_value()
    assert secret not in repr(endpoints)
    assert endpoints.as_environment() == {
        "KAFKA_BOOTSTRAP_SERVERS": "127.0.0.1:1",
        "SCHEMA_REGISTRY_URL": "http://127.0.0.1:3/apis/ccompat/v7",
        "AWS_ENDPOINT_URL_S3": "http://127.0.0.1:4",
        "AWS_ACCESS_KEY_ID": endpoints.access_key,
        "AWS_SECRET_ACCESS_KEY": secret,
        "AWS_REGION": "us-east-1",
        "LAKEFEED_CATALOG_URI": f"jdbc:sqlite:{tmp_path}/data/catalog.db",
        "LAKEFEED_WAREHOUSE": "s3://lake/warehouse",
    }


def test_erase_removes_a_damaged_home(tmp_path: Path) -> None:
    stack = Stack(tmp_path / "home")
    stack.home.make()
    stack.home.memory_file.write_text("{")
    stack.down(erase=True)
    assert not stack.home.root.exists()


def test_the_status_command_fails_if_the_stack_is_down(tmp_path: Path) -> None:
    result = CliRunner().invoke(local, ["status", "--home", str(tmp_path), "--output", "json"])
    assert result.exit_code == 1
    assert json.loads(result.stdout) == {"up": False, "home": str(tmp_path), "parts": []}


def test_the_process_that_uses_a_port_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert not is_free(port)
        assert f"(pid {os.getpid()})" in str(owner_of(port))
        error = taken(port, part="kafka")
        assert f"port {port} for kafka is taken by" in error.what
        assert "--port-kafka" in str(error.hint)
    assert is_free(port)
    assert owner_of(port) is None
    free = choose_free(avoid=[])
    assert is_free(free)
    assert free < 32768
