"""Query panels run when they are due, even if other queries are slow or fail, and show exact values."""

import threading
import time
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest

from lakefeed.errors import ConfigError
from lakefeed_dashboard.details.panels import Panels, cell, statement_of
from lakefeed_dashboard.settings import QueryPanel
from tests.support.clock import until


class Queries:
    """A stand-in for Spark: a query waits for the gate, then returns the number of queries or raises ``error``."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.running = 0
        self.gate = threading.Event()
        self.gate.set()
        self.cancelled: list[str] = []
        self.error: Exception | None = None

    def query(self, panel: QueryPanel, *, group: str) -> dict[str, Any]:
        self.asked.append(panel.name)
        self.running += 1
        try:
            while not self.gate.wait(0.01):
                if group in self.cancelled:
                    raise RuntimeError("job group cancelled")
            if self.error is not None:
                raise self.error
            return {"columns": ["n"], "rows": [[len(self.asked)]], "truncated": False}
        finally:
            self.running -= 1


def panel(name: str = "hits", **settings: Any) -> QueryPanel:
    return QueryPanel.model_validate({"name": name, "view": "v", "every": "1 second", **settings})


def panels_of(queries: Queries, *panels: QueryPanel, clock: Callable[[], float] = time.time) -> Panels:
    return Panels(panels, open_query=lambda: queries.query, cancel_group=queries.cancelled.append, clock=clock)


def test_no_query_runs_before_a_user_opens_the_panel() -> None:
    queries = Queries()
    panels_of(queries, panel())
    time.sleep(0.05)
    assert queries.asked == []


def test_a_panel_is_queried_again_after_its_interval() -> None:
    queries, now = Queries(), [100.0]
    panels = panels_of(queries, panel(every="5 seconds"), clock=lambda: now[0])
    [first] = panels.document()["panels"]
    assert (first["rows"], first["taken_at"], first["error"]) == ([], None, None)
    until(lambda: panels.document()["panels"][0]["rows"] == [[1]])
    now[0] = 104.9
    for _ in range(5):
        assert panels.document()["panels"][0]["rows"] == [[1]]
    now[0] = 105.1
    panels.document()
    until(lambda: panels.document()["panels"][0]["rows"] == [[2]])
    assert panels.document()["panels"][0]["taken_at"] == "1970-01-01T00:01:45.100Z"
    panels.close()


def test_a_slow_panel_is_not_queried_twice_at_once_and_delays_no_other_panel() -> None:
    queries, slow, now = Queries(), Queries(), [100.0]
    slow.gate.clear()

    def query(panel: QueryPanel, *, group: str) -> dict[str, Any]:
        return (slow if panel.name == "slow" else queries).query(panel, group=group)

    three = [panel("slow"), panel("a"), panel("b")]
    panels = Panels(three, open_query=lambda: query, cancel_group=print, clock=lambda: now[0])
    for _ in range(20):
        now[0] += 2
        panels.document()
        time.sleep(0.02)
    until(lambda: len(queries.asked) > 4)
    assert slow.asked == ["slow"]
    assert panels.document()["panels"][0]["running"] is True
    slow.gate.set()
    panels.close()


def test_a_query_is_cancelled_after_its_time_limit_and_retried_later() -> None:
    queries, now = Queries(), [100.0]
    queries.gate.clear()
    panels = panels_of(queries, panel(time_limit="1 second"), clock=lambda: now[0])
    panels.document()
    until(lambda: queries.cancelled != [])
    until(lambda: not panels.document()["panels"][0]["running"])
    assert "cancelled after 1 second" in panels.document()["panels"][0]["error"]
    queries.gate.set()
    now[0] += 2
    panels.document()
    until(lambda: panels.document()["panels"][0]["rows"] != [])
    assert panels.document()["panels"][0]["error"] is None
    panels.close()


def test_a_failed_query_shows_its_error_beside_the_previous_rows() -> None:
    queries, now = Queries(), [100.0]
    panels = panels_of(queries, panel(), clock=lambda: now[0])
    panels.document()
    until(lambda: panels.document()["panels"][0]["rows"] == [[1]])
    queries.error = ConfigError("a panel may only read, but its SQL has DropTable", hint="write one SELECT")
    now[0] += 2
    panels.document()
    until(lambda: panels.document()["panels"][0]["error"] is not None)
    [shown] = panels.document()["panels"]
    assert shown["error"] == "a panel may only read, but its SQL has DropTable; write one SELECT"
    assert shown["rows"] == [[1]]
    panels.close()


def test_the_error_of_a_query_contains_no_values_of_rows() -> None:
    queries = Queries()
    text = '[CAST_INVALID_INPUT] The value "4711-secret" of the type "STRING" cannot be cast to "INT". SQLSTATE: 22018'
    queries.error = RuntimeError(text)
    panels = panels_of(queries, panel())
    panels.document()
    until(lambda: panels.document()["panels"][0]["error"] is not None)
    error = panels.document()["panels"][0]["error"]
    assert "CAST_INVALID_INPUT" in error
    assert "4711" not in error
    panels.close()


def test_close_cancels_running_queries_and_starts_no_others() -> None:
    queries, now = Queries(), [100.0]
    queries.gate.clear()
    panels = panels_of(queries, panel(), clock=lambda: now[0])
    panels.document()
    until(lambda: queries.asked != [])
    panels.close()
    until(lambda: queries.running == 0)
    now[0] += 10
    panels.document()
    time.sleep(0.05)
    assert queries.asked == ["hits"]


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, None),
        (True, True),
        (7, 7),
        (2**53 + 1, "9007199254740993"),
        (1.5, 1.5),
        (float("nan"), "nan"),
        (float("-inf"), "-inf"),
        (Decimal("1.5"), 1.5),
        (Decimal("12.30"), 12.3),
        (Decimal("1.10000000000000000001"), "1.10000000000000000001"),
        ("<script>alert(1)</script>", "<script>alert(1)</script>"),
        ("x" * 3000, "x" * 2000 + "…"),
        ((1_704_110_400_000_000,), "2024-01-01T12:00:00Z"),
        ((None,), None),
        ((2**62,), "4611686018427387 ms since 1970"),
    ],
)
def test_javascript_reads_the_json_of_a_cell_exactly(value: Any, shown: Any) -> None:
    assert cell(value) == shown


def test_names_of_columns_and_tables_are_quoted() -> None:
    assert statement_of(panel(columns=["a`b", "c d"])) == "SELECT `a``b`, `c d` FROM `v`"
    table = QueryPanel.model_validate({"name": "t", "table": "lake.web.hits"})
    assert statement_of(table) == "SELECT * FROM `lake`.`web`.`hits`"
