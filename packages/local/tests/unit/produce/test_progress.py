"""The progress that ``topics produce`` shows."""

import io
import time

import pytest
from rich.console import Console

from lakefeed_local.produce.write import ProduceView


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


def test_without_a_terminal_progress_is_a_line_every_few_seconds(clock: list[float]) -> None:
    out = io.StringIO()
    with ProduceView("trips", expected=4000, console=Console(file=out)) as view:
        for records in (0, 0, 0, 0, 1000, 1200, 1400, 1600, 1800, 2000):
            clock[0] += 2
            view.reached(records)
        view.print("done [here]")
    assert out.getvalue().splitlines() == [
        "produce trips: 0 of 4,000",
        "produce trips: 1,200 of 4,000",
        "produce trips: 1,800 of 4,000 · 100/s · 22 s left",
        "done [here]",
    ]


def test_in_a_terminal_progress_is_a_line_that_changes(clock: list[float]) -> None:
    out = io.StringIO()
    with ProduceView("trips", console=Console(file=out, force_terminal=True, width=80)) as view:
        view.reached(5)
    assert "produce trips: 5" in out.getvalue()
    assert "left" not in out.getvalue()
