"""Send an operator's requests to a feed's driver, and pause a feed that does not run.

A driver on this machine is found by its file, a driver on another machine by the address of its dashboard. If no driver
runs, ``lakefeed.ledger.pauses`` stores the pause for the next start.
"""

from __future__ import annotations

import difflib
import socket
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from lakefeed.clients.environment import this_user
from lakefeed.config.connections import Connections
from lakefeed.config.models import PipelineConfig
from lakefeed.errors import AccessDenied, ConfigError, JobFailed, LakefeedError, ResourceMissing, Unreachable
from lakefeed.feed.events import Event
from lakefeed.ledger.pauses import Pause, stored_pause
from lakefeed.messages.redaction import remember
from lakefeed.messages.text import one_line
from lakefeed.monitor import drivers
from lakefeed.monitor.drivers import DriverFile, FeedServer, feed_path, not_lakefeed
from lakefeed.operations.endpoint import ON_BEHALF_OF
from lakefeed.operations.live_status import identity_of

ANSWER_SECONDS = 15.0
LOOK_SECONDS = 0.3
SIMILAR_NAMES = 3
CARRIED_OUT = {"pause": "paused", "resume": "resumed", "change": "changed"}
"""The event that reports that an action has succeeded, by action."""


@dataclass(frozen=True)
class RunningFeed:
    """A feed whose driver answers requests.

    Attributes:
        driver: the driver's file on this machine; None if the driver is behind a dashboard.
    """

    name: str
    server: FeedServer
    driver: DriverFile | None = field(default=None, repr=False)

    def request(self, action: str, **values: Any) -> Event:
        """Request an action; return the event that logs the request.

        Raises:
            ConfigError: the driver refuses the request, or the server refuses the token.
            AccessDenied: the token belongs to a viewer.
            ResourceMissing: the server has no feed of this name.
            Unreachable: the server does not answer in time.
        """
        given = {name: value for name, value in values.items() if value is not None}
        headers = {ON_BEHALF_OF: quote(this_user())} if self.driver is not None else {}
        status, document = self.server.exchange(
            feed_path(self.name, "actions"), body={"action": action, **given}, headers=headers
        )
        if status != 202:
            raise self._refusal(status, document)
        try:
            return Event.model_validate(document.get("event"))
        except ValueError:
            raise not_lakefeed(self.server.url) from None

    def wait_for(self, action: str, event: Event) -> Event:
        """Wait until the driver has carried out a request; return the event that reports the outcome.

        Raises:
            JobFailed: the requested action has failed, or the run ended before the action.
        """
        number = event.number
        while True:
            for later in self.server.events(self.name, after=number):
                number, is_of_action = later.number, later.details.get("action") == action
                if later.kind in ("ended", "failed"):
                    hint = "lakefeed status shows how the run ended"
                    raise JobFailed(f"the run ended before the requested action: {action}", where=self.name, hint=hint)
                if later.kind == CARRIED_OUT.get(action) or (later.kind == "note" and is_of_action):
                    return later
                if later.kind == "error" and is_of_action:
                    raise JobFailed(one_line(later.message), where=self.name)
            time.sleep(LOOK_SECONDS)

    def wait_for_end(self) -> None:
        """Wait until the run has ended.

        Raises:
            JobFailed: the run has ended with an error, or its process was killed.
        """
        if self.driver is None:
            self._wait_by_events()
            return
        own = (self.driver.pid, self.driver.since)
        # Another pid or start time means that another driver has taken the feed over: this run has ended.
        while (file := drivers.find(self.driver.identity)) is not None and (file.pid, file.since) == own:
            if file.ended == "failed":
                raise JobFailed("the run has ended with an error", where=self.name, hint="the run's log has the reason")
            if file.ended is not None:
                return
            # If the driver has ended since its file was read, the file now says how: read it again.
            if not file.is_running and drivers.find(self.driver.identity) == file:
                hint = "read the driver's log; lakefeed run resumes after the last commit"
                raise JobFailed("the driver's process was killed or has crashed", where=self.name, hint=hint)
            time.sleep(LOOK_SECONDS)

    def _wait_by_events(self) -> None:
        number = 0
        # A driver's own dashboard ends with the driver, so an unreachable server means that the run has ended.
        with suppress(Unreachable, ResourceMissing):
            while True:
                for event in self.server.events(self.name, after=number):
                    number = event.number
                    if event.kind == "failed":
                        raise JobFailed(one_line(event.message), where=self.name)
                    if event.kind == "ended":
                        return
                time.sleep(LOOK_SECONDS)

    def _refusal(self, status: int, document: Mapping[str, Any]) -> LakefeedError:
        what = one_line(str(document.get("error") or f"the driver answers with status {status}"), most=1000)
        hint = document.get("hint")
        hint = one_line(str(hint), most=1000) if hint else None
        if status == 401:
            hint = "set LAKEFEED_TOKEN, or name a file with the token by --token-file"
            return ConfigError("the server requires a valid token", where=self.server.url, hint=hint)
        if status == 403:
            return AccessDenied(what, where=self.server.url, hint=hint)
        if status == 404:
            with suppress(LakefeedError):
                hint = similar_names(self.name, [str(feed.get("feed")) for feed in self.server.feeds()])
            return ResourceMissing(f"the server has no feed '{self.name}'", where=self.server.url, hint=hint)
        if status in (400, 409, 422):
            return ConfigError(what, where=f"feed {self.name}", hint=hint)
        return Unreachable(what, where=self.server.url, hint=hint)


