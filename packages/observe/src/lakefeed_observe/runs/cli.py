"""``lakefeed runs``: show the runs of a feed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import lakefeed
from lakefeed.cli.options import FILE, output_option, pipeline_argument
from lakefeed.cli.output import emit, figure
from lakefeed.errors import ResourceMissing
from lakefeed.json_model import iso
from lakefeed.messages.printable import aligned
from lakefeed.messages.text import one_line

if TYPE_CHECKING:
    from lakefeed_observe.runs.store import Trace

_feed_option = click.option("--feed", metavar="NAME", help="Runs of this feed on this machine; replaces PIPELINE.")


@click.group()
def runs() -> None:
    """Show the runs of a feed: starts, ends, batches, errors."""


@runs.command("list")
@pipeline_argument
@_feed_option
@output_option
def list_(pipeline: Path, feed: str | None) -> None:
    """List the runs of PIPELINE, newest first, with their times, batches, records, dead letters and errors."""
    from lakefeed_observe.runs.follower import summary_of

    found = [summary_of(trace) for trace in _traces(pipeline, feed)]

    def text() -> Iterator[str]:
        if not found:
            yield "no run of this feed has left a trace"
            return
        rows: list[tuple[str, ...]] = [("run", "began", "ended", "end", "batches", "records", "dead letters", "errors")]
        for run in found:
            counts = (figure(run[name]) for name in ("batches", "records", "dead_letters", "errors"))
            times = (_time(run["began_at"]), _time(run["ended_at"]))
            rows.append((str(run["run"]), *times, str(run["end"]), *counts))
        yield from aligned(rows, left=4)

    emit({"runs": found}, text())


@runs.command()
@pipeline_argument
@_feed_option
@click.option("--run", "run_id", metavar="ID", help="The run, as lakefeed runs list shows it.  [default: the newest]")
@click.option("--html", type=FILE, help="Write the run as a page into this file.")
@output_option
def show(pipeline: Path, feed: str | None, run_id: str | None, html: Path | None) -> None:
    """Show one run of PIPELINE: why it began at its offsets, its batches, its errors, its end."""
    trace = _find(_traces(pipeline, feed), run_id)
    if html is not None:
        from lakefeed_observe.runs.page import page_of

        html.write_text(page_of(trace), encoding="utf-8")
        emit({"run": trace.run, "html": str(html)}, f"the page of run {trace.run} is {html}")
        return

    emit(trace.as_dict(), run_lines(trace))


def _traces(pipeline: Path, feed: str | None) -> list[Trace]:
    """Return a feed's traces, newest first; with ``runs.keep: checkpoint``, also those beside the checkpoint."""
    if feed is not None:
        from lakefeed_observe.runs.store import runs_of

        found = [trace for runs in runs_of(feed) for trace in runs.traces()]
    else:
        from lakefeed_observe.runs.store import traces_of

        declared = lakefeed.Pipeline.from_file(pipeline)
        found = traces_of(declared.config, connections=declared.connections)
    return sorted(found, key=lambda trace: trace.run, reverse=True)


def _find(traces: Sequence[Trace], run_id: str | None) -> Trace:
    for trace in traces:
        if run_id in (None, trace.run):
            return trace
    if run_id is None:
        raise ResourceMissing("no run of this feed has left a trace", hint="lakefeed run writes one")
    raise ResourceMissing(f"there is no run {run_id} of this feed", hint="lakefeed runs list shows the ids")


def run_lines(trace: Trace) -> list[str]:
    totals, losses = trace.totals, trace.start.get("data_loss")
    most_first = sorted(trace.requests.by_class.items(), key=lambda entry: -entry[1])
    by_class = ", ".join(f"{name} {count:,}" for name, count in most_first)
    rows: list[tuple[str, str]] = [
        ("began", _time(iso(trace.began_at))),
        ("end", f"{trace.end} {_time(iso(trace.ended_at))}"),
        ("driver", f"process {trace.driver.pid} on {trace.driver.host}"),
        ("start", str(trace.start.get("reason") or "-")),
        ("batches", f"{figure(totals.batches)}, {figure(totals.records)} records"),
        ("rows", figure(totals.rows)),
        ("lag", figure(trace.lag)),
        ("S3 requests", figure(trace.requests.total) + (f": {by_class}" if by_class else "")),
    ]
    if trace.error is not None:
        rows.append(("error", trace.error.what))
        if trace.error.hint:
            rows.append(("next", trace.error.hint))
    for loss in losses if isinstance(losses, list) else ():
        rows.append(("data loss", str(loss.get("message") if isinstance(loss, dict) else loss)))
    rows += [("dead letters", f"{figure(each.count)} times {each.reason}") for each in trace.dead_letters]
    for name, events in (
        ("schema", trace.schema_changes), ("action", trace.actions), ("upkeep", trace.upkeep), ("errors", trace.errors)
    ):  # fmt: skip
        rows += [(name, f"{_time(iso(event.at))} {event.message}") for event in events[-10:]]
    title = one_line(f"{trace.feed} into {trace.sink}: run {trace.run}", most=2000)
    shown = aligned([(name, one_line(text, most=1000)) for name, text in rows], left=2)
    return [title, *(f"  {line}" for line in shown)]


def _time(text: Any) -> str:
    return str(text)[:19].replace("T", " ") if text else "-"
