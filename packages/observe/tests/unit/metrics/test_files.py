"""The shipped Grafana dashboard and alerting rules use existing metrics and labels."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from lakefeed.cli.main import root
from lakefeed.monitor.metrics.table import METRICS
from lakefeed_observe.metrics import dashboard_text, rules_text
from tools.generate_docs import metrics_reference

DOCS = Path(__file__).resolve().parents[5] / "docs"
NAMES = {metric.name: {"feed", *metric.labels} for metric in METRICS}
SUFFIXES = ("_bucket", "_sum", "_count")
FOREIGN = {"up": {"job", "instance"}}
SELECTOR = re.compile(r"\b(lakefeed_\w+|up)(?:\{([^}]*)\})?(?![\w(])")


def dashboard() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(dashboard_text())
    return found


def panels() -> list[dict[str, Any]]:
    return [panel for panel in dashboard()["panels"] if panel["type"] != "row"]


def alerts() -> list[dict[str, Any]]:
    [group] = yaml.safe_load(rules_text())["groups"]
    found: list[dict[str, Any]] = group["rules"]
    return found


QUERIES = [target["expr"] for panel in panels() for target in panel["targets"]]
RULES = [rule["expr"] for rule in alerts()]


@pytest.mark.parametrize("expression", [*QUERIES, *RULES])
def test_each_metric_and_label_of_an_expression_exists(expression: str) -> None:
    found = SELECTOR.findall(expression)
    assert found
    for name, matchers in found:
        base = next((name.removesuffix(suffix) for suffix in SUFFIXES if name.endswith(suffix)), name)
        known = {**FOREIGN, **NAMES}
        assert name in known or base in known, name
        labels = {part.partition("=")[0].strip("!=~ ") for part in matchers.split(",") if part}
        assert labels <= {*known.get(name, known.get(base, set())), "job", "instance"}, expression


def test_the_grafana_dashboard_has_variables_for_data_source_and_feed() -> None:
    board = dashboard()
    assert [variable["name"] for variable in board["templating"]["list"]] == ["datasource", "feed"]
    numbers = [panel["id"] for panel in board["panels"]]
    assert len(set(numbers)) == len(numbers)
    for panel in panels():
        assert panel["datasource"]["uid"] == "${datasource}"
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        assert all('feed=~"$feed"' in target["expr"] for target in panel["targets"])


def test_each_alert_has_a_summary_a_description_and_a_severity() -> None:
    for rule in alerts():
        assert set(rule["annotations"]) == {"summary", "description"}
        assert rule["labels"]["severity"] in ("critical", "warning")


def test_the_documents_list_each_metric_and_each_alert() -> None:
    rows = dict(re.findall(r"^\| `(lakefeed_\w+)` \| (.*) \|$", metrics_reference(), re.MULTILINE))
    expected = {metric.name: f"{metric.kind} | {', '.join(metric.labels)} | {metric.help}" for metric in METRICS}
    assert rows == expected
    text = (DOCS / "metrics.md").read_text()
    for rule in alerts():
        assert f"`{rule['alert']}`" in text


@pytest.mark.parametrize(("command", "text"), [("grafana", dashboard_text()), ("rules", rules_text())])
def test_the_metrics_command_writes_dashboard_and_rules(command: str, text: str, tmp_path: Path) -> None:
    runner = CliRunner()
    assert runner.invoke(root, ["metrics", command]).stdout == text
    file = tmp_path / "file"
    assert runner.invoke(root, ["metrics", command, "--to", str(file)]).exit_code == 0
    assert file.read_text() == text


def test_the_metrics_command_lists_the_metrics() -> None:
    runner = CliRunner()
    listed = json.loads(runner.invoke(root, ["metrics", "table", "--output", "json"]).stdout)
    assert [entry["name"] for entry in listed] == [metric.name for metric in METRICS]
    assert "lakefeed_lag_offsets" in runner.invoke(root, ["metrics", "table"]).stdout
