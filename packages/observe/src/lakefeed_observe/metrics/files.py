"""Reads the Grafana dashboard and the Prometheus alert rules that are beside this module."""

from __future__ import annotations

from importlib.resources import files


def dashboard_text() -> str:
    return (files(__package__) / "grafana.json").read_text("utf-8")


def rules_text() -> str:
    return (files(__package__) / "rules.yml").read_text("utf-8")
