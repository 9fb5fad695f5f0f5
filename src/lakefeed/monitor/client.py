"""Asks drivers and dashboards over HTTP for their feeds, and for a feed's progress, history and events.

The time and size of an answer are limited, since the server may hang or be another program.
"""

from __future__ import annotations

import http.client
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar
from urllib.parse import quote, urlsplit

from lakefeed.clients.http import exchange
from lakefeed.errors import ConfigError, LakefeedError, ResourceMissing, Unreachable
from lakefeed.feed.events import Event
from lakefeed.json_model import JsonModel
from lakefeed.messages.text import one_line
from lakefeed.monitor.history import RunHistory
from lakefeed.monitor.model import FeedProgress

ASK_SECONDS = 3.0
MOST_BYTES = 16 << 20
"""The largest answer; the progress of a feed with 10,000 partitions has 3 MB."""
LONGEST_NUMBER = 19

D = TypeVar("D", bound=JsonModel)


class Events(JsonModel):
    """Events of a run, oldest first."""

    events: tuple[Event, ...]


@dataclass(frozen=True)
class FeedServer:
    """A driver's endpoint or a dashboard, the token for it, and the timeout for a complete answer.

    A dashboard has many feeds, so its callers name one with ``feed``; a driver has only one feed.
    """

    url: str
    token: str | None = field(default=None, repr=False)
    seconds: float = ASK_SECONDS

    def progress(self, feed: str | None = None) -> FeedProgress:
        """Return the feed's progress; raise the errors of ``get``."""
        return self.read(FeedProgress, "/progress" if feed is None else feed_path(feed, "progress"))

    def history(self, feed: str | None = None, *, most: int) -> RunHistory:
        """Return the feed's history as at most ``most`` points; raise the errors of ``get``."""
        page = f"history?most={most}"
        return self.read(RunHistory, f"/{page}" if feed is None else feed_path(feed, page))

    def events(self, feed: str, *, after: int) -> tuple[Event, ...]:
        """Return the run's events after the event with the number ``after``; raise the errors of ``get``."""
        return self.read(Events, feed_path(feed, f"events?after={after}")).events

    def read(self, kind: type[D], path: str) -> D:
        """Return the document at a path; raise the errors of ``get``."""
        document = self.get(path)
        try:
            return kind.model_validate(document)
        except ValueError:
            raise not_lakefeed(self._where) from None

    def feeds(self) -> list[dict[str, Any]]:
        found = self.get("/api/feeds").get("feeds")
        return [feed for feed in found if isinstance(feed, dict)] if isinstance(found, list) else []

    def get(self, path: str) -> dict[str, Any]:
        """Return the JSON object at a path.

        Raises:
            Unreachable: there is no answer in time, or the answer is not a JSON object.
            ConfigError: the server refuses the token, or requires one.
            ResourceMissing: there is no page at this path.
        """
        status, document = self.exchange(path)
        if status != 200:
            raise _refusal(status, document, self._where)
        return document

    def exchange(
        self, path: str, *, body: Mapping[str, Any] | None = None, headers: Mapping[str, str] | None = None
    ) -> tuple[int, dict[str, Any]]:
        """Get a path, or post a body to it; return the status and the JSON object of the answer.

        Raises Unreachable if no JSON object comes in time.
        """
        sent = {"Connection": "close", **(headers or {})}
        if self.token:
            sent["Authorization"] = f"Bearer {self.token}"
        if body is not None:
            sent["Content-Type"] = "application/json"
        try:
            answer = exchange(
                "GET" if body is None else "POST",
                self.url.rstrip("/") + path,
                seconds=self.seconds,
                headers=sent,
                body=None if body is None else json.dumps(body).encode(),
                most_bytes=MOST_BYTES,
            )
            document = json.loads(answer.body, parse_int=_whole)
        except (OSError, http.client.HTTPException, ValueError, RecursionError) as error:
            what = f"the server does not answer: {type(error).__name__}"
            raise Unreachable(what, where=self._where, hint="check the address, and that the driver runs") from None
        if not isinstance(document, dict):
            raise not_lakefeed(self._where)
        return answer.status, document

    @property
    def _where(self) -> str:
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc}"


def _whole(digits: str) -> int:
    """Read a number; refuse long numbers, which int would take minutes to read, since any program may answer."""
    if len(digits) > LONGEST_NUMBER:
        raise ValueError(f"a number has {len(digits):,} digits")
    return int(digits)


def not_lakefeed(where: str) -> Unreachable:
    """Return the error for an answer that is not a document of lakefeed."""
    hint = "another program may listen at this address: give the address of a lakefeed dashboard, or check its version"
    return Unreachable("the server does not answer like lakefeed", where=where, hint=hint)


def ask(url: str, token: str) -> FeedProgress:
    """Return the progress from a driver's endpoint; raise Unreachable for a refused token or a late answer."""
    try:
        return FeedServer(url, token).progress()
    except (ConfigError, ResourceMissing) as error:
        raise Unreachable(error.what, where=url) from None


def feed_path(feed: str, page: str) -> str:
    return f"/api/feeds/{quote(feed, safe='')}/{page}"


def _refusal(status: int, document: Mapping[str, Any], where: str) -> LakefeedError:
    if status in (401, 403):
        return ConfigError(
            "the server refuses the token" if status == 403 else "the server requires a valid token",
            where=where,
            hint="set LAKEFEED_TOKEN, or name a file with the token by --token-file",
        )
    if status == 404:
        hint = "the feed may have ended; lakefeed status --url lists the feeds"
        return ResourceMissing("the server has no such page or feed", where=where, hint=hint)
    # A dashboard sends such a status for a driver that was killed or hangs.
    why = document.get("error")
    reason = f": {one_line(why)}" if isinstance(why, str) else ""
    hint = "read the driver's log, and check that its process runs"
    return Unreachable(f"the server answers with status {status}{reason}", where=where, hint=hint)
