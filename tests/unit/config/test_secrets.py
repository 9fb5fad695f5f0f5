"""Secret settings are distinguished from public ones, and no message shows them."""

import importlib
import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from pydantic import SecretStr

from lakefeed.cli.output import fail
from lakefeed.config.addresses import is_loopback
from lakefeed.config.connections import Catalog, credentials_in
from lakefeed.config.loading import nodes
from lakefeed.config.loading.load import read
from lakefeed.config.models import pipeline_model
from lakefeed.config.secrets import SecretText, hidden, is_secret, keeps_secrets, keys_of, pattern, shown, texts_of
from lakefeed.errors import ConfigError
from lakefeed_deploy.cli import conf
from tests.support.pipeline_text import ENVIRONMENT, GOOD, TOPICS, Acceptor, Reader

SECRET = ENVIRONMENT["THE_SECRET"]
# In these blocks users choose the keys, so the key does not show that its value is a secret.
FREE = {
    "source.kafka": f"{TOPICS}    options: {{kafka.client.id: '${{THE_SECRET}}'}}\n",
    "catalogs": "catalogs: {a: {type: rest, uri: 'https://h', properties: {header.X-Sesame: '${THE_SECRET}'}}}\n",
    "spark": "spark: {spark.hadoop.fs.azure.account.x: 'a${THE_SECRET}b'}\n",
    "transform": "transform: {sql: SELECT 1 FROM taxi, tables: {t: {format: jdbc, options: {url: '${THE_SECRET}'}}}}\n",
    "python": "transform: {steps: {a: {python: 'textwrap:indent', options: {login: '${THE_SECRET}'}}}}\n",
    "sinks": "sinks: {a: {format: {name: orc, options: {x: '${THE_SECRET}'}}}}\n",
}


def text_with(block: str) -> str:
    return GOOD.replace(TOPICS, FREE[block]) if block == "source.kafka" else GOOD + FREE[block]


@pytest.mark.parametrize("block", FREE)
def test_a_value_from_a_variable_is_secret_under_a_key_that_the_user_chose(reading: Reader, block: str) -> None:
    config, found = reading(text_with(block))
    assert [each for each in found if each.severity == "error"] == []
    assert config is not None
    assert len(keys_of(config)) == 1
    assert any(SECRET in each for each in texts_of(config))
    assert SECRET not in repr(config)


@pytest.mark.parametrize(
    "block",
    [
        "sinks: {a: {elasticsearch: {url: 'http://localhost:1', index: i, settings: {x: '${THE_SECRET}'}}}}",
        "sinks: {a: {kafka: {topic: t, headers: {x: '${THE_SECRET}'}}}}",
        "sinks: {a: {iceberg: {table: lake.a.b, properties: {x: '${THE_SECRET}'}}}}",
        "spark: {spark.driver.extraJavaOptions: '-Dx=${THE_SECRET}'}",
    ],
)
def test_a_setting_that_readers_of_the_table_can_see_refuses_a_secret(reading: Reader, block: str) -> None:
    _, found = reading(f"{GOOD}{block}\n")
    assert [each.severity for each in found] == ["error"]
    assert SECRET not in str(found)


@pytest.mark.parametrize(
    "name", ["header.X-Api-Key", "s3.sse.key", "adls.account.key", "oauth.user-info", "x.password"]
)
def test_a_secret_written_in_the_file_is_refused(reading: Reader, name: str) -> None:
    for block in (
        f"spark: {{spark.{name}: {SECRET}}}",
        f"sinks: {{a: {{format: {{name: x, options: {{{name}: {SECRET}}}}}}}}}",
    ):
        _, found = reading(f"{GOOD}{block}\n")
        assert "holds a secret and is written out" in found[0].what
        assert found[0].severity == "error"
        assert SECRET not in str(found)


def test_spark_settings_on_the_command_line_are_public(accepted: Acceptor) -> None:
    config = accepted(f"{GOOD}spark: {{spark.driver.memory: '${{M:-2g}}', spark.x: '${{M:-2g}}'}}\n")
    assert shown(config.spark) == {"spark.driver.memory": "2g"}
    assert hidden(config.spark) == {"spark.x": SecretStr("2g")}


