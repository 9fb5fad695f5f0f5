"""One run of ``check`` reports all mistakes of a file; no mistake hides another."""

import os
import time
from pathlib import Path

import pytest

from tests.support.pipeline_text import GOOD, REGISTRY, TOPICS, Acceptor, Reader

# For each replacement in GOOD: the place of each resulting mistake, and words of its message.
HIDDEN: dict[str, tuple[list[tuple[str, str]], list[tuple[str, str]]]] = {
    "a block's rule behind an unknown key": (
        [(TOPICS, f"{TOPICS}    topics_pattern: a.*\n    foo: 1\n")],
        [("source.kafka", "either topics or topics_pattern"), ("source.kafka.foo", "unknown option")],
    ),
    "a block's rule behind a wrong type": (
        [(TOPICS, f"{TOPICS}    max_wait: 1 hour\n    max_records_per_batch: many\n")],
        [("source.kafka", "max_wait requires"), ("source.kafka.max_records_per_batch", "expects a whole number")],
    ),
    "rules between blocks behind an unknown key": (
        [
            ("checkpoint: s3a://lake/checkpoints/taxi\n", "dead_letters: {topic: trips}\nfoo: 1\n"),
            ("  iceberg:\n    table: lake.nyc.trips\n", "  parquet: {path: s3a://lake/trips}\n"),
        ],
        [("", "read its own dead letters"), ("", "needs a checkpoint"), ("foo", "unknown option")],
    ),
    "a value below a misspelt key": (
        [(TOPICS, "    tpoics: ['no topic!', trips]\n")],
        [("source.kafka.topics.0", "cannot be a topic"), ("source.kafka.tpoics", "unknown option")],
    ),
    "rules between blocks behind a block's rule": (
        [("  avro:\n" + REGISTRY, "  avro: {}\n  metadata: [sequence_number]\n")],
        [("", "have no sequence_number"), ("decode.avro", "avro requires a registry")],
    ),
    "mistakes in a block that may also be a word": (
        [("checkpoint:", "dashboard: {tariff: {per_1000_write: 1}, port: x}\ncheckpoint:")],
        [
            ("dashboard.port", "expects a whole number"),
            ("dashboard.tariff.per_1000_reads", "is missing"),
            ("dashboard.tariff.per_1000_write", "unknown option"),
        ],
    ),
    "an undeclared catalog behind an unknown key": (
        [("lake.nyc.trips", "elsewhere.nyc.trips"), (TOPICS, f"{TOPICS}    foo: 1\n")],
        [("sink.iceberg.table", "no catalog is called"), ("source.kafka.foo", "unknown option")],
    ),
    "rules behind a variable that is not set": (
        [(TOPICS, f"{TOPICS}    topics_pattern: a.*\n"), ("${KAFKA_BOOTSTRAP_SERVERS}", "${NOT_SET}")],
        [("source.kafka", "either topics or topics_pattern"), ("source.kafka.bootstrap_servers", "NOT_SET is not set")],
    ),
}

USERS = "users: [{name: anna, role: operator, password_hash: '${NOT_SET}'}]"
CAUSED: dict[str, tuple[str, list[str]]] = {
    "a login whose password is not set": (f"host: 0.0.0.0, {USERS}", ["users.0.password_hash"]),
    "a value of a wrong type beside a login": (
        f"host: 0.0.0.0, behind_proxy: 3, {USERS}",
        ["behind_proxy", "users.0.password_hash"],
    ),
    "a wrong port beside a missing login": (
        "host: 0.0.0.0, port: x, behind_proxy: true, public_url: 'https://a'",
        ["host", "behind_proxy", "port"],
    ),
}


@pytest.mark.parametrize("case", CAUSED)
def test_one_mistake_is_reported_once(reading: Reader, case: str) -> None:
    dashboard, expected = CAUSED[case]
    _, found = reading(GOOD.replace("checkpoint:", f"dashboard: {{{dashboard}}}\ncheckpoint:"))
    assert sorted(each.key.removeprefix("dashboard.") for each in found) == sorted(expected)


@pytest.mark.parametrize("case", HIDDEN)
def test_one_mistake_hides_no_other_mistake(reading: Reader, case: str) -> None:
    replacements, expected = HIDDEN[case]
    text = GOOD
    for old, new in replacements:
        assert old in text
        text = text.replace(old, new)
    _, found = reading(text)
    texts = sorted((each.key, each.what) for each in found)
    assert [key for key, _ in texts] == [key for key, _ in expected]
    assert all(any(words in what for each, what in texts if each == key) for key, words in expected), texts
    assert all(each.line for each in found)


