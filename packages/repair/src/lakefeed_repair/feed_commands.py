"""``lakefeed feed``: pauses, resumes, stops or changes a feed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

import lakefeed
from lakefeed.cli.options import options_of, output_option, servers_of, set_option, token_file_option
from lakefeed.cli.output import emit
from lakefeed.errors import ResourceMissing

if TYPE_CHECKING:
    from lakefeed_repair.control import RunningFeed

F = TypeVar("F", bound=Callable[..., Any])
SUFFIXES = (".yaml", ".yml")
ELSEWHERE = (
    "no driver of the feed runs on this machine: its next start obeys the request, a driver on another machine does not"
)

_target_options: Callable[[F], F] = options_of(
    click.argument("target", metavar="NAME|PIPELINE", default="pipeline.yaml"),
    set_option,
    click.option("--url", metavar="URL", help="A dashboard, instead of this machine's drivers."),
    token_file_option,
)
wait_option = click.option("--wait", is_flag=True, help="Wait for the driver to act, after its current batch.")
reason_option = click.option("--reason", default="", help="The reason, for status and log.")


@dataclass(frozen=True)
class FeedTarget:
    """A feed, by its name or its pipeline file; ``running`` is None if no driver of the feed runs here."""

    name: str
    pipeline: lakefeed.Pipeline | None
    running: RunningFeed | None

    def require_running(self) -> RunningFeed:
        if self.running is None:
            raise ResourceMissing(
                f"no driver of feed '{self.name}' runs on this machine",
                hint="name the dashboard of its driver by --url; lakefeed status PIPELINE shows the driver",
            )
        return self.running


def find(target: str, overrides: tuple[str, ...], url: str | None, token_file: Path | None) -> FeedTarget:
    """Return the feed of a name or a pipeline file, with its driver.

    Raises a ResourceMissing if ``target`` is a name, and no driver on this machine runs a feed of this name.
    """
    from lakefeed.monitor.client import FeedServer
    from lakefeed_repair.control import ANSWER_SECONDS, RunningFeed, running_feed, running_feed_named

    path = Path(target)
    pipeline = None
    if path.is_file() or path.suffix in SUFFIXES:
        pipeline = lakefeed.Pipeline.from_file(path, overrides=overrides)
    elif overrides:
        raise click.UsageError("--set needs a pipeline file")
    name = pipeline.config.name if pipeline is not None else target
    if url is not None:
        [server] = servers_of((url,), token_file)
        return FeedTarget(name, pipeline, RunningFeed(name, FeedServer(server.url, server.token, ANSWER_SECONDS)))
    if token_file is not None:
        raise click.UsageError("--token-file needs --url")
    if pipeline is not None:
        return FeedTarget(name, pipeline, running_feed(pipeline.config))
    return FeedTarget(name, None, running_feed_named(name))


def of_target(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that name a feed to a command, which gets the feed as its first argument."""

    @wraps(command)
    def call(target: str, overrides: tuple[str, ...], url: str | None, token_file: Path | None, **rest: Any) -> None:
        command(find(target, overrides, url, token_file), **rest)

    return _target_options(call)


@click.group()
def feed() -> None:
    """Pause, resume, stop or change a feed, by NAME or PIPELINE."""


@feed.command()
@of_target
@reason_option
@wait_option
@output_option
def pause(found: FeedTarget, *, reason: str, wait: bool) -> None:
    """Pause a feed after its current batch.

    Its driver stays alive. The pause and its reason survive a restart. To pause a feed that does not run, give the
    pipeline file: the next start then waits.
    """
    if found.running is None and found.pipeline is not None:
        from lakefeed_repair.control import pause_next_start

        pause = pause_next_start(found.pipeline.config, found.pipeline.connections, reason=reason)
        _emit(found, "pause", {"paused": pause.as_dict(), "carried_out": True}, f"{pause.text}\n  {ELSEWHERE}")
        return
    _ask(found, "pause", wait=wait, then="paused after its current batch", reason=reason)


@feed.command()
@of_target
@reason_option
@wait_option
@output_option
def resume(found: FeedTarget, *, reason: str, wait: bool) -> None:
    """Resume a paused feed, or end the pause of a stopped one."""
    if found.running is None and found.pipeline is not None:
        from lakefeed_repair.control import resume_next_start

        ended = resume_next_start(found.pipeline.config, found.pipeline.connections)
        text = f"the next start does not wait; the feed was {ended.text}\n  {ELSEWHERE}"
        _emit(found, "resume", {"paused": None, "carried_out": True}, text)
        return
    _ask(found, "resume", wait=wait, then="resumes", reason=reason)


@feed.command()
@of_target
@reason_option
@click.option("--wait", is_flag=True, help="Wait until the run has ended; status 1 if it ends with an error.")
@output_option
def stop(found: FeedTarget, *, reason: str, wait: bool) -> None:
    """Stop a feed after its current batch; a paused feed immediately."""
    running = found.require_running()
    event = running.request("stop", reason=reason)
    if wait:
        running.wait_for_end()
    text = "the run has ended" if wait else "stops after its current batch"
    _emit(found, "stop", {"event": event.as_dict(), "carried_out": wait}, text)


@feed.command()
@of_target
@click.option("--trigger", help="Time between two batches, such as '10 seconds'.")
@click.option("--max-records-per-batch", type=click.IntRange(1), help="Largest number of records in a batch.")
@reason_option
@wait_option
@output_option
def change(
    found: FeedTarget, *, trigger: str | None, max_records_per_batch: int | None, reason: str, wait: bool
) -> None:
    """Change trigger and batch size of a running feed.

    The change lasts until the run ends; the next start uses the pipeline file's values.
    """
    if trigger is None and max_records_per_batch is None:
        raise click.UsageError("give --trigger, --max-records-per-batch, or both")
    changes = {"trigger": trigger, "max_records_per_batch": max_records_per_batch}
    _ask(found, "change", wait=wait, then="changed after its current batch", reason=reason, **changes)


def _ask(found: FeedTarget, action: str, *, wait: bool, then: str, **values: Any) -> None:
    running = found.require_running()
    event = running.request(action, **values)
    if wait:
        event = running.wait_for(action, event)
    text = event.message if wait else f"requested: {then}"
    _emit(found, action, {"event": event.as_dict(), "carried_out": wait}, text)


def _emit(found: FeedTarget, action: str, document: Mapping[str, Any], text: str) -> None:
    emit({"feed": found.name, "action": action, **document}, f"{found.name}: {text}")
