"""Line charts as SVG, for the pages that show what a bench has measured.

They need no library and no script. The same figures give the same bytes: a chart changes only with what it shows. A
dark page gets dark colours, and the description has every point for those who cannot see the lines.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from html import escape

_WIDTH, _HEIGHT = 440, 300
_LEFT, _RIGHT, _BOTTOM = 64, 22, 46
_LINE = 18
_CHARACTER = 7.0
"""The mean width of a character of 12 px, a little more than it needs."""
_MOST_TICKS = 7

# Light and dark, by number of the series; the marks differ too, for eyes that do not tell the colours apart.
_COLOURS = (
    ("#0969da", "#58a6ff"),
    ("#bc4c00", "#f0883e"),
    ("#1a7f37", "#3fb950"),
    ("#8250df", "#bc8cff"),
    ("#cf222e", "#ff7b72"),
    ("#57606a", "#9198a1"),
)
_MARKS = (
    "M-3.5 0a3.5 3.5 0 1 0 7 0a3.5 3.5 0 1 0-7 0z",
    "M-3.2-3.2h6.4v6.4h-6.4z",
    "M0-4.3L4.1 3.2H-4.1z",
    "M0-4.5L4.5 0L0 4.5L-4.5 0z",
)


def short_number(value: float) -> str:
    """Format a number for an axis: 0.01, 100, 10k, 1M."""
    for size, suffix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.6g}{suffix}"
    return f"{value:.6g}"


def short_seconds(value: float) -> str:
    """Format seconds for an axis: 10 ms, 1 s, 1 min, 2 h."""
    for size, unit in ((3600.0, "h"), (60.0, "min"), (1.0, "s")):
        if value >= size and (unit == "s" or value % size == 0):
            return f"{value / size:.6g} {unit}"
    return f"{value * 1000:.6g} ms" if value else "0"


@dataclass(frozen=True, kw_only=True)
class Axis:
    """One axis: logarithmic, or linear from 0. Without ``ticks`` round ones are chosen."""

    label: str
    is_log: bool = True
    text: Callable[[float], str] = short_number
    ticks: tuple[float, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Series:
    """One line, and its name in the legend. A dashed one has no marks: a reference, not a measurement."""

    name: str
    points: tuple[tuple[float, float], ...]
    is_dashed: bool = False


@dataclass(frozen=True, kw_only=True)
class Chart:
    """Lines over two axes. A logarithmic axis leaves out what it cannot show: points at 0 and below."""

    title: str
    x: Axis
    y: Axis
    series: tuple[Series, ...]


def figure(charts: Sequence[Chart], *, title: str, columns: int = 1) -> str:
    """Draw charts beside and below each other, as one SVG file; screen readers say the title."""
    columns = min(columns, len(charts)) or 1
    rows = [charts[at : at + columns] for at in range(0, len(charts), columns)]
    tops = [max(map(_top, row)) for row in rows]
    width, height = columns * _WIDTH, sum(tops) + len(rows) * _HEIGHT
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        'role="img" font-family="system-ui, sans-serif" font-size="12">',
        f"<title>{escape(title)}</title>",
        f"<desc>{escape(' '.join(map(_description, charts)))}</desc>",
        f"<style>{_style()}</style>",
        # A ground of its own, since not every page says whether it is dark.
        f'<rect class="ground" width="{width}" height="{height}" rx="8"/>',
    ]
    above = 0
    for row, top in zip(rows, tops, strict=True):
        for column, chart in enumerate(row):
            parts.append(f'<g transform="translate({column * _WIDTH} {above})">')
            parts.extend(_Plot(chart, top=top).draw())
            parts.append("</g>")
        above += top + _HEIGHT
    return "\n".join([*parts, "</svg>", ""])


def _style() -> str:
    plain = (
        ".ground{fill:#ffffff}.text{fill:#1f2328}.note{fill:#57606a}.grid{stroke:#d8dee4;fill:none}"
        ".frame{stroke:#8c959f;fill:none}.line{fill:none;stroke-width:2}.dashed{stroke-dasharray:5 4;stroke-width:1.5}"
    )
    dark = ".ground{fill:#0d1117}.text{fill:#e6edf3}.note{fill:#9198a1}.grid{stroke:#262c36}.frame{stroke:#59636e}"
    light, darkened = (_line_colours(shade) for shade in (0, 1))
    return f"{plain}{light}@media (prefers-color-scheme:dark){{{dark}{darkened}}}"


def _line_colours(shade: int) -> str:
    return "".join(
        f".s{number}{{stroke:{pair[shade]}}}.m{number}{{fill:{pair[shade]}}}" for number, pair in enumerate(_COLOURS)
    )


def _description(chart: Chart) -> str:
    """Say the chart's points in words."""
    lines = (
        f"{series.name}: " + ", ".join(f"{chart.x.text(x)}: {chart.y.text(_rounded(y))}" for x, y in series.points)
        for series in chart.series
        if not series.is_dashed
    )
    return f"{chart.title}; {chart.y.label} by {chart.x.label}. {'; '.join(lines)}."


def _legend(chart: Chart) -> list[list[int]]:
    """Break the legend into lines of series, by their numbers; a single line needs none."""
    if len(chart.series) < 2:
        return []
    lines: list[list[int]] = [[]]
    room, used = _WIDTH - _RIGHT - 20, 0.0
    for number, series in enumerate(chart.series):
        width = _entry_width(series)
        if lines[-1] and used + width > room:
            lines.append([])
            used = 0.0
        lines[-1].append(number)
        used += width
    return lines


def _entry_width(series: Series) -> float:
    return 42 + len(series.name) * _CHARACTER


