"""The batches of the last 24 hours in a few megabytes: columns of numbers, at most one row a second.

A batch as an object with its mappings takes 2 kB and more: 200 MB a day at one batch a second. Charts and rates need
numbers alone, so the history keeps those, 8 bytes each, and the newest batches besides as they are. Where several
batches end within one second, their row has the sums.
"""

from __future__ import annotations

import math
from array import array
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from lakefeed.monitor.model import FinishedBatch, iso

HOURS = 24
MOST_ROWS = HOURS * 3600
WHOLE_BATCHES = 100
"""So many of the newest batches are kept whole, with reasons, phases and notes."""

UNKNOWN = -1
_BLOCK = 1024
Block = dict[str, "array[float]"]

# A row is 8 bytes for each of these: 17 of them for 86,400 seconds are 11.8 MB.
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


@dataclass(frozen=True, kw_only=True)
class Point:
    """The batches that have ended within some time, added up; None for what is not known.

    Attributes:
        at: when the last of them ended, in seconds since 1970.
        seconds: the batches' own durations.
        batch: the last one's id; ``lag`` and ``state_rows`` are also its.
    """

    at: float
    batches: int
    batch: int
    records: int
    rows: int | None
    offsets: int | None
    seconds: float
    write_seconds: float
    dead_letters: int
    skipped: int
    requests: int | None
    writes: int | None
    reads: int | None
    bytes_out: int | None
    lag: int | None
    lag_seconds: float | None
    state_rows: int | None

    @property
    def rate(self) -> float:
        """Records a second while the batches ran."""
        return self.records / self.seconds if self.seconds > 0 else 0.0

    def as_dict(self) -> dict[str, Any]:
        names = ("batch", "batches", "records", "rows", "offsets", "seconds", "write_seconds", "dead_letters")
        more = ("skipped", "requests", "writes", "reads", "bytes_out", "lag", "lag_seconds", "state_rows")
        return {"at": iso(self.at), **{name: getattr(self, name) for name in (*names, *more)}}


class BatchHistory:
    """Keeps the batches of the last ``HOURS`` hours; not safe for threads by itself.

    The rows are in blocks of arrays, so that the oldest can be dropped without moving the others.
    """

    def __init__(self, *, seconds: float = HOURS * 3600, most_rows: int = MOST_ROWS) -> None:
        self._seconds = seconds
        self._most_blocks = math.ceil(most_rows / _BLOCK) + 1
        self._blocks: deque[Block] = deque()
        self.newest: deque[FinishedBatch] = deque(maxlen=WHOLE_BATCHES)

    def __len__(self) -> int:
        return sum(len(block["at"]) for block in self._blocks)

    def add(self, batch: FinishedBatch) -> None:
        """Add a batch that has just ended; drop what is older than the time that is kept."""
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
        """Return a copy of the rows since a time, and some before, for ``points_of``: 12 MB at most."""
        found = [block for block in self._blocks if block["at"][-1] >= since]
        return [{name: column[:] for name, column in block.items()} for block in found]

    def rate(self, seconds: float, *, now: float) -> float | None:
        """Return the records a second over the last seconds, with the time between batches; None without a batch."""
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
    """Return rows since a time as at most so many points, oldest first; neighbours are added up."""
    rows = [(block, at) for block in blocks for at in range(len(block["at"])) if block["at"][at] >= since]
    width = max(1, math.ceil(len(rows) / most))
    return [_point(rows[at : at + width]) for at in range(0, len(rows), width)]


def _row(batch: FinishedBatch) -> dict[str, float]:
    requests = batch.requests
    row: dict[str, float | None] = {
        "at": batch.finished_at,
        "batches": 1,
        "records": batch.records,
        "rows": batch.rows,
        "offsets": batch.offsets,
        "seconds": batch.seconds,
        "dead_letters": batch.dead_letters,
        "skipped": batch.skipped,
        "requests": requests.total if requests else None,
        "writes": requests.writes if requests else None,
        "reads": requests.reads if requests else None,
        "bytes_out": requests.bytes_out if requests else None,
        "write_seconds": batch.phases.get("write", 0.0),
        "batch": batch.batch_id,
        "lag": batch.lag,
        "lag_seconds": batch.lag_seconds,
        "state_rows": batch.state.rows,
    }
    return {name: UNKNOWN if value is None else float(value) for name, value in row.items()}


def _merge(block: Block, row: dict[str, float]) -> None:
    for name, value in row.items():
        before = block[name][-1]
        is_sum = name in SUMS and UNKNOWN not in (before, value)
        block[name][-1] = before + value if is_sum else value


def _point(rows: list[tuple[Block, int]]) -> Point:
    def summed(name: str) -> float | None:
        known = [block[name][at] for block, at in rows if block[name][at] != UNKNOWN]
        return sum(known) if known else None

    def last(name: str) -> float | None:
        block, at = rows[-1]
        return None if block[name][at] == UNKNOWN else block[name][at]

    return Point(
        at=last("at") or 0.0,
        batches=_whole(summed("batches")) or 0,
        batch=_whole(last("batch")) or 0,
        records=_whole(summed("records")) or 0,
        rows=_whole(summed("rows")),
        offsets=_whole(summed("offsets")),
        seconds=summed("seconds") or 0.0,
        write_seconds=summed("write_seconds") or 0.0,
        dead_letters=_whole(summed("dead_letters")) or 0,
        skipped=_whole(summed("skipped")) or 0,
        requests=_whole(summed("requests")),
        writes=_whole(summed("writes")),
        reads=_whole(summed("reads")),
        bytes_out=_whole(summed("bytes_out")),
        lag=_whole(last("lag")),
        lag_seconds=last("lag_seconds"),
        state_rows=_whole(last("state_rows")),
    )


def _whole(number: float | None) -> int | None:
    return None if number is None else int(number)
