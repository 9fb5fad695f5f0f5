"""The usual clients can use the servers of the local stack."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from pyarrow.fs import S3FileSystem

from lakefeed.clients.environment import running_stack_environment
from lakefeed.errors import ConfigError, PortTaken, Unreachable
from lakefeed_local.local_command import local
from lakefeed_local.part import StartStep, find_detached
from lakefeed_local.stack import Endpoints, Stack

RIDE = '{"type": "record", "name": "Ride", "fields": [{"name": "miles", "type": "double"}]}'


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Yield a stack that these tests may stop and break."""
    stack = Stack(tmp_path_factory.mktemp("own"))
    try:
        stack.up()
        yield stack
    finally:
        stack.down(erase=True)


def object_store(endpoints: Endpoints) -> S3FileSystem:
    return S3FileSystem(
        access_key=endpoints.access_key,
        secret_key=endpoints.secret_key.get_secret_value(),
        endpoint_override=endpoints.s3_endpoint,
        region=endpoints.region,
        allow_bucket_creation=False,
    )


def put(endpoints: Endpoints, key: str, content: bytes) -> None:
    with object_store(endpoints).open_output_stream(f"{endpoints.bucket}/{key}") as stream:
        stream.write(content)


def get(endpoints: Endpoints, key: str) -> bytes:
    with object_store(endpoints).open_input_stream(f"{endpoints.bucket}/{key}") as stream:
        content: bytes = stream.read()
    return content


