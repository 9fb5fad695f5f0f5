"""``lakefeed check --connect`` runs with real servers; each case breaks one server."""

import json
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from lakefeed.cli.check import check
from lakefeed.clients.kafka.topics import Topics
from lakefeed.config.loading.load import load
from lakefeed.config.problem import raise_first_error
from lakefeed.errors import AccessDenied
from lakefeed.operations.preflight.connect import preflight
from lakefeed.records.decode.registry import SchemaRegistry
from lakefeed_local.stack import Endpoints
from tests.support.servers.deviations import all_ignored
from tests.support.servers.rest_catalog import rest_catalog_on

SCHEMA = '{"type": "record", "name": "R", "fields": [{"name": "id", "type": "long"}]}'


COLUMNS = ["sink.iceberg.partition_by=[idd]", "sink.iceberg.sort_by=[ID, kafka_offset, kafka_key]"]


@dataclass(frozen=True)
class Case:
    """A pipeline file whose servers all work, and the environment variables with their addresses."""

    path: Path
    topic: str
    environment: dict[str, str]

    def check(self, *arguments: str, **environment: str) -> Result:
        """Run ``lakefeed check --connect`` with the servers' variables, some of them changed."""
        return CliRunner().invoke(
            check, [str(self.path), "--connect", *arguments], env={**self.environment, **environment}
        )

    def found(self, *arguments: str, **environment: str) -> tuple[int, list[dict[str, Any]]]:
        """Run the command; return its exit status and the problems that it reports as JSON."""
        result = self.check("--output", "json", *arguments, **environment)
        return result.exit_code, json.loads(result.stdout)


@pytest.fixture
def case(stack: Endpoints, tmp_path: Path) -> Case:
    topic = f"check-{uuid.uuid4().hex[:8]}"
    Topics(stack.bootstrap_servers).create(topic, partitions=1)
    SchemaRegistry(stack.schema_registry_url).register(f"{topic}-value", SCHEMA)
    path = tmp_path / "pipeline.yaml"
    path.write_text(
        f"""\
name: taxi
source:
  kafka:
    bootstrap_servers: ${{KAFKA_BOOTSTRAP_SERVERS}}
    topics:
      - {topic}
decode:
  avro:
    registry: ${{SCHEMA_REGISTRY_URL}}
sink:
  iceberg:
    table: lake.nyc.trips
checkpoint: s3a://{stack.bucket}/checkpoints/taxi
"""
    )
    return Case(path=path, topic=topic, environment=stack.as_environment())


@pytest.mark.quick
def test_check_with_all_servers_reports_no_problem(case: Case) -> None:
    result = case.check()
    assert result.exit_code == 0, result.output
    assert result.stdout == f"{case.path}: no mistakes, and its servers, topics and tables can be used\n"


def test_a_topic_pattern_that_matches_is_accepted(case: Case) -> None:
    pattern = f"source.kafka.topics_pattern={case.topic[:-1]}."
    subject = f"decode.avro.subject={case.topic}-value"
    status, found = case.found("--set", "source.kafka.topics=null", "--set", pattern, "--set", subject)
    assert (status, found) == (0, [])


NOWHERE = "http://127.0.0.1:1"
BROKEN: dict[str, tuple[str, str, str, str]] = {
    "no broker": ("KAFKA_BOOTSTRAP_SERVERS=127.0.0.1:1", "Unreachable", "source.kafka.bootstrap_servers:4", "no Kafka"),
    "no topic": ("source.kafka.topics.1={topic}x", "ResourceMissing", "source.kafka.topics.1", "there is no topic"),
    "no registry": (f"SCHEMA_REGISTRY_URL={NOWHERE}", "Unreachable", "decode.avro.registry:9", "does not answer"),
    "no subject": ("decode.avro.subject=nothing-value", "ResourceMissing", "decode.avro.subject", "nothing-value"),
    "no registry behind the address": ("SCHEMA_REGISTRY_URL={store}", "", "decode.avro.registry:9", "registry"),
    "no store": (f"AWS_ENDPOINT_URL_S3={NOWHERE}", "Unreachable", "checkpoint:13", "the S3 store does not answer"),
    "wrong secret key": ("AWS_SECRET_ACCESS_KEY=wrong", "AccessDenied", "checkpoint:13", "refuses"),
    "wrong access key": ("AWS_ACCESS_KEY_ID=wrong", "AccessDenied", "checkpoint:13", "refuses"),
    "no bucket": (
        *("LAKEFEED_WAREHOUSE=s3://no-such-bucket/warehouse", "ResourceMissing", "catalogs.lake.warehouse"),
        "there is no bucket no-such-bucket",
    ),
    "no store behind the address": (
        *("AWS_ENDPOINT_URL_S3={registry}", "ConfigError", "checkpoint:13"),
        "not as an S3 store does",
    ),
    "no folder of the catalog": (
        *("LAKEFEED_CATALOG_URI=jdbc:sqlite:/no/such/folder/catalog.db", "ResourceMissing", "catalogs.lake.uri"),
        "folder",
    ),
    "no catalog behind the address": (
        *("LAKEFEED_CATALOG_URI={registry}", "ConfigError", "catalogs.lake.uri"),
        "not as an Iceberg REST catalog does",
    ),
    "no REST catalog": (
        *(f"LAKEFEED_CATALOG_URI={NOWHERE}", "Unreachable", "catalogs.lake.uri"),
        "the REST catalog does not answer",
    ),
}
"""A variable or a setting; the reported error, key and line, and a part of the message."""


