"""``lakefeed top``: show all feeds on one screen."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.exceptions import Exit

import lakefeed
from lakefeed.cli.options import FILE, PIPELINE_FILE, output_option, servers_of, token_file_option, url_option
from lakefeed.cli.output import Shown, every_option, is_json, show, watch_option
from lakefeed.errors import ConfigError

if TYPE_CHECKING:
    from lakefeed_dashboard.top.feed_watch import FeedWatch

SETTLE_SECONDS = 15.0
"""Without a live screen, the command waits at most this long for all feeds; reading a ledger may take seconds."""
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

    from lakefeed_dashboard.top.keyboard import Terminated
    from lakefeed_dashboard.top.screen import TopScreen, run_top

    screen = TopScreen(watched.feeds, opened=watched.open)
    try:
        run_top(screen, descriptor=sys.stdin.fileno(), console=Console(highlight=False))
    except Terminated as ended:
        raise Exit(128 + ended.number) from None
