"""``lakefeed feed``, ``offsets rewind`` and ``backfill``: control a feed, change its offsets, land unread records."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

import lakefeed
from lakefeed.cli.options import (
    dry_run_option,
    log_file_option,
    master_option,
    one_part_of,
    options_of,
    output_option,
    pipeline_argument,
    servers_of,
    set_option,
    token_file_option,
    topic_option,
    yes_option,
)
from lakefeed.cli.output import column_lines, echo, emit, figure, first_lines, say
from lakefeed.clients.spark.session import log_path
from lakefeed.clients.spark.signals import stop_on_signals
from lakefeed.errors import ResourceMissing
from lakefeed.offsets.ranges import OffsetRange
from lakefeed_repair.rehearse_command import rehearse

if TYPE_CHECKING:
    from lakefeed_repair.backfill import BackfillCommit, BackfillRequest, BackfillSummary
    from lakefeed_repair.control import RunningFeed
    from lakefeed_repair.rewind import RewindPlan

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
wait_option = click.option("--wait", is_flag=True, help="Wait until the driver has acted, after its current batch.")
reason_option = click.option("--reason", default="", help="The reason, which status and log show.")


@dataclass(frozen=True)
class FeedTarget:
    """A feed that a command names; ``running`` is None if no driver of the feed runs on this machine."""

    name: str
    pipeline: lakefeed.Pipeline | None
    running: RunningFeed | None

    def require_running(self) -> RunningFeed:
        if self.running is None:
            raise ResourceMissing(
                f"no driver of feed '{self.name}' runs on this machine",
                hint="name its driver's dashboard by --url; lakefeed status PIPELINE shows the driver",
            )
        return self.running


def find(target: str, overrides: tuple[str, ...], url: str | None, token_file: Path | None) -> FeedTarget:
    """Return the feed of a name or a pipeline file, with its driver.

    Raises a ResourceMissing if ``target`` is a name, and no driver on this machine runs a feed of this name.
    """
    from lakefeed.monitor.drivers import FeedServer
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
    """Add the options that name a feed to a command, whose first argument is then the feed."""

    @wraps(command)
    def call(target: str, overrides: tuple[str, ...], url: str | None, token_file: Path | None, **rest: Any) -> None:
        command(find(target, overrides, url, token_file), **rest)

    return _target_options(call)


@click.group()
def feed() -> None:
    """Pause, resume, stop or change a feed, by NAME or PIPELINE; rehearse a changed file."""


feed.add_command(rehearse)


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
@click.option("--max-records-per-batch", type=click.IntRange(1), help="The most records in a batch.")
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


@click.command()
@pipeline_argument
@click.option(
    "--to",
    required=True,
    metavar="TARGET",
    help="earliest, latest, table, timestamp:2026-11-20T06:30, snapshot:ID, topic:partition:offset,… or the JSON of "
    "Spark's offsets.",
)
@click.option("--topic", help="Move only this topic; required for a pipeline with many tables.")
@click.option("--partition", type=click.IntRange(0), help="Move only partitions with this number.")
@click.option(
    "--delete-rows/--keep-rows",
    default=None,
    help="Delete the rows of records that are read again, in the same commit, or keep them beside the new rows.",
)
@click.option("--accept-loss", is_flag=True, help="Allow moves forward, which skip unread records.")
@dry_run_option
@yes_option
@master_option
@output_option
def rewind(
    pipeline: Path, to: str, topic: str | None, dry_run: bool, yes: bool, master: str | None, **choice: Any
) -> None:
    """Move PIPELINE to other offsets.

    Changes ledger, rows, dead letters, checkpoint and the consumer group for monitoring; --to table only recreates the
    checkpoint. A running driver ends with an error at its next commit. The next start, or the same command, completes
    an interrupted move.
    """
    from lakefeed_repair import rewind as moving

    declared = lakefeed.Pipeline.from_file(pipeline, to_run=False)
    if declared.config.has_many_tables:
        declared = one_part_of(declared, topic)
    agreed = moving.plan_rewind(declared, to, topic=topic, **choice)
    lines = list(_plan_lines(agreed, has_checkpoint=bool(declared.config.checkpoint)))
    if dry_run:
        emit({**agreed.as_dict(), "done": False}, lines)
        return
    if not yes:
        say(lines)
        click.confirm("Move the feed?", abort=True, err=True)
    spark = declared.session(master=master, log_file=log_path(f"{declared.config.name}-rewind"))
    if message := moving.rewind(declared, agreed, spark=spark):
        echo(message, err=True)
    emit({**agreed.as_dict(), "done": True}, [*lines, "done; the next start resumes there"])


def _plan_lines(agreed: RewindPlan, *, has_checkpoint: bool) -> Iterator[str]:
    if not agreed.moves:
        then = "the checkpoint is recreated" if has_checkpoint else "it has no checkpoint to recreate"
        yield f"{agreed.feed} keeps the position of {agreed.table}; {then}"
    else:
        yield f"{agreed.feed} in {agreed.table}:"
        lines = [("partition", "from", "to", "read again", "given up", "rows", "dead letters")]
        for move in agreed.moves:
            start = "?" if move.start is None else f"{move.start}"
            counts = (f"{move.again:,}", f"{move.given_up:,}", figure(move.rows), f"{move.letters:,}")
            lines.append((f"{move.topic}-{move.partition}", start, f"{move.to}", *counts))
        yield from column_lines(lines, left=1)
    if agreed.rows:
        yield f"{agreed.rows:,} rows {'are deleted' if agreed.delete_rows else 'stay beside the new rows'}"
    if agreed.letters:
        yield f"{agreed.letters:,} dead letters are deleted"


MOST_RANGES_SHOWN = 20


@click.command()
@pipeline_argument
@click.option(
    "--from",
    "start",
    metavar="earliest|OFFSET|TIME",
    default="earliest",
    show_default=True,
    help="Land only records from this offset on, in all partitions.",
)
@click.option(
    "--range",
    "ranges",
    multiple=True,
    metavar="TOPIC:PARTITION:START:END",
    help="Land only records of these offsets; repeatable.",
)
@topic_option
@dry_run_option
@set_option
@master_option
@log_file_option
@output_option
def backfill(
    pipeline: Path,
    start: str,
    ranges: tuple[str, ...],
    topic: str | None,
    dry_run: bool,
    overrides: tuple[str, ...],
    master: str | None,
    log_file: Path | None,
) -> None:
    """Land old records of PIPELINE's topics, exactly once.

    Lands records that the table lacks and the feed will never read: it began at a later offset, or a rewind has skipped
    them. May run beside the feed, and does not change its position. A commit has at most max_records_per_batch records.

    SIGTERM, SIGHUP and Ctrl-C end the backfill after the current commit, with status 0; a second Ctrl-C ends it
    immediately, with 130. The next backfill lands the records that remain.
    """
    from lakefeed.monitor.terminal import ProgressView
    from lakefeed_repair.backfill import backfill as land

    request = _request(start, ranges)
    declared = lakefeed.Pipeline.from_file(pipeline, overrides=overrides)
    declared = declared.of_topic(topic) if topic is not None else declared
    name = declared.config.name
    log_file = log_file or log_path(f"{name}-backfill")
    with ProgressView(f"{name} backfill") as view:
        view.note(f"starting; Spark's log is {log_file}")
        spark = declared.session(master=master, log_file=log_file)

        def show(commit: BackfillCommit) -> None:
            for note in commit.notes:
                view.note(note)
            dead_letters = commit.counts.dead_letters
            view.note(
                f"commit {commit.number} of {commit.of} · in {commit.counts.records:,} · out {commit.rows:,}"
                + (f" · dead letters {dead_letters:,}" if dead_letters else "")
                + f" · {commit.seconds:.1f} s"
            )

        with stop_on_signals(view.note) as stop:
            done = land(declared, request, spark=spark, dry_run=dry_run, stop=stop, on_commit=show)
    emit(done.as_dict(), _lines(name, done))


def _request(start: str, ranges: tuple[str, ...]) -> BackfillRequest:
    from lakefeed.clients.kafka.selection import moment
    from lakefeed_repair.backfill import BackfillRequest

    chosen = tuple(OffsetRange.parse(text) for text in ranges) or None
    if start == "earliest":
        return BackfillRequest(ranges=chosen)
    if start.isdecimal() and len(start) < 19:
        return BackfillRequest(ranges=chosen, start=int(start))
    return BackfillRequest(ranges=chosen, since=moment(start))


def _lines(feed: str, done: BackfillSummary) -> Iterator[str]:
    if done.settled:
        yield f"wrote {done.settled:,} dead letters of an interrupted backfill"
    if not done.planned.offsets:
        yield f"{feed}: the table lacks no record that the topics still have"
    elif done.dry_run:
        yield f"{feed}: would land {done.planned.offsets:,} missing offsets in {done.commits:,} commits"
        yield from first_lines(done.planned.ranges, most=MOST_RANGES_SHOWN)
    else:
        yield (
            f"{feed}: {done.commits:,} commits, {done.records:,} records of {done.planned.offsets:,} offsets, "
            f"{done.rows:,} rows, {done.dead_letters:,} dead letters, {done.skipped:,} skipped in {done.seconds:.1f} s"
            + ("; stopped before the end, the next backfill resumes" if done.stopped else "")
        )
    if done.planned.gone:
        gone = sum(lost.records for lost in done.planned.gone)
        yield f"neither the table nor the topics have these {gone:,} offsets:"
        yield from first_lines(done.planned.gone, most=MOST_RANGES_SHOWN)
