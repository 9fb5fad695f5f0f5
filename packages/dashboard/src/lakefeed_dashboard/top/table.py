"""The table of ``lakefeed top``: a line per feed, and as many columns as fit."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from pydantic import Field, computed_field
from rich.cells import set_cell_size
from rich.text import Text

from lakefeed.feed.events import Event
from lakefeed.feed.progress import FinishedBatch
from lakefeed.json_model import JsonModel, Seconds, Time
from lakefeed.messages.text import duration, one_line
from lakefeed.monitor.history import RunHistory
from lakefeed.monitor.model import FeedProgress, PartitionLag
from lakefeed.monitor.terminal import sparkline

MOST_POINTS = 60
NOT_WELL = ("failed", "killed", "hangs", "no answer", "replaced", "probably stopped", "unknown")
"""States that need attention, the worst first."""


class TrendPoint(JsonModel):
    """The rate and the lag at one time; None if unknown."""

    at: Time
    rate: Seconds | None
    lag: float | None


class Trend:
    """The newest points of a feed: first the points of the driver's history, then a point per batch."""

    def __init__(self) -> None:
        self._points: deque[TrendPoint] = deque(maxlen=MOST_POINTS)
        self.batches: deque[FinishedBatch] = deque(maxlen=MOST_POINTS)
        self.has_history = False

    def add_history(self, history: RunHistory) -> None:
        self.has_history = True
        self._points.clear()
        self.batches.clear()
        self._points.extend(TrendPoint(at=point.at, rate=point.rate, lag=point.lag) for point in history.points)
        self.batches.extend(history.batches)

    def add(self, batch: FinishedBatch | None) -> None:
        """Add a batch that the trend does not have yet."""
        if batch is None or (self._points and batch.finished_at <= self._points[-1].at + 0.001):
            return
        self._points.append(TrendPoint(at=batch.finished_at, rate=batch.processing_rate, lag=batch.lag))
        self.batches.append(batch)

    @property
    def points(self) -> tuple[TrendPoint, ...]:
        return tuple(self._points)


class SeenFeed(JsonModel):
    """The state of a feed at one time, which ``lakefeed top --output json`` prints; docs/metrics.md lists the keys.

    Attributes:
        key: unique among all feeds on the screen.
        state: the driver's state, or the likely state by the ledger; ``no answer`` if the driver does not answer.
        note: the reason for the state, if it is not obvious.
        since: when the run began.
        progress: the driver's answer; None if the driver has not answered.
        rate: records per second.
    """

    key: str = Field(exclude=True)
    name: str = Field(alias="feed")
    state: str
    sink: str = ""
    note: str = ""
    driver: str | None = None
    since: Time | None = None
    rate: Seconds | None = None
    lag: int | None = None
    lag_seconds: Seconds | None = None
    batch: int | None = None
    last_commit_at: Time | None = None
    last_error: str | None = None
    points: tuple[TrendPoint, ...] = ()
    progress: FeedProgress | None = Field(None, exclude=True)
    partitions: tuple[PartitionLag, ...] = Field((), exclude=True)
    batches: tuple[FinishedBatch, ...] = Field((), exclude=True)
    events: tuple[Event, ...] = Field((), exclude=True, repr=False)

    @property
    def is_well(self) -> bool:
        return self.state not in NOT_WELL

    @computed_field  # type: ignore[prop-decorator]
    @property
    def dead_letters(self) -> int | None:
        return None if self.progress is None else self.progress.totals.dead_letters

    @computed_field  # type: ignore[prop-decorator]
    @property
    def requests(self) -> int | None:
        """S3 requests of the newest batch."""
        batch = self.progress.last_batch if self.progress else None
        return batch.requests.total if batch and batch.requests else None


def answered(progress: FeedProgress, *, key: str, trend: Trend, events: Iterable[Event]) -> SeenFeed:
    """Return the state of a feed by its driver's answer; add the newest batch to the trend."""
    last = progress.last_batch
    trend.add(last)
    return SeenFeed(
        key=key,
        name=progress.feed,
        state="hangs" if progress.hangs else progress.state,
        sink=progress.sink,
        driver=f"process {progress.driver.pid} on {progress.driver.host}",
        since=progress.started_at,
        progress=progress,
        rate=progress.rate,
        lag=progress.lag,
        lag_seconds=progress.lag_seconds,
        batch=last.batch_id if last else None,
        last_commit_at=progress.last_commit_at,
        last_error=progress.last_error.text if progress.last_error else None,
        partitions=progress.partitions,
        points=trend.points,
        batches=tuple(trend.batches),
        events=tuple(events),
    )


