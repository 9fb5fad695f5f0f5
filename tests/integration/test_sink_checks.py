"""Wrong settings of a sink are refused before a run: by the file's check, by the servers, or by Spark's analysis."""

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from lakefeed.errors import ConfigError
from lakefeed.operations.preflight.analysis import analyze
from lakefeed.operations.preflight.connect import preflight
from lakefeed_local.stack import Endpoints
from tests.support.feed import Feed
from tests.support.sink_cases import DECODE, OWN, Case, beside, blocks, iceberg, of_files, of_table, path


@pytest.fixture
def feed(stack: Endpoints, tmp_path: Path) -> Feed:
    found = Feed(stack, tmp_path)
    found.create_topic(partitions=1)
    (tmp_path / f"own_{found.name}.py").write_text(OWN)
    return found


def test_a_missing_topic_and_a_missing_registry_are_reported_before_a_run(feed: Feed) -> None:
    sink = {"kafka": {"topic": "no-such-topic", "value": {"avro": {"registry": "http://127.0.0.1:1"}}}}
    config = feed.pipeline(decode=DECODE, sinks={"copy": sink}).config
    found = {each.key: each.what for each in preflight(config, connections=feed.connections)}
    assert "no-such-topic" in found["sinks.copy.kafka.topic"]
    assert "sinks.copy.kafka.value.avro.registry" in found


@pytest.mark.parametrize(
    ("sinks", "message"),
    [
        ({"a": {"console": {}, "on_failure": "pause"}}, "keeps no ledger"),
        ({"a": {"parquet": {"path": "s3a://lake/x"}}}, "cannot be under sinks"),
    ],
)
def test_an_incompatible_secondary_sink_is_refused(feed: Feed, sinks: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        feed.pipeline(**beside(feed, **sinks))


@pytest.mark.parametrize(
    ("changed", "what"),
    [
        ({"transform": {"steps": {"a": {"python": "no_such_module:f"}}}}, "no Python module no_such_module"),
        ({"sink": {"python": {"path": "own_{name}:Tabel"}}}, "has no Tabel"),
        ({"sink": {"kafka": {"topic": "x", "value": {"column": "zipp"}}}}, "names the column 'zipp'"),
    ],
)
def test_an_invalid_sink_is_refused_when_the_file_is_read(feed: Feed, changed: dict[str, Any], what: str) -> None:
    named = json.loads(json.dumps(changed).replace("{name}", feed.name))
    with pytest.raises(ConfigError, match=what):
        feed.pipeline(**{"decode": DECODE, **named})


@pytest.mark.parametrize(
    ("changed", "message", "key"),
    [
        ({"transform": {"steps": {"a": {"python": "json:dumpz"}}}}, "dumpz", "transform.steps.a"),
        ({"sink": {"kafka": {"topic": "x", "key": "zipp"}}}, "zipp", "sink.kafka.key"),
        ({"sink": {"python": {"path": "own_{name}:Table", "options": {"file": "x"}}}}, "file", "sink.python.path"),
        ({"transform": {"sql": "SELECT zip, count(*) AS n FROM {name} GROUP BY zip"}}, "watermark", "transform.sql"),
    ],
)
def test_check_reports_mistakes_that_only_spark_finds(
    feed: Feed, lake: SparkSession, changed: dict[str, Any], message: str, key: str
) -> None:
    named = json.loads(json.dumps(changed).replace("{name}", feed.name))
    pipeline = feed.pipeline(**{"decode": DECODE, **named})
    connections, folder = feed.connections, feed.folder
    found = analyze(pipeline.config, connections=connections, spark=lambda: lake, folder=folder, connect=False)
    assert [each.key for each in found] == [key]
    assert message in f"{found[0].what} {found[0].hint}"


def test_an_output_mode_that_the_sink_lacks_is_refused_without_servers(feed: Feed) -> None:
    case = Case("update", lambda feed: {"parquet": {"path": path(feed)}}, of_files)
    with pytest.raises(ConfigError, match=r"does not fit sink\.parquet, which accepts append"):
        feed.pipeline(**blocks(feed, case))
    with pytest.raises(ConfigError, match="mode: overwrite"):
        feed.pipeline(**blocks(feed, Case("complete", iceberg(), of_table)))
