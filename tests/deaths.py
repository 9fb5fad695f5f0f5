"""A driver that dies in a batch, without a process of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from lakefeed.feed.assembly import Assembly
from lakefeed.sinks.protocol import Sink


def dying(monkeypatch: pytest.MonkeyPatch, *, before: bool = False) -> None:
    """From now on each batch's driver dies: before the commit of its rows, or after it and before Spark's."""
    made = Assembly.sink

    def sink(self: Assembly, *arguments: Any, **named: Any) -> Sink:
        found = made(self, *arguments, **named)
        land: Callable[..., int | None] = found.land

        def once(*of: Any, **also: Any) -> None:
            if not before:
                land(*of, **also)
            raise ConnectionError("the driver dies")

        monkeypatch.setattr(found, "land", once)
        return found

    monkeypatch.setattr(Assembly, "sink", sink)
