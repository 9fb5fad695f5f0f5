"""``lakefeed init`` on topics of all kinds writes files that pass ``lakefeed check --connect``."""

import json
import re
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from confluent_kafka import Producer

from lakefeed.cli.check import check
from lakefeed.clients.kafka.topics import Topics
from lakefeed.config.loading.load import load
from lakefeed.config.models import PipelineConfig
from lakefeed.errors import ConfigError, ResourceMissing, Unreachable
from lakefeed.records.decode.registry import SchemaRegistry
from lakefeed_local.init_command import init
from lakefeed_local.stack import Endpoints

COLUMNS = [
    {"name": "id", "type": "long"},
    {"name": "zone", "type": ["null", "string"], "default": None},
    {"name": "picked_up", "type": {"type": "long", "logicalType": "timestamp-micros"}},
]
SCHEMA = json.dumps({"type": "record", "name": "Trip", "fields": COLUMNS})


@pytest.fixture
def topic(stack: Endpoints) -> str:
    name = f"init-{uuid.uuid4().hex[:8]}"
    Topics(stack.bootstrap_servers).create(name, partitions=2)
    return name


def produce(stack: Endpoints, topic: str, values: Sequence[bytes | None], **headers: bytes) -> None:
    producer = Producer({"bootstrap.servers": stack.bootstrap_servers})
    for value in values:
        producer.produce(topic, value=value, key=b"k", headers=list(headers.items()))
    assert producer.flush(10) == 0


def run(stack: Endpoints, *arguments: str, **environment: str) -> Result:
    return CliRunner().invoke(init, arguments, env={**stack.as_environment(), **environment})


def written(stack: Endpoints, topic: str, folder: Path, *arguments: str) -> tuple[dict[str, Any], PipelineConfig, str]:
    """Run ``lakefeed init`` and check the written file; return the printed document, the pipeline and the text."""
    path = folder / "pipeline.yaml"
    result = run(stack, "--topic", topic, "--file", str(path), "--output", "json", *arguments)
    assert result.exit_code == 0, (result.output, result.exception)
    checked = CliRunner().invoke(check, [str(path), "--connect"], env=stack.as_environment())
    assert checked.exit_code == 0, checked.output
    return json.loads(result.stdout), load(path, environment=stack.as_environment()), path.read_text()


@pytest.mark.quick
def test_init_uses_the_registered_schema(stack: Endpoints, topic: str, tmp_path: Path) -> None:
    SchemaRegistry(stack.schema_registry_url).register(f"{topic}-value", SCHEMA)
    printed, config, text = written(stack, topic, tmp_path)
    assert printed["certain"]
    assert printed["columns"] == [
        {"name": "id", "type": "long"},
        {"name": "zone", "type": "null or string"},
        {"name": "picked_up", "type": "timestamp-micros"},
    ]
    assert config.decode.kind == "avro"
    assert "#   zone       null or string\n" in text
    assert "# partition_by: [days(picked_up)]\n" in text
    for variable in ("KAFKA_BOOTSTRAP_SERVERS", "SCHEMA_REGISTRY_URL"):
        assert f"${{{variable}}}\n" in text
    for secret in (stack.secret_key.get_secret_value(), stack.access_key):
        assert secret not in text
    assert stack.bootstrap_servers not in text


@pytest.mark.quick
def test_the_written_file_has_the_settings_that_the_user_gave(stack: Endpoints, topic: str, tmp_path: Path) -> None:
    SchemaRegistry(stack.schema_registry_url).register(f"{topic}-value", SCHEMA)
    options = ["--table", "lake.nyc.trips", "--pipeline-name", "taxi"]
    options += ["--bootstrap-servers", stack.bootstrap_servers, "--registry", stack.schema_registry_url]
    _, config, text = written(stack, topic, tmp_path, *options)
    assert config.name == "taxi"
    assert config.sink.iceberg is not None
    assert config.sink.iceberg.table == "lake.nyc.trips"
    assert f"${{KAFKA_BOOTSTRAP_SERVERS:-{stack.bootstrap_servers}}}" in text


def test_a_warehouse_must_be_a_folder_of_this_machine(stack: Endpoints, topic: str, tmp_path: Path) -> None:
    SchemaRegistry(stack.schema_registry_url).register(f"{topic}-value", SCHEMA)
    _, config, _ = written(stack, topic, tmp_path, "--warehouse", f"file://{tmp_path}/lake")
    assert config.catalogs["lake"].warehouse == f"file://{tmp_path}/lake"
    for store in ("s3a://lake/warehouse", "s3://lake/warehouse", "hdfs://here/lake"):
        refused = run(stack, "--topic", topic, "--file", str(tmp_path / "other.yaml"), "--warehouse", store)
        assert isinstance(refused.exception, ConfigError)
        assert "LAKEFEED_WAREHOUSE" in str(refused.exception)
    assert not (tmp_path / "other.yaml").exists()


