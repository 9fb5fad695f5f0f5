"""A feed from a topic into a search server, through a gate."""

from typing import Any

from lakefeed.pipeline import Pipeline
from tests.support.feed import Feed
from tests.support.servers.search import Gate


def sink_of(feed: Feed, opened: Gate, **settings: Any) -> dict[str, Any]:
    """The sink's block; the password comes from the environment."""
    login = {"username": opened.username, "password": "${SEARCH_PASSWORD}"}
    return {"elasticsearch": {"url": opened.url, **login, "index": feed.name, **settings}}


def environment_of(feed: Feed, opened: Gate) -> dict[str, str]:
    return {**feed.environment, "SEARCH_PASSWORD": opened.password}


def pipeline_of(feed: Feed, opened: Gate, *, sink: dict[str, Any] | None = None, **blocks: Any) -> Pipeline:
    """The feed's pipeline into the index of its name."""
    path = feed.write_file(**{"sink": sink_of(feed, opened, **(sink or {})), **blocks})
    return Pipeline.from_file(path, environment=environment_of(feed, opened))
