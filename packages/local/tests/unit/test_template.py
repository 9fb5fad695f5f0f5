import json
import os
import threading
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from lakefeed.config.models import PipelineConfig
from lakefeed.config.sql import columns_of_ddl
from lakefeed.errors import ConfigError
from lakefeed_local.discover import Column, Discovery, _from_record
from lakefeed_local.template import Blank, check, name_of, pipeline_text, write_new, write_schema_beside
from tests.support.pipeline_text import ENVIRONMENT, problems

RAW = Discovery(kind="raw", how="nothing is known", certain=False)


def blank(discovery: Discovery = RAW, *, topic: str = "trips", table: str = "lake.nyc.trips") -> Blank:
    return Blank(
        topic=topic,
        name=name_of(topic),
        table=table,
        bucket="lake",
        bootstrap_servers="127.0.0.1:9092",
        registry_url="http://127.0.0.1:1/apis/ccompat/v7",
        discovery=discovery,
    )


def config_of(text: str, tmp_path: Path) -> PipelineConfig:
    path = tmp_path / "p.yaml"
    path.write_text(text)
    config, found = problems(path, environment=ENVIRONMENT)
    assert found == []
    assert config is not None
    return config


AVRO = Discovery(
    kind="avro",
    how="the registered schema",
    columns=(Column(name="id", type="long"), Column(name="at", type="timestamp-millis", time="instant")),
)


PROTOBUF = Discovery(kind="protobuf", how="the registered schema", subject="other-value")
JSON_SCHEMA = Discovery(kind="json_schema", how="the registered schema", columns=AVRO.columns)


@pytest.mark.parametrize("topic", ["trips", "nyc-avro.topic", "1234", "true", "2024-01-01", "null"])
@pytest.mark.parametrize("table", ["lake.nyc.trips", "other.a.b"])
@pytest.mark.parametrize("discovery", [RAW, AVRO, PROTOBUF, JSON_SCHEMA])
def test_a_new_pipeline_file_has_no_mistakes(tmp_path: Path, topic: str, table: str, discovery: Discovery) -> None:
    config = config_of(pipeline_text(blank(discovery, topic=topic, table=table)), tmp_path)
    assert config.source.kafka is not None
    assert config.source.kafka.topics == [topic]
    assert config.decode.kind == discovery.kind
    assert config.decode.metadata == ["topic", "partition", "offset", "timestamp"]


BREAKS = (
    *("\n", "\r", "\u0085", "\u2028", "\u2029", "\x00", "\ufeff", "`", "${HOME}", ": ", " #", "\\"),
    *("%", "*a", "&a", "{", "]", "'", '"'),
)


@pytest.mark.parametrize("breaks", BREAKS)
def test_names_from_registry_and_records_cannot_add_settings_to_the_file(tmp_path: Path, breaks: str) -> None:
    odd = f"a{breaks}evil: 1{breaks}b"
    columns = (Column(name=odd, type=odd, time="instant"), Column(name=odd, type=odd, time="text"))
    for discovery in (
        Discovery(kind="avro", how=odd, subject=odd, columns=columns),
        Discovery(kind="raw", how=odd, certain=False),
        _from_record(json.dumps({odd: 1, "n": {odd: [odd]}}).encode(), None, None, "t"),
    ):
        written = pipeline_text(blank(discovery))
        assert yaml.safe_load(written).keys() == {"name", "source", "decode", "sink", "trigger", "checkpoint"}
        config = config_of(written, tmp_path)
        if discovery.kind == "avro":
            assert config.decode.subject == odd
        if config.decode.json_ is not None:
            assert columns_of_ddl(config.decode.json_.schema_ddl or "") == [odd, "n"]
        assert all(
            each.lstrip().startswith(("#", "subject:", "schema_ddl:"))
            for each in written.splitlines()
            if "evil" in each
        )


@pytest.mark.parametrize("value", ["host", "h:1\n    topics: [evil]", "h:1}"])
def test_wrong_addresses_of_brokers_and_registry_are_refused(value: str) -> None:
    for wrong in (replace(blank(), bootstrap_servers=value), replace(blank(), registry_url=value)):
        with pytest.raises(ConfigError):
            check(wrong)
    with pytest.raises(ConfigError, match="credentials"):
        check(replace(blank(), registry_url="http://u:p@h"))


def test_a_table_without_catalog_and_namespace_is_refused() -> None:
    with pytest.raises(ConfigError, match="is not the name of a table"):
        check(blank(table="trips"))


def test_comments_list_the_fields_and_propose_a_partition() -> None:
    text = pipeline_text(blank(AVRO))
    assert "#   at  timestamp-millis\n" in text
    assert "# partition_by: [days(at)]\n" in text


def test_columns_are_inferred_from_a_json_record(tmp_path: Path) -> None:
    record = b'{"id": 1, "a \\ud83d\\ude00\\u007f": "x", "${HOME}\\n#": [1.5], "n": {"on": true}, "e": []}'
    found = _from_record(record, None, None, "t")
    config = config_of(pipeline_text(blank(found)), tmp_path)
    assert config.decode.json_ is not None
    assert config.decode.json_.schema_ddl == (
        "id BIGINT, `a \U0001f600\x7f` STRING, `${HOME}\n#` ARRAY<DOUBLE>, n STRUCT<on: BOOLEAN>, e ARRAY<STRING>"
    )


@pytest.mark.parametrize("value", [None, b"", b"\x01\x02", b"5", b"[1]", b"{}", b"\x00\x00\x00\x00\x01x", b"[" * 9999])
def test_values_that_are_not_json_objects_are_read_as_raw(value: bytes | None) -> None:
    found = _from_record(value, None, None, "t")
    assert found.kind == "raw"
    assert not found.certain


@pytest.mark.parametrize(
    ("topic", "name"), [("nyc-avro.topic", "nyc_avro_topic"), ("1st", "topic_1st"), ("--", "pipeline"), ("A", "a")]
)
def test_a_pipelines_name_is_made_from_the_topics_name(topic: str, name: str) -> None:
    assert name_of(topic) == name


def test_an_existing_file_is_overwritten_only_on_request(tmp_path: Path) -> None:
    path = tmp_path / "p.yaml"
    path.write_text("mine")
    with pytest.raises(ConfigError, match="the file exists"):
        write_new(path, "theirs")
    assert path.read_text() == "mine"
    write_new(path, "theirs", overwrite=True)
    assert path.read_text() == "theirs"
    assert [each.name for each in tmp_path.iterdir()] == ["p.yaml"]
    with pytest.raises(ConfigError, match="its folder does not exist"):
        write_new(tmp_path / "no" / "p.yaml", "text")


def test_a_pipeline_file_is_written_into_a_pipe_without_replacing_the_pipe(tmp_path: Path) -> None:
    """As root, a rename of a file to /dev/null would replace the device."""
    pipe, read = tmp_path / "pipe", list[str]()
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: read.append(pipe.read_text("utf-8")), daemon=True)
    reader.start()
    write_new(pipe, "name: trips\n", overwrite=True)
    reader.join(10)
    assert read == ["name: trips\n"]
    assert pipe.is_fifo()


def test_the_json_schema_does_not_overwrite_a_file_of_the_user(tmp_path: Path) -> None:
    written = write_schema_beside(tmp_path / "p.yaml")
    assert written is not None
    assert write_schema_beside(tmp_path / "p.yaml") == written
    written.write_text("{}")
    assert write_schema_beside(tmp_path / "p.yaml") is None
    assert written.read_text() == "{}"
