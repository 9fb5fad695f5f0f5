"""Produce rows into a topic, and read them with other clients."""

import io
import json
import os
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import Any

import fastavro
import pytest
from confluent_kafka import Consumer, Message, TopicPartition
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext
from pyspark.sql import SparkSession

from lakefeed.clients.kafka.topics import Topics
from lakefeed.errors import ConfigError, JobFailed, ResourceMissing, Unreachable
from lakefeed.records.decode.registry import SchemaRegistry
from lakefeed_encode.encode import settle, to_records
from lakefeed_local.produce.sources import ROUNDED, read_error, read_rows
from lakefeed_local.produce.taxi import KEY, taxi_rows, taxi_schema
from lakefeed_local.produce.write import produce
from lakefeed_local.stack import Endpoints
from tests.support.clock import until

TRIPS = Path(__file__).parents[4] / "tests" / "data" / "trips.csv"


@pytest.fixture
def topic(stack: Endpoints) -> str:
    name = f"produce-{uuid.uuid4().hex[:10]}"
    Topics(stack.bootstrap_servers).create(name, partitions=4)
    return name


def read(stack: Endpoints, topic: str) -> list[Message]:
    """Return all records of a topic, read by Confluent's client."""
    ends = Topics(stack.bootstrap_servers).end_offsets(topic)
    consumer = Consumer({"bootstrap.servers": stack.bootstrap_servers, "group.id": uuid.uuid4().hex})
    consumer.assign([TopicPartition(topic, partition, 0) for partition in ends])
    found: list[Message] = []
    deadline = time.monotonic() + 60
    while len(found) < sum(ends.values()) and time.monotonic() < deadline:
        for message in consumer.consume(1000, 1.0):
            assert message.error() is None
            found.append(message)
    consumer.close()
    assert len(found) == sum(ends.values())
    return found


def registry_client(stack: Endpoints) -> SchemaRegistryClient:
    return SchemaRegistryClient({"url": stack.schema_registry_url})


@pytest.mark.quick
def test_confluents_client_reads_the_produced_records(lake: SparkSession, stack: Endpoints, topic: str) -> None:
    rows = taxi_rows(lake, 500)
    records = to_records(
        rows, topic=topic, registry=stack.schema_registry_url, schema=taxi_schema(), key=KEY, headers={"source": "test"}
    )
    reached: list[int] = []
    done = produce(records, topic, bootstrap_servers=stack.bootstrap_servers, reached=reached.append)
    assert (done.topic, done.records) == (topic, 500)

    client = registry_client(stack)
    registered = client.get_latest_version(f"{topic}-value")
    assert registered.schema_id is not None
    deserialise = AvroDeserializer(client)
    expected = {row[KEY]: row.asDict() for row in rows.collect()}
    partitions = set()
    for message in read(stack, topic):
        value, key = message.value(), message.key()
        assert isinstance(value, bytes)
        assert isinstance(key, bytes)
        assert value[:5] == b"\x00" + registered.schema_id.to_bytes(4, "big")
        row = expected.pop(key.decode())
        del row[KEY]
        assert deserialise(value, SerializationContext(topic, MessageField.VALUE)) == row
        schema = fastavro.parse_schema(json.loads(taxi_schema()))
        assert fastavro.schemaless_reader(io.BytesIO(value[5:]), schema, None) == row
        assert message.headers() == [("source", b"test")]
        partitions.add(message.partition())
    assert not expected
    assert partitions == {0, 1, 2, 3}


@pytest.mark.quick
def test_rows_of_a_csv_file_are_produced_with_the_registered_schema(
    lake: SparkSession, stack: Endpoints, topic: str
) -> None:
    registry = SchemaRegistry(stack.schema_registry_url)
    schema_id = registry.register(f"{topic}-value", taxi_schema())
    rows = read_rows(lake, str(TRIPS), schema=taxi_schema())
    assert settle(rows, topic=topic, registry=registry).schema_id == schema_id
    records = to_records(rows, topic=topic, registry=registry)
    assert produce(records, topic, bootstrap_servers=stack.bootstrap_servers).records == 3
    deserialise = AvroDeserializer(registry_client(stack))
    got: list[Any] = [
        deserialise(message.value(), SerializationContext(topic, MessageField.VALUE)) for message in read(stack, topic)
    ]
    assert sorted(row["total_amount"] for row in got) == [10.56, 13.55, 58.56]
    assert [message.key() for message in read(stack, topic)] == [None] * 3


