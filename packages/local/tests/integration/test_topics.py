"""Topics are created, described and deleted; a request that cannot succeed gets a clear error."""

import json
import time
import uuid

import pytest
from click.testing import CliRunner
from confluent_kafka import Producer

from lakefeed.clients.kafka.topics import Topics
from lakefeed.errors import ConfigError, ResourceMissing, Unreachable
from lakefeed_local.stack import Endpoints
from lakefeed_local.topics.command import topics as command


@pytest.fixture
def topics(stack: Endpoints) -> Topics:
    return Topics(stack.bootstrap_servers)


@pytest.fixture
def name() -> str:
    return f"topics-{uuid.uuid4().hex[:10]}"


@pytest.mark.quick
def test_a_topic_is_created_described_and_deleted(topics: Topics, name: str, stack: Endpoints) -> None:
    assert topics.create(name, partitions=4, replication_factor=1, config={"retention.ms": "3600000"})
    assert name in topics.list()
    assert topics.describe(name).offsets == 0
    producer = Producer({"bootstrap.servers": stack.bootstrap_servers})
    for number in range(5):
        producer.produce(name, value=str(number).encode(), partition=2)
    assert producer.flush(30) == 0
    found = topics.describe(name)
    assert found.offsets == 5
    assert [(each.id, each.start_offset, each.end_offset) for each in found.partitions] == [
        (0, 0, 0),
        (1, 0, 0),
        (2, 0, 5),
        (3, 0, 0),
    ]
    assert all(each.leader is not None for each in found.partitions)
    assert topics.end_offsets(name) == {0: 0, 1: 0, 2: 5, 3: 0}
    topics.delete(name)
    deadline = time.monotonic() + 10
    while name in topics.list() and time.monotonic() < deadline:
        time.sleep(0.1)
    with pytest.raises(ResourceMissing):
        topics.describe(name)
    topics.create(name, partitions=4)
    assert topics.describe(name).topic_id != found.topic_id


def test_the_creation_of_an_existing_topic_is_an_error_by_default(topics: Topics, name: str) -> None:
    topics.create(name)
    assert len(topics.describe(name).partitions) == 10
    assert not topics.create(name, exist_ok=True)
    with pytest.raises(ConfigError, match="already exists"):
        topics.create(name)


@pytest.mark.parametrize(
    ("wrong", "what"),
    [
        ({"replication_factor": 5}, "has not enough brokers"),
        ({"config": {"retention": "1"}}, "Unknown topic config name: retention"),
        ({"config": {"retention.ms": "long"}}, "Invalid value long"),
        ({"partitions": 0}, "cannot have 0 partitions"),
    ],
)
def test_invalid_numbers_and_settings_are_refused(
    topics: Topics, name: str, wrong: dict[str, object], what: str
) -> None:
    with pytest.raises(ConfigError, match=what):
        topics.create(name, **wrong)  # type: ignore[arg-type]
    assert name not in topics.list()


@pytest.mark.parametrize("wrong", ["", ".", "..", "two words", "ü", "x" * 250])
def test_an_invalid_name_is_refused(topics: Topics, wrong: str) -> None:
    with pytest.raises(ConfigError, match="cannot name a topic"):
        topics.create(wrong)


def test_the_error_for_a_missing_topic_suggests_a_similar_name(topics: Topics, name: str) -> None:
    topics.create(name, partitions=1)
    for ask in (topics.describe, topics.end_offsets, topics.delete):
        with pytest.raises(ResourceMissing, match="there is no topic") as raised:
            ask(f"{name}x")
        assert f"did you mean {name}" in str(raised.value.hint)


def test_a_missing_broker_is_an_error_within_seconds(capfd: pytest.CaptureFixture[str]) -> None:
    began = time.monotonic()
    with pytest.raises(Unreachable, match="no Kafka broker answers"):
        Topics("127.0.0.1:1").describe("any")
    assert time.monotonic() - began < 10
    assert capfd.readouterr() == ("", "")


def test_an_unknown_setting_of_the_kafka_client_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"No such configuration property"):
        Topics("127.0.0.1:1", options={"acks.of.all": "1"})


@pytest.mark.quick
def test_the_commands_create_list_and_show_topics(stack: Endpoints, name: str) -> None:
    def run(*arguments: str) -> str:
        ended = CliRunner().invoke(
            command, [*arguments, "--bootstrap-servers", stack.bootstrap_servers], catch_exceptions=False
        )
        assert ended.exit_code == 0, ended.output
        return ended.stdout

    assert run("create", name, "--partitions", "2", "--config", "retention.ms=60000") == (
        f"created {name} with 2 partitions\n"
    )
    assert json.loads(run("create", name, "--if-not-exists", "--output", "json")) == {"topic": name, "created": False}
    assert name in run("list").splitlines()
    assert "partition 1  leader" in run("show", name)
    described = json.loads(run("show", name, "--output", "json"))
    assert (described["name"], described["offsets"], len(described["partitions"])) == (name, 0, 2)
    with pytest.raises(ConfigError, match="not KEY=VALUE"):
        run("create", name, "--config", "nonsense")


def test_the_commands_read_the_address_of_the_brokers_from_the_environment(
    stack: Endpoints, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", stack.bootstrap_servers)
    ended = CliRunner().invoke(command, ["create", name])
    assert ended.exit_code == 0, ended.output
    monkeypatch.delenv("KAFKA_BOOTSTRAP_SERVERS")
    monkeypatch.setenv("SCHEMA_REGISTRY_URL", "http://127.0.0.1:1")
    with pytest.raises(ConfigError, match="no Kafka broker is named"):
        CliRunner().invoke(command, ["list"], catch_exceptions=False)