def test_a_catalog_separates_secret_properties() -> None:
    properties = {"header.X": SecretText("s"), "header.X-Api-Key": "k", "warehouse-type": "w"}
    catalog = Catalog(type="rest", uri="https://h", properties=properties)
    assert catalog.secrets() == {"header.X": SecretStr("s"), "header.X-Api-Key": SecretStr("k")}
    assert catalog.settings()["warehouse-type"] == "w"
    assert not catalog.settings().keys() & {"header.X", "header.X-Api-Key"}


def test_sparks_pattern_matches_secret_names_and_given_keys() -> None:
    java = pattern({"spark.sql.x[0]", "header.X", "spark.hadoop.fs.azure.account.x"})
    assert re.search(java, "fs.azure.account.x")
    assert re.search(java, "spark.hadoop.fs.azure.account.x")
    for key in ("spark.sql.catalog.lake.header.X", "spark.sql.x[0]", "a.account.key", "fs.s3a.access.key"):
        assert re.search(java, key), key
    assert not re.search(java, "spark.sql.shuffle.partitions")
    assert not is_secret("token-exchange-enabled", "false")


def test_the_command_conf_prints_no_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Import the module by name, because the package also has a function session.
    module = importlib.import_module("lakefeed.clients.spark.session")
    monkeypatch.setattr(module, "_class_path", lambda connections, *, local: {})
    path = tmp_path / "p.yaml"
    path.write_text(GOOD + FREE["spark"] + FREE["catalogs"])
    for style in (["--format", "properties"], ["--format", "arguments"], ["--output", "json"]):
        result = CliRunner().invoke(conf, [str(path), *style], env=ENVIRONMENT)
        assert result.exit_code == 0, result.output
        assert SECRET not in result.output
        assert style[-1] == "json" or "spark.hadoop.fs.azure.account.x: not printed" in result.output


