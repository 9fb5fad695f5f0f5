"""Settings of ``sink.iceberg`` for the format version, the branch and its publication."""

import pytest

from lakefeed.config.iceberg_sink import IcebergSinkConfig, Publish
from lakefeed.config.topic_tables import config_of
from tests.support.pipeline_text import GOOD, Acceptor, Reader

TABLE = "    table: lake.nyc.trips\n"


def with_settings(*lines: str) -> str:
    return GOOD.replace(TABLE, TABLE + "".join(f"    {line}\n" for line in lines))


def test_settings_for_format_version_branch_and_audit_are_accepted(accepted: Acceptor) -> None:
    checks = "rows: {at_least: 1}, fresh: {column: at, within: 1 hour}, null_share: {zone: 0.1}, unique: [[id]]"
    publish = f"publish: {{when: 10 minutes, on_failure: continue, expect: {{{checks}}}}}"
    sink = accepted(with_settings("format_version: 3", "branch: staging", publish)).sink.iceberg
    assert (sink.format_version, sink.branch, sink.publish.seconds) == (3, "staging", 600)
    assert sink.publish.expect.unique == [["id"]]


@pytest.mark.parametrize(
    ("settings", "what"),
    [
        (("format_version: 1",), "format_version"),
        (("format_version: 4",), "format_version"),
        (("format_version: 3", "properties: {format-version: '3'}"), "both set the format version"),
        (("publish: {when: each batch}",), "requires a branch"),
        (("branch: main",), "the branch that readers see"),
        (("branch: my-branch",), "branch"),
        (
            ("branch: staging", "mode: upsert", "keys: [id]", "history: lake.nyc.h"),
            "branch and history exclude each other",
        ),
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
def test_a_wrong_setting_of_the_table_is_reported(reading: Reader, settings: tuple[str, ...], what: str) -> None:
    _, found = reading(with_settings(*settings))
    assert any(what in str(each) for each in found), found


@pytest.mark.parametrize(
    ("settings", "because"),
    [
        ((), None),
        (("key_index_mb: 0",), "key_index_mb is 0"),
        (("order_by: [id]", "on_delete: mark"), None),
        (("sort_by: [id]",), None),
        (("write: copy-on-write",), None),
    ],
)
def test_upsert_settings_select_the_index_or_a_merge(
    accepted: Acceptor, settings: tuple[str, ...], because: str | None
) -> None:
    config = accepted(with_settings("mode: upsert", "keys: [id]", *settings))
    assert isinstance(config.sink.chosen, IcebergSinkConfig)
    assert config.sink.chosen.merges_because == because


def test_tables_for_each_topic_cannot_be_published_by_time(reading: Reader) -> None:
    many = with_settings("branch: staging", "publish: {when: 1 hour}").replace("lake.nyc.trips", "'lake.nyc.{topic}'")
    _, found = reading(many)
    assert any("after each batch or by command" in str(each) for each in found), found


@pytest.mark.parametrize(("when", "seconds"), [("each batch", 0), ("command", None), ("2 hours", 7200)])
def test_publish_has_an_interval_unless_only_a_command_publishes(when: str, seconds: int | None) -> None:
    assert Publish(when=when).seconds == seconds


def test_each_table_of_many_topics_has_the_format_version(accepted: Acceptor) -> None:
    text = with_settings("format_version: 3").replace("lake.nyc.trips", "'lake.nyc.{topic}'")
    config = accepted("".join(line for line in text.splitlines(keepends=True) if not line.startswith("checkpoint")))
    [topic] = config.kafka.topics
    assert config_of(config, topic).sink.iceberg.format_version == 3
