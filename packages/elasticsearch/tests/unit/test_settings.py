"""Settings of ``sink.elasticsearch``."""

from typing import Any

import pytest
from pydantic import ValidationError

from lakefeed_elasticsearch.server import authorization
from lakefeed_elasticsearch.settings import ElasticsearchSinkConfig
from tests.support.pipeline_text import GOOD, Reader

BLOCK: dict[str, Any] = {"url": "http://search:9200/", "index": "hits"}
LOGIN = {"username": "feeder", "password": "s3cret"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"url": "search:9200"}, "not an address of a server"),
        ({"url": ["http://one:9200", "ftp://two"]}, "'ftp://two' is not an address"),
        ({"url": []}, "at least 1 item"),
        ({"url": "https://me:s3cret@search"}, "credentials do not belong in a URL"),
        ({"index": "Hits"}, "cannot name an index"),
        ({"index": "a,b"}, "cannot name an index"),
        ({"index": "_hits"}, "cannot name an index"),
        ({"index": "lakefeed_feeds"}, "belong to the ledger"),
        ({"username": "feeder"}, "belong together"),
        ({"api_key": "s3cret", **LOGIN}, "two logins"),
        ({"mode": "upsert"}, "requires keys"),
        ({"keys": ["id"]}, "needs mode: upsert"),
        ({"mode": "upsert", "keys": ["kafka_offset"]}, "cannot be a key"),
        ({"mode": "overwrite"}, "Input should be 'append' or 'upsert'"),
        ({"indx": "hits"}, "Extra inputs"),
    ],
)
def test_invalid_settings_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message) as raised:
        ElasticsearchSinkConfig.model_validate({**BLOCK, **change})
    assert "s3cret" not in str(raised.value)


def test_the_login_becomes_an_authorization_header() -> None:
    assert authorization(ElasticsearchSinkConfig.model_validate(BLOCK)) is None
    named = ElasticsearchSinkConfig.model_validate({**BLOCK, **LOGIN})
    assert authorization(named) == "Basic ZmVlZGVyOnMzY3JldA=="
    assert "s3cret" not in repr(named)
    assert authorization(ElasticsearchSinkConfig.model_validate({**BLOCK, "api_key": "abc"})) == "ApiKey abc"
    assert named.urls == ("http://search:9200",)


SINK = "  iceberg:\n    table: lake.nyc.trips\n"


@pytest.mark.parametrize(
    ("block", "output", "message"),
    [
        ("{url: http://s:9200, indx: hits}", "append", "did you mean 'index'?"),
        ("{url: http://s:9200, index: hits}", "update", "update requires mode: upsert"),
        ("{url: http://s:9200, index: hits, mode: upsert, keys: [id]}", "complete", "replaces all documents at once"),
    ],
)
def test_mistakes_in_a_pipeline_file_are_explained(reading: Reader, block: str, output: str, message: str) -> None:
    text = GOOD.replace(SINK, f"  elasticsearch: {block}\n")
    text += f"transform: {{sql: SELECT * FROM taxi, output_mode: {output}}}\n"
    _, problems = reading(text)
    assert any(message in f"{each.what} {each.hint}" for each in problems), problems


def test_append_refuses_a_source_without_offsets(reading: Reader) -> None:
    text = "name: t\nsource: {rate: {rows_per_second: 1}}\ncheckpoint: s3a://lake/t\nsink: "
    _, problems = reading(text + "{elasticsearch: {url: http://s:9200, index: hits}}\n")
    assert "rows of rate have no offset" in problems[0].what
