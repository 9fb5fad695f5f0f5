"""Pipeline files with this sink: the location of the index, logins, checkpoints."""

import pytest

from lakefeed.clients.spark import jvm
from lakefeed.config.models import PipelineConfig
from lakefeed_elasticsearch.settings import ElasticsearchSinkConfig
from tests.support.pipeline_text import Reader


@pytest.mark.parametrize(("url", "is_one"), [(["http://f:9200", "http://e:9200/"], True), ("http://f:9200", False)])
def test_two_sinks_into_an_index_are_found_even_if_they_share_only_one_node(url: str | list[str], is_one: bool) -> None:
    [first] = ElasticsearchSinkConfig(url="http://E:9200", index="i").places(brokers="")
    [second] = ElasticsearchSinkConfig(url=url, index="i").places(brokers="")
    assert first.mixes_with(second) is is_one


def test_a_feed_into_this_sink_needs_no_checkpoint() -> None:
    block = {"url": "http://search:9200", "index": "orders", "mode": "upsert", "keys": ["id"]}
    kafka = {"bootstrap_servers": "a:9092", "topics": ["hits"]}
    blocks = {"name": "orders", "source": {"kafka": kafka}, "decode": "raw", "sink": {"elasticsearch": block}}
    assert PipelineConfig.model_validate(blocks).resumes_by_ledger


def test_a_login_as_plain_text_is_a_warning(reading: Reader) -> None:
    block = "{elasticsearch: {url: 'http://e:9200', index: i, username: u, password: '${THE_SECRET}'}}"
    config, found = reading(overrides=[f"sinks.e={block}"])
    assert config is not None
    assert [(each.key, each.severity) for each in found] == [("sinks.e.elasticsearch.url", "warning")]
    assert "plain text" in found[0].what


def test_the_packages_jar_is_on_the_class_path_of_a_session() -> None:
    assert jvm.jars_of("lakefeed_elasticsearch") == [jar for jar in jvm.installed_jars() if "elasticsearch" in jar.name]
