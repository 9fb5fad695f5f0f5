"""``lakefeed metrics``: lists the metrics, and writes a dashboard for Grafana and alert rules for Prometheus."""

from __future__ import annotations

from pathlib import Path

import click

from lakefeed.cli.options import FILE, output_option
from lakefeed.cli.output import column_lines, echo, emit

TO = click.option("--to", type=FILE, help="The file to write, or to replace.  [default: stdout]")


@click.group()
def metrics() -> None:
    """List the metrics; write a dashboard and alerts for them."""


@metrics.command()
@output_option
def table() -> None:
    """List the metrics with their types, labels and meanings."""
    from lakefeed.monitor.metrics.table import METRICS

    keys = ("name", "kind", "labels", "unit", "help")
    rows = [(metric.name, metric.kind, ["feed", *metric.labels], metric.unit, metric.help) for metric in METRICS]
    lines = [(name, kind, ", ".join(labels), meaning) for name, kind, labels, _, meaning in rows]
    emit(
        [dict(zip(keys, row, strict=True)) for row in rows],
        column_lines([("metric", "type", "labels", "meaning"), *lines], left=4, indent=0),
    )


@metrics.command()
@TO
def grafana(to: Path | None) -> None:
    """Write a Grafana dashboard. Import it and choose the Prometheus data source."""
    from lakefeed_observe.metrics import dashboard_text

    _write(dashboard_text(), to)


@metrics.command()
@TO
def rules(to: Path | None) -> None:
    """Write Prometheus alert rules. Name the file in rule_files of prometheus.yml."""
    from lakefeed_observe.metrics import rules_text

    _write(rules_text(), to)


def _write(text: str, to: Path | None) -> None:
    if to is None:
        echo(text, nl=False)
        return
    to.write_text(text)
    echo(f"{to} written", err=True)
