"""Let a driver die in a batch, without a separate process."""

from collections.abc import Callable
from typing import Any

import pytest

from lakefeed.feed.feed import Feed
from lakefeed.sinks.definition import Sink


def dying(monkeypatch: pytest.MonkeyPatch, *, before: bool = False) -> None:
    """Let drivers die in their first batch from now on: before the rows' commit, or between it and Spark's commit."""
    made = Feed.sink

    def sink(self: Feed, *arguments: Any, **named: Any) -> Sink:
        found = made(self, *arguments, **named)
        land: Callable[..., int | None] = found.land

        def once(*of: Any, **also: Any) -> None:
            if not before:
                land(*of, **also)
            raise ConnectionError("the driver dies")

        monkeypatch.setattr(found, "land", once)
        return found

    monkeypatch.setattr(Feed, "sink", sink)