@pytest.mark.parametrize("format", ["json", "parquet"])
def test_rows_of_files_in_the_store_are_produced(lake: SparkSession, stack: Endpoints, topic: str, format: str) -> None:  # noqa: A002
    rows = taxi_rows(lake, 40)
    folder = f"s3a://{stack.bucket}/{topic}.{format}"
    rows.write.format(format).save(folder)
    again = read_rows(lake, folder, schema=taxi_schema())
    if format == "json":  # Files of JSON are read with the schema, which has no field for the key.
        again = again.withColumn(KEY, again["total_amount"].cast("string"))
    records = to_records(again, topic=topic, format="json", schema=taxi_schema(), key=KEY)
    produce(records, topic, bootstrap_servers=stack.bootstrap_servers)
    got = [json.loads(message.value() or b"") for message in read(stack, topic)]
    required = [row.asDict() for row in rows.drop(KEY).collect()]
    assert sorted(got, key=str) == sorted(required, key=str)


@pytest.mark.quick
@pytest.mark.parametrize("headers", [None, {"source": "test"}])
def test_rows_whose_columns_have_another_order_than_the_schema_become_records(
    lake: SparkSession, stack: Endpoints, topic: str, headers: dict[str, str] | None
) -> None:
    rows = lake.sql(
        """
        SELECT id, concat('k', id % 5) AS name, cast(id / 3 AS decimal(9, 2)) AS price,
            if(id % 3 = 0, NULL, id * 0.5D) AS ratio, cast(timestamp_micros(id * 1000001) AS timestamp_ntz) AS seen,
            array(id, NULL, -id) AS numbers, struct(id AS number, concat('ä', id) AS text) AS nested
        FROM range(0, 3000, 1, 2)
        """
    )
    folder = f"s3a://{stack.bucket}/{topic}.parquet"
    rows.write.parquet(folder)
    again = read_rows(lake, folder).select("nested", "ratio", "name", "id", "numbers", "seen", "price")
    encoding = settle(again, topic=topic, format="avro", key="name")
    records = to_records(again, topic=topic, format="avro", key="name", headers=headers)
    assert produce(records, topic, bootstrap_servers=stack.bootstrap_servers).records == 3000

    schema = fastavro.parse_schema(json.loads(encoding.schema or ""))
    expected = {row.id: row.asDict(recursive=True) for row in rows.collect()}
    partitions: dict[bytes, set[int]] = {}
    for message in read(stack, topic):
        row: Any = fastavro.schemaless_reader(io.BytesIO(message.value() or b""), schema, None)
        assert expected.pop(row["id"]) == row
        key = message.key()
        assert isinstance(key, bytes)
        assert key.decode() == row["name"]
        assert message.headers() == ([("source", b"test")] if headers else None)
        partitions.setdefault(key, set()).add(message.partition() or 0)
    assert not expected
    assert [len(found) for found in partitions.values()] == [1] * 5


MILLIS = {"type": "long", "logicalType": "timestamp-millis"}
MONEY = {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}
DIGITS = [
    ("price", MONEY, "1.239", "1.23"),
    ("price", ["null", MONEY], "-0.001", "1234.50"),
    ("at", MILLIS, "2026-01-01T00:00:00.000001Z", "2026-01-01T00:00:00.001Z"),
    ("at", ["null", {**MILLIS, "logicalType": "local-timestamp-millis"}],
     "1969-12-31T23:59:59.9999", "1969-12-31T23:59:59.999"),
    ("prices", {"type": "array", "items": MONEY}, [1.23, 0.005], [1.23, 0.050]),
    ("trip", {"type": "record", "name": "trip", "fields": [{"name": "at", "type": ["null", MILLIS]}]},
     {"at": "2026-01-01T00:00:00.0001Z"}, {"at": "2026-01-01T00:00:00.1Z"}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "kind", "long", "short"), DIGITS)