WRONG = [
    ("source.kafka.bootstrap_servers", "host", "not a broker"),
    ("source.kafka.bootstrap_servers", "'host:'", "not a broker"),
    ("source.kafka.bootstrap_servers", "host:99999", "not a broker"),
    ("source.kafka.bootstrap_servers", "host:0", "not a broker"),
    ("source.kafka.bootstrap_servers", "host:9092;other:9092", "not a broker"),
    ("source.kafka.bootstrap_servers", "host:9092,", "not a broker"),
    ("source.kafka.bootstrap_servers", "http://host/9092", "not a broker"),
    ("source.kafka.bootstrap_servers", "http://host:9092", "not a broker"),
    ("decode.json", "{schema_ddl: id INT}", "exactly one of avro"),
    ("source.kafka.topics", "[a, b, a]", "topics has 'a' twice"),
    ("source.kafka.max_records_per_batch", "1e30", "whole number"),
    ("source.kafka.max_records_per_batch", "100000000000000000000", "less than"),
    ("source.kafka.max_records_per_batch", "-1", "greater than 0"),
    ("trigger", "\u0661 minute", "a trigger is"),
    ("trigger", "99999999 hours", "at most a year"),
    ("trigger", "-1 seconds", "a trigger is"),
    ("trigger", "real-time, 1 second", "every 5 seconds"),
    ("upkeep", "{every: 0 seconds}", "at least 1 second"),
    ("upkeep", "{max_minutes: .inf}", "finite"),
    ("upkeep", "{max_minutes: .nan}", "finite"),
    ("upkeep", "{expire: {older_than: 99999999999 days}}", "a duration is"),
    ("upkeep", "{expire: {older_than: 999999999 days}}", "100 years"),
    ("decode", "{json: {schema_ddl: 'id BIGNT'}}", "did you mean BIGINT?"),
    ("decode", "{csv: {schema_ddl: 'id BIGINT name STRING'}}", "a comma is required"),
    ("decode", "{key: {json: {schema_ddl: 'a ARRAY'}}, raw: {}}", "ARRAY<STRING>"),
]


@pytest.mark.parametrize(("setting", "value", "words"), WRONG)
def test_a_value_that_is_wrong_in_several_ways_is_one_mistake(
    reading: Reader, setting: str, value: str, words: str
) -> None:
    _, found = reading(overrides=[f"{setting}={value}"])
    assert words in "\n".join(each.what for each in found)
    assert len(found) == 1


@pytest.mark.parametrize("servers", ["a:1", "a:1, b-c.d:65535", "[::1]:9092,PLAINTEXT://a_b:9092", "10.0.0.1:9092"])
def test_addresses_of_brokers_are_accepted(accepted: Acceptor, servers: str) -> None:
    accepted(overrides=[f"source.kafka.bootstrap_servers='{servers}'"])


@pytest.mark.waits
def test_fifteen_thousand_unknown_keys_are_refused_within_seconds(reading: Reader) -> None:
    began = time.process_time()
    config, found = reading(GOOD + "".join(f"key{number}: 1\n" for number in range(15_000)))
    assert config is None
    assert len(found) <= 201
    assert any("more than 200 mistakes" in each.what for each in found)
    assert time.process_time() - began < 30


@pytest.mark.parametrize("place", ["name: taxi", "topics: [trips]", "table: lake.nyc.trips", "checkpoint:"])
def test_the_error_for_a_very_long_name_is_short(reading: Reader, place: str) -> None:
    _, found = reading(GOOD.replace(place, place[:-1] + "a" * 100_000 + place[-1]))
    assert found
    assert all(len(each.what) < 1000 for each in found)


@pytest.mark.parametrize("text", ["1:1:1", "1:30.5"])
def test_a_text_that_yaml_reads_as_a_number_to_base_60_stays_text(reading: Reader, text: str) -> None:
    _, found = reading(GOOD.replace(TOPICS, f"{TOPICS}    max_records_per_batch: {text}\n"))
    assert [each.what for each in found] == [f"'max_records_per_batch' expects a whole number; found '{text}'"]


def test_pipes_and_devices_are_refused_without_reading(reading: Reader, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero")):
        for block in ("avro: {schema_file: %s}", "json: {schema_file: %s}", "protobuf: {schema_file: %s, message: A}"):
            _, found = reading(GOOD.replace("  avro:\n" + REGISTRY, f"  {block % path}\n"))
            assert [each.what for each in found] == [f"'schema_file': {path} is not a file"]