@pytest.mark.parametrize("name", BROKEN)
def test_check_reports_only_the_broken_server(case: Case, name: str) -> None:
    change, error, place, message = BROKEN[name]
    known = {"store": case.environment["AWS_ENDPOINT_URL_S3"], "registry": case.environment["SCHEMA_REGISTRY_URL"]}
    change = change.format(topic=case.topic, **known)
    variable, _, value = change.partition("=")
    status, found = case.found(**{variable: value}) if variable.isupper() else case.found("--set", change)
    key, _, line = place.partition(":")
    assert [(each["key"], each["line"]) for each in found] == [(key, int(line) if line else None)], found
    assert status == (1 if error == "Unreachable" else 2)
    assert error in found[0]["error"]
    assert message in found[0]["what"]
    assert case.environment["AWS_SECRET_ACCESS_KEY"] not in json.dumps(found)


@pytest.mark.quick
def test_check_reports_all_problems_at_once(case: Case) -> None:
    result = case.check(
        KAFKA_BOOTSTRAP_SERVERS="127.0.0.1:1", SCHEMA_REGISTRY_URL="http://127.0.0.1:1", AWS_SECRET_ACCESS_KEY="wrong"
    )
    assert result.exit_code == 2
    assert f"{case.path}:4:24: error: no Kafka broker answers" in result.stdout
    assert f"{case.path}:9:15: error:" in result.stdout
    assert f"{case.path}:13:13: error: the S3 store refuses the credentials" in result.stdout
    assert result.stdout.endswith(": 3 errors\n")


def test_a_catalog_that_ignores_assertions_on_commits_is_refused(case: Case, stack: Endpoints) -> None:
    with rest_catalog_on(stack) as server:
        block = f"{{type: rest, uri: '{server.url}', credential: '${{CREDENTIAL}}'}}"
        case.path.write_text(f"{case.path.read_text()}catalogs:\n  lake: {block}\n")
        assert case.found(CREDENTIAL=server.credential) == (0, [])
        server.deviation = all_ignored
        status, found = case.found(CREDENTIAL=server.credential)
    assert status == 2
    assert {(each["severity"], each["key"], each["line"]) for each in found} == {("error", "catalogs.lake.uri", 15)}
    assert "it accepts two first commits" in found[0]["what"]


def test_mistakes_in_the_file_are_reported_before_servers_are_asked(case: Case) -> None:
    case.path.write_text(case.path.read_text().replace("topics:", "tpoics:"))
    status, found = case.found(KAFKA_BOOTSTRAP_SERVERS="127.0.0.1:1")
    assert (status, [each["line"] for each in found]) == (2, [5])


def test_preflight_raises_the_error_class_of_the_problem(case: Case) -> None:
    environment = {**case.environment, "AWS_SECRET_ACCESS_KEY": "wrong"}
    config = load(case.path, environment=environment)
    with pytest.raises(AccessDenied):
        raise_first_error(preflight(config, connections=config.connections(environment)))


def test_columns_that_the_registered_schema_lacks_are_a_warning(case: Case) -> None:
    """This is only a warning, because the table may have the columns from an earlier version of the schema."""
    status, found = case.found(*(each for column in COLUMNS for each in ("--set", column)))
    message = [(each["key"], each["severity"], each["hint"]) for each in found if "column" in each["what"]]
    assert status == 0
    assert message == [
        ("sink.iceberg.partition_by.0", "warning", "did you mean 'id'?"),
        ("sink.iceberg.sort_by.1", "warning", "the columns are id"),
        ("sink.iceberg.sort_by.2", "warning", "the columns are id"),
    ]


@pytest.mark.parametrize(
    ("start", "words"),
    [
        ("{topic}:7:0", "the feed reads no partition {topic}-7"),
        ("{topic}:0:99", "{topic}-0 ends at 0, before 99"),
        ("group:no-such-group", "the consumer group no-such-group has committed no offsets"),
    ],
)
def test_check_warns_if_no_new_feed_could_begin_at_the_configured_start(case: Case, start: str, words: str) -> None:
    """This is only a warning, because a feed that has already begun ignores ``source.kafka.start``."""
    status, found = case.found("--set", f"source.kafka.start={start.format(topic=case.topic)}")
    [warning] = found
    assert status == 0
    assert (warning["key"], warning["severity"]) == ("source.kafka.start", "warning")
    assert f"a new feed could not begin: {words.format(topic=case.topic)}" in warning["what"]


def test_the_configured_start_is_not_checked_if_the_topic_is_missing(case: Case) -> None:
    settings = ["source.kafka.topics=[nothing]", "source.kafka.start=nothing:0:1"]
    status, found = case.found(*(each for setting in settings for each in ("--set", setting)))
    assert status == 2
    assert "source.kafka.start" not in {each["key"] for each in found}
