"""The Grafana dashboard and the alert rules for the metrics."""

from __future__ import annotations

from importlib.resources import files

PAGE = "metrics"


def dashboard_text() -> str:
    return (files(__package__) / "grafana.json").read_text("utf-8")


def rules_text() -> str:
    return (files(__package__) / "rules.yml").read_text("utf-8")