@pytest.mark.quick
def test_the_subject_of_framed_avro_is_found_by_its_schema_id(stack: Endpoints, topic: str, tmp_path: Path) -> None:
    subject = f"{topic}.Trip"
    schema_id = SchemaRegistry(stack.schema_registry_url).register(
        subject, SCHEMA.replace("Trip", topic.replace("-", "_"))
    )
    produce(stack, topic, [None, b"\0" + schema_id.to_bytes(4, "big") + b"\x02\x00\x02"])
    printed, config, _ = written(stack, topic, tmp_path)
    assert printed["subject"] == subject
    assert config.decode.avro is not None
    assert config.decode.avro.subject == subject


def test_the_error_names_a_schema_id_in_a_header_that_the_registry_does_not_have(
    stack: Endpoints, topic: str, tmp_path: Path
) -> None:
    produce(stack, topic, [b"\x02\x00\x02"], __value_schema_id=b"\x01" + bytes(16))
    printed, config, text = written(stack, topic, tmp_path)
    assert (printed["certain"], config.decode.kind) == (False, "raw")
    assert "__value_schema_id" in text


@pytest.mark.quick
def test_a_json_topic_gets_an_inferred_schema(stack: Endpoints, topic: str, tmp_path: Path) -> None:
    produce(stack, topic, [json.dumps({"id": 1, "at": "2024-01-01T00:00:00", "pos": {"x": 1.5}}).encode()])
    printed, config, text = written(stack, topic, tmp_path)
    assert not printed["certain"]
    assert config.decode.json_ is not None
    assert config.decode.json_.schema_ddl == "id BIGINT, at STRING, pos STRUCT<x: DOUBLE>"
    assert "# Please check: no schema is registered; the columns are guessed from one JSON record." in text
    assert "to_timestamp(at)" in text


def test_values_in_an_unknown_format_are_read_as_raw_bytes(stack: Endpoints, topic: str, tmp_path: Path) -> None:
    produce(stack, topic, [b"\x01\x02\x03"])
    printed, config, text = written(stack, topic, tmp_path)
    assert not printed["certain"]
    assert config.decode.kind == "raw"
    assert "neither framed Avro nor a JSON object" in text


def test_init_reports_an_empty_topic(stack: Endpoints, topic: str, tmp_path: Path) -> None:
    _, config, text = written(stack, topic, tmp_path)
    assert config.decode.kind == "raw"
    assert "has no records" in text


def test_init_writes_the_rules_of_a_contract(stack: Endpoints, topic: str, tmp_path: Path) -> None:
    root = Path(__file__).parents[4] / "examples"
    produce(stack, topic, (root / "data" / "purchases.jsonl").read_bytes().splitlines())
    contract = root / "orchestrators" / "purchases.odcs.yml"
    document, config, text = written(stack, topic, tmp_path, "--contract", str(contract))
    assert document["rules"] == {name: each.rule for name, each in config.expect.items()}
    assert len(document["rules"]) == 8
    assert document["left_out"] == ["purchases: rowCount", "order_id: unique"]
    assert config.dead_letters is not None
    assert config.dead_letters.table == f"{document['table']}_dead_letters"
    assert "# The rules for single records of purchases.odcs.yml, version 1.2.0." in text


def test_an_existing_file_is_refused_before_any_request(stack: Endpoints, tmp_path: Path) -> None:
    path = tmp_path / "pipeline.yaml"
    path.write_text("mine")
    result = run(stack, "--topic", "t", "--file", str(path), KAFKA_BOOTSTRAP_SERVERS="127.0.0.1:1")
    assert isinstance(result.exception, ConfigError)
    assert "--force" in (result.exception.hint or "")
    assert path.read_text() == "mine"


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (["--topic", "no-such-topic"], ResourceMissing, "no-such-topic"),
        (["--bootstrap-servers", "127.0.0.1:1"], Unreachable, "127.0.0.1:1"),
        (["--registry", "http://127.0.0.1:1"], Unreachable, "127.0.0.1:1"),
        (["--registry", "127.0.0.1:1"], ConfigError, r"http://[\s\S]*registry 127\.0\.0\.1:1"),
        (["--table", "trips"], ConfigError, "trips"),
    ],
)
def test_a_failed_init_leaves_no_file(
    stack: Endpoints, topic: str, tmp_path: Path, arguments: list[str], error: type[Exception], message: str
) -> None:
    result = run(stack, "--topic", topic, *arguments, "--file", str(tmp_path / "pipeline.yaml"))
    assert isinstance(result.exception, error)
    assert re.search(message, str(result.exception))
    assert list(tmp_path.iterdir()) == []
