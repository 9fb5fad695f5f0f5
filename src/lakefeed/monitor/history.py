"""Stores the figures of the last 24 hours' batches in a few megabytes.

A batch as an object takes 2 kB, or 200 MB a day at one batch a second. Charts need only figures. So the history has a
column of 8-byte numbers for each figure, and objects for the newest batches only. If several batches end within one
second, one row has their sums.
"""

from __future__ import annotations

import math
from array import array
from collections import deque
from collections.abc import Iterator, Sequence

from lakefeed.feed.progress import FinishedBatch, per_second
from lakefeed.json_model import JsonModel, Time

HOURS = 24
MOST_ROWS = HOURS * 3600
WHOLE_BATCHES = 100
"""The number of newest batches that are stored as objects."""

UNKNOWN = -1
_BLOCK = 1024
Block = dict[str, "array[float]"]

# The 17 columns with 8 bytes for each of 86,400 seconds are 11.8 MB.
SUMS = (
    "batches",
    "records",
    "rows",
    "offsets",
    "seconds",
    "dead_letters",
    "skipped",
    "requests",
    "writes",
    "reads",
    "bytes_out",
    "write_seconds",
)
LAST = ("batch", "lag", "lag_seconds", "state_rows")
COLUMNS = ("at", *SUMS, *LAST)


class Point(JsonModel):
    """The sums over successive batches; unknown values are None.

    Attributes:
        at: the end of the last batch; ``batch``, ``lag``, ``lag_seconds`` and ``state_rows`` are the last batch's, too.
        seconds: the sum of the batches' durations.
    """

    at: Time
    batch: int = 0
    batches: int = 0
    records: int = 0
    rows: int | None = None
    offsets: int | None = None
    seconds: float = 0.0
    write_seconds: float = 0.0
    dead_letters: int = 0
    skipped: int = 0
    requests: int | None = None
    writes: int | None = None
    reads: int | None = None
    bytes_out: int | None = None
    lag: int | None = None
    lag_seconds: float | None = None
    state_rows: int | None = None

    @property
    def rate(self) -> float:
        """Records per second, without the time between the batches."""
        return per_second(self.records, self.seconds)


class RunHistory(JsonModel):
    """The history of a run as points, and its newest batches as objects; both oldest first."""

    points: tuple[Point, ...] = ()
    batches: tuple[FinishedBatch, ...] = ()


class BatchHistory:
    """Stores the batches of the last ``HOURS`` hours; it is not thread-safe.

    The rows are in blocks of arrays, so that the oldest rows can be dropped without moving any other row.
    """

    def __init__(self, *, seconds: float = HOURS * 3600, most_rows: int = MOST_ROWS) -> None:
        self._seconds = seconds
        self._most_blocks = math.ceil(most_rows / _BLOCK) + 1
        self._blocks: deque[Block] = deque()
        self.newest: deque[FinishedBatch] = deque(maxlen=WHOLE_BATCHES)

    def __len__(self) -> int:
        return sum(len(block["at"]) for block in self._blocks)

    def add(self, batch: FinishedBatch) -> None:
        self.newest.append(batch)
        row = _row(batch)
        if self._blocks and int(self._blocks[-1]["at"][-1]) == int(batch.finished_at):
            _merge(self._blocks[-1], row)
        else:
            if not self._blocks or len(self._blocks[-1]["at"]) >= _BLOCK:
                self._blocks.append({name: array("d") for name in COLUMNS})
            for name, value in row.items():
                self._blocks[-1][name].append(value)
        oldest = batch.finished_at - self._seconds
        while len(self._blocks) > self._most_blocks or (self._blocks and self._blocks[0]["at"][-1] < oldest):
            self._blocks.popleft()

    def blocks(self, *, since: float = 0.0) -> list[Block]:
        """Return a copy, of at most 12 MB, of the blocks with rows since a time; ``points_of`` reads the copy."""
        newest = [block for block in self._blocks if block["at"][-1] >= since]
        return [{name: column[:] for name, column in block.items()} for block in newest]

    def rate(self, seconds: float, *, now: float) -> float | None:
        """Return the records per second over the last ``seconds``, pauses included; None if no batch ended then."""
        records, first = 0.0, None
        for at, duration, count in self._newest_first():
            if at < now - seconds:
                break
            records += count
            first = at - duration
        return None if first is None or now <= first else records / (now - first)

    def _newest_first(self) -> Iterator[tuple[float, float, float]]:
        for block in reversed(self._blocks):
            yield from zip(reversed(block["at"]), reversed(block["seconds"]), reversed(block["records"]), strict=True)


def points_of(blocks: Sequence[Block], *, since: float = 0.0, most: int = 500) -> list[Point]:
    """Return the rows since a time as at most ``most`` points, oldest first; a point sums up consecutive rows."""
    rows = [(block, at) for block in blocks for at in range(len(block["at"])) if block["at"][at] >= since]
    width = max(1, math.ceil(len(rows) / most))
    return [_point(rows[at : at + width]) for at in range(0, len(rows), width)]


def _row(batch: FinishedBatch) -> dict[str, float]:
    requests = batch.requests
    names = ("records", "rows", "offsets", "seconds", "dead_letters", "skipped", "lag", "lag_seconds")
    row: dict[str, float | None] = {name: getattr(batch, name) for name in names}
    row |= {name: getattr(requests, name, None) for name in ("writes", "reads", "bytes_out")}
    row |= {"at": batch.finished_at, "batch": batch.batch_id, "batches": 1, "state_rows": batch.state.rows}
    row |= {"requests": requests.total if requests else None, "write_seconds": batch.phases.get("write", 0.0)}
    return {name: UNKNOWN if value is None else float(value) for name, value in row.items()}


def _merge(block: Block, row: dict[str, float]) -> None:
    for name, value in row.items():
        before = block[name][-1]
        is_sum = name in SUMS and UNKNOWN not in (before, value)
        block[name][-1] = before + value if is_sum else value


def _point(rows: list[tuple[Block, int]]) -> Point:
    last, at = rows[-1]
    values = {name: last[name][at] for name in ("at", *LAST)}
    for name in SUMS:
        known = [block[name][at] for block, at in rows if block[name][at] != UNKNOWN]
        values[name] = sum(known) if known else UNKNOWN
    return Point.model_validate({name: value for name, value in values.items() if value != UNKNOWN})