def create_topic(endpoints: Endpoints, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": endpoints.bootstrap_servers})
    admin.create_topics([NewTopic(topic, num_partitions=2)])[topic].result(30)


def produce(endpoints: Endpoints, topic: str, values: list[bytes]) -> None:
    producer = Producer({"bootstrap.servers": endpoints.bootstrap_servers, "acks": "all"})
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(30) == 0


def consume(endpoints: Endpoints, topic: str, count: int) -> list[bytes]:
    consumer = Consumer(
        {
            "bootstrap.servers": endpoints.bootstrap_servers,
            "group.id": f"{topic}-{os.urandom(4).hex()}",
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([topic])
    try:
        messages = consumer.consume(count, timeout=30)
        assert all(message.error() is None for message in messages)
        return sorted(message.value() or b"" for message in messages)
    finally:
        consumer.close()


def registry(endpoints: Endpoints) -> SchemaRegistryClient:
    return SchemaRegistryClient({"url": endpoints.schema_registry_url})


def pid_of(stack: Stack, part: str) -> int:
    process = find_detached(stack.home.pid_file_of(part))
    assert process is not None
    return process.pid


def kill(stack: Stack, part: str) -> None:
    process = find_detached(stack.home.pid_file_of(part))
    assert process is not None
    process.signal(signal.SIGKILL)
    assert process.wait(10)


@pytest.mark.quick
def test_topics_schemas_and_objects_survive_down_and_up(own: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKEFEED_HOME", str(own.home.root))
    before = own.up()
    assert running_stack_environment() == before.as_environment()
    assert own.home.environment_file.stat().st_mode & 0o777 == 0o600
    values = [f"ride {number}".encode() for number in range(100)]
    create_topic(before, "rides")
    produce(before, "rides", values)
    with registry(before) as client:
        ride_id = client.register_schema("rides-value", Schema(RIDE, "AVRO"))
    put(before, "deep/key", b"content")

    own.down()
    assert {part.state for part in own.status()} == {"down"}
    assert not any(part.pid for part in own.status())
    assert not own.home.environment_file.exists()
    after = own.up()
    assert running_stack_environment() == after.as_environment()

    assert after == before
    assert consume(after, "rides", 100) == sorted(values)
    with registry(after) as client:
        assert client.get_latest_version("rides-value").schema_id == ride_id
        assert json.loads(client.get_schema(ride_id).schema_str or "") == json.loads(RIDE)
    assert get(after, "deep/key") == b"content"


def test_a_producer_creates_no_topic(own: Stack) -> None:
    producer = Producer({"bootstrap.servers": own.up().bootstrap_servers, "message.timeout.ms": 3000, "log_level": 0})
    failures: list[object] = []
    producer.produce("misspelt", b"x", on_delivery=lambda error, _message: failures.append(error))
    producer.flush(30)
    assert len(failures) == 1
    assert failures[0] is not None


@pytest.mark.quick
def test_a_second_up_changes_nothing(own: Stack) -> None:
    pids = [pid_of(own, part.part) for part in own.status()]
    steps: list[StartStep] = []
    own.up(progress=steps.append)
    assert {step.state for step in steps} == {"already up"}
    assert [pid_of(own, part.part) for part in own.status()] == pids


def test_acknowledged_schemas_survive_a_kill_of_the_registry(own: Stack) -> None:
    endpoints = own.up()
    ids = {}
    with registry(endpoints) as client:
        for number in range(20):
            schema = Schema(RIDE.replace("Ride", f"Ride{number}"), "AVRO")
            ids[number] = client.register_schema(f"killed-{number}-value", schema)
        kill(own, "registry")

    states = {part.part: part.state for part in own.status()}
    assert states == {"kafka": "up", "registry": "died", "s3proxy": "up"}
    steps: list[StartStep] = []
    own.up(progress=steps.append)
    assert [step.part for step in steps if step.state == "ready"] == ["registry"]

    with registry(endpoints) as client:
        for number, schema_id in ids.items():
            assert client.get_latest_version(f"killed-{number}-value").schema_id == schema_id
        fresh = client.register_schema("after-kill-value", Schema(RIDE.replace("Ride", "Fresh"), "AVRO"))
    assert fresh not in ids.values()


@pytest.mark.slow
def test_up_replaces_a_server_that_does_not_answer(own: Stack) -> None:
    own.up()
    frozen = pid_of(own, "s3proxy")
    os.kill(frozen, signal.SIGSTOP)
    states = {part.part: part.state for part in own.status()}
    assert states["s3proxy"] == "not answering"
    steps: list[StartStep] = []
    own.up(progress=steps.append)
    assert [step.part for step in steps if step.state == "restarting"] == ["s3proxy"]
    assert pid_of(own, "s3proxy") != frozen
    assert all(part.state == "up" for part in own.status())


def test_wrong_credentials_are_refused(own: Stack) -> None:
    endpoints = own.up()
    stranger = S3FileSystem(
        access_key=endpoints.access_key,
        secret_key="wrong",
        endpoint_override=endpoints.s3_endpoint,
        region=endpoints.region,
    )
    with pytest.raises(OSError, match=r"403|ACCESS_DENIED|Forbidden"):
        stranger.get_file_info(f"{endpoints.bucket}/x")


def listening(pid: int) -> set[str]:
    """Return the addresses on which a process listens, as the kernel's tables in /proc list them."""
    inodes = set()
    for link in Path(f"/proc/{pid}/fd").iterdir():
        target = str(link.readlink())
        if target.startswith("socket:["):
            inodes.add(target.removeprefix("socket:[").removesuffix("]"))
    found = set()
    for table, family in (("tcp", socket.AF_INET), ("tcp6", socket.AF_INET6)):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in inodes:
                packed = bytes.fromhex(fields[1].split(":")[0])
                # The kernel prints an address as words of four bytes in the byte order of the machine.
                words = [packed[at : at + 4][::-1] for at in range(0, len(packed), 4)]
                found.add(socket.inet_ntop(family, b"".join(words)))
    return found


def test_servers_listen_only_on_loopback(own: Stack) -> None:
    own.up()
    for part in own.status():
        assert listening(pid_of(own, part.part)) <= {"127.0.0.1", "::ffff:127.0.0.1"}, part.part
        assert listening(pid_of(own, part.part)), part.part


def test_the_secret_is_in_no_command_line_and_in_no_file_that_others_can_read(own: Stack) -> None:
    secret = own.up().secret_key.get_secret_value()
    for part in own.status():
        assert secret not in Path(f"/proc/{pid_of(own, part.part)}/cmdline").read_text()
    holding = [
        path
        for path in own.home.root.rglob("*")
        if path.is_file() and path.stat().st_size < 1 << 20 and secret.encode() in path.read_bytes()
    ]
    assert own.home.credentials_file in holding
    assert all(path.stat().st_mode & 0o077 == 0 for path in holding)
    assert own.home.root.stat().st_mode & 0o077 == 0
    assert not any(path.is_relative_to(own.home.logs) for path in holding)


def test_up_chooses_a_new_port_if_its_former_port_is_in_use(own: Stack) -> None:
    before = own.up()
    own.down()
    port = int(before.s3_endpoint.rpartition(":")[2])
    steps: list[StartStep] = []
    with socket.create_server(("127.0.0.1", port)):
        after = own.up(progress=steps.append)
    assert after.s3_endpoint != before.s3_endpoint
    assert after.bootstrap_servers == before.bootstrap_servers
    (moved,) = [step for step in steps if step.state == "moved"]
    assert f"port {port} is now" in moved.detail
    assert f"pid {os.getpid()}" in moved.detail


def test_up_refuses_a_requested_port_that_is_in_use(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        stack = Stack(tmp_path, ports={"kafka": port})
        with pytest.raises(PortTaken, match=rf"port {port} for kafka is taken by .*pid {os.getpid()}"):
            stack.up()
    assert not any(part.pid for part in stack.status())
    stack.down(erase=True)
    assert not tmp_path.exists()


def test_a_running_stack_keeps_its_ports(own: Stack) -> None:
    own.up()
    with pytest.raises(ConfigError, match="kafka already runs on port"):
        Stack(own.home.root, ports={"kafka": 1}).up()


def test_up_refuses_to_replace_the_kind_of_store(own: Stack) -> None:
    with pytest.raises(ConfigError, match="has its objects in s3proxy, not in minio"):
        Stack(own.home.root, store="minio").up()


def test_up_stops_all_servers_if_one_does_not_start(tmp_path: Path) -> None:
    stack = Stack(tmp_path)
    stack.home.make()
    broken = stack.home.data / "kafka"
    broken.mkdir()
    (broken / "meta.properties").write_text("version=1\ncluster.id=another\nnode.id=77\n")
    with pytest.raises(Unreachable, match="kafka did not start: it ended; its log ends with") as caught:
        stack.up()
    assert "77" in caught.value.what
    assert caught.value.where == str(stack.home.log_of("kafka"))
    assert {part.state for part in stack.status()} == {"down"}
    stack.down(erase=True)
    assert not tmp_path.exists()


def test_two_simultaneous_up_commands_start_one_stack(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "lakefeed.cli.main", "local", "up", "--home", str(tmp_path / "home")]
    stack = Stack(tmp_path / "home")
    try:
        racers = [
            subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(2)
        ]
        outputs = [racer.communicate(timeout=200) for racer in racers]
        assert [racer.returncode for racer in racers] == [0, 0], outputs
        ready, found = sorted((err for _out, err in outputs), key=lambda err: "already up" in err)
        assert ready.count("ready") == 3
        assert found.count("already up") == 3
        assert outputs[0][0] == outputs[1][0]
    finally:
        stack.down(erase=True)
    assert not (tmp_path / "home").exists()


def test_an_interrupted_up_stops_the_servers_that_it_started(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "lakefeed.cli.main", "local", "up", "--home", str(tmp_path)]
    stack = Stack(tmp_path)
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if "ready" in line:
                process.send_signal(signal.SIGINT)
                break
        process.communicate(timeout=60)
        assert process.returncode == 130
    assert {part.state for part in stack.status()} == {"down"}
    stack.down(erase=True)


@pytest.mark.quick
def test_the_commands_start_show_and_stop_the_stack(own: Stack) -> None:
    run = CliRunner().invoke
    home = ["--home", str(own.home.root)]
    up = run(local, ["up", *home])
    assert up.exit_code == 0
    assert own.endpoints().bootstrap_servers in up.stdout
    secret = own.endpoints().secret_key.get_secret_value()
    assert secret not in up.output
    assert secret not in run(local, ["up", *home, "--output", "json"]).output
    assert f"export AWS_SECRET_ACCESS_KEY={secret}" in run(local, ["env", *home]).stdout
    assert run(local, ["status", *home]).exit_code == 0
    kill(own, "s3proxy")
    status = run(local, ["status", *home])
    assert status.exit_code == 1
    assert "died" in status.stdout
    assert run(local, ["down", *home]).exit_code == 0
    assert run(local, ["status", *home]).exit_code == 1
