"""``lakefeed dashboard`` shows many feeds in a browser; ``lakefeed dashboard hash-password`` hashes a password."""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.exceptions import Exit

import lakefeed
from lakefeed.cli.options import FILE, PIPELINE_FILE, output_option, servers_of, token_file_option, url_option
from lakefeed.cli.output import Shown, echo, every_option, is_json, show, watch_option
from lakefeed.clients.spark.signals import begin_work, stop_on_signals
from lakefeed.errors import ConfigError

if TYPE_CHECKING:
    from lakefeed_dashboard.settings import Dashboard
    from lakefeed_dashboard.top.feed_watch import FeedWatch

PORT = 8381
SHORTEST_PASSWORD = 8


@click.group(invoke_without_command=True)
@click.option("--host", help="Address to listen on.  [default: 127.0.0.1]")
@click.option("--port", type=click.IntRange(0, 65535), help=f"Port to listen on; 0 for a free one.  [default: {PORT}]")
@click.option(
    "--driver", "urls", multiple=True, metavar="URL", help="Dashboard of a driver elsewhere; may be repeated."
)
@token_file_option
@click.option(
    "--access-from", type=FILE, metavar="FILE", help="Take users, tokens and TLS from this pipeline file's dashboard."
)
@click.pass_context
def dashboard(
    context: click.Context,
    host: str | None,
    port: int | None,
    urls: tuple[str, ...],
    token_file: Path | None,
    access_from: Path | None,
) -> None:
    """Show the feeds of this user and of other drivers in a browser.

    Shows all feeds of this user on this machine. Ends on SIGTERM, SIGHUP or Ctrl-C; the feeds continue.
    """
    if context.invoked_subcommand is not None:
        return
    from lakefeed_dashboard.remote import RemoteFeeds, sources_of
    from lakefeed_dashboard.server import serve

    settings = _settings(access_from, host, port)
    feeds = RemoteFeeds(sources_of(servers_of(urls, token_file)), note=_note)
    try:
        with serve(feeds, settings) as url, stop_on_signals() as stop:
            begin_work()
            echo(f"the dashboard is at {url}")
            _wait(stop)
    finally:
        feeds.close()


@dashboard.command("hash-password")
def hash_password() -> None:
    """Ask for a password, and print its hash for dashboard.users.

    The hash is argon2id. Without a terminal, the password is the first line of standard input.
    """
    from lakefeed_dashboard.credentials import LONGEST
    from lakefeed_dashboard.credentials import hash_password as hashed

    if sys.stdin.isatty():
        password = click.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
    else:
        password = sys.stdin.readline().rstrip("\r\n")
    if not SHORTEST_PASSWORD <= len(password) <= LONGEST:
        hint = f"choose one of {SHORTEST_PASSWORD} to {LONGEST:,} characters"
        raise ConfigError(f"the password has {len(password):,} characters", where="password", hint=hint)
    echo(hashed(password))


def _settings(access_from: Path | None, host: str | None, port: int | None) -> Dashboard:
    """Return the settings; options override the file."""
    import lakefeed
    from lakefeed.config.base import validated
    from lakefeed_dashboard.settings import Dashboard

    given: dict[str, Any] = {"port": PORT}
    if access_from is not None:
        declared = lakefeed.Pipeline.from_file(access_from).config.block(Dashboard)
        if declared is None:
            hint = "add the block dashboard with users or tokens, or leave --access-from out"
            raise ConfigError("the pipeline file has no block dashboard", where=str(access_from), hint=hint)
        # Do not take the port from the file: the feed's driver may listen on that port of this machine.
        given |= {name: getattr(declared, name) for name in declared.model_fields_set - {"port"}}
    given |= {name: value for name, value in (("host", host), ("port", port)) if value is not None}
    return validated(Dashboard, "--host" if host else "dashboard", **given)


def _note(message: str, **details: Any) -> None:
    logging.getLogger("lakefeed.dashboard").info(message)
    click.echo(message, err=True)


def _wait(stop: threading.Event) -> None:
    # Python runs the handler of a signal only between two waits, so wait in short intervals.
    while not stop.wait(0.5):
        pass


SETTLE_SECONDS = 15.0
"""The most seconds to wait for all feeds, without a live screen; reading a ledger may take seconds."""
PLAIN_WIDTH = 200


@click.command()
@click.argument("pipelines", type=FILE, nargs=-1)
@url_option
@token_file_option
@watch_option
@every_option
@output_option
def top(pipelines: tuple[Path, ...], urls: tuple[str, ...], token_file: Path | None, watch: bool, every: float) -> None:
    """Show the rate, lag and state of all feeds on one screen.

    The feeds are those of this user's drivers on this machine, also killed and failed ones, and the feeds of PIPELINES
    (default: pipeline.yaml in this folder), running or not. With --url, they are the feeds of a dashboard. In a
    terminal the screen is live: arrows choose a feed, Enter opens it, / filters, q ends, a letter sorts (see the last
    line). Elsewhere the command prints one table.

    Exit status: 0. Without a live screen: 1 if a feed fails, hangs, was killed or does not answer.
    """
    from lakefeed_dashboard.top.feed_watch import ASKING, FeedWatch, PipelineFeeds, finders_of

    if not pipelines and not urls and Path(PIPELINE_FILE).is_file():
        pipelines = (Path(PIPELINE_FILE),)
    declared = {str(path): lakefeed.Pipeline.from_file(path) for path in dict.fromkeys(pipelines)}
    feeds = {
        name: PipelineFeeds(
            pipeline.config, [(part.config, part.connections, part.feed.folder) for part in pipeline.parts()]
        )
        for name, pipeline in declared.items()
    }
    finders = dict(finders_of(feeds, servers_of(urls, token_file)))
    with FeedWatch(finders, every=every) as watched:
        is_terminal = sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"
        if is_terminal and not is_json() and not watch:
            _show_live(watched)
            return

        def look() -> Shown:
            from lakefeed_dashboard.top.table import table_lines

            watched.settle(SETTLE_SECONDS)
            if refused := [error for error in watched.failures().values() if isinstance(error, ConfigError)]:
                raise refused[0]
            found = watched.feeds()
            lines = table_lines(found, width=PLAIN_WIDTH, now=time.time()) if found else ["no feed is known here"]
            status = 0 if all(feed.is_well and feed.state != ASKING for feed in found) else 1
            return {"feeds": [feed.as_dict() for feed in found]}, lines, status

        raise Exit(show(look, watch=watch, every=every))


def _show_live(watched: FeedWatch) -> None:
    from rich.console import Console

    from lakefeed_dashboard.top.screen import Terminated, TopScreen, run_top

    screen = TopScreen(watched.feeds, opened=watched.open)
    try:
        run_top(screen, descriptor=sys.stdin.fileno(), console=Console(highlight=False))
    except Terminated as ended:
        raise Exit(128 + ended.number) from None
