"""If a version of a schema is unusable, only its records become dead letters, at a start and in a running feed."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from lakefeed.clients.iceberg.reader import open_table
from lakefeed.errors import ConfigError, ResourceMissing, SchemaChanged
from lakefeed.operations.preflight.connect import preflight
from lakefeed_repair.backfill import backfill
from tests.support.avro_documents import field, record
from tests.support.feed import Feed
from tests.support.records import avro_bytes
from tests.support.registry_in_a_thread import RegistryInAThread

V1 = record(field("id", "int"), name="Trip")
JSON_V1: dict[str, Any] = {"type": "object", "properties": {"id": {"type": "integer"}}}
LOST = "lost-subject"


@dataclass(frozen=True)
class Case:
    """A usable version 1 of a schema, an unusable version 2, a value of version 2, and words of the letter's reason."""

    one: Any
    two: Any
    value: bytes
    words: str
    kind: str = "AVRO"
    two_kind: str = "AVRO"
    refers: bool = False


def avro(two: Any, words: str, value: dict[str, Any] | None = None, **more: Any) -> Case:
    return Case(V1, two, avro_bytes(two, value) if value else b"\0", words, **more)


def json_schema(two: Any, words: str, one: Any = JSON_V1, **more: Any) -> Case:
    return Case(one, two, b'{"id": 2}', words, kind="JSON", two_kind="JSON", **more)


TAKEN = record(field("id", "int"), field("kafka_offset", "int"), name="Trip")
OTHER = record(field("id", "string"), name="Trip")
USES_LOST = record(field("id", "int"), {"name": "lost", "type": "lost.Lost"}, name="Trip")
NESTED = {**JSON_V1["properties"], "a": JSON_V1}
CASES = {
    "the name of a metadata column": avro(TAKEN, "kafka_offset has the name", {"id": 2, "kafka_offset": 3}),
    "another kind": Case(V1, JSON_V1, b"{}", "JSON, not AVRO", two_kind="JSON"),
    "incompatible": avro(OTHER, "id is int in the reader's schema and string", {"id": "x"}),
    "a reference that is gone": avro(USES_LOST, f"subject {LOST}", refers=True),
    "another kind than JSON Schema": Case(JSON_V1, V1, b"\0\0", "AVRO, not JSON", kind="JSON"),
    "a $ref to nothing": json_schema({"type": "object", "properties": {"a": {"$ref": "#/nowhere"}}}, "nowhere"),
    "a column that is taken": json_schema({"properties": {**NESTED, "a.id": {}}}, "a.id", one={"properties": NESTED}),
    "no object": json_schema({"type": "string"}, "object with properties"),
    "JSON Schema with a metadata column": json_schema(
        {"type": "object", "properties": {"id": {"type": "integer"}, "kafka_offset": {"type": "integer"}}},
        "kafka_offset has the name",
    ),
}
BLOCKS = {"AVRO": "avro", "JSON": "json_schema"}


class Subject:
    """The subject of a feed's keys or values in a registry, with both versions of a case."""

    def __init__(self, feed: Feed, case: Case, registry: RegistryInAThread, part: str = "value") -> None:
        self.case, self.name, self.registry = case, f"{feed.topic}-{part}", registry
        self.first = 10 if part == "value" else 20

    def register(self, number: int) -> bytes:
        """Register version 1 or 2; return the header of its records."""
        case, schema_id = self.case, self.first + number
        text, kind = (case.one, case.kind) if number == 1 else (case.two, case.two_kind)
        answer = {"schema": json.dumps(text), "schemaType": kind, "id": schema_id}
        if number == 2 and case.refers:
            answer["references"] = [{"name": "lost.Lost", "subject": LOST, "version": 1}]
        self.registry.schemas[schema_id] = answer
        self.registry.versions[self.name, number] = {**answer, "subject": self.name, "version": number}
        return b"\0" + schema_id.to_bytes(4, "big")

    def value(self, header: bytes, number: int) -> bytes:
        return header + (avro_bytes(V1, {"id": number}) if self.case.kind == "AVRO" else b'{"id": %d}' % number)


def letters_of(feed: Feed) -> list[str]:
    table = open_table(f"lake.{feed.name}.dead_letters", connections=feed.connections)
    return [str(each["reason"]) for each in table.scan().to_arrow().sort_by("offset").to_pylist()]