def running_feed(config: PipelineConfig) -> RunningFeed | None:
    """Return a pipeline file's feed if its driver runs on this machine, else None.

    Raises:
        ConfigError: the driver runs without an endpoint.
    """
    driver = drivers.find(identity_of(config))
    if driver is None or driver.host != socket.gethostname() or not driver.is_running:
        return None
    return _of_driver(driver)


def running_feed_named(name: str) -> RunningFeed:
    """Return the feed of this name whose driver runs on this machine.

    Raises:
        ResourceMissing: no driver on this machine runs a feed of this name.
        ConfigError: several drivers run feeds of this name, or the only one runs without an endpoint.
    """
    running = [driver for driver in drivers.all_drivers() if driver.is_running]
    named = [driver for driver in running if driver.feed == name]
    if not named:
        hint = "name its pipeline file, or a dashboard by --url; lakefeed status --all lists this machine's drivers"
        hint = similar_names(name, [driver.feed for driver in running]) or hint
        raise ResourceMissing(f"no driver of a feed '{name}' runs on this machine", hint=hint)
    if len(named) > 1:
        raise ConfigError(
            f"{len(named)} feeds on this machine are named '{name}'", hint="name the pipeline file instead"
        )
    return _of_driver(named[0])


def _of_driver(driver: DriverFile) -> RunningFeed:
    if driver.url is None or driver.token is None:
        raise ConfigError(
            f"the driver of feed '{driver.feed}', process {driver.pid}, runs without an endpoint for requests",
            hint=f"kill -TERM {driver.pid} ends the driver after its batch; start the feed without --no-endpoint",
        )
    remember([driver.token])
    return RunningFeed(driver.feed, FeedServer(driver.url, driver.token, ANSWER_SECONDS), driver)


def similar_names(name: str, feeds: Sequence[str]) -> str | None:
    """Return a hint that lists the feeds with similar names, or else the first feeds by name; None without feeds."""
    shown = difflib.get_close_matches(name, feeds, n=SIMILAR_NAMES) or sorted(set(feeds))[:SIMILAR_NAMES]
    return f"feeds that run: {', '.join(one_line(feed) for feed in shown)}" if shown else None


def pause_next_start(config: PipelineConfig, connections: Connections, *, reason: str) -> Pause:
    """Pause a feed that does not run, so that its next start waits; return the pause.

    Raises a ConfigError if the feed is already paused.
    """
    store = stored_pause(config, connections)
    if (earlier := store.read()) is not None:
        raise ConfigError(
            f"the feed is already {earlier.text}", where=f"feed {config.name}", hint="resume the feed first"
        )
    pause = Pause(reason=one_line(reason, most=1000), by=this_user(), at=time.time())
    store.write(pause)
    return pause


def resume_next_start(config: PipelineConfig, connections: Connections) -> Pause:
    """End the pause of a feed that does not run, and return it. Raise ConfigError if the feed is not paused."""
    store = stored_pause(config, connections)
    if (pause := store.read()) is None:
        hint = "lakefeed status shows what the feed does"
        raise ConfigError("the feed is not paused", where=f"feed {config.name}", hint=hint)
    store.clear()
    return pause
