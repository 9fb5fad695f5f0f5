"""The verdict, the report and the charts of ``lakefeed-bench scale``, and its option ``--dimension``."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from lakefeed.errors import ConfigError
from lakefeed_bench.scale import DIMENSIONS, CostPoint, DimensionResult, chosen, draw, report


def result(
    name: str, *, exponent: float, rate: float = 1.0, heap_mb: float = 0.0, is_complete: bool = True
) -> DimensionResult:
    """Return a result with a fixed cost and a cost that grows as a power of the size, to 10 at the largest size."""
    dimension, points = DIMENSIONS[name], []
    largest = dimension.sizes[-1]
    for size in dimension.sizes:
        for jitter in (0.99, 1.01):
            cost = 0.2 + rate * 10 * (size / largest) ** exponent
            points.append(
                CostPoint(
                    size=size,
                    cpu_seconds=cost * jitter,
                    task_seconds=cost / 2,
                    seconds=cost,
                    requests=7.0,
                    heap_mb=100 + heap_mb * size / largest,
                    peak_rss_mb=900,
                )
            )
    return DimensionResult(dimension=dimension, points=tuple(points), is_complete=is_complete)


def test_a_result_holds_with_a_linear_cost_and_not_with_a_quadratic_cost() -> None:
    assert result("rows", exponent=1.0).holds
    assert result("rows", exponent=0.6).holds
    square = result("rows", exponent=2.0)
    assert square.cpu.is_above(1)
    assert not square.holds


@pytest.mark.parametrize("name", ["files", "batches"])
def test_a_result_does_not_hold_if_files_or_batches_raise_the_cost(name: str) -> None:
    assert result(name, exponent=1.0, rate=0.0).holds
    assert not result(name, exponent=1.0).holds


def test_a_result_with_missing_rows_or_a_growing_heap_does_not_hold() -> None:
    assert not result("rows", exponent=1.0, is_complete=False).holds
    assert result("rows", exponent=1.0, heap_mb=60).is_heap_flat
    growing = result("rows", exponent=1.0, heap_mb=70)
    assert (growing.is_heap_flat, growing.holds) == (False, False)
    assert growing.heap_to == pytest.approx(170)


def test_a_result_does_not_hold_if_requests_grow_quadratically() -> None:
    flat = result("partitions", exponent=1.0)
    more = tuple(replace(point, requests=5 + point.size**2 / 1e4) for point in flat.points)
    assert not replace(flat, points=more).holds


def test_the_report_marks_a_dimension_that_does_not_hold() -> None:
    text = report([result("rows", exponent=1.0), result("columns", exponent=2.0)])
    assert [line.split()[-1] for line in text.splitlines()[1:3]] == ["yes", "NO"]
    assert "10,000,000" in text
    assert "taxi trips" in text


def test_the_chart_shows_the_exponent(tmp_path: Path) -> None:
    draw(result("bytes", exponent=1.0), tmp_path / "scale-bytes.svg")
    assert "exponent 1.0" in "".join(ElementTree.parse(tmp_path / "scale-bytes.svg").getroot().itertext())


def test_the_number_in_the_option_dimension_becomes_the_largest_size() -> None:
    assert [dimension.sizes for dimension in chosen(["rows=50_000"])] == [(1_000, 10_000, 50_000)]
    assert [dimension.sizes for dimension in chosen(["rows=10_000"])] == [(1_000, 10_000)]
    assert [dimension.name for dimension in chosen([])] == list(DIMENSIONS)


@pytest.mark.parametrize("wrong", ["lines", "rows=", "rows=-1", "rows=many", "lines=5"])
def test_an_unknown_dimension_or_an_invalid_number_is_refused(wrong: str) -> None:
    with pytest.raises(ConfigError, match="is not a dimension"):
        chosen([wrong])


def test_a_largest_size_that_leaves_only_one_size_is_refused() -> None:
    with pytest.raises(ConfigError, match="leaves only one size to measure"):
        chosen(["rows=10"])
