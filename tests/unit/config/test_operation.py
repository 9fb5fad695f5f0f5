"""The settings of Spark's web pages, and the pattern by which Spark hides secrets."""

import re
from typing import Any

import pytest

from lakefeed.config.secrets import IN_TEXT
from tests.support.pipeline_text import feed_config


@pytest.mark.parametrize(
    ("block", "host"), [(True, "127.0.0.1"), ({"port": 4041}, "127.0.0.1"), ({"host": "::1"}, "::1")]
)
def test_sparks_pages_are_on_loopback_by_default(block: Any, host: str) -> None:
    ui = feed_config(spark_ui=block).spark_ui
    assert ui is not None
    assert (ui.host, ui.is_local) == (host, True)
    assert ui.settings()["spark.ui.killEnabled"] == "false"


@pytest.mark.parametrize("block", [False, None])
def test_sparks_pages_are_off_by_default(block: Any) -> None:
    assert feed_config(spark_ui=block).spark_ui is None


def test_an_address_that_other_machines_can_reach_requires_a_filter() -> None:
    with pytest.raises(ValueError, match="Spark's pages have no login"):
        feed_config(spark_ui={"host": "0.0.0.0"})
    filters = {"spark.ui.filters": "org.apache.spark.ui.JWSFilter"}
    ui = feed_config(spark_ui={"host": "0.0.0.0"}, spark=filters).spark_ui
    assert ui is not None
    assert not ui.is_local


@pytest.mark.parametrize(
    "text",
    [
        "SET spark.x.password=canary",
        "OPTIONS (password 'x', token = 'canary')",
        'options: {"sasl.jaas.config": "canary"}',
        "kafka.sasl.jaas.config=\"Module required password='canary';\"",
        "jdbc:postgresql://u:canary@db/shop",
        "fs.s3a.bucket.other.secret.key: canary",
        "fs.s3a.access.key=canary, b=2",
        "Api-Key : canary",
    ],
)
def test_the_value_after_the_name_of_a_secret_is_hidden(text: str) -> None:
    assert "canary" not in re.sub(IN_TEXT, "*", text)


@pytest.mark.parametrize(
    "text", ["token#12L = key#7", "SELECT secret, id FROM t", "Project [token#1, password#2]", "https://host/path@1"]
)
def test_a_column_with_the_name_of_a_secret_is_not_hidden(text: str) -> None:
    assert re.sub(IN_TEXT, "*", text) == text
