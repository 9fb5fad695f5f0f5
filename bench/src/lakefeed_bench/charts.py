"""Draw line charts as SVG with matplotlib, for the documentation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

Points = Sequence[tuple[float, float]]

_MARKS = "osd^"


@dataclass(frozen=True, kw_only=True)
class Chart:
    """Lines in one coordinate system.

    Attributes:
        lines, dashed: name in the legend → points. Dashed lines are references, not measurements.
        x_unit, y_unit: ``s`` for seconds. The tick labels get the prefixes m, k and M.
        is_log: draw a logarithmic y-axis; otherwise it begins at 0. The x-axis is always logarithmic. A logarithmic
            axis omits points at 0 and below.
    """

    title: str
    x: str
    y: str
    lines: Mapping[str, Points]
    dashed: Mapping[str, Points] = field(default_factory=dict)
    x_unit: str = ""
    y_unit: str = ""
    x_ticks: Sequence[float] = ()
    is_log: bool = True


def write_charts(file: Path, charts: Sequence[Chart], *, title: str) -> None:
    """Draw the charts side by side into one SVG file."""
    import matplotlib
    from matplotlib.figure import Figure
    from matplotlib.ticker import EngFormatter, NullFormatter

    # The fixed salt makes the ids in the SVG reproducible; the font type "none" writes text as text instead of paths.
    with matplotlib.rc_context({"svg.hashsalt": "lakefeed", "svg.fonttype": "none", "font.size": 9}):
        figure = Figure(figsize=(4.6 * len(charts), 3.4), layout="constrained")
        for axes, chart in zip(figure.subplots(1, len(charts), squeeze=False)[0], charts, strict=True):
            for mark, (name, points) in zip(_MARKS, chart.lines.items(), strict=False):
                axes.plot([x for x, _ in points], [y for _, y in points], marker=mark, markersize=4, label=name)
            for name, points in chart.dashed.items():
                axes.plot([x for x, _ in points], [y for _, y in points], linestyle="--", label=name)
            axes.set(title=chart.title, xlabel=chart.x, ylabel=chart.y)
            if any(x > 0 < y for points in chart.lines.values() for x, y in points):
                axes.set_xscale("log", nonpositive="mask")
                if chart.is_log:
                    axes.set_yscale("log", nonpositive="mask")
            if not chart.is_log:
                axes.set_ylim(bottom=0)
            if chart.x_ticks:
                axes.set_xticks(list(chart.x_ticks))
                axes.xaxis.set_minor_formatter(NullFormatter())
            axes.xaxis.set_major_formatter(EngFormatter(chart.x_unit))
            axes.yaxis.set_major_formatter(EngFormatter(chart.y_unit))
            axes.grid(alpha=0.4)
            if len(chart.lines) + len(chart.dashed) > 1:
                axes.legend()
        figure.savefig(file, format="svg", metadata={"Date": None, "Title": title})
