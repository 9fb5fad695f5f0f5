"""Format version and branch of an Iceberg table in a pipeline file, and combinations that are refused."""

import pytest

from lakefeed.config.iceberg_sink import IcebergSinkConfig
from lakefeed.config.publish import Publish
from lakefeed.config.topic_tables import config_of
from tests.support.pipeline_text import GOOD, Reader

TABLE = "    table: lake.nyc.trips\n"
BRANCH = "    branch: staging\n"


def with_settings(*lines: str) -> str:
    return GOOD.replace(TABLE, TABLE + "".join(f"    {line}\n" for line in lines))


def test_it_has_a_format_version_and_a_branch_with_an_audit(reading: Reader) -> None:
    checks = "rows: {at_least: 1}, fresh: {column: at, within: 1 hour}, null_share: {zone: 0.1}, unique: [[id]]"
    publish = f"publish: {{when: 10 minutes, on_failure: continue, expect: {{{checks}}}}}"
    config, found = reading(with_settings("format_version: 3", "branch: staging", publish))
    assert found == []
    assert config is not None
    assert config.sink.iceberg is not None
    assert (config.sink.iceberg.format_version, config.sink.iceberg.branch) == (3, "staging")
    assert config.sink.iceberg.publish is not None
    assert config.sink.iceberg.publish.seconds == 600
    assert config.sink.iceberg.publish.expect.unique == [["id"]]


@pytest.mark.parametrize(
    ("settings", "what"),
    [
        (("format_version: 1",), "format_version"),
        (("format_version: 4",), "format_version"),
        (("format_version: 3", "properties: {format-version: '3'}"), "the same thing twice"),
        (("publish: {when: each batch}",), "landed in a branch first"),
        (("branch: main",), "the branch that readers see"),
        (("branch: my-branch",), "branch"),
        (("branch: staging", "mode: upsert", "keys: [id]", "history: lake.nyc.h"), "a history has no branch"),
        (("branch: staging", "publish: {when: sometimes}"), "each batch"),
        (("branch: staging", "publish: {when: 0 minutes}"), "each batch"),
        (("branch: staging", "publish: {expect: {rows: {}}}"), "give at_least or at_most"),
        (("branch: staging", "publish: {expect: {rows: {at_least: 5, at_most: 4}}}"), "at_least is more"),
        (("branch: staging", "publish: {expect: {null_share: {id: 1.5}}}"), "1.5"),
        (("branch: staging", "publish: {expect: {unique: [[id], [ID]]}}"), "the same columns twice"),
        (("branch: staging", "publish: {expect: {unique: [[]]}}"), "unique"),
        (("branch: staging", "publish: {expects: {}}"), "expect"),
    ],
)
def test_what_it_may_not_say(reading: Reader, settings: tuple[str, ...], what: str) -> None:
    _, found = reading(with_settings(*settings))
    assert any(what in str(each) for each in found), found


@pytest.mark.parametrize(
    ("settings", "way"),
    [
        ((), "the index of keys"),
        (("key_index_mb: 0",), "a MERGE, because key_index_mb is 0"),
        (("order_by: [id]", "on_delete: mark"), "a MERGE, because order_by orders the changes"),
        (("write: copy-on-write",), "a MERGE, because write is copy-on-write"),
    ],
)
def test_the_settings_of_upserts_say_what_lands_the_changes(
    reading: Reader, settings: tuple[str, ...], way: str
) -> None:
    config, found = reading(with_settings("mode: upsert", "keys: [id]", *settings))
    assert config is not None, found
    assert config.sink.chosen.lands_changes == way


def test_a_table_for_each_topic_is_published_after_each_batch_or_by_command(reading: Reader) -> None:
    many = with_settings("branch: staging", "publish: {when: 1 hour}").replace("lake.nyc.trips", "'lake.nyc.{topic}'")
    _, found = reading(many)
    assert any("after each batch, or by command" in str(each) for each in found), found


@pytest.mark.parametrize(("when", "seconds"), [("each batch", 0), ("command", None), ("2 hours", 7200)])
def test_when_it_is_published(when: str, seconds: int | None) -> None:
    assert Publish(when=when).seconds == seconds


def test_each_of_many_tables_has_the_format_version(reading: Reader) -> None:
    text = with_settings("format_version: 3").replace("lake.nyc.trips", "'lake.nyc.{topic}'")
    text = "".join(line for line in text.splitlines(keepends=True) if not line.startswith("checkpoint"))
    config, found = reading(text)
    assert found == []
    assert config is not None
    topic = (config.kafka.topics or [])[0]
    of_one = config_of(config, topic).sink.iceberg
    assert isinstance(of_one, IcebergSinkConfig)
    assert of_one.format_version == 3