def test_no_error_repeats_a_secret(
    reading: Reader, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    reading(text_with("spark"))
    monkeypatch.setenv("LAKEFEED_DEBUG", "1")
    for as_json in (False, True):
        try:
            raise ValueError(f"the server says {SECRET}")
        except ValueError as cause:
            error = ConfigError(f"refused: {cause}", where=f"http://{SECRET}@h", hint=SECRET)
            error.__cause__ = cause
        fail(error, as_json=as_json)
    outcome = capsys.readouterr()
    assert SECRET not in outcome.out + outcome.err
    assert "the server says **********" in outcome.err


@pytest.mark.parametrize(
    ("url", "found"),
    [
        *((f"jdbc:postgresql://h/d?{name}=x", True) for name in ("sslpassword", "password", "user", "PASSWORD")),
        *(
            (f"jdbc:mariadb://h/d?a=b&{name}=x", True)
            for name in ("keyStorePassword", "pass%77ord", "trustStorePassword")
        ),
        *((f"https://h/p{sign}token=x", True) for sign in "?&;#"),
        ("https://h/p?api_key=x", True),
        ("https://h/p?X-Amz-Signature=x", True),
        ("https://u:p@h", True),
        ("s3a://key:secret@bucket/p", True),
        ("jdbc:mysql://address=(host=h)(password=x)/d", True),
        ("jdbc:postgresql://h/d?sslmode=require&sslkey=/a/b.key&sslrootcert=/c", False),
        ("https://h/a@b?q=1", False),
        ("jdbc:sqlite:/tmp/x.db?busy_timeout=3", False),
        ("https://h/p?password=", False),
    ],
)
def test_credentials_in_a_url_are_found(url: str, found: bool) -> None:
    assert (credentials_in(url) is not None) is found


def test_credentials_in_a_url_are_reported_under_a_key_that_the_user_chose(reading: Reader) -> None:
    options = "{format: jdbc, options: {url: 'jdbc:postgresql://h/d?sslpassword=hunter2hunter2'}}"
    _, found = reading(f"{GOOD}transform: {{sql: SELECT 1 FROM taxi, tables: {{t: {options}}}}}\n")
    assert [each.what for each in found] == ["'url' has credentials in a URL: the parameter 'sslpassword'"]


LOGIN = "username: u, password: '${THE_SECRET}'"
CLEAR = {
    "decode.avro.registry.url": ["decode={avro: {registry: {url: 'http://r', " + LOGIN + "}}}"],
    "s3.endpoint": ["s3={endpoint: 'http://s3:9000', access_key: '${THE_SECRET}', secret_key: '${THE_SECRET}'}"],
    "catalogs.c.uri": ["catalogs.c={type: rest, uri: 'http://c', token: '${THE_SECRET}'}"],
    "catalogs.d.uri": [
        "catalogs.d={type: jdbc, uri: 'jdbc:postgresql://d/b', warehouse: 's3://b/w', username: u, "
        "password: '${THE_SECRET}'}"
    ],
    "source.kafka.options.kafka.security.protocol": [
        "source.kafka.bootstrap_servers='127.0.0.1:1,far:9092'",
        "source.kafka.options={kafka.security.protocol: SASL_PLAINTEXT}",
    ],
}


@pytest.mark.parametrize("key", CLEAR)
def test_a_login_without_tls_to_another_machine_is_a_warning(reading: Reader, key: str) -> None:
    config, found = reading(overrides=CLEAR[key])
    assert config is not None
    assert [(each.key, each.severity) for each in found] == [(key, "warning")]
    assert "plain text" in found[0].what
    safe = [
        each.replace("http:", "https:").replace("far:", "[::1]:").replace("d/b", "d/b?sslmode=require")
        for each in CLEAR[key]
    ]
    assert reading(overrides=safe)[1] == []
    near = [
        re.sub(r"(http|postgresql)://\w+", r"\1://localhost", each).replace("far:", "localhost:") for each in CLEAR[key]
    ]
    assert reading(overrides=near)[1] == []


def test_loopback_addresses_are_recognised() -> None:
    assert all(map(is_loopback, ("localhost", "127.0.0.1", "127.9.9.9", "::1", "a.localhost")))
    assert not any(map(is_loopback, ("localhost.example.org", "10.0.0.1", "h", "::2")))


CANARY = "canary-3f81c2"
SECRETS = sorted(
    place
    for place, field in nodes.walk(pipeline_model())
    if nodes.is_secret(field.annotation) or keeps_secrets(nodes.free_form(field.annotation))
)


def test_the_list_of_secret_settings_is_complete() -> None:
    dotted = {".".join(place) for place in SECRETS}
    assert {"s3.secret_key", "catalogs.<name>.token", "catalogs.<name>.properties", "spark"} <= dotted
    assert {"decode.key.avro.registry.password", "sinks.<name>.jdbc.password", "source.kafka.options"} <= dotted
    assert {"transform.tables.<name>.options", "tables.topics.<name>.transform.steps.<name>.options"} <= dotted
    assert len(dotted) > 40


@pytest.mark.parametrize("place", SECRETS, ids=".".join)
def test_a_secret_in_any_setting_is_known_and_not_shown(place: tuple[str, ...], tmp_path: Path) -> None:
    """The file has only this setting, so the rules of its block report problems."""
    free = nodes.free_form(nodes.at(pipeline_model(), place)) is not None
    values: Any = {"a.b": "${CANARY}", "c": ["${CANARY}"]} if free else "${CANARY}"
    for part in reversed(place):
        values = {"a" if part == "<name>" else part: values}
    path = tmp_path / "p.yaml"
    path.write_text(json.dumps(values))
    reading = read(path, environment={**ENVIRONMENT, "CANARY": CANARY})
    assert CANARY in reading.document.secrets
    assert reading.problems
    message = [*map(str, reading.problems), json.dumps([each.as_dict() for each in reading.problems])]
    assert CANARY not in "".join(message)
    assert reading.mistakes is not None
    assert CANARY not in repr(reading.mistakes.config)


def test_a_public_setting_is_shown(tmp_path: Path) -> None:
    """Without this test, the repr of the test above might show no setting at all."""
    path = tmp_path / "p.yaml"
    path.write_text(GOOD.replace("lake.nyc.trips", "lake.nyc.${CANARY}"))
    reading = read(path, environment={**ENVIRONMENT, "CANARY": "seen"})
    assert "lake.nyc.seen" in repr(reading.config)
    assert reading.document.secrets == set()
