"""Sample, tail and profile topics with records of all formats."""

import json
import signal
import time
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient

from lakefeed.clients.kafka.topics import Topics
from lakefeed.errors import ConfigError, ResourceMissing
from lakefeed_local import Topic
from tests.support.cli import Running, lakefeed
from tests.support.feed import Feed

TRIP: dict[str, Any] = {
    "type": "record",
    "name": "Trip",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "zone", "type": "string"},
        {
            "name": "fare",
            "type": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 18}],
            "default": None,
        },
    ],
}
RIDER = {"type": "record", "name": "Rider", "fields": [{"name": "name", "type": "string"}]}
PROTO = 'syntax = "proto3"; package shop; message Order { string no = 1; } message Refund { int64 cents = 1; }'
LONG = Decimal("12345678901234567890.123456789012345678")


@pytest.fixture
def mixed(feed: Feed, monkeypatch: pytest.MonkeyPatch) -> Feed:
    """Send 60 trips to 3 partitions, then to partition 0 one record of every other format."""
    for name, value in feed.environment.items():
        monkeypatch.setenv(name, value)
    feed.create_topic(partitions=3)
    now = int(time.time() * 1000) - 200_000
    producer = Producer({"bootstrap.servers": feed.stack.bootstrap_servers})
    trips = [{"id": at, "zone": f"zone {at % 7}", "fare": LONG if at == 7 else Decimal(at) / 4} for at in range(60)]
    for at, trip in enumerate(feed.avro(trips, TRIP)):
        late = 30_000 if at == 30 else 0
        producer.produce(feed.topic, trip, f"k{at % 5}", partition=at % 3, timestamp=now + at * 1000 - late)
    client = SchemaRegistryClient({"url": feed.stack.schema_registry_url})
    order = client.register_schema(f"{feed.name}-refunds", Schema(PROTO, "PROTOBUF"))
    others: list[tuple[bytes | None, bytes | None]] = [
        (feed.avro([{"name": "An\x1b[31mna"}], RIDER, topic=f"{feed.name}-riders")[0], None),
        # The message index (02 02) names the second message of the schema.
        (b"\0" + order.to_bytes(4, "big") + b"\x02\x02" + b"\x08\x96\x01", None),
        (b'{"a": 1}', b"\xff"),
        (b"\xff\xfe", None),
        (b"hello\nworld", None),
        (None, b"k1"),
        (feed.avro(trips[:1], TRIP)[0][:6], None),
    ]
    for at, (other, key) in enumerate(others):
        producer.produce(feed.topic, other, key, partition=0, timestamp=now + 60_000 + at, headers=[("by", b"test")])
    producer.flush()
    return feed


def test_sample_decodes_every_record_in_its_own_format(mixed: Feed) -> None:
    topic = Topic(mixed.topic)
    newest = topic.sample(7).records
    assert [each.format for each in newest] == ["avro", "protobuf", "json", "bytes", "text", "null", "avro"]
    rider, refund, document, _, text, nothing, broken = newest
    assert rider.value == {"name": "An\x1b[31mna"}
    assert refund.value == {"cents": 150}
    assert (document.value, document.key, document.headers) == ({"a": 1}, "0xff", (("by", "test"),))
    assert [each.value for each in (newest[3], text, nothing)] == ["0xfffe", "hello\nworld", None]
    assert broken.error is not None
    assert broken.error.startswith("zone: ")

    cheap = topic.sample(5, where="fare < 5 AND kafka_partition = 1", fields="id, upper(zone) AS zone, kafka_key")
    assert [each.value["id"] for each in cheap.records] == [4, 10, 13, 16, 19][-len(cheap.records) :]
    assert cheap.records[-1].value == {"id": 19, "zone": "ZONE 5", "kafka_key": "k4"}
    assert topic.sample(1, where="id = 7").records[0].value["fare"] == str(LONG)
    assert [each.offset for each in topic.sample(where="error IS NOT NULL").records] == [broken.offset]
    assert {each.value["id"] % 5 for each in topic.sample(key="k3").records} == {3}
    assert [each.value["id"] for each in topic.sample(2, start="earliest", partition=2).records] == [2, 5]
    assert [each.offset for each in topic.sample(partition=1, offset=-2).records] == [18, 19]
    assert not topic.sample(start="60s").records
    assert "<th" in topic.sample(3)._repr_html_()
    assert "\x1b" not in topic.sample(7)._repr_html_()
    with pytest.raises(ConfigError, match=r"fit no record: schema id .*`fair` cannot be resolved"):
        topic.sample(where="fair > 1")
    for rule in ("count(*) > 1", "id > (SELECT 1)", "id >"):
        with pytest.raises(ConfigError, match="fit no record"):
            topic.sample(where=rule)
    with pytest.raises(ResourceMissing, match="no partition 9"):
        topic.sample(partition=9)
    with pytest.raises(ConfigError, match="not a time or offset to begin at"):
        topic.sample(start="yesterday")


