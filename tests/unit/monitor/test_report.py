"""Spark's report of a batch, taken apart."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from lakefeed.monitor.report import ends_of, phases_of, state_of

REPORT: dict[str, Any] = {
    "durationMs": {
        "triggerExecution": 900, "latestOffset": 20, "getBatch": 5, "queryPlanning": 25, "walCommit": 40,
        "addBatch": 700, "commitOffsets": 60,
    },
    "eventTime": {"watermark": "2026-11-20T06:30:00.000Z"},
    "stateOperators": [
        {"numRowsTotal": 10, "memoryUsedBytes": 1000, "numRowsDroppedByWatermark": 2},
        {"numRowsTotal": 5, "memoryUsedBytes": 500, "numRowsDroppedByWatermark": 0},
    ],
    "sources": [{"latestOffset": {"t": {"0": 150}, "u": {"1": {"at": 7, "mark": "x"}}}}],
}  # fmt: skip


def test_phases_are_in_the_order_of_a_batch() -> None:
    phases = phases_of(REPORT, {"check": 0.1, "write": 0.5, "dead_letters": 0.1})
    assert phases == {"plan": 0.05, "check": 0.1, "write": 0.5, "dead_letters": 0.1, "add": 0.7, "log": 0.1}
    assert list(phases) == ["plan", "check", "write", "dead_letters", "add", "log"]
    assert phases_of({}) == {}


def test_watermark_and_state_are_those_of_all_operators() -> None:
    state = state_of(REPORT)
    assert (state.watermark, state.rows, state.bytes, state.late_rows) == ("2026-11-20T06:30:00.000Z", 15, 1500, 2)
    assert state_of({}).rows is None


def test_ends_are_by_partition_whatever_a_source_calls_its_positions() -> None:
    assert ends_of(REPORT, "latestOffset") == {("t", 0): 150, ("u", 1): 7}
    assert ends_of({"sources": [{"latestOffset": {"logOffset": 4}}, {"latestOffset": None}]}, "latestOffset") == {}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(JSON)
def test_offsets_of_any_source_are_no_error(latest: Any) -> None:
    assert all(
        isinstance(end, int) for end in ends_of({"sources": [{"latestOffset": latest}]}, "latestOffset").values()
    )
