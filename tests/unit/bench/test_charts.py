"""A chart is a small SVG file: well-formed, the same for the same figures, and readable without seeing it."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from lakefeed.bench.charts import Axis, Chart, Series, figure, short_number, short_seconds

SVG = "{http://www.w3.org/2000/svg}"


def chart(*series: Series, x: Axis | None = None, y: Axis | None = None, title: str = "A title") -> Chart:
    return Chart(
        title=title,
        x=x or Axis(label="records"),
        y=y or Axis(label="time", text=short_seconds),
        series=series or (Series(name="total", points=((10, 0.1), (100, 1.0), (1000, 10.0))),),
    )


def places(text: str) -> list[tuple[float, float]]:
    """Return where the marks of the measurements are."""
    found = ElementTree.fromstring(text).iter(f"{SVG}path")
    moved = [path.get("transform", "") for path in found if re.fullmatch(r"m\d", path.get("class", ""))]
    return [(float(x), float(y)) for x, y in (re.findall(r"[-\d.]+", move) for move in moved)]


def texts(text: str) -> list[str]:
    return [found.text or "" for found in ElementTree.fromstring(text).iter(f"{SVG}text")]


def test_a_power_law_is_a_straight_line_over_logarithmic_axes() -> None:
    (x1, y1), (x2, y2), (x3, y3) = places(figure([chart()], title="How it grows"))
    assert x1 < x2 < x3
    assert y1 > y2 > y3
    assert x2 - x1 == pytest.approx(x3 - x2, abs=0.3)
    assert y2 - y1 == pytest.approx(y3 - y2, abs=0.3)


def test_a_linear_axis_begins_at_zero() -> None:
    drawn = figure([chart(y=Axis(label="requests", is_log=False))], title="t")
    assert {"0", "2", "10"} <= set(texts(drawn))


def test_points_that_a_logarithmic_axis_cannot_show_are_left_out() -> None:
    drawn = figure([chart(Series(name="total", points=((0, 1), (10, 0), (100, 5), (1000, 50))))], title="t")
    assert len(places(drawn)) == 2


def test_chosen_ticks_are_the_ticks() -> None:
    triggers = Axis(label="trigger", text=short_seconds, ticks=(0.1, 1, 10, 60))
    drawn = figure([chart(Series(name="p50", points=((0.1, 1), (60, 50))), x=triggers)], title="t")
    assert {"100 ms", "1 s", "10 s", "1 min"} <= set(texts(drawn))


def test_the_description_has_every_point() -> None:
    root = ElementTree.fromstring(figure([chart()], title="How it grows"))
    assert root.get("role") == "img"
    assert root.findtext(f"{SVG}title") == "How it grows"
    assert root.findtext(f"{SVG}desc") == "A title; time by records. total: 10: 100 ms, 100: 1 s, 1k: 10 s."


def test_texts_of_others_stay_texts() -> None:
    hostile = '<script>alert("&")</script>'
    drawn = figure([chart(Series(name=hostile, points=((1, 1), (2, 2))), title=hostile)], title=hostile)
    root = ElementTree.fromstring(drawn)
    assert root.find(f".//{SVG}script") is None
    assert hostile in texts(drawn)


def test_each_series_has_a_name_and_a_reference_is_dashed() -> None:
    measured = Series(name="measured", points=((1, 1), (10, 10)))
    line = Series(name="linear", points=((1, 1), (10, 10)), is_dashed=True)
    drawn = figure([chart(measured, line)], title="t")
    assert {"measured", "linear"} <= set(texts(drawn))
    assert drawn.count('class="line s1 dashed"') == 2  # The line, and its sample in the legend.
    # The measurement has a mark for each point and one in the legend; the reference has none.
    assert len(places(drawn)) == 3


@pytest.mark.parametrize("points", [(), ((5.0, 5.0),)])
def test_few_points_are_drawn(points: tuple[tuple[float, float], ...]) -> None:
    drawn = figure([chart(Series(name="total", points=points))], title="t")
    assert len(places(drawn)) == len(points)


def test_charts_stand_beside_and_below_each_other() -> None:
    root = ElementTree.fromstring(figure([chart()] * 3, title="t", columns=2))
    moves = [group.get("transform") for group in root.iter(f"{SVG}g")]
    assert len(set(moves)) == 3
    assert {"translate(0 0)", "translate(440 0)"} < set(moves)


def test_the_same_figures_give_the_same_bytes() -> None:
    assert figure([chart()], title="t") == figure([chart()], title="t")


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0"), (0.01, "0.01"), (999, "999"), (1000, "1k"), (2.5e6, "2.5M"), (1e10, "10G")]
)
def test_numbers_are_short(value: float, text: str) -> None:
    assert short_number(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (0.0005, "0.5 ms"), (0.1, "100 ms"), (1, "1 s"), (60, "1 min"), (90, "90 s"), (7200, "2 h")],
)
def test_seconds_have_a_unit(value: float, text: str) -> None:
    assert short_seconds(value) == text