def test_sample_decodes_records_by_the_settings_of_the_pipeline_file(mixed: Feed) -> None:
    decode = {"avro": {"registry": "${SCHEMA_REGISTRY_URL}"}}
    pipeline = mixed.write_file(decode=decode)
    assert Topic(mixed.topic).describe().schemas[0].subject == f"{mixed.topic}-value"
    shown = lakefeed("topics", "sample", pipeline, "--where", "error IS NOT NULL", "--output", "json")
    assert shown.returncode == 0, shown.stderr
    errors = [json.loads(line)["error"] for line in shown.stdout.splitlines()]
    assert len(errors) == 6  # The decode block of the feed suits only the trips and the null value.
    assert any("not in Confluent wire format" in error for error in errors)


def test_sample_does_not_count_offsets_without_a_record(feed: Feed, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in feed.environment.items():
        monkeypatch.setenv(name, value)
    feed.create_topic(partitions=2)
    producer = Producer({"bootstrap.servers": feed.stack.bootstrap_servers, "transactional.id": feed.name})
    producer.init_transactions()
    now = int(time.time() * 1000) - 10_000
    for numbers, is_committed in ((range(3), True), (range(100, 160), False), (range(3, 5), True)):
        producer.begin_transaction()
        for number in numbers:
            producer.produce(feed.topic, json.dumps({"id": number}), partition=0, timestamp=now + number)
        producer.produce(feed.topic, json.dumps({"id": 1000}), partition=1, timestamp=now - 1)
        if is_committed:
            producer.commit_transaction()
        else:
            producer.flush()
            producer.abort_transaction()
    topic = Topic(feed.topic)

    def ids(**options: Any) -> list[int]:
        return [record.value["id"] for record in topic.sample(**options).records]

    assert ids(limit=4, partition=0) == [1, 2, 3, 4]
    assert ids(limit=100) == [1000, 1000, 0, 1, 2, 3, 4]
    assert ids(limit=4, partition=0, start="earliest") == [0, 1, 2, 3]
    assert ids(limit=1, partition=0, offset=4) == [3]  # Offset 4 is the first offset of the aborted transaction.
    assert ids(limit=9, where="id < 2") == [0, 1]
    assert ids(limit=2, where="id < 1000", scan=5) == [3, 4]
    assert topic.profile(records=6).sampled == 6
    assert topic.profile(records=7, start="earliest").sampled == 7
    tail = topic.tail(last=4, partition=0)
    assert [next(tail).value["id"] for _ in range(4)] == [1, 2, 3, 4]


def test_where_and_profile_work_on_json_records(feed: Feed, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in feed.environment.items():
        monkeypatch.setenv(name, value)
    feed.create_topic(partitions=2)
    now = int(time.time() * 1000)
    producer = Producer({"bootstrap.servers": feed.stack.bootstrap_servers})
    for at in range(200):
        row = {"id": at, "deep": {"x": None if at % 4 else at}, "zone": f"z{at % 3}"}
        key = None if at % 10 else "hot"
        late = 90_000 if at == 100 else 0
        producer.produce(feed.topic, json.dumps(row), key, partition=0, timestamp=now - 200_000 + at * 1000 - late)
    producer.flush()
    topic = Topic(feed.topic)
    assert [each.value["id"] for each in topic.sample(where="deep.x > 190 AND zone = 'z0'").records] == [192]
    profile = topic.profile(records=200)
    fields = {each.name: each for each in profile.fields}
    assert (profile.offsets, profile.sampled, profile.null_keys) == (200, 200, 0.9)
    assert sum(rate.records for rate in profile.rates) == pytest.approx(200, abs=1)
    assert (fields["deep.x"].null, fields["id"].distinct, fields["zone"].greatest) == (0.75, 200, "z2")
    assert (profile.late[60], profile.latest_delay) == (1 / 200, 89.0)
    assert profile.common_keys == (("hot", 1.0),)
    assert profile.partitions == {0: 200, 1: 0}
    assert profile.first_time is not None
    assert profile.first_time >= datetime.now(UTC) - timedelta(seconds=400)
    printed = lakefeed("topics", "profile", feed.topic)
    assert printed.returncode == 0, printed.stderr
    assert "▁" in printed.stdout or "█" in printed.stdout
    assert "deep.x" in printed.stdout


def test_tail_shows_new_records_until_ctrl_c(mixed: Feed, tmp_path: Path) -> None:
    command = ("topics", "tail", mixed.topic, "-n", "1", "--where", "id IS NULL OR id >= 59")
    running = Running(command, mixed.environment, tmp_path / "log")
    running.wait_until_it_says('"id": 59')
    mixed.send(mixed.avro([{"id": 1, "zone": "a", "fare": None}, {"id": 100, "zone": "b", "fare": None}], TRIP))
    running.wait_until_it_says('"id": 100')
    mixed.send([b"\x1b]0;title\x07"])
    assert running.ask_to_stop(signal.SIGINT, timeout=30) == 0
    said = running.said()
    assert '"id": 1,' not in said
    assert "\x1b" not in said
    assert "Traceback" not in said
    groups = Topics(mixed.stack.bootstrap_servers)
    assert groups.describe(mixed.topic).offsets == 70  # Neither sample nor tail has written a record.
