"""Measurements as text: the seeds' own table for each case, and all cases side by side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from lakefeed.bench.cases import Workload
from lakefeed.bench.s3_requests import Measured, difference
from lakefeed.bench.trace import ApiCalls

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")
_HEADINGS = (
    *("manager", "sink", "bucket", "batches", "files", "start-up", "first", "per batch", "total"),
    *("objects", "versions", "markers", "rows", "meter"),
)


def size(count: int) -> str:
    """Bytes as ``mc`` writes them: one digit after the point below ten, else none."""
    value, unit = float(count), 0
    while value >= 1024 and unit < len(_UNITS) - 1:
        value, unit = value / 1024, unit + 1
    return f"{value:.1f} {_UNITS[unit]}" if unit and value < 10 else f"{value:.0f} {_UNITS[unit]}"


def api_table(apis: Sequence[ApiCalls], *, seconds: float) -> str:
    """The columns of ``mc support top api``."""
    rows = [("API", "RX", "TX", "CALLS", "ERRORS")]
    rows += [(each.api, size(each.received), size(each.sent), str(each.calls), str(each.errors)) for each in apis]
    widths = (32, 8, 8, 8, 0)
    lines = ["".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    received, sent = sum(each.received for each in apis), sum(each.sent for each in apis)
    calls = sum(each.calls for each in apis)
    return "\n".join([*lines, "", f"Total: {calls} CALLS, {size(received)} RX, {size(sent)} TX - in {seconds:.2f}s"])


def case_report(measured: Measured) -> str:
    """One case: its table, and whether it can be believed."""
    phases, kept = measured.phases, measured.kept
    agreement = (
        "the JVM's meter agrees exactly"
        if measured.meter_agrees
        else f"THE JVM'S METER DIFFERS: {difference(measured)}"
    )
    landed = "as in the topic" if measured.complete else f"BUT THE TOPIC HAS {measured.expected:,}"
    return "\n".join(
        [
            f"{measured.case.manager} · {measured.case.sink} · {_bucket(measured)} bucket",
            "",
            api_table(measured.apis, seconds=measured.seconds),
            "",
            f"{phases.batches} batches, {kept.data_files} files: {phases.startup} requests before the first batch's "
            f"offsets, {phases.first} in the first batch, {phases.per_batch:.1f} in each later one",
            f"left: {kept.objects} objects in {kept.versions} versions, {kept.delete_markers} delete markers",
            f"{measured.rows:,} rows landed, {landed}; {agreement}",
        ]
    )


def comparison(measured: Sequence[Measured], work: Workload) -> str:
    """All cases as one Markdown table, with the published figures above them."""
    rows = [_HEADINGS, *_references(work), *(_row(each) for each in measured)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADINGS))]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |" for row in rows
    ]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)


def _references(work: Workload) -> Iterator[tuple[str, ...]]:
    for each in work.references:
        total = str(each.total) if each.total is not None else ""
        # The seeds count versions and delete markers in one number.
        kept = str(each.kept) if each.kept is not None else ""
        yield (each.name, "parquet", "", "", "", "", "", f"{each.per_batch:.1f}", total, "", kept, "", "", "")


def _row(measured: Measured) -> tuple[str, ...]:
    phases, kept = measured.phases, measured.kept
    return (
        measured.case.manager,
        measured.case.sink,
        _bucket(measured),
        str(phases.batches),
        str(kept.data_files),
        str(phases.startup),
        str(phases.first),
        f"{phases.per_batch:.1f}",
        str(measured.total),
        str(kept.objects),
        str(kept.versions),
        str(kept.delete_markers),
        "all" if measured.complete else f"{measured.rows} OF {measured.expected}",
        "agrees" if measured.meter_agrees else "DIFFERS",
    )


def _bucket(measured: Measured) -> str:
    return "versioned" if measured.case.versioned else "plain"