GAP = 2
MARKER = 2
STYLES = {
    "failed": "red",
    "killed": "red",
    "hangs": "red",
    "no answer": "red",
    "replaced": "red",
    "probably stopped": "red",
    "unknown": "yellow",
    "starting": "yellow",
    "stopping": "yellow",
    "retrying": "yellow",
    "paused": "yellow",
    "working": "green",
    "waiting": "green",
    "probably running": "green",
}


@dataclass(frozen=True)
class TopColumn:
    """A column of the table.

    Attributes:
        need: the rank of the column, 0 for the most important; a narrow screen shows the most important columns.
        value: returns the value to sort by; None comes last. Figures are sorted in descending order.
        key: the key on the keyboard that sorts by this column.
        takes_rest: the column takes the remaining width.
    """

    title: str
    width: int
    need: int
    text: Callable[[SeenFeed, float], str]
    value: Callable[[SeenFeed, float], str | float | None] | None = None
    key: str = ""
    is_left: bool = False
    takes_rest: bool = False


def short(number: float | None) -> str:
    """Format a figure with at most six characters: 950, 12.3k, 4.5M; return a dash if the figure is unknown."""
    if number is None:
        return "-"
    size = abs(number)
    for unit in ("", "k", "M", "G", "T", "P"):
        if size < 999.5:
            return f"{number:.0f}{unit}" if not unit or size >= 99.95 else f"{number:.1f}{unit}"
        size /= 1000
        number /= 1000
    return f"{number:.0e}"


def age(seconds: float | None) -> str:
    """Format an age with at most six characters: 12 s, 3 min, 2 h, 5 d."""
    if seconds is None:
        return "-"
    if seconds < 59.5:
        return f"{max(0.0, seconds):.0f} s"
    if seconds < 3570:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.0f} h" if seconds < 172_800 else f"{seconds / 86_400:.0f} d"


def _state_value(feed: SeenFeed, _: float) -> float:
    return float(len(NOT_WELL) - NOT_WELL.index(feed.state)) if feed.state in NOT_WELL else 0.0


def _trend(feed: SeenFeed, name: str, width: int) -> str:
    return sparkline([getattr(point, name) or 0.0 for point in feed.points], width=width)


def _commit_age(feed: SeenFeed, now: float) -> float | None:
    return None if feed.last_commit_at is None else max(0.0, now - feed.last_commit_at)


SPARK = 8
COLUMNS = (
    TopColumn("feed", 14, 0, lambda feed, _: feed.name, lambda feed, _: feed.name.casefold(), "n", is_left=True),
    TopColumn("state", 9, 1, lambda feed, _: feed.state, _state_value, "t", is_left=True),
    TopColumn("rec/s", 6, 2, lambda feed, _: short(feed.rate), lambda feed, _: feed.rate, "r"),
    TopColumn("rate", SPARK, 6, lambda feed, _: _trend(feed, "rate", SPARK), is_left=True),
    TopColumn("lag", 6, 3, lambda feed, _: short(feed.lag), lambda feed, _: feed.lag, "l"),
    TopColumn("trend", SPARK, 7, lambda feed, _: _trend(feed, "lag", SPARK), is_left=True),
    TopColumn("oldest", 6, 4, lambda feed, _: age(feed.lag_seconds), lambda feed, _: feed.lag_seconds, "o"),
    TopColumn(
        "batch", 7, 10, lambda feed, _: "-" if feed.batch is None else str(feed.batch), lambda feed, _: feed.batch, "b"
    ),
    TopColumn("commit", 6, 5, lambda feed, now: age(_commit_age(feed, now)), _commit_age, "c"),
    TopColumn("dead", 6, 8, lambda feed, _: short(feed.dead_letters), lambda feed, _: feed.dead_letters, "d"),
    TopColumn("S3", 5, 9, lambda feed, _: short(feed.requests), lambda feed, _: feed.requests, "s"),
    TopColumn(
        "last error",
        12,
        11,
        lambda feed, _: feed.last_error or feed.note,
        lambda feed, _: feed.last_error or None,
        "e",
        is_left=True,
        takes_rest=True,
    ),
)
SORTED_BY = {column.key: column for column in COLUMNS if column.key}


