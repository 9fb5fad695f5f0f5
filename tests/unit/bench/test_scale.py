"""Bounds of the dimensions, what a result says, and its charts; test_bench.py of the integration tests measures."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from lakefeed.bench.scale import CostPoint, DimensionResult, table, write_charts
from lakefeed.bench.scale_dimensions import DIMENSION_NAMES, DIMENSIONS, DimensionName, bounds_of, chosen
from lakefeed.errors import ConfigError


def result(
    name: DimensionName, *, exponent: float, rate: float = 1.0, heap_mb: float = 0.0, is_complete: bool = True
) -> DimensionResult:
    """A result whose cost is a fixed one and a power of the size, the same at the largest size for all exponents."""
    dimension, points = DIMENSIONS[name], []
    largest = dimension.sizes[-1]
    for size in dimension.sizes:
        for jitter in (0.99, 1.01):
            cost = 0.2 + rate * 10 * (size / largest) ** exponent
            points.append(
                CostPoint(
                    size=size,
                    cpu_seconds=cost * jitter,
                    cpu={"tasks": cost / 2, "other": cost / 2},
                    seconds=cost,
                    requests=7.0,
                    heap_mb=100 + heap_mb * size / largest,
                    peak_rss_mb=900,
                )
            )
    return DimensionResult(dimension=dimension, points=tuple(points), is_complete=is_complete)


def test_a_linear_cost_holds_and_a_square_does_not() -> None:
    assert result("rows", exponent=1.0).holds
    assert result("rows", exponent=0.6).holds
    square = result("rows", exponent=2.0)
    assert square.cpu.verdict == "above linear"
    assert not square.holds


@pytest.mark.parametrize("name", ["files", "batches"])
def test_what_only_adds_up_must_cost_nothing(name: DimensionName) -> None:
    assert result(name, exponent=1.0, rate=0.0).holds
    assert not result(name, exponent=1.0).holds


def test_missing_rows_and_a_growing_heap_do_not_hold() -> None:
    assert not result("rows", exponent=1.0, is_complete=False).holds
    assert result("rows", exponent=1.0, heap_mb=60).is_heap_flat
    growing = result("rows", exponent=1.0, heap_mb=70)
    assert (growing.is_heap_flat, growing.holds) == (False, False)
    assert growing.heap_mb[1] == pytest.approx(170)


def test_more_requests_count_too() -> None:
    found = result("partitions", exponent=1.0)
    more = tuple(replace(point, requests=5 + point.size**2 / 1e4) for point in found.points)
    assert not replace(found, points=more).holds


def test_the_table_says_what_does_not_hold() -> None:
    text = table([result("rows", exponent=1.0), result("columns", exponent=2.0)])
    assert "DOES NOT HOLD" in next(line for line in text.splitlines() if line.startswith("columns"))
    assert "10,000,000" in text
    assert "taxi trips" in text


def test_each_dimension_has_charts(tmp_path: Path) -> None:
    [file] = write_charts([result("bytes", exponent=1.0)], tmp_path / "images")
    assert file.name == "scale-bytes.svg"
    assert "exponent 1.0" in "".join(ElementTree.fromstring(file.read_text("utf-8")).itertext())


def test_a_bound_is_measured_itself() -> None:
    [found] = chosen(["rows"], {"rows": 50_000})
    assert found.sizes == (1_000, 10_000, 50_000)
    [at] = chosen(["rows"], {"rows": 10_000})
    assert at.sizes == (1_000, 10_000)
    assert [dimension.name for dimension in chosen([], {})] == list(DIMENSION_NAMES)


def test_bounds_are_read_and_refused() -> None:
    assert bounds_of(["rows=10_000", "topics=5"]) == {"rows": 10_000, "topics": 5}
    for wrong in ("rows", "rows=", "rows=0", "rows=-1", "rows=many", "lines=5"):
        with pytest.raises(ConfigError, match="no upper bound"):
            bounds_of([wrong])
    with pytest.raises(ConfigError, match="bounds no dimension"):
        chosen(["files"], {"rows": 10_000})
    with pytest.raises(ConfigError, match="leaves nothing that grows"):
        chosen(["rows"], {"rows": 10})
