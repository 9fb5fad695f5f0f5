"""``lakefeed run``: runs a pipeline until the user stops it, or with --once until it has no lag."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.exceptions import Exit

import lakefeed
from lakefeed.cli.options import log_file_option, master_option, output_option, pipeline_argument, set_option
from lakefeed.cli.output import emit, is_json, styled
from lakefeed.clients.spark.cluster import is_submitted
from lakefeed.clients.spark.session import log_path
from lakefeed.clients.spark.signals import begin_work, signal_received, stop_on_signals
from lakefeed.errors import ConfigError, DriverReplaced
from lakefeed.messages.printable import counted

if TYPE_CHECKING:
    from lakefeed.feed.bounded import BatchSummary
    from lakefeed.monitor.terminal import LogFormat


@click.command()
@pipeline_argument
@set_option
@click.option("--once", is_flag=True, help="Land the records that the topics have now, then end.")
@click.option(
    "--accept-loss",
    is_flag=True,
    help="Resume although records were lost before the feed read them, or a topic was recreated; the ledger "
    "records the loss.",
)
@click.option("--resume", is_flag=True, help="End the feed's pause. Default: wait until lakefeed feed resume ends it.")
@click.option("--batch", is_flag=True, help="Land the present records in one commit, without a stream, then end.")
@click.option("--since", metavar="TIME", help="With --batch: only records from this time on, in ISO 8601.")
@click.option("--until", metavar="TIME", help="With --batch: only records up to this time.")
@master_option
@log_file_option
@click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="Lines on stderr: text for people, json for log collectors.",
)
@click.option(
    "--endpoint/--no-endpoint",
    default=True,
    help="Answer this user's commands lakefeed status and lakefeed feed on this machine.  [default: endpoint]",
)
@click.option(
    "--endpoint-port", type=click.IntRange(0, 65535), default=0, help="The endpoint's port.  [default: a free one]"
)
@click.option(
    "--probe-port",
    type=click.IntRange(1, 65535),
    help="Serve /health/live, /health/ready and /metrics to all clients on this port, for Kubernetes.",
)
@click.option(
    "--dashboard",
    is_flag=False,
    flag_value="",
    metavar="[HOST:PORT]",
    help="Serve the dashboard as the file's dashboard block says, or on 127.0.0.1:8380.",
)
@click.option(
    "--exit-on-signal",
    type=click.IntRange(0, 255),
    default=0,
    show_default=True,
    metavar="STATUS",
    help="The exit status after SIGTERM, SIGHUP or Ctrl-C: with 143, a cluster restarts an evicted run.",
)
@click.option(
    "--exit-when-replaced",
    type=click.IntRange(0, 255),
    default=2,
    show_default=True,
    metavar="STATUS",
    help="The exit status after another driver has taken the feed over: with 0, a cluster does not restart it.",
)
@output_option
def run(
    pipeline: Path,
    overrides: tuple[str, ...],
    once: bool,
    accept_loss: bool,
    resume: bool,
    batch: bool,
    since: str | None,
    until: str | None,
    master: str | None,
    log_file: Path | None,
    log_format: LogFormat,
    endpoint: bool,
    endpoint_port: int,
    probe_port: int | None,
    dashboard: str | None,
    exit_on_signal: int,
    exit_when_replaced: int,
) -> None:
    """Run a pipeline: topics in, table out.

    If the feed is paused (lakefeed feed pause), the run reports it and waits; with --once it ends with status 1.

    After SIGTERM, SIGHUP or Ctrl-C the run completes the current batch and ends with status 0, or with the status of
    --exit-on-signal. A second Ctrl-C ends the run immediately, with 130. After lakefeed feed stop the status is always
    0.

    With --batch, a signal interrupts the only batch: nothing lands, and the status is 143, 129 or 130. With many
    tables, the status is 1 if a table has failed when the run ends.

    A terminal shows a line for each finished batch, and a panel with rate, lag and the current batch. Elsewhere, the
    run prints a line for each batch, and a heartbeat if no batch finishes for a minute.
    """
    if batch and (once or accept_loss or resume):
        raise click.UsageError("--batch excludes --once, --accept-loss and --resume")
    if not batch and (since or until):
        raise click.UsageError("--since and --until need --batch")
    from lakefeed.feed.control import ACTIONS
    from lakefeed.monitor.feed_monitor import FeedMonitor
    from lakefeed.monitor.terminal import RunView
    from lakefeed.operations.followers import FollowedRun, following, reporting_failed_start

    declared = lakefeed.Pipeline.from_file(pipeline, overrides=(*overrides, *dashboard_overrides(dashboard)))
    if dashboard is not None and "dashboard" not in declared.config.added_blocks:
        declared = lakefeed.Pipeline.from_file(pipeline, overrides=(*overrides, "dashboard={}"))
    name = declared.config.name
    log_file = log_file or log_path(name)
    monitor = FeedMonitor(name)
    if batch:
        refused = (
            "a run with --batch accepts no requests: it is one commit, and a signal ends it without landing anything"
        )
        monitor.control.open(threading.Event(), refusals=dict.fromkeys(ACTIONS, refused))
    with (
        RunView(monitor, log_format=log_format) as view,
        # The view logs an error as a structured line and exits the process; otherwise main would print the error again.
        view.logging_errors(exit_with=None if is_json() else _exit),
        declared.serve(monitor, port=endpoint_port if endpoint else None, probe_port=probe_port) as served,
    ):
        for note in served.notes:
            view.note(note)
        # Under spark-submit, Spark's own configuration decides where the log is.
        view.note("starting" if is_submitted() else f"starting; Spark's log is {log_file}")
        with reporting_failed_start(declared.config, monitor, declared.connections):
            spark = declared.session(master=master, log_file=log_file)
        monitor.show_path = view.note
        if batch:
            begin_work()
            config, connections = declared.config, declared.connections
            followed = FollowedRun(config=config, monitor=monitor, connections=connections, once=True, say=view.note)
            with following(followed), monitor.until_end(), monitor.batch(0):
                landed = declared.run_batch(spark=spark, since=since, until=until)
            for note in landed.notes:
                view.note(note)
            emit(asdict(landed), _batch_text(name, landed))
            return
        with _replaced_ends_with(exit_when_replaced), stop_on_signals(view.note) as stop:
            summary = declared.run(
                spark=spark,
                once=once,
                stop=stop,
                on_batch=lambda progress: view.batch(monitor.batches()[-1], notes=progress.notes),
                on_note=view.note,
                accept_loss=accept_loss,
                resume=resume,
                monitor=monitor,
            )
    emit(summary.as_dict(), _lines(name, summary))
    if any(table.failure for table in summary.tables) or summary.paused:
        raise Exit(1)
    raise Exit(exit_on_signal if signal_received() else 0)


def dashboard_overrides(text: str | None) -> list[str]:
    """Return the overrides of the block ``dashboard`` for a text: HOST:PORT, PORT or HOST."""
    if not text:
        return []
    if text.isdecimal():
        return [f"dashboard.port={text}"]
    where = f"--dashboard={text}"
    if text.lower().endswith((".yaml", ".yml")):
        hint = f"write lakefeed run {text} --dashboard, or --dashboard=HOST:PORT"
        raise ConfigError("--dashboard takes an address, not a file", where=where, hint=hint)
    host, colon, port = text.rpartition(":")
    if not colon or text.endswith("]") or (":" in host and not host.startswith("[")):
        return [f"dashboard.host='{text}'"]
    if not port.isdecimal():
        raise ConfigError(f"'{port}' is not a port", where=where, hint="write --dashboard=HOST:PORT")
    return [f"dashboard.host='{host}'", f"dashboard.port={port}"]


@contextmanager
def _replaced_ends_with(status: int) -> Iterator[None]:
    try:
        yield
    except DriverReplaced as error:
        error.exit_status = status
        raise


def _exit(status: int) -> None:
    raise Exit(status)


def _lines(name: str, summary: lakefeed.RunSummary) -> Iterator[str]:
    yield (
        f"{name}: {counted(summary.batches, 'batch', 'batches')}, {counted(summary.records, 'record')}, "
        f"{counted(summary.rows, 'row')} in {summary.seconds:.1f} s ({summary.rows_per_second:,.0f} rows/s)"
        + (f", S3 requests: {summary.requests_text}" if any(summary.s3_requests.values()) else "")
        + (f"; {summary.repeated:,} of the rows may have landed twice" if summary.repeated else "")
        + (
            f"; {counted(summary.batches_over_budget, 'batch', 'batches')} over budget"
            if summary.batches_over_budget
            else ""
        )
    )
    failed = [table for table in summary.tables if table.failure]
    if summary.tables:
        yield f"{len(summary.tables):,} tables, {len(failed):,} of them failed"
    for sink, why in summary.paused.items():
        yield styled(f"  the sink '{sink}' waits: {why}", fg="red")
    for table in failed:
        yield styled(f"  {table.topic}: {table.failure}", fg="red")


def _batch_text(name: str, landed: BatchSummary) -> str:
    rows = "" if landed.rows is None else f", {counted(landed.rows, 'row')}"
    records, letters = counted(landed.records, "record"), counted(landed.dead_letters, "dead letter")
    return f"{name}: {records}{rows}, {letters} in {landed.seconds:.1f} s"
