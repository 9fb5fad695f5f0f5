"""Reads Spark's report of a finished micro-batch: phases, watermark, state, and how far the topics reach.

The phases of a batch, of which Spark measures some, and lakefeed those within its ``foreachBatch``:

``plan``         ask the topics for their ends, and plan the query (``latestOffset``, ``getBatch``, ``queryPlanning``)
``log``          write the checkpoint's entries (``walCommit``, ``commitOffsets``, ``commitBatch``)
``check``        ask the ledger whether the sink has the batch
``write``        read, decode and write the rows, and commit them; with several sinks ``rows`` of it is reading and
                 decoding, ``write sink`` the feed's own sink and ``write NAME`` the one of that name
``commit``       of ``write``: from when the rows are computed and may land until the sink has them; before it tasks
                 read, decode and, for tables of files, write. ``commit NAME`` of a further sink
``dead_letters`` write the dead letters
``publish``      hand the position to the thread that sends it to the monitoring group
``add``          ``check``, ``write``, ``dead_letters`` and ``publish`` together, as Spark measures it (``addBatch``)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from lakefeed.monitor.model import QueryState
from lakefeed.offsets.ranges import Partition

_PHASES = {
    "plan": ("latestOffset", "getBatch", "queryPlanning"),
    "log": ("walCommit", "commitOffsets", "commitBatch"),
    "add": ("addBatch",),
}


def phases_of(report: Mapping[str, Any], own: Mapping[str, float] | None = None) -> dict[str, float]:
    """Return the seconds of each phase, Spark's and ``own``, in the order of a batch."""
    durations = report.get("durationMs") or {}
    spark = {
        name: sum(int(durations.get(part, 0)) for part in parts) / 1000
        for name, parts in _PHASES.items()
        if any(part in durations for part in parts)
    }
    return {
        **{name: spark[name] for name in ("plan",) if name in spark},
        **(own or {}),
        **{name: spark[name] for name in ("add", "log") if name in spark},
    }


def state_of(report: Mapping[str, Any]) -> QueryState:
    """Return watermark and state of the query; a query without state has neither."""
    operators = report.get("stateOperators") or ()
    watermark = (report.get("eventTime") or {}).get("watermark")
    if not operators:
        return QueryState(watermark=watermark)
    return QueryState(
        watermark=watermark,
        rows=_sum(operators, "numRowsTotal"),
        bytes=_sum(operators, "memoryUsedBytes"),
        late_rows=_sum(operators, "numRowsDroppedByWatermark"),
    )


def _sum(operators: Iterable[Mapping[str, Any]], key: str) -> int:
    return sum(max(0, int(operator.get(key) or 0)) for operator in operators)


def ends_of(report: Mapping[str, Any], key: str) -> dict[Partition, int]:
    """Return offsets of the sources by partition: ``latestOffset`` or ``endOffset``; empty if they are not numbers."""
    found: dict[Partition, int] = {}
    for source in report.get("sources") or ():
        topics = source.get(key)
        if not isinstance(topics, Mapping):
            continue
        for topic, offsets in topics.items():
            if not isinstance(offsets, Mapping):
                continue
            for partition, offset in offsets.items():
                number = offset.get("at") if isinstance(offset, Mapping) else offset
                if isinstance(number, int) and 0 <= number < 2**63 and str(partition).isdecimal():
                    found[str(topic), int(partition)] = number
    return found
