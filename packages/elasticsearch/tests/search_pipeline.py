"""A pipeline from a topic through a gate into a search server."""

from typing import Any

from lakefeed.pipeline import Pipeline
from tests.support.feed import Feed
from tests.support.servers.search import Gate


def sink_of(feed: Feed, opened: Gate, **settings: Any) -> dict[str, Any]:
    """Return the sink's block; its password comes from the environment."""
    login = {"username": opened.username, "password": "${SEARCH_PASSWORD}"}
    return {"elasticsearch": {"url": opened.url, **login, "index": feed.name, **settings}}


def environment_of(feed: Feed, opened: Gate) -> dict[str, str]:
    return {**feed.environment, "SEARCH_PASSWORD": opened.password}


def pipeline_of(feed: Feed, opened: Gate, *, sink: dict[str, Any] | None = None, **blocks: Any) -> Pipeline:
    """Return the feed's pipeline; the index has the feed's name."""
    path = feed.write_file(**{"sink": sink_of(feed, opened, **(sink or {})), **blocks})
    return Pipeline.from_file(path, environment=environment_of(feed, opened))