def pipeline_of(feed: Feed, subject: Subject, **blocks: Any) -> Any:
    decode = {BLOCKS[subject.case.kind]: {"registry": subject.registry.url}, "metadata": ["offset"]}
    return feed.pipeline(decode=decode, dead_letters={"table": f"lake.{feed.name}.dead_letters"}, **blocks)


@pytest.fixture
def registry() -> Iterator[RegistryInAThread]:
    """Yield a registry that accepts any schema; real registries refuse some schemas of these tests."""
    with RegistryInAThread() as registry:
        yield registry


FULL = ("the name of a metadata column", "a $ref to nothing", "another kind", "a column that is taken")


@pytest.mark.parametrize("name", [pytest.param(each, marks=() if each in FULL else pytest.mark.slow) for each in CASES])
def test_an_unusable_schema_version_affects_only_its_records(
    lake: SparkSession, feed: Feed, registry: RegistryInAThread, name: str
) -> None:
    case = CASES[name]
    subject = Subject(feed, case, registry)
    feed.create_topic(partitions=1)
    one = subject.register(1)
    pipeline = pipeline_of(feed, subject)
    feed.send([subject.value(one, 1)])
    if name == "incompatible":  # Version 2 is unusable only for a feed that has already run with version 1.
        pipeline.run(spark=lake, once=True)
    two = subject.register(2)
    feed.send([two + case.value])
    # The first start reads with version 1, because version 2 is unusable.
    found = preflight(pipeline.config, connections=pipeline.connections)
    assert {each.severity for each in found} <= {"warning"}
    notes: list[str] = []
    summary = pipeline.run(spark=lake, once=True, on_batch=lambda batch: notes.extend(batch.notes))
    assert summary.dead_letters == 1, notes
    assert any(case.words in note for note in notes), notes
    # Later starts read with the schema in the table: first only version 2 is registered, then no version.
    registry.versions.pop((subject.name, 1))
    feed.send([two + case.value, subject.value(one, 3)])
    pipeline = pipeline_of(feed, subject)
    found = preflight(pipeline.config, connections=pipeline.connections)
    assert {each.severity for each in found} <= {"warning"}
    assert not pipeline.plan(spark=lake).refusals
    summary = pipeline.run(spark=lake, once=True)
    assert (summary.rows, summary.dead_letters) == (1, 1)
    assert sorted(row["id"] for row in feed.rows()) == [1, 3]
    assert all(case.words in reason for reason in letters_of(feed)), letters_of(feed)
    registry.versions.clear()
    feed.send([subject.value(one, 4)])
    assert pipeline_of(feed, subject).run(spark=lake, once=True).rows == 1


def test_an_unusable_version_in_one_of_many_topics_affects_only_its_own_records(
    lake: SparkSession, feed: Feed, registry: RegistryInAThread
) -> None:
    one, two = (Subject(feed, CASES["the name of a metadata column"], registry) for _ in range(2))
    topics = (feed.topic, f"{feed.topic}-two")
    two.name, two.first = f"{topics[1]}-value", 30
    for subject, topic in zip((one, two), topics, strict=True):
        feed.create_topic(partitions=1, topic=topic)
        feed.send([subject.value(subject.register(1), 1)], topic=topic)
    feed.send([one.register(2) + one.case.value])
    tables = {"iceberg": {"table": f"lake.{feed.name}.{{topic}}"}}
    pipeline = pipeline_of(feed, one, source=feed.source(topics=topics), sink=tables, checkpoint="")
    summary = pipeline.run(spark=lake, once=True)
    assert (summary.rows, summary.dead_letters, [each.failure for each in summary.tables]) == (2, 1, [None, None])


def test_an_unusable_version_before_a_backfill_affects_only_its_records(
    lake: SparkSession, feed: Feed, registry: RegistryInAThread
) -> None:
    subject = Subject(feed, CASES["the name of a metadata column"], registry)
    feed.create_topic(partitions=1)
    one, two = subject.register(1), subject.register(2)
    feed.send([subject.value(one, 1), two + subject.case.value])
    pipeline = pipeline_of(feed, subject, source=feed.source(start="latest"))
    pipeline.run(spark=lake, once=True)
    feed.send([subject.value(one, 3)])
    assert pipeline.run(spark=lake, once=True).rows == 1
    done = backfill(pipeline, spark=lake)
    assert (done.rows, done.dead_letters) == (1, 1)
    assert sorted(row["id"] for row in feed.rows()) == [1, 3]


