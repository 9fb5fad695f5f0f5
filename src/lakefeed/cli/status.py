"""``lakefeed status``: shows whether feeds run, their drivers and rates, and the lag of feeds or of a group."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.exceptions import Exit

import lakefeed
from lakefeed.cli.options import (
    bootstrap_option,
    bootstrap_servers_of,
    is_default,
    output_option,
    parts_of,
    pipeline_argument,
    servers_of,
    token_file_option,
    url_option,
)
from lakefeed.cli.output import Shown, every_option, figure, show, watch_option
from lakefeed.errors import ResourceMissing, Unreachable
from lakefeed.json_model import iso
from lakefeed.messages.printable import aligned, counted
from lakefeed.messages.text import duration, one_line

if TYPE_CHECKING:
    from lakefeed.monitor.drivers import DriverFile, FeedServer
    from lakefeed.monitor.model import FeedProgress
    from lakefeed.operations.live_status import LiveStatus
    from lakefeed.operations.status import Lag

MOST_AT_ONCE = 32
TITLES: tuple[str, ...] = (
    "feed", "state", "driver", "up", "rate", "lag", "oldest", "last batch", "last commit", "last error"
)  # fmt: skip


@click.command()
@pipeline_argument
@click.option("--all", "everything", is_flag=True, help="All drivers on this machine, instead of PIPELINE.")
@url_option
@token_file_option
@click.option("--group", metavar="NAME", help="Show the lag of a consumer group, of any client.")
@click.option(
    "--topic",
    "topics",
    multiple=True,
    metavar="NAME",
    help="Only this topic, or this topic's table; repeatable.",
)
@bootstrap_option
@click.option("--partitions", is_flag=True, help="Show each partition.")
@watch_option
@every_option
@output_option
def status(
    pipeline: Path,
    everything: bool,
    urls: tuple[str, ...],
    token_file: Path | None,
    group: str | None,
    topics: tuple[str, ...],
    bootstrap_servers: str | None,
    partitions: bool,
    watch: bool,
    every: float,
) -> None:
    """Show PIPELINE's state, driver, rate, lag, commit and error.

    Works for running and stopped feeds, from all machines that reach the table and the topics. Also asks a
    driver on this machine. The lag is the number of uncommitted offsets, and the age of the oldest uncommitted record,
    which status reads. --all shows all drivers on this machine, --url the feeds of a dashboard.

    --group shows the lag of a consumer group. PIPELINE or --bootstrap-servers has the address of its broker.

    Exit status: 0 if all feeds run, or probably run; otherwise 1.
    """
    if bootstrap_servers is not None and (group is None or not is_default("pipeline")):
        raise click.UsageError("--bootstrap-servers is only for --group without a pipeline file")
    if everything or urls:
        if group is not None or topics or not is_default("pipeline"):
            raise click.UsageError("--all and --url exclude a pipeline file, --group and --topic")
        servers = servers_of(urls, token_file)
        raise Exit(show(lambda: _look_at_all(servers), watch=watch, every=every))
    if group is not None:
        look = _look_at_group(group, pipeline, bootstrap_servers, topics)
    else:
        look = _look_at_feed(lakefeed.Pipeline.from_file(pipeline, to_run=False), topics, partitions=partitions)
    raise Exit(show(look, watch=watch, every=every))


def _look_at_group(
    group: str, pipeline: Path, bootstrap_servers: str | None, topics: Sequence[str]
) -> Callable[[], Shown]:
    from lakefeed.config.base import validated
    from lakefeed.config.sources import KafkaSource
    from lakefeed.operations.status import group_lag

    if not group.strip():
        # With an empty name, Kafka's client would end the process.
        raise click.UsageError("--group needs the name of a group")
    if not is_default("pipeline") or (bootstrap_servers is None and pipeline.is_file()):
        source = lakefeed.Pipeline.from_file(pipeline, to_run=False).config.kafka
    else:
        servers = bootstrap_servers_of(bootstrap_servers)
        source = validated(KafkaSource, "--bootstrap-servers", bootstrap_servers=servers, topics_pattern=".*")

    def look() -> Shown:
        found = group_lag(source, group, topics=topics or None)
        return found.as_dict(), lag_lines(found), 0

    return look


def _look_at_feed(declared: lakefeed.Pipeline, topics: Sequence[str], *, partitions: bool) -> Callable[[], Shown]:
    from lakefeed.ledger.pauses import pause_of_next_start
    from lakefeed.operations.live_status import identity_of, live_status
    from lakefeed.operations.status import require_read

    many = declared.config.has_many_tables
    identity = identity_of(declared.config)
    if topics:
        require_read(declared.config.kafka, topics, feed=declared.config.name)

    def look() -> Shown:
        parts = (
            [part for topic in topics for part in parts_of(declared, topic)] if many and topics else declared.parts()
        )
        found = [
            live_status(part.config, connections=part.connections, folder=part.feed.folder, identity=identity)
            for part in dict.fromkeys(parts)
        ]
        if any(feed.progress is None for feed in found):
            kept = pause_of_next_start(declared.config, declared.connections)
            found = [feed if feed.progress is not None else feed.model_copy(update={"paused": kept}) for feed in found]
        if topics and not many:
            found = [feed.model_copy(update={"lag": _lag_of(feed.lag, topics, declared)}) for feed in found]
        documents = [feed.as_dict() for feed in found]
        lines = [line for feed in found for line in status_lines(feed, partitions=partitions)]
        document = {"feeds": documents} if many and len(topics) != 1 else documents[0]
        return document, lines, 0 if all(feed.is_well for feed in found) else 1

    return look


def _lag_of(lag: Lag | None, topics: Sequence[str], declared: lakefeed.Pipeline) -> Lag | None:
    if lag is None:
        return None
    known = {partition.topic for partition in lag.partitions}
    if missing := [topic for topic in topics if topic not in known]:
        where, hint = declared.config.kafka.bootstrap_servers, "lakefeed topics list shows all topics"
        raise ResourceMissing(f"there is no topic {missing[0]}", where=where, hint=hint)
    return lag.model_copy(update={"partitions": tuple(part for part in lag.partitions if part.topic in topics)})


def status_lines(feed: LiveStatus, *, partitions: bool = False) -> list[str]:
    rows: list[tuple[str, str]] = [
        ("state", f"{feed.state}: {'; '.join(one_line(reason, most=2000) for reason in feed.evidence)}")
    ]
    if feed.driver is not None:
        since = datetime.fromtimestamp(feed.driver.since, UTC)
        over_at = feed.driver.ended_at or (feed.driver.alive_at if feed.state == "killed" else None)
        up = duration(max(0.0, (over_at or feed.taken_at) - feed.driver.since))
        rows.append(
            ("driver", f"process {feed.driver.pid} on {feed.driver.host}, since {since:%Y-%m-%d %H:%M:%S} UTC ({up})")
        )
    if feed.fence is not None:
        rows.append(("fence", one_line(feed.fence)))
    if feed.last_commit_at is not None:
        written = "" if feed.last_rows is None else f", {feed.last_rows:,} rows"
        age = duration(max(0.0, feed.taken_at - feed.last_commit_at))
        rows.append(("last commit", f"batch {feed.last_batch}, {age} ago{written}"))
    if feed.upserts is not None:
        rows.append(("upserts", one_line(feed.upserts)))
    if feed.publication is not None:
        rows.append(("branch", one_line(feed.publication.sentence, most=2000)))
    over = "the newest commits" if feed.is_rate_of_ledger else "the last minute"
    rows.append(("rate", "unknown" if feed.rate is None else f"{feed.rate:,.0f} records/s over {over}"))
    if feed.lag is not None:
        rows.append(("lag", _lag_text(feed.lag)))
    if feed.paused is not None:
        rows.append(("paused", f"the next start waits: {feed.paused.text}"))
    rows += _driver_rows(feed)
    lines = [f"{feed.feed} into {feed.sink}", *(f"  {line}" for line in aligned(rows, left=2))]
    if partitions and feed.lag is not None:
        lines += partition_lines(feed.lag)
    return [one_line(line, most=2000) if not line.startswith(" ") else line for line in lines]


def lag_lines(found: Lag) -> list[str]:
    return [f"{found.name}: lag {_lag_text(found)}", *partition_lines(found)]


def partition_lines(found: Lag) -> list[str]:
    rows = [("partition", "committed", "end", "lag", "oldest")]
    for part in found.partitions:
        age = "-" if part.seconds is None else duration(part.seconds) if part.lag else "0 s"
        committed = "-" if part.committed is None else str(part.committed)
        end = "-" if part.end is None else str(part.end)
        rows.append((f"{part.topic}-{part.partition}", committed, end, figure(part.lag), age))
    return [f"  {line}" for line in aligned(rows, left=1)]


def _lag_text(lag: Lag) -> str:
    if not lag.is_known:
        return f"{figure(lag.records)}; nothing is committed yet"
    age = "" if not lag.records or lag.seconds is None else f", the oldest {duration(lag.seconds)} old"
    return f"{'unknown' if lag.records is None else figure(lag.records)}{age}"


def _driver_rows(feed: LiveStatus) -> Iterator[tuple[str, str]]:
    """Yield the rows that only the driver knows: its batch, dead letters, waiting sinks and last error."""
    from lakefeed.monitor.terminal import running_text

    if (progress := feed.progress) is not None:
        if progress.paused is not None:
            yield "paused", progress.paused.text.removeprefix("paused ")
        if (running := progress.running) is not None:
            yield "running", running_text(running)
        if progress.restarts:
            yield "restarts", f"{progress.restarts:,} within the run"
        if progress.totals.dead_letters:
            yield "dead letters", f"{progress.totals.dead_letters:,} of this run"
        for reason in progress.last_dead_letters:
            yield "newest batch", f"{counted(reason.count, 'time')} {one_line(reason.reason)}"
        if left_out := progress.totals.left_out:
            such = f"such as {one_line(field)}, " if (field := progress.totals.left_out_field) else ""
            yield "left out", f"JSON fields without a column, {such}of {counted(left_out, 'record')} of this run"
        for sink, why in progress.paused_sinks.items():
            yield "waits", f"the sink {one_line(sink)}: {one_line(why)}"
    if (error := feed.last_error) is not None:
        yield "last error", one_line(error.what)
        if error.hint:
            yield "next", one_line(error.hint)


def _look_at_all(servers: Sequence[FeedServer]) -> Shown:
    """Return the drivers on this machine, or the feeds of dashboards; ask neither tables nor topics."""
    from lakefeed.monitor.drivers import all_drivers
    from lakefeed.operations.live_status import IS_WELL

    asked: list[Callable[[], dict[str, Any]]] = [partial(_driver_document, driver) for driver in all_drivers()]
    if servers:
        found = [(server, str(listed.get("feed"))) for server in servers for listed in server.feeds()]
        asked = [partial(_remote_document, server, feed) for server, feed in found]
    # A driver that hangs takes three seconds. All drivers are asked at the same time, so fifty also take three seconds.
    with ThreadPoolExecutor(max(1, min(MOST_AT_ONCE, len(asked)))) as pool:
        documents = list(pool.map(lambda ask_one: ask_one(), asked))
    rows = [TITLES, *(_row_of(document) for document in documents)]
    nothing = "the dashboard shows no feed" if servers else "no driver is known on this machine"
    lines: Sequence[str] = aligned(rows, left=3) if documents else [nothing]
    return {"drivers": documents}, lines, 0 if all(document["state"] in IS_WELL for document in documents) else 1


def _driver_document(driver: DriverFile) -> dict[str, Any]:
    state, progress = _driver_state(driver)
    document = _document(driver.feed, state, driver.host, driver.pid, driver.since, progress)
    gone = {"last_error": driver.error.as_dict() if driver.error else None} if progress is None else {}
    return {**document, **gone}


def _remote_document(server: FeedServer, feed: str) -> dict[str, Any]:
    try:
        progress = server.progress(feed)
    except (Unreachable, ResourceMissing):  # The dashboard listed the feed, but the feed may have ended since.
        return _document(feed, "no answer", None, None, None, None)
    driver = progress.driver
    return _document(feed, _state_of(progress), driver.host, driver.pid, progress.started_at, progress)


def _document(
    feed: str, state: str, host: str | None, pid: int | None, since: float | None, progress: FeedProgress | None
) -> dict[str, Any]:
    known = {} if progress is None else progress.as_dict()
    copied = {name: known.get(name) for name in ("rate", "lag", "lag_seconds", "last_commit_at", "last_error")}
    batch = progress.last_batch.batch_id if progress is not None and progress.last_batch is not None else None
    who = {"feed": feed, "state": state, "host": host, "pid": pid, "since": iso(since)}
    return {**who, **copied, "last_batch": batch, "progress": known or None}


def _row_of(document: Mapping[str, Any]) -> tuple[str, ...]:
    def age(at: str | None) -> str:
        return "-" if at is None else duration(max(0.0, time.time() - datetime.fromisoformat(at).timestamp()))

    rate, oldest, pid, error = (document[name] for name in ("rate", "lag_seconds", "pid", "last_error"))
    return (
        one_line(document["feed"]),
        document["state"],
        "-" if pid is None else f"{pid} on {one_line(document['host'])}",
        age(None if document["state"] in ("killed", "failed", "ended") else document["since"]),
        "-" if rate is None else f"{rate:,.0f}/s",
        figure(document["lag"]),
        "-" if oldest is None else duration(oldest),
        figure(document["last_batch"]),
        age(document["last_commit_at"]),
        (one_line(error["what"], most=80) if error else "") or "-",
    )


def _driver_state(driver: DriverFile) -> tuple[str, FeedProgress | None]:
    from lakefeed.monitor.drivers import ask

    if not driver.is_running:
        return driver.ended or "killed", None
    if driver.url is None or driver.token is None:
        return "probably running", None
    try:
        progress = ask(driver.url, driver.token)
    except Unreachable:
        return "hangs", None
    return _state_of(progress), progress


def _state_of(progress: FeedProgress) -> str:
    return "hangs" if progress.hangs else progress.state if progress.state in ("failed", "ended") else "running"
