"""On both read paths, a feed reads records in AWS Glue's framing, with schemas of moto's registry."""

import json
import uuid
import zlib
from collections.abc import Iterator
from typing import Any

import boto3  # type: ignore[import-untyped]
import pytest
from moto.moto_server.threaded_moto_server import ThreadedMotoServer
from pyspark.sql import SparkSession

from lakefeed.clients.iceberg.reader import open_table
from lakefeed.errors import ConfigError, LakefeedError
from tests.support.feed import Feed
from tests.support.records import avro_bytes

REGION = "eu-west-1"
KEYS = {"access_key": "glue-key", "secret_key": "glue-secret"}
V1 = {"type": "record", "name": "Trip", "fields": [{"name": "id", "type": "long"}, {"name": "name", "type": "string"}]}
V2 = {**V1, "fields": [*V1["fields"], {"name": "zone", "type": ["null", "string"], "default": None}]}
JSON_SCHEMA = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "title": "Trip",
    "type": "object",
    "properties": {"id": {"type": "integer"}, "name": {"type": "string"}},
    "required": ["id", "name"],
}


class Glue:
    """moto's schema registry, with a registry ``trips``."""

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint
        self.client = boto3.client(
            "glue",
            endpoint_url=endpoint,
            region_name=REGION,
            aws_access_key_id="glue-key",
            aws_secret_access_key="glue-secret",
        )
        self.client.create_registry(RegistryName="trips")

    def create(self, schema: str, text: Any, kind: str = "AVRO") -> uuid.UUID:
        made = self.client.create_schema(
            RegistryId={"RegistryName": "trips"},
            SchemaName=schema,
            DataFormat=kind,
            Compatibility="BACKWARD",
            SchemaDefinition=json.dumps(text),
        )
        return uuid.UUID(made["SchemaVersionId"])

    def add(self, schema: str, text: Any) -> uuid.UUID:
        made = self.client.register_schema_version(
            SchemaId={"RegistryName": "trips", "SchemaName": schema}, SchemaDefinition=json.dumps(text)
        )
        return uuid.UUID(made["SchemaVersionId"])

    def decode(self, feed: Feed, kind: str = "avro") -> dict[str, Any]:
        glue = {"endpoint": self.endpoint, "region": REGION, "name": "trips", **KEYS}
        return {kind: {"registry": {"glue": glue}, "subject": feed.topic}, "metadata": ["offset"]}


@pytest.fixture(scope="module")
def glue() -> Iterator[Glue]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield Glue(f"http://{host}:{port}")
    server.stop()


def framed(version: uuid.UUID, data: bytes, *, compression: int = 0) -> bytes:
    return bytes([3, compression]) + version.bytes + (zlib.compress(data) if compression == 5 else data)


def letters_of(feed: Feed) -> list[str]:
    table = open_table(f"lake.{feed.name}.dead_letters", connections=feed.connections)
    return [str(each["reason"]) for each in table.scan().to_arrow().sort_by("offset").to_pylist()]


@pytest.mark.parametrize("fast_path", [pytest.param("auto", marks=pytest.mark.quick), "off"])
def test_records_in_glues_framing_are_read_and_a_new_version_adds_its_column(
    lake: SparkSession, feed: Feed, glue: Glue, fast_path: str
) -> None:
    feed.create_topic(partitions=1)
    one = glue.create(feed.topic, V1)
    blocks: dict[str, Any] = {"decode": glue.decode(feed), "fast_path": fast_path}
    rows = [avro_bytes(V1, {"id": number, "name": "x" * 100}) for number in range(2)]
    feed.send([framed(one, rows[0]), framed(one, rows[1], compression=5)])
    assert feed.pipeline(**blocks).run(spark=lake, once=True).rows == 2
    two = glue.add(feed.topic, V2)
    feed.send([framed(two, avro_bytes(V2, {"id": 2, "name": "y", "zone": "z"}), compression=5), framed(one, rows[0])])
    assert feed.pipeline(**blocks).run(spark=lake, once=True).rows == 2
    assert sorted((row["id"], row["zone"] or "") for row in feed.rows()) == [(0, ""), (0, ""), (1, ""), (2, "z")]


@pytest.mark.quick
@pytest.mark.parametrize("fast_path", ["auto", "off"])
def test_records_with_unusable_frames_become_dead_letters(
    lake: SparkSession, feed: Feed, glue: Glue, fast_path: str
) -> None:
    feed.create_topic(partitions=1)
    one, other, unknown = glue.create(feed.topic, V1), glue.create(f"{feed.topic}-other", V1), uuid.uuid4()
    data = avro_bytes(V1, {"id": 1, "name": "x"})
    bad = {
        "compression byte 7 instead of 0 (none) or 5 (zlib)": framed(one, data, compression=7),
        "truncated: 17 bytes, a header alone has 18": framed(one, b"")[:17],
        "wrong magic byte 0 instead of 3": b"\0\0\0\0\1" + data,
        f"unknown schema GUID {unknown}": framed(unknown, data),
        f"belongs to schema/trips/{feed.topic}-other, not to": framed(other, data),
        "too large when decoded": framed(one, bytes(100_000_000), compression=5),
        "the zlib data are cut short": framed(one, data * 20, compression=5)[:-6],
        "the data are not zlib": bytes([3, 5]) + one.bytes + b"no zlib",
    }
    feed.send([*bad.values(), framed(one, data)])
    letters = {"table": f"lake.{feed.name}.dead_letters"}
    pipeline = feed.pipeline(decode=glue.decode(feed), dead_letters=letters, fast_path=fast_path)
    summary = pipeline.run(spark=lake, once=True)
    assert (summary.rows, summary.dead_letters) == (1, len(bad)), letters_of(feed)
    for expected, found in zip(bad, letters_of(feed), strict=True):
        assert expected in found


def test_json_in_glues_framing_is_read(lake: SparkSession, feed: Feed, glue: Glue) -> None:
    feed.create_topic(partitions=1)
    one = glue.create(feed.topic, JSON_SCHEMA, "JSON")
    feed.send([framed(one, b'{"id": 1, "name": "a"}'), framed(one, b'{"id": 2, "name": "b"}', compression=5)])
    assert feed.pipeline(decode=glue.decode(feed, "json_schema")).run(spark=lake, once=True).rows == 2
    assert sorted(row["id"] for row in feed.rows()) == [1, 2]


def test_a_missing_schema_or_subject_is_refused(lake: SparkSession, feed: Feed, glue: Glue) -> None:
    feed.create_topic(partitions=1)
    with pytest.raises(LakefeedError, match=f"has no subject {feed.topic}"):
        feed.pipeline(decode=glue.decode(feed)).run(spark=lake, once=True)
    decode = glue.decode(feed)
    del decode["avro"]["subject"]
    with pytest.raises(ConfigError, match="glue requires subject"):
        feed.pipeline(decode=decode)