def test_a_value_with_more_digits_than_the_schema_allows_is_refused(
    lake: SparkSession, tmp_path: Path, name: str, kind: Any, long: Any, short: Any
) -> None:
    schema = json.dumps({"type": "record", "name": "r", "fields": [{"name": name, "type": kind}]})
    for suffix in ("csv", "jsonl") if isinstance(long, str) else ("jsonl",):
        for value in (short, long):
            text = f"{name}\n{value}\n" if suffix == "csv" else json.dumps({name: value}) + "\n"
            file = tmp_path / f"{value is short}.{suffix}"
            file.write_text(text)
            rows = read_rows(lake, str(file), schema=schema)
            records = to_records(rows, format="avro", topic="t", schema=schema)
            if value is short:
                assert records.collect()[0].value
                continue
            with pytest.raises(Exception, match=f"{ROUNDED} {name}") as raised:
                records.collect()
            assert "would be rounded" in str(read_error(str(raised.value)))


def test_records_produced_before_a_row_that_does_not_fit_stay_in_the_topic(
    lake: SparkSession, stack: Endpoints, topic: str, tmp_path: Path
) -> None:
    header, *lines = TRIPS.read_text().splitlines()
    bad = next(line.replace(",48,236,", ",,236,") for line in lines if ",48,236," in line)
    file = tmp_path / "trips.csv"
    file.write_text("\n".join([header, *lines * 100, bad, *lines]))
    rows = read_rows(lake, str(file), schema=taxi_schema())
    records = to_records(rows, topic=topic, registry=stack.schema_registry_url, schema=taxi_schema())
    with pytest.raises(ConfigError, match="no value for the field 'PULocationID'"):
        produce(records, topic, bootstrap_servers=stack.bootstrap_servers)
    assert Topics(stack.bootstrap_servers).describe(topic).offsets == 100 * len(lines)


def test_a_record_that_the_broker_refuses_stops_the_job(lake: SparkSession, stack: Endpoints, topic: str) -> None:
    rows = lake.sql("SELECT id, repeat('x', if(id = 700, 2000000, 10)) AS text FROM range(1000)")
    records = to_records(rows, topic=topic, format="avro")
    with pytest.raises(JobFailed, match="Spark stopped the job") as raised:
        produce(records, topic, bootstrap_servers=stack.bootstrap_servers)
    assert "RecordTooLargeException" in str(raised.value.where)


@pytest.mark.quick
def test_a_schema_with_the_types_of_the_rows_is_registered(lake: SparkSession, stack: Endpoints, topic: str) -> None:
    rows = lake.sql("SELECT id, concat('n', id) AS name FROM range(3)")
    encoding = settle(rows, topic=topic, registry=SchemaRegistry(stack.schema_registry_url))
    latest = registry_client(stack).get_latest_version(f"{topic}-value")
    assert encoding.schema_id == latest.schema_id
    assert json.loads(encoding.schema or "") == json.loads(str(latest.schema.schema_str))
    again = settle(rows, topic=topic, registry=stack.schema_registry_url)
    assert again.schema_id == encoding.schema_id


