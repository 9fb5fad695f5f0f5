"""Pipeline files with this sink: the location of the table, logins, checkpoints, mistakes."""

from typing import Any

import pytest
from pydantic import SecretStr

from lakefeed.clients.spark import jvm
from lakefeed.config.models import PipelineConfig
from lakefeed_jdbc.settings import JdbcSinkConfig
from tests.support.pipeline_text import GOOD, Reader

PG = "jdbc:postgresql://db:5432/shop?sslmode=require"
KAFKA = {"bootstrap_servers": "a:9092", "topics": ["hits"]}


def sink(url: str = PG, table: str = "t", **more: Any) -> JdbcSinkConfig:
    return JdbcSinkConfig(url=url, table=table, user="u", password=SecretStr("p"), **more)


@pytest.mark.parametrize(
    ("url", "table", "is_one"),
    [
        (f"{PG}&x=1", "public.t", True),
        ("jdbc:postgresql://other:5432/shop?sslmode=require", "t", False),
        (PG, "web.t", False),
    ],
)
def test_two_sinks_into_one_table_are_found(url: str, table: str, is_one: bool) -> None:
    [first], [second] = sink().places(brokers=""), sink(url, table).places(brokers="")
    assert first.mixes_with(second) is is_one


def test_a_feed_into_this_sink_needs_no_checkpoint() -> None:
    block = {"jdbc": {"url": PG, "user": "u", "password": "p", "table": "orders"}}
    blocks = {"name": "orders", "source": {"kafka": KAFKA}, "decode": "raw", "sink": block}
    assert PipelineConfig.model_validate(blocks).resumes_by_ledger


def test_a_login_as_plain_text_is_a_warning(reading: Reader) -> None:
    block = "{jdbc: {url: 'jdbc:postgresql://d/b', table: t, user: u, password: '${THE_SECRET}'}}"
    config, found = reading(overrides=[f"sinks.d={block}"])
    assert config is not None
    assert [(each.key, each.severity) for each in found] == [("sinks.d.jdbc.url", "warning")]
    assert "plain text" in found[0].what


def test_all_mistakes_of_the_block_are_reported_at_once(reading: Reader) -> None:
    block = "{jdbc: {url: x, user: '', password: '${THE_SECRET}', table: t, keys: [a]}}"
    _, found = reading(GOOD.replace("checkpoint:", f"sinks:\n  a: {block}\ncheckpoint:"))
    what = {each.key: each.what for each in found}
    assert sorted(what) == ["sinks.a.jdbc.keys", "sinks.a.jdbc.url", "sinks.a.jdbc.user"]
    assert "needs mode: upsert" in what["sinks.a.jdbc.keys"]
    assert "not an address" in what["sinks.a.jdbc.url"]
    assert "expects text; found nothing" in what["sinks.a.jdbc.user"]


def test_a_missing_option_is_reported_with_an_example(reading: Reader) -> None:
    _, found = reading(GOOD.replace("checkpoint:", "sinks:\n  a: {jdbc: {url: '" + PG + "', user: u}}\ncheckpoint:"))
    hints = {each.what: each.hint for each in found}
    assert hints["'table' is missing in 'sinks.a.jdbc'"] == "for instance  table: orders"


def test_the_packages_jar_is_on_the_class_path_of_a_session() -> None:
    assert jvm.jars_of("lakefeed_jdbc") == [jar for jar in jvm.installed_jars() if "jdbc" in jar.name]
