"""Simulate the death of a driver in a batch, without a separate process."""

from collections.abc import Callable
from typing import Any

import pytest

from lakefeed.feed.feed import Feed
from lakefeed.sinks.definition import Sink


class CutOff(Exception):
    """The error that ends an operation which a test interrupts."""


def cut_off_at(step: str, *, times: int = 1) -> Callable[[str], None]:
    """Return a function that raises CutOff on the ``times``-th call with ``step``; "" means any step."""
    calls = 0

    def cut(at: str) -> None:
        nonlocal calls
        calls += step in ("", at)
        if calls == times and step in ("", at):
            raise CutOff

    return cut


def dying(monkeypatch: pytest.MonkeyPatch, *, before: bool = False) -> None:
    """Let each driver die in its first batch: with ``before``, before the rows' commit, otherwise just after it."""
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