def test_a_missing_topic_a_wrong_setting_and_absent_servers_are_errors(
    lake: SparkSession, stack: Endpoints, topic: str
) -> None:
    rows = taxi_rows(lake, 10)
    records = to_records(rows, topic=topic, format="avro", schema=taxi_schema(), key=KEY)
    with pytest.raises(ResourceMissing, match="there is no topic") as missing:
        produce(records, f"{topic}-typo", bootstrap_servers=stack.bootstrap_servers)
    assert f"did you mean {topic}" in str(missing.value.hint)
    with pytest.raises(ConfigError, match=r"unknown Kafka producer setting 'kafka\.linger'"):
        produce(records, topic, bootstrap_servers=stack.bootstrap_servers, options={"kafka.linger": "1"})
    with pytest.raises(Unreachable, match="no Kafka broker answers"):
        produce(records, topic, bootstrap_servers="127.0.0.1:1")
    with pytest.raises(Unreachable, match="does not answer"):
        to_records(rows, topic=topic, registry="http://127.0.0.1:1", schema=taxi_schema(), key=KEY)
    with pytest.raises(ConfigError, match="is not a rate"):
        produce(records, topic, bootstrap_servers=stack.bootstrap_servers, rate=0)
    assert Topics(stack.bootstrap_servers).describe(topic).offsets == 0


def test_all_tasks_together_do_not_exceed_the_rate(lake: SparkSession, stack: Endpoints, topic: str) -> None:
    rows = taxi_rows(lake, 3000, slices=6)
    records = to_records(rows, topic=topic, format="avro", schema=taxi_schema(), key=KEY)
    began = time.monotonic()
    done = produce(records, topic, bootstrap_servers=stack.bootstrap_servers, rate=1000)
    assert done.records == 3000
    assert time.monotonic() - began > 2.5


def lakefeed(stack: Endpoints, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "lakefeed.cli.main", *arguments],
        env={**os.environ, **stack.as_environment()},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_the_command_generates_rows_and_prints_a_report(stack: Endpoints, topic: str, tmp_path: Path) -> None:
    command = ("topics", "produce", topic, "--generate", "taxi", "--rows", "200", "--output", "json")
    process = lakefeed(stack, *command, "--compression", "zstd", "--log-file", str(tmp_path / "log"))
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    report = json.loads(out)
    assert (report["topic"], report["records"], report["subject"]) == (topic, 200, f"{topic}-value")
    assert report["schema_id"] == registry_client(stack).get_latest_version(f"{topic}-value").schema_id


@pytest.mark.slow
def test_ctrl_c_stops_a_batch_and_prints_the_number_of_records(stack: Endpoints, topic: str, tmp_path: Path) -> None:
    topics = Topics(stack.bootstrap_servers)
    command = ("topics", "produce", topic, "--generate", "taxi", "--rows", "1000000", "--rate", "500")
    process = lakefeed(stack, *command, "--log-file", str(tmp_path / "log"))
    until(lambda: topics.describe(topic).offsets > 500)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 130, err
    records = topics.describe(topic).offsets
    assert f"interrupted: {records:,} records of this run are in {topic}" in err
    assert "Traceback" not in err


@pytest.mark.slow
def test_a_stream_follows_a_folder_and_resumes_after_a_restart(stack: Endpoints, topic: str, tmp_path: Path) -> None:
    topics = Topics(stack.bootstrap_servers)
    folder = tmp_path / "incoming"
    folder.mkdir()
    schema = Path(tmp_path / "taxi.avsc")
    schema.write_text(taxi_schema())
    header, *lines = TRIPS.read_text().splitlines()
    (folder / "1.csv").write_text(f"{header}\n{lines[0]}\n")

    def start() -> subprocess.Popen[str]:
        command = ("topics", "produce", topic, "--file", str(folder), "--format", "csv", "--stream")
        places = ("--checkpoint", str(tmp_path / "checkpoint"), "--schema-file", str(schema))
        return lakefeed(stack, *command, *places, "--log-file", str(tmp_path / "log"))

    process = start()
    until(lambda: topics.describe(topic).offsets == 1)
    (tmp_path / "2.csv").write_text(f"{header}\n{lines[1]}\n")
    (tmp_path / "2.csv").rename(folder / "2.csv")
    until(lambda: topics.describe(topic).offsets == 2)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 0, err

    (folder / "3.csv").write_text(f"{header}\n{lines[2]}\n")
    process = start()
    until(lambda: topics.describe(topic).offsets == 3)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=120)
    assert process.returncode == 0
    assert topics.describe(topic).offsets == 3
