"""Reads the dashboard for Grafana and the alert rules for Prometheus that are shipped next to this module."""

from __future__ import annotations

from importlib.resources import files


def dashboard_text() -> str:
    """Return the dashboard as JSON."""
    return (files(__package__) / "grafana.json").read_text("utf-8")


def rules_text() -> str:
    """Return the alert rules as YAML."""
    return (files(__package__) / "rules.yml").read_text("utf-8")
