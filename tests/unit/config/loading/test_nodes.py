"""Nodes and documents of a pipeline file."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakefeed.config.loading.document import interpolate
from lakefeed.config.models import PipelineConfig
from lakefeed.config.values import PartitionTransform
from tests.support.pipeline_text import ENVIRONMENT, GOOD, Acceptor, Reader, problems


def value(config: PipelineConfig | None, path: str) -> object:
    assert config is not None
    at: Any = config.model_dump(by_alias=True)
    for part in path.split("/"):
        at = at[int(part) if isinstance(at, list) else part]
    return at


@pytest.mark.parametrize(
    ("overrides", "path", "expected"),
    [
        (["name=other"], "name", "other"),
        (["source.kafka.start=latest"], "source/kafka/start", "latest"),
        (["source.kafka.max_records_per_batch=5"], "source/kafka/max_records_per_batch", 5),
        (["source.kafka.topics.0=clicks"], "source/kafka/topics/0", "clicks"),
        (["source.kafka.topics.1=clicks"], "source/kafka/topics/1", "clicks"),
        (["source.kafka.topics=[a, b]"], "source/kafka/topics", ["a", "b"]),
        (["source.kafka.topics=null", "source.kafka.topics_pattern=t.*", "decode=raw"], "source/kafka/topics", None),
        (["source.kafka.options.kafka.max.poll.records=7"], "source/kafka/options/kafka.max.poll.records", 7),
        (["spark.spark.sql.shuffle.partitions=4"], "spark/spark.sql.shuffle.partitions", 4),
        (["sink.iceberg.partition_by.0=days(a)"], "sink/iceberg/partition_by/0", PartitionTransform.parse("days(a)")),
        (["decode.metadata=[key]"], "decode/metadata", ["key"]),
        (["decode.avro.registry.url=http://h"], "decode/avro/registry/url", "http://h"),
        (["decode.avro.registry.token=t"], "decode/avro/registry/url", "http://127.0.0.1:1"),
        (["decode=raw", "decode.on_null=skip"], "decode/on_null", "skip"),
        (["s3.region=eu-west-1"], "s3/region", "eu-west-1"),
        (["catalogs.x.type=rest", "catalogs.x.uri=http://h"], "catalogs/x/uri", "http://h"),
        (["trigger=5 seconds"], "trigger", "5 seconds"),
        (["trigger=a=b", "trigger=1 hour"], "trigger", "1 hour"),
        (["source.kafka.bootstrap_servers=${THE_SECRET:-x}:1"], "source/kafka/bootstrap_servers", "hunter2hunter2:1"),
    ],
)
def test_an_override_replaces_the_setting(reading: Reader, overrides: list[str], path: str, expected: object) -> None:
    config, found = reading(overrides=overrides)
    assert [each for each in found if each.severity == "error"] == []
    assert value(config, path) == expected


@pytest.mark.parametrize(
    ("override", "place", "what", "hint"),
    [
        ("sorce.kafka.start=latest", "--set sorce.kafka.start", "unknown option 'sorce'", "'source'?"),
        ("source.kafka.strat=latest", "--set source.kafka.strat", "unknown option 'strat'", "'start'?"),
        ("source.kafka.start=latst", "--set source.kafka.start", "is not a position to start at", "'latest'?"),
        ("topics=a", "--set topics", "unknown option 'topics'", "source.kafka.topics"),
        ("source.kafka.topics.5=a", "--set source.kafka.topics.5", "an index from 0 to 1", None),
        ("source.kafka.topics.x=a", "--set source.kafka.topics.x", "an index from 0 to 1", None),
        ("source.kafka.topics.-1=a", "--set source.kafka.topics.-1", "an index from 0 to 1", None),
        ("name.first=a", "--set name.first", "there is no 'first'", None),
        ("trigger", "--set trigger", "an override is written path=value", "for instance --set"),
        ("=5", "--set ", "an override is written path=value", None),
        ("a..b=5", "--set a..b", "an override is written path=value", None),
        ("trigger=[", "--set trigger", "not YAML", None),
        ("trigger=${NO}", "--set trigger", "the environment variable NO is not set", None),
        (
            "source.kafka.options.kafka.clent.id=a",
            "--set source.kafka.options.kafka.clent.id",
            "unknown",
            "kafka.client.id",
        ),
        ("s3.secret_key=hunter2", "--set s3.secret_key", "written out on the command line", "${AWS_SECRET_ACCESS_KEY}"),
    ],
)
def test_a_mistake_in_an_override_is_located_in_the_override(
    reading: Reader, override: str, place: str, what: str, hint: str | None
) -> None:
    _, found = reading(overrides=[override])
    fitting = [each for each in found if each.file == place]
    assert fitting, found
    assert what in fitting[0].what
    assert (fitting[0].line, fitting[0].column) == (None, None)
    assert (hint or "") in (fitting[0].hint or "")


def test_an_override_corrects_a_mistake_of_the_file(accepted: Acceptor) -> None:
    accepted(replace=("name: taxi", "name: 1"), overrides=["name=taxi"])


def test_wrong_overrides_do_not_hide_mistakes_of_the_file(reading: Reader) -> None:
    _, found = reading(replace=("name: taxi", "nam: taxi"), overrides=["trigger"])
    assert [each.where[-8:] for each in found] == ["yaml:1:1", " trigger"]


@settings(max_examples=40, deadline=None)
@given(
    bound=st.integers(min_value=1, max_value=10**12),
    topics=st.lists(st.from_regex(r"[A-Za-z][A-Za-z0-9_-]{0,20}", fullmatch=True), min_size=1, max_size=5, unique=True),
    subject=st.text(st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="\u2028\u2029\ufffe\uffff")),
)
def test_any_value_of_an_override_arrives_unchanged(
    tmp_path_factory: pytest.TempPathFactory, bound: int, topics: list[str], subject: str
) -> None:
    """Because JSON is valid YAML, the loader reads the output of json.dumps, with $$ for a dollar sign."""
    path = Path(tmp_path_factory.getbasetemp()) / "property.yaml"
    path.write_text(GOOD)
    overrides = [
        f"source.kafka.max_records_per_batch={bound}",
        f"source.kafka.topics={json.dumps(topics)}",
        f"decode.avro.subject={json.dumps(subject).replace('$', '$$')}",
    ]
    config, found = problems(path, overrides=overrides, environment=ENVIRONMENT)
    assert found == []
    assert value(config, "source/kafka/max_records_per_batch") == bound
    assert value(config, "source/kafka/topics") == topics
    assert value(config, "decode/avro/subject") == subject


@settings(deadline=None)
@given(override=st.text(max_size=60))
def test_any_override_is_accepted_or_reported(tmp_path_factory: pytest.TempPathFactory, override: str) -> None:
    path = Path(tmp_path_factory.getbasetemp()) / "property.yaml"
    path.write_text(GOOD)
    config, found = problems(path, overrides=[override], environment=ENVIRONMENT)
    assert (config is None) == any(each.severity == "error" for each in found)


@settings(deadline=None)
@given(text=st.text(max_size=200))
def test_a_random_text_is_reported_and_raises_nothing(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    path = Path(tmp_path_factory.getbasetemp()) / "property.yaml"
    path.write_text(text, "utf-8", errors="replace")
    config, found = problems(path, environment=ENVIRONMENT)
    assert config is None
    assert found


names = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,10}", fullmatch=True)
plain = st.text(st.characters(exclude_characters="$", exclude_categories=["Cs"]), max_size=30)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("${A}", "one"),
        ("x-${A}-${B}", "x-one-two"),
        ("${A}${A}", "oneone"),
        ("${C:-three}", "three"),
        ("${A:-three}", "one"),
        ("${EMPTY:-three}", "three"),
        ("${EMPTY}", ""),
        ("${C:-}", ""),
        ("$${A}", "${A}"),
        ("$$", "$"),
        ("$$$${A}", "$${A}"),
        ("$$${A}", "$one"),
        ("^taxi.*$", "^taxi.*$"),
        ("$A", "$A"),
        ("${C:-http://host:1/a-b}", "http://host:1/a-b"),
    ],
)
def test_references_to_variables_are_replaced(text: str, expected: str) -> None:
    outcome = interpolate(text, environment={"A": "one", "B": "two", "EMPTY": ""})
    assert outcome.text == expected
    assert not outcome.undefined
    assert not outcome.malformed


def test_an_undefined_variable_is_reported_once_and_its_reference_stays() -> None:
    outcome = interpolate("${NO} ${NO}", environment={})
    assert outcome.undefined == ["NO"]
    assert outcome.text == "${NO} ${NO}"


@pytest.mark.parametrize("text", ["${", "${}", "${1A}", "${A B}", "${A:default}", "${A-default}", "${A:-${B}}"])
def test_a_malformed_reference_is_reported(text: str) -> None:
    assert interpolate(text, environment={"A": "one", "B": "two"}).malformed


@given(text=plain, environment=st.dictionaries(names, plain))
def test_text_without_a_dollar_sign_is_unchanged(text: str, environment: dict[str, str]) -> None:
    assert interpolate(text, environment=environment).text == text


@given(text=st.text(max_size=40))
def test_text_with_doubled_dollar_signs_is_unescaped(text: str) -> None:
    outcome = interpolate(text.replace("$", "$$"), environment={})
    assert outcome.text == text
    assert not outcome.variables


@given(before=plain, after=plain, name=names, value=st.text(max_size=40))
def test_a_reference_inside_the_value_of_a_variable_is_not_replaced(
    before: str, after: str, name: str, value: str
) -> None:
    outcome = interpolate(f"{before}${{{name}}}{after}", environment={name: value})
    assert outcome.text == before + value + after
    assert outcome.variables == [name]


@given(name=names, default=st.text(st.characters(exclude_characters="$}", exclude_categories=["Cs"]), max_size=20))
def test_an_unset_variable_has_its_default(name: str, default: str) -> None:
    assert interpolate(f"${{{name}:-{default}}}", environment={}).text == default
