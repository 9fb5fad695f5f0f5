"""Charts are SVG files with axes and texts, and equal figures give equal files."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

from lakefeed_bench.charts import Chart, Points, write_charts

SVG = "{http://www.w3.org/2000/svg}"
TENFOLD: Points = ((10, 0.1), (100, 1.0), (1000, 10.0))


def draw(folder: Path, *charts: Chart, title: str = "How it grows") -> ElementTree.Element:
    file = folder / "chart.svg"
    write_charts(file, charts, title=title)
    return ElementTree.fromstring(file.read_text("utf-8"))


def chart(points: Points = TENFOLD, *, title: str = "A title", dashed: Points = (), is_log: bool = True) -> Chart:
    references = {"linear": dashed} if dashed else {}
    return Chart(title=title, x="records", y="time", y_unit="s", lines={"t": points}, dashed=references, is_log=is_log)


def marks(root: ElementTree.Element) -> list[tuple[float, float]]:
    """Return the positions of the lines' point markers."""
    clipped = [group for group in root.iter(f"{SVG}g") if group.get("clip-path")]
    return [(float(use.get("x", 0)), float(use.get("y", 0))) for group in clipped for use in group.iter(f"{SVG}use")]


def test_a_chart_draws_a_power_law_as_a_straight_line(tmp_path: Path) -> None:
    (x1, y1), (x2, y2), (x3, y3) = marks(draw(tmp_path, chart()))
    assert x1 < x2 < x3
    assert y1 > y2 > y3
    assert x2 - x1 == pytest.approx(x3 - x2, abs=0.3)
    assert y2 - y1 == pytest.approx(y3 - y2, abs=0.3)


def test_a_logarithmic_axis_omits_points_at_zero(tmp_path: Path) -> None:
    assert len(marks(draw(tmp_path, chart([(0, 1), (10, 0), (100, 5), (1000, 50)])))) == 2


def test_a_chart_writes_units_and_escapes_texts(tmp_path: Path) -> None:
    hostile = '<script>alert("&")</script>'
    root = draw(tmp_path, chart(title=hostile, dashed=TENFOLD), chart(is_log=False), title=hostile)
    texts = {element.text for element in root.iter(f"{SVG}text")}
    assert {hostile, "100 ms", "10 s", "1 k", "0 s", "t", "linear"} <= texts
    assert root.find(f".//{SVG}script") is None


@pytest.mark.parametrize("points", [(), ((5.0, 5.0),)])
def test_a_chart_accepts_one_point_or_none(tmp_path: Path, points: Points) -> None:
    assert len(marks(draw(tmp_path, chart(points)))) == len(points)


def test_equal_figures_give_equal_files(tmp_path: Path) -> None:
    files = [tmp_path / "one.svg", tmp_path / "two.svg"]
    for file in files:
        write_charts(file, [chart()], title="How it grows")
    assert files[0].read_bytes() == files[1].read_bytes()