def test_only_a_record_of_an_unusable_new_version_stops_a_feed(
    lake: SparkSession, feed: Feed, registry: RegistryInAThread
) -> None:
    more = record(field("id", "int"), field("more", "int"), name="Trip")
    case = avro(more, "", {"id": 2, "more": 3})
    subject = Subject(feed, case, registry)
    feed.create_topic(partitions=1)
    one = subject.register(1)
    feed.send([subject.value(one, 1)])
    pipeline_of(feed, subject, schema={"on_change": "fail"}).run(spark=lake, once=True)
    two = subject.register(2)
    feed.send([subject.value(one, 2)])
    assert pipeline_of(feed, subject, schema={"on_change": "fail"}).run(spark=lake, once=True).rows == 1
    feed.send([two + case.value])
    with pytest.raises(SchemaChanged, match="more added"):
        pipeline_of(feed, subject, schema={"on_change": "fail"}).run(spark=lake, once=True)


@pytest.mark.parametrize(
    "two", [pytest.param(OTHER, id="another type"), pytest.param(JSON_V1, id="another kind", marks=pytest.mark.slow)]
)
def test_an_unusable_version_of_a_key_schema_affects_only_its_records(
    lake: SparkSession, feed: Feed, registry: RegistryInAThread, two: Any
) -> None:
    case = Case(V1, two, avro_bytes(OTHER, {"id": "x"}), "", two_kind="AVRO" if two is OTHER else "JSON")
    values, keys = Subject(feed, CASES["incompatible"], registry), Subject(feed, case, registry, part="key")
    feed.create_topic(partitions=1)
    value, one = values.register(1), keys.register(1)

    def send(key: bytes, number: int) -> None:
        producer = Producer({"bootstrap.servers": feed.stack.bootstrap_servers})
        producer.produce(feed.topic, key=key, value=values.value(value, number))
        assert producer.flush(30) == 0

    decode = {"registry": registry.url}
    blocks = {
        "decode": {"avro": decode, "key": {"avro": decode}, "metadata": ["key"]},
        "dead_letters": {"table": f"lake.{feed.name}.dead_letters"},
    }
    send(keys.value(one, 7), 1)
    assert feed.pipeline(**blocks).run(spark=lake, once=True).rows == 1
    two_header = keys.register(2)
    send(two_header + case.value, 2)
    send(keys.value(one, 8), 3)
    summary = feed.pipeline(**blocks).run(spark=lake, once=True)
    assert (summary.rows, summary.dead_letters) == (1, 1)
    assert sorted(row["kafka_key"]["id"] for row in feed.rows()) == [7, 8]
    assert letters_of(feed)[0].startswith("key: ")


def test_a_first_start_without_a_usable_version_is_refused(
    lake: SparkSession, feed: Feed, registry: RegistryInAThread
) -> None:
    subject = Subject(feed, CASES["another kind"], registry)
    feed.create_topic(partitions=1)
    subject.register(2)
    with pytest.raises(ConfigError, match=f"version 2 of subject {subject.name} is of kind JSON, not AVRO"):
        pipeline_of(feed, subject).run(spark=lake, once=True)
    lost = Subject(feed, CASES["a reference that is gone"], registry)
    lost.register(2)
    with pytest.raises(ResourceMissing, match=f"no version 1 of subject {LOST}, which the schema refers to"):
        pipeline_of(feed, lost).run(spark=lake, once=True)


def test_a_subject_in_a_registry_context_is_read(lake: SparkSession, feed: Feed, registry: RegistryInAThread) -> None:
    registry.context = ":.staging:"
    subject = Subject(feed, CASES["another kind"], registry)
    subject.name = f":.staging:{feed.topic}-value"
    feed.create_topic(partitions=1)
    one = subject.register(1)
    feed.send([subject.value(one, 1)])
    decode = {"avro": {"registry": registry.url, "subject": subject.name, "subjects": [subject.name]}}
    assert feed.pipeline(decode=decode).run(spark=lake, once=True).rows == 1