def columns_for(width: int) -> list[tuple[TopColumn, int]]:
    """Return the columns that fit, with their widths; the last error or else the name gets the remaining width."""
    room = width - MARKER + GAP
    fit: list[TopColumn] = []
    for column in sorted(COLUMNS, key=lambda column: column.need):
        if column.width + GAP <= room or not fit:
            room -= column.width + GAP
            fit.append(column)
    taking = next((column for column in fit if column.takes_rest), fit[0])
    return [(column, max(1, column.width + (room if column is taking else 0))) for column in COLUMNS if column in fit]


def sort(feeds: Iterable[SeenFeed], *, key: str, is_reversed: bool, now: float) -> list[SeenFeed]:
    """Sort feeds by a column: words ascending, figures descending, unknown values last."""
    value = SORTED_BY[key].value
    assert value is not None  # Every column in SORTED_BY has a value to sort by.
    by_name = sorted(feeds, key=lambda feed: (feed.name.casefold(), feed.key))
    known = [(found, feed) for feed in by_name if (found := value(feed, now)) is not None]
    unknown = [feed for feed in by_name if value(feed, now) is None]
    is_word = any(isinstance(found, str) for found, _ in known)
    # The sort is stable in both directions, so feeds with equal figures stay ordered by name.
    known.sort(key=lambda pair: pair[0], reverse=is_word == is_reversed)
    return [feed for _, feed in known] + unknown


def header(columns: Sequence[tuple[TopColumn, int]], *, key: str = "") -> Text:
    """Return the line of titles; the title of the column that sorts is underlined."""
    line = Text(" " * MARKER, style="bold")
    for at, (column, width) in enumerate(columns):
        line.append(" " * GAP if at else "")
        line.append(_cell(column.title, column, width), style="underline" if key and column.key == key else "")
    return line


def row(feed: SeenFeed, columns: Sequence[tuple[TopColumn, int]], *, now: float, is_chosen: bool = False) -> Text:
    """Return a feed's line; the chosen feed's line has a marker and inverted colours."""
    line = Text("> " if is_chosen else "  ", style="reverse" if is_chosen else "")
    for at, (column, width) in enumerate(columns):
        style = STYLES.get(feed.state, "") if column.title == "state" else ""
        line.append(" " * GAP if at else "")
        line.append(_cell(one_line(column.text(feed, now)), column, width), style=style)
    return line


def _cell(text: str, column: TopColumn, width: int) -> str:
    """Fit a text into its column; a wide character takes two cells of the terminal."""
    cut = set_cell_size(text, width)
    if cut.rstrip() != text and len(text) > 1 and not text.startswith(cut.rstrip() + " "):
        cut = set_cell_size(set_cell_size(text, width - 1).rstrip() + "…", width)
    return cut if column.is_left else cut.rstrip().rjust(width)


def summary(feeds: Sequence[SeenFeed]) -> str:
    well = sum(feed.is_well for feed in feeds)
    rate = sum(feed.rate or 0.0 for feed in feeds)
    lag = sum(feed.lag or 0 for feed in feeds)
    ill = f", {len(feeds) - well:,} need a look" if well < len(feeds) else ""
    return f"{len(feeds):,} feeds{ill} · {short(rate)} records/s · lag {short(lag)}"


def table_lines(feeds: Sequence[SeenFeed], *, width: int, now: float) -> list[str]:
    """Return the table as plain lines, sorted by name, for output that is not a terminal."""
    columns = columns_for(width)
    shown = [row(feed, columns, now=now) for feed in sort(feeds, key="n", is_reversed=False, now=now)]
    return [line.plain[MARKER:].rstrip() for line in (header(columns), *shown)]


def since_text(feed: SeenFeed, now: float) -> str:
    return "" if feed.since is None else f"up {duration(max(0.0, now - feed.since))}"
