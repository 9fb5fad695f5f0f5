"""Reads the newest letters of a dead-letter table: only some files, and large values only for samples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from lakefeed.sinks.dead_letters.store import Content, RecentLetters, group_recent, time_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.table import FileScanTask, Table

TIMES = ("timestamp", "failed_at")
SMALL = ("topic", "partition", "offset", "timestamp", "reason", "schema_id", "batch_id", "failed_at", "replay")
"""All columns except those whose values may be large."""
POSITION = ("topic", "partition", "offset")
NEWEST = [(name, "descending") for name in ("failed_at", *POSITION)]


def read_recent(table: Table, feed: str, *, most: int, samples: int, longest: int) -> RecentLetters:
    """Return at most ``most`` of a feed's newest letters, grouped by reason: see ``DeadLetterReader.recent``."""
    import pyarrow.compute as pc
    from pyiceberg.expressions import And, EqualTo, Or

    equal: Any = EqualTo  # The constructor of EqualTo comes from a plugin that mypy does not load.
    of_feed = equal("feed", feed)
    tasks = list(table.scan(row_filter=of_feed).plan_files())
    chosen = _newest(table, tasks, most=most)
    small = _read(table, chosen, of_feed, SMALL)
    is_whole = len(chosen) == len(tasks) and small.num_rows <= most
    # One file may have millions of letters: cut them in Arrow, before they become Python objects.
    letters: list[dict[str, Any]] = small.take(pc.sort_indices(small, sort_keys=NEWEST)[:most]).to_pylist()
    recent = group_recent(letters, samples=samples, is_whole=is_whole)
    sampled = [letter for _, _, of_reason in recent.reasons for letter in of_reason]
    if sampled:
        # Or(*at) builds a balanced tree: a chain with a node for each letter would be deeper than Python's stack.
        at = [And(*(equal(name, letter[name]) for name in POSITION)) for letter in sampled]
        samples_only = And(of_feed, Or(*at) if len(at) > 1 else at[0])
        content = {
            tuple(letter[name] for name in POSITION): (
                Content.of(letter["key"], longest),
                Content.of(letter["value"], longest),
            )
            for letter in _read(table, chosen, samples_only, (*POSITION, "key", "value")).to_pylist()
        }
        nothing = Content(None, 0), Content(None, 0)
        for letter in sampled:
            letter["content"] = content.get(tuple(letter[name] for name in POSITION), nothing)
    for letter in letters:
        letter.update({name: time_of(letter[name]) for name in TIMES})
    return recent


def _newest(table: Table, tasks: Sequence[FileScanTask], *, most: int) -> list[FileScanTask]:
    """Return the files with the ``most`` newest letters."""
    field = table.schema().find_field("failed_at").field_id

    def failed_at(task: FileScanTask) -> int:
        bound = task.file.upper_bounds.get(field) if task.file.upper_bounds else None
        # A file without bounds may have the newest letters.
        return int.from_bytes(bound, "little", signed=True) if bound else 2**63

    chosen: list[FileScanTask] = []
    count = 0
    for task in sorted(tasks, key=failed_at, reverse=True):
        if count >= most:
            break
        chosen.append(task)
        count += task.file.record_count
    return chosen


def _read(table: Table, tasks: Sequence[FileScanTask], rows: Any, columns: Sequence[str]) -> pa.Table:
    from pyiceberg.io.pyarrow import ArrowScan

    scan = ArrowScan(table.metadata, table.io, table.schema().select(*columns), rows)
    return with_numbers(scan.to_table(tasks))


def with_numbers(letters: pa.Table) -> pa.Table:
    """Return letters with times in microseconds, because Arrow cannot convert all times to dates."""
    import pyarrow as pa

    for name in TIMES:
        if name in letters.column_names:
            letters = letters.set_column(letters.column_names.index(name), name, letters[name].cast(pa.int64()))
    return letters
