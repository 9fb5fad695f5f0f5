"""A driver that dies in a batch, without a process of its own."""

from collections.abc import Callable
from typing import Any

import pytest

from lakefeed.feed.feed import Feed
from lakefeed.sinks.definition import Sink


def dying(monkeypatch: pytest.MonkeyPatch, *, before: bool = False) -> None:
    """From now on each batch's driver dies: before the commit of its rows, or after it and before Spark's."""
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
