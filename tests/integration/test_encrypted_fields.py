"""Records of schemas with rules that encrypt fields land with a message, become dead letters, or stop the feed."""

from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import SparkSession

from lakefeed.errors import SchemaChanged
from lakefeed.operations.preflight.connect import preflight
from lakefeed.pipeline import Pipeline
from tests.support.feed import Feed
from tests.support.registry_in_a_thread import RegistryInAThread
from tests.support.wire_format import build

PERSON = {"type": "record", "name": "Person", "fields": [{"name": "id", "type": "long"}]}
ENCRYPTED = {
    **PERSON,
    "fields": [
        *PERSON["fields"],
        {"name": "ssn", "type": ["null", "string"], "default": None, "confluent:tags": ["PII"]},
    ],
}
RULES = {"domainRules": [{"name": "pii", "type": "ENCRYPT", "mode": "WRITEREAD", "tags": ["PII"]}]}
BOTH_PATHS = pytest.mark.parametrize("path", ["auto", "off"])


@pytest.fixture
def registry(feed: Feed) -> Iterator[RegistryInAThread]:
    with RegistryInAThread() as found:
        yield found


def register(registry: RegistryInAThread, feed: Feed, number: int, schema: dict[str, Any], **more: Any) -> None:
    registry.put(number, schema)
    registry.schemas[number] |= more
    answer = {**registry.schemas[number], "subject": f"{feed.topic}-value", "version": number, "id": number}
    registry.versions[f"{feed.topic}-value", number] = answer


def person(schema_id: int, number: int, ssn: str | None = None) -> bytes:
    value = bytes([2 * number])
    if ssn is not None:
        value += bytes([2, 2 * len(ssn)]) + ssn.encode()
    return build(schema_id, value)


def pipeline(feed: Feed, registry: RegistryInAThread, path: str, on_encrypted: str | None) -> Pipeline:
    decode: dict[str, Any] = {"avro": {"registry": registry.url}}
    if on_encrypted is not None:
        decode["on_encrypted"] = on_encrypted
    return feed.pipeline(fast_path=path, decode=decode, dead_letters={"table": f"{feed.table}_letters"})


def run(spark: SparkSession, pipeline: Pipeline) -> list[str]:
    """Run once; return the messages."""
    notes: list[str] = []
    pipeline.run(spark=spark, once=True, on_batch=lambda batch: notes.extend(batch.notes))
    return notes


@BOTH_PATHS
def test_a_feed_follows_on_encrypted_fields_when_a_schema_starts_to_encrypt_a_field(
    lake: SparkSession, feed: Feed, registry: RegistryInAThread, path: str
) -> None:
    register(registry, feed, 1, PERSON)
    feed.create_topic(partitions=1)
    feed.send([person(1, 1)])
    assert run(lake, pipeline(feed, registry, path, None)) == []
    # The producer starts to encrypt the field while the feed is stopped.
    register(registry, feed, 2, ENCRYPTED, ruleSet=RULES)
    feed.send([person(1, 2), person(2, 3, "c2VjcmV0")])
    with pytest.raises(SchemaChanged, match="schema id 2 has encrypted values: the rule pii encrypts ssn"):
        run(lake, pipeline(feed, registry, path, "stop"))
    assert sorted(row["id"] for row in feed.rows()) == [1]
    notes = run(lake, pipeline(feed, registry, path, "dead_letter"))
    assert notes == ["schema id 2: encrypted: the rule pii encrypts ssn; its records are not landed"]
    assert sorted(row["id"] for row in feed.rows()) == [1, 2]
    [letter] = feed.rows(f"{feed.table}_letters")
    assert letter["reason"] == "schema id 2: encrypted: the rule pii encrypts ssn"
    # By default, a restarted feed lands the ciphertext of the next records, and prints a message at each start.
    feed.send([person(2, 4, "bW9yZQ==")])
    kept = pipeline(feed, registry, path, None)
    said = "schema id 2: the rule pii encrypts ssn: lakefeed does not decrypt, and lands the ciphertext"
    assert said in run(lake, kept)
    assert {row["id"]: row["ssn"] for row in feed.rows()} == {1: None, 2: None, 4: "bW9yZQ=="}
    feed.send([person(2, 5, "bW9yZQ==")])
    assert said in run(lake, kept)
    # The table's schema has the encrypted field now, and the setting still applies.
    feed.send([person(2, 6, "bW9yZQ==")])
    with pytest.raises(SchemaChanged, match="the rule pii encrypts ssn"):
        run(lake, pipeline(feed, registry, path, "stop"))
    run(lake, pipeline(feed, registry, path, "dead_letter"))
    assert sorted(row["id"] for row in feed.rows()) == [1, 2, 4, 5]
    assert len(feed.rows(f"{feed.table}_letters")) == 2
    assert kept.verify().faults == ()


def test_the_first_start_and_check_name_encrypted_fields(
    lake: SparkSession, feed: Feed, registry: RegistryInAThread
) -> None:
    register(registry, feed, 1, ENCRYPTED, ruleSet=RULES)
    feed.create_topic(partitions=1)
    feed.send([person(1, 1, "c2VjcmV0")])
    kept = pipeline(feed, registry, "auto", None)
    [problem] = [each for each in preflight(kept.config, connections=feed.connections) if "encrypts" in each.what]
    assert problem.severity == "warning"
    assert problem.what == (
        f"the rule pii encrypts ssn of the values of {feed.topic}-value, and lakefeed does not decrypt"
    )
    notes = run(lake, pipeline(feed, registry, "auto", "dead_letter"))
    assert notes == ["schema id 1: encrypted: the rule pii encrypts ssn; its records are not landed"]
    assert feed.rows() == []