def _top(chart: Chart) -> int:
    """Return the height of title and legend."""
    return 34 + _LINE * len(_legend(chart))


class _Scale:
    """Places values of one axis between two ends, in pixels."""

    def __init__(self, axis: Axis, values: Sequence[float], start: float, end: float) -> None:
        self._is_log, self._start, self._end = axis.is_log, start, end
        shown = [*values, *axis.ticks] or [1.0]
        self.ticks = axis.ticks or tuple(_log_ticks(shown) if axis.is_log else _linear_ticks(shown))
        every = [self._units(value) for value in (*shown, *self.ticks)]
        self._low, self._high = min(every), max(every)
        if self._low == self._high:
            self._low, self._high = self._low - 1, self._high + 1

    def _units(self, value: float) -> float:
        return math.log10(value) if self._is_log else value

    def place(self, value: float) -> float:
        share = (self._units(value) - self._low) / (self._high - self._low)
        return _rounded(self._start + share * (self._end - self._start))


def _log_ticks(values: Sequence[float]) -> Iterator[float]:
    """Choose powers of ten around the values, with steps between them where they are few."""
    low, high = math.floor(math.log10(min(values)) + 1e-9), math.ceil(math.log10(max(values)) - 1e-9)
    high = max(high, low + 1)
    every = max(1, math.ceil((high - low) / _MOST_TICKS))
    for power in range(low, high + 1, every):
        yield float(f"1e{power}")
        if high - low <= 2 and power < high:
            yield from (float(f"{digit}e{power}") for digit in (2, 5))


def _linear_ticks(values: Sequence[float]) -> Iterator[float]:
    """Choose round steps from 0 to the highest value."""
    high = max(*values, 0.0) or 1.0
    rough = high / 5
    power = 10 ** math.floor(math.log10(rough))
    step = next(power * digit for digit in (1, 2, 5, 10) if power * digit >= rough * 0.999)
    yield from (round(number * step, 9) for number in range(math.ceil(high / step - 1e-9) + 1))


class _Plot:
    def __init__(self, chart: Chart, *, top: int) -> None:
        self._chart, self._top = chart, top
        self._right, self._bottom = _WIDTH - _RIGHT, top + _HEIGHT - _BOTTOM
        self._lines = [self._shown(series) for series in chart.series]
        points = [point for line in self._lines for point in line]
        self._x = _Scale(chart.x, [x for x, _ in points], _LEFT + 6, self._right - 6)
        self._y = _Scale(chart.y, [y for _, y in points], self._bottom, top + 6)

    def _shown(self, series: Series) -> list[tuple[float, float]]:
        axes = (self._chart.x, self._chart.y)
        return [
            point
            for point in series.points
            if all(value > 0 or not axis.is_log for axis, value in zip(axes, point, strict=True))
        ]

    def draw(self) -> Iterator[str]:
        chart = self._chart
        yield _text(chart.title, _LEFT, 24, 'class="text" font-weight="600" font-size="13"')
        yield from self._draw_legend()
        yield from self._draw_axes()
        for number, (series, points) in enumerate(zip(chart.series, self._lines, strict=True)):
            placed = [(self._x.place(x), self._y.place(y)) for x, y in points]
            path = "L".join(f"{x:g} {y:g}" for x, y in placed)
            if path:
                yield f'<path class="line {_colour(number, series)}" d="M{path}"/>'
            if not series.is_dashed:
                yield from (_mark(number, x, y) for x, y in placed)

    def _draw_legend(self) -> Iterator[str]:
        for line, numbers in enumerate(_legend(self._chart)):
            x, y = 20.0, 42 + line * _LINE
            for number in numbers:
                series = self._chart.series[number]
                yield f'<path class="line {_colour(number, series)}" d="M{x:g} {y - 4}h20"/>'
                if not series.is_dashed:
                    yield _mark(number, x + 10, y - 4)
                yield _text(series.name, x + 26, y, 'class="text"')
                x = _rounded(x + _entry_width(series))

    def _draw_axes(self) -> Iterator[str]:
        chart, left, right, top, bottom = self._chart, _LEFT, self._right, self._top, self._bottom
        for tick in self._x.ticks:
            x = self._x.place(tick)
            yield f'<path class="grid" d="M{x:g} {top}V{bottom}"/>'
            yield _text(chart.x.text(tick), x, bottom + 16, 'class="note" text-anchor="middle"')
        for tick in self._y.ticks:
            y = self._y.place(tick)
            yield f'<path class="grid" d="M{left} {y:g}H{right}"/>'
            yield _text(chart.y.text(tick), left - 6, y + 4, 'class="note" text-anchor="end"')
        yield f'<path class="frame" d="M{left} {top}V{bottom}H{right}"/>'
        yield _text(chart.x.label, (left + right) / 2, bottom + 36, 'class="text" text-anchor="middle"')
        middle = (top + bottom) / 2
        place = f'class="text" text-anchor="middle" transform="rotate(-90 14 {middle:g})"'
        yield _text(chart.y.label, 14, middle, place)


def _colour(number: int, series: Series) -> str:
    return f"s{number % len(_COLOURS)}{' dashed' if series.is_dashed else ''}"


def _mark(number: int, x: float, y: float) -> str:
    shape = _MARKS[number % len(_MARKS)]
    return f'<path class="m{number % len(_COLOURS)}" transform="translate({x:g} {y:g})" d="{shape}"/>'


def _text(text: str, x: float, y: float, attributes: str) -> str:
    return f'<text x="{x:g}" y="{y:g}" {attributes}>{escape(text)}</text>'


def _rounded(value: float) -> float:
    """Round a place to a tenth of a pixel, a figure to four digits."""
    return float(f"{value:.4g}")
