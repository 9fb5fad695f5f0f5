"""Write the trace of a run as an HTML page that has no script, loads nothing, and escapes every text."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Iterable, Sequence
from html import escape

from lakefeed.json_model import iso
from lakefeed.messages.text import duration, one_line
from lakefeed_observe.runs.store import Trace, TraceEvent

MOST = 500
_WIDTH, _HEIGHT = 720, 120

_STYLE = """
:root { color-scheme: light dark; }
body { font: 15px/1.45 system-ui, sans-serif; margin: 0 auto; max-width: 72rem; padding: 1rem; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
table { border-collapse: collapse; width: 100%; } .wide { overflow-x: auto; }
th, td { border-bottom: 1px solid #8886; padding: .3rem .6rem; text-align: left; vertical-align: top; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
td { overflow-wrap: anywhere; } caption { text-align: left; font-weight: 600; padding: .3rem 0; }
svg { width: 100%; height: 8rem; } polyline { fill: none; stroke: currentColor; stroke-width: 1.5; }
.failed, .cut { color: light-dark(#b00020, #ff8a80); font-weight: 600; }
"""


def page_of(trace: Trace) -> str:
    digest = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    title = f"{_text(trace.feed)}: run {_text(trace.run)}"
    body = "\n".join(part for section in _SECTIONS if (part := section(trace)))
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>{_STYLE}</style>
</head>
<body>
<main>
<h1>{title}</h1>
{body}
</main>
</body>
</html>
"""


def _overview(trace: Trace) -> str:
    end, driver = str(trace.end), trace.driver
    rows: list[tuple[str, object]] = [
        ("end", end),
        ("began", iso(trace.began_at)),
        ("ended", iso(trace.ended_at) or f"no end was written; the last write was at {iso(trace.written_at)}"),
        ("sink", trace.sink),
        ("driver", f"process {driver.pid} on {driver.host}, lakefeed {driver.version}"),
        ("fence", trace.fence or "none"),
        *((name.replace("_", " "), count) for name, count in trace.totals if name != "requests"),
        ("restarts of the query", trace.restarts),
        ("lag at the end", trace.lag),
    ]
    shown = "".join(
        f'<tr><th scope="row">{_text(name)}</th>'
        f"<td{' class=' + chr(34) + end + chr(34) if name == 'end' and end in ('failed', 'cut') else ''}>"
        f"{_text(value)}</td></tr>"
        for name, value in rows
    )
    return f'<div class="wide"><table>{shown}</table></div>'


def _start(trace: Trace) -> str:
    if not trace.start:
        return ""
    losses = trace.start.get("data_loss")
    lost = _table(
        "Records that were given up",
        ("kind", "topic", "partition", "position", "resumes at"),
        (
            (loss.get(key) for key in ("kind", "topic", "partition", "position", "resume_at"))
            for loss in (losses if isinstance(losses, list) else ())
            if isinstance(loss, dict)
        ),
        numbers=(2, 3, 4),
    )
    return f"<h2>Start</h2><p>{_text(trace.start.get('reason'))}</p>{lost}"


def _error(trace: Trace) -> str:
    if (error := trace.error) is None:
        return ""
    rows = (("what", error.what), ("where", error.where), ("next", error.hint))
    return _section("Newest error", _table("", ("", ""), ((name, value) for name, value in rows if value)))


def _charts(trace: Trace) -> str:
    points = trace.points
    if len(points) < 2:
        return ""
    charts: list[tuple[str, list[float]]] = [
        ("Records a second while batches ran", [point.rate for point in points]),
        ("Lag in offsets", [point.lag or 0 for point in points]),
        ("Dead letters", [point.dead_letters for point in points]),
        ("S3 requests", [point.requests or 0 for point in points]),
    ]
    return "<h2>Course</h2>" + "".join(_chart(name, values) for name, values in charts)


def _chart(name: str, values: Sequence[float]) -> str:
    most = max(values) or 1.0
    step = _WIDTH / (len(values) - 1)
    points = " ".join(
        f"{at * step:.1f},{_HEIGHT - 4 - (_HEIGHT - 8) * max(0.0, value) / most:.1f}" for at, value in enumerate(values)
    )
    label = f"{name}: at most {most:,.0f}, at the end {values[-1]:,.0f}"
    return (
        f'<figure><figcaption>{_text(label)}</figcaption><svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
        f'preserveAspectRatio="none" aria-label="{_text(label)}"><polyline points="{points}"/></svg></figure>'
    )


def _dead_letters(trace: Trace) -> str:
    rows = ((each.count, each.reason, each.sample) for each in trace.dead_letters)
    return _section("Dead letters", _table("", ("count", "reason", "one of them"), rows, numbers=(0,)))


def _requests(trace: Trace) -> str:
    by_class, batches = sorted(trace.requests.by_class.items(), key=lambda entry: -entry[1]), trace.totals.batches
    rows = [(name, count, f"{count / batches:.1f}" if batches else "-") for name, count in by_class]
    return _section("S3 requests", _table("", ("class", "requests", "a batch"), rows, numbers=(1, 2)))


def _log_of(title: str, events: Callable[[Trace], Sequence[TraceEvent]]) -> Callable[[Trace], str]:
    def section(trace: Trace) -> str:
        rows = []
        for event in events(trace)[-MOST:]:
            hint = event.details.get("hint")
            rows.append((iso(event.at), event.kind, f"{event.message} — next: {hint}" if hint else event.message))
        return _section(title, _table("", ("at", "kind", "message"), rows))

    return section


def _batches(trace: Trace) -> str:
    heads = ("batch", "finished", "took", "records", "rows", "dead letters", "S3 requests", "lag")
    rows = (
        (
            batch.batch_id,
            iso(batch.finished_at),
            duration(batch.seconds),
            batch.records,
            batch.rows,
            batch.dead_letters,
            batch.requests.total if batch.requests else None,
            batch.lag,
        )
        for batch in reversed(trace.batches)
    )
    return _section("The newest batches", _table("", heads, rows, numbers=(0, 2, 3, 4, 5, 6, 7)))


_SECTIONS: tuple[Callable[[Trace], str], ...] = (
    _overview,
    _start,
    _error,
    _charts,
    _dead_letters,
    _log_of("Changes of the schema", lambda trace: trace.schema_changes),
    _log_of("Errors", lambda trace: trace.errors),
    _log_of("Pauses and actions", lambda trace: trace.actions),
    _requests,
    _log_of("Upkeep", lambda trace: trace.upkeep),
    _batches,
    _log_of("Log", lambda trace: trace.events),
)


def _section(title: str, content: str) -> str:
    return f"<h2>{_text(title)}</h2>{content}" if content else ""


def _table(caption: str, heads: Sequence[str], rows: Iterable[Iterable[object]], *, numbers: Sequence[int] = ()) -> str:
    """Return an HTML table; an empty text if there are no rows.

    Args:
        numbers: the columns of numbers, which are aligned to the right.
    """

    def cell(at: int, value: object) -> str:
        return f'<td class="n">{_text(value)}</td>' if at in numbers else f"<td>{_text(value)}</td>"

    body = "".join(f"<tr>{''.join(cell(at, value) for at, value in enumerate(row))}</tr>" for row in rows)
    if not body:
        return ""
    head = "".join(
        f'<th scope="col"{" class=" + chr(34) + "n" + chr(34) if at in numbers else ""}>{_text(name)}</th>'
        for at, name in enumerate(heads)
    )
    shown = f"<thead><tr>{head}</tr></thead>" if any(heads) else ""
    title = f"<caption>{_text(caption)}</caption>" if caption else ""
    return f'<div class="wide"><table>{title}{shown}<tbody>{body}</tbody></table></div>'


def _text(value: object) -> str:
    """Return a value as escaped HTML, limited in length, without control characters and secrets."""
    if value is None:
        return "-"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return escape(one_line(str(value), most=2000), quote=True)
