"""One feed in full for ``lakefeed top``: its panel, its newest batches, its partitions and its events."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from rich.text import Text

from lakefeed.messages.printable import aligned
from lakefeed.messages.text import one_line
from lakefeed.monitor.model import PartitionLag
from lakefeed.monitor.terminal.lines import batch_line, joined, panel_lines
from lakefeed_dashboard.top.seen import SeenFeed
from lakefeed_dashboard.top.table import STYLES, age, since_text

MOST_BATCHES = 5
MOST_EVENTS = 20


def detail_lines(feed: SeenFeed, *, now: float) -> Iterator[Text]:
    """Yield the lines of one feed."""
    if feed.progress is not None:
        yield from panel_lines(feed.progress, feed.batches)
    else:
        line = Text(f"{one_line(feed.name)} ", style="bold")
        yield line.append(joined(("", one_line(feed.sink), since_text(feed, now))), style="not bold")
    yield Text.assemble("  ", (feed.state, STYLES.get(feed.state, "")), joined((" ", one_line(feed.note))))
    if feed.driver:
        yield Text(f"  {one_line(feed.driver)}")
    yield from _failure(feed)
    if feed.batches:
        yield Text("batches", style="bold")
        yield from (Text(f"  {batch_line(batch)}") for batch in reversed(feed.batches[-MOST_BATCHES:]))
    if feed.partitions:
        yield Text("partitions, the greatest lag first", style="bold")
        yield from (Text(f"  {line}") for line in aligned(_partition_rows(feed), left=1))
    if feed.events:
        yield Text("events, the newest first", style="bold")
        for event in reversed(feed.events[-MOST_EVENTS:]):
            at = datetime.fromtimestamp(event.at, UTC)
            yield Text(f"  {at:%Y-%m-%d %H:%M:%S}  {event.kind}: {one_line(event.message)}")


def _failure(feed: SeenFeed) -> Iterator[Text]:
    """Yield what the panel does not say of the last error."""
    error = feed.progress.last_error if feed.progress else None
    if error is not None and error.where:
        yield Text(f"    at {one_line(error.where)}", style="red")
    if error is not None and error.hint:
        yield Text(f"    next: {one_line(error.hint)}")


def _partition_rows(feed: SeenFeed) -> list[tuple[str, ...]]:
    def greatest_first(part: PartitionLag) -> tuple[int, str, int]:
        return (-(part.lag if part.lag is not None else 1 << 62), part.topic, part.partition)

    rows: list[tuple[str, ...]] = [("partition", "committed", "read", "end", "lag", "oldest")]
    for part in sorted(feed.partitions, key=greatest_first):
        offsets = ["-" if at is None else str(at) for at in (part.committed, part.read, part.end, part.lag)]
        committed, read, end, lag = offsets
        rows.append((one_line(f"{part.topic}-{part.partition}"), committed, read, end, lag, age(part.seconds)))
    return rows
