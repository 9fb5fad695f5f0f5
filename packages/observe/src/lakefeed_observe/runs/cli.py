"""``lakefeed runs``: what the runs of a feed did."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

import lakefeed
from lakefeed.cli.options import FILE, output_option
from lakefeed.cli.output import echo, emit, figure
from lakefeed.errors import ConfigError, ResourceMissing
from lakefeed.messages.printable import aligned
from lakefeed.messages.text import one_line

_feed_option = click.option("--feed", metavar="NAME", help="Instead of PIPELINE: the feed's name, on this machine.")


@click.group()
def runs() -> None:
    """Show what the runs of a feed did: how they started and ended, their batches, errors and requests."""


@runs.command("list")
@click.argument("pipeline", type=FILE, required=False)
@_feed_option
@output_option
def list_(pipeline: Path | None, feed: str | None) -> None:
    """Show the runs of PIPELINE, newest first: begin, end, batches, records, dead letters, errors."""
    from lakefeed_observe.runs.follower import summary_of

    found = [summary_of(trace) for trace in _traces(pipeline, feed)]

    def text() -> None:
        if not found:
            echo("no run of this feed has left a trace")
            return
        rows: list[tuple[str, ...]] = [("run", "began", "ended", "end", "batches", "records", "dead letters", "errors")]
        for run in found:
            counts = (figure(run[name]) for name in ("batches", "records", "dead_letters", "errors"))
            times = (_time(run["began_at"]), _time(run["ended_at"]))
            rows.append((str(run["run"]), *times, str(run["end"]), *counts))
        for line in aligned(rows, left=4):
            echo(line)

    emit({"runs": found}, text)


@runs.command()
@click.argument("words", nargs=-1, metavar="[RUN] [PIPELINE]")
@_feed_option
@click.option("--html", type=click.Path(path_type=Path, dir_okay=False), help="Write the run as a page into this file.")
@output_option
def show(words: tuple[str, ...], feed: str | None, html: Path | None) -> None:
    """Show one RUN of PIPELINE, by default the newest: why it started where it did, what it did, how it ended."""
    run_id, pipeline = _split(words, feed)
    trace = _find(_traces(pipeline, feed), run_id)
    if html is not None:
        from lakefeed_observe.runs.page import page_of

        html.write_text(page_of(trace), encoding="utf-8")
        emit({"run": trace["run"], "html": str(html)}, f"the page of run {trace['run']} is {html}")
        return

    def text() -> None:
        for line in run_lines(trace):
            echo(line)

    emit(trace, text)


def _split(words: Sequence[str], feed: str | None) -> tuple[str | None, Path | None]:
    """Distinguish the run from the file: a run's id is one by its form."""
    from lakefeed_observe.runs.store import RUN_ID

    ids = [word for word in words if RUN_ID.fullmatch(word)]
    files = [word for word in words if not RUN_ID.fullmatch(word)]
    if len(ids) > 1 or len(files) > 1:
        hint = "a run's id is as lakefeed runs list shows it"
        raise ConfigError(f"one run and one pipeline file: {' '.join(words)}", hint=hint)
    return next(iter(ids), None), Path(files[0]) if files else None


def _traces(pipeline: Path | None, feed: str | None) -> list[dict[str, Any]]:
    """Return the traces of a feed, newest first; those beside its checkpoint too, where the file says so."""
    if (pipeline is None) == (feed is None):
        raise click.UsageError("give a pipeline file, or --feed NAME")
    if feed is not None:
        from lakefeed_observe.runs.store import runs_of

        found = [trace for runs in runs_of(feed) for trace in runs.traces()]
    else:
        from lakefeed_observe.runs.store import traces_of

        assert pipeline is not None  # the one or the other
        declared = lakefeed.Pipeline.from_file(pipeline)
        found = traces_of(declared.config, connections=declared.connections)
    return sorted(found, key=lambda trace: str(trace.get("run")), reverse=True)


def _find(traces: Sequence[dict[str, Any]], run_id: str | None) -> dict[str, Any]:
    for trace in traces:
        if run_id in (None, trace.get("run")):
            return trace
    if run_id is None:
        raise ResourceMissing("no run of this feed has left a trace", hint="lakefeed run leaves one")
    raise ResourceMissing(f"there is no run {run_id} of this feed", hint="lakefeed runs list shows those there are")


def run_lines(trace: Mapping[str, Any]) -> list[str]:
    """Return a run as lines for people."""
    totals, driver = trace.get("totals") or {}, trace.get("driver") or {}
    error, start = trace.get("error") or {}, trace.get("start") or {}
    requests = trace.get("requests") or {}
    rows: list[tuple[str, str]] = [
        ("began", _time(trace.get("began_at"))),
        ("end", f"{trace.get('end')} {_time(trace.get('ended_at'))}"),
        ("driver", f"process {driver.get('pid')} on {driver.get('host')}"),
        ("start", str(start.get("reason") or "-")),
        ("batches", f"{figure(totals.get('batches'))}, {figure(totals.get('records'))} records"),
        ("rows", figure(totals.get("rows"))),
        ("lag", figure(trace.get("lag"))),
        ("S3 requests", _requests_text(requests)),
    ]
    if error:
        rows.append(("error", str(error.get("what"))))
        if error.get("hint"):
            rows.append(("next", str(error["hint"])))
    rows += [("data loss", str(loss.get("message"))) for loss in start.get("data_loss") or ()]
    rows += [
        ("dead letters", f"{figure(each['count'])} times {each['reason']}") for each in trace.get("dead_letters") or ()
    ]
    for name, key in (("schema", "schema_changes"), ("action", "actions"), ("upkeep", "upkeep"), ("errors", "errors")):
        rows += [(name, f"{_time(event['at'])} {event['message']}") for event in (trace.get(key) or ())[-10:]]
    lines = [f"{trace.get('feed')} into {trace.get('sink')}: run {trace.get('run')}"]
    return [one_line(line, most=2000) for line in lines] + [
        f"  {line}" for line in aligned([(name, one_line(text, most=1000)) for name, text in rows], left=2)
    ]


def _requests_text(requests: Mapping[str, Any]) -> str:
    by_class = sorted((requests.get("by_class") or {}).items(), key=lambda entry: -entry[1])
    parts = ", ".join(f"{name} {count:,}" for name, count in by_class)
    return figure(requests.get("total")) + (f": {parts}" if parts else "")


def _time(text: Any) -> str:
    return str(text)[:19].replace("T", " ") if text else "-"
