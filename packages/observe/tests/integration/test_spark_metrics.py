"""Configuration alone sends the numbers of a run to Spark's own metric sinks and an OTLP collector."""

import json
import re
import socketserver
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.support.servers.otlp import collector, metrics_in

ROOT = Path(__file__).resolve().parents[4]
# Leave out metrics that change during the test, because two sinks would have different values of them.
MOVING = ("timestamp_seconds", "running_batch")


def test_sparks_metric_sinks_and_an_otlp_collector_receive_the_monitors_numbers(tmp_path: Path) -> None:
    lines: list[str] = []

    class Graphite(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            lines.extend(line.decode() for line in self.rfile)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Graphite) as server, collector() as (url, taken):
        threading.Thread(target=server.serve_forever, daemon=True).start()
        ports = [str(server.server_address[1]), url.rpartition(":")[2]]
        command = [sys.executable, "-m", "packages.observe.tests.spark_sinks", str(tmp_path), *ports]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
        server.shutdown()
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads((tmp_path / "found.json").read_text())
    model = {name: value for name, value in found["model"].items() if not any(word in name for word in MOVING)}

    assert model["records_read_total"] == model["rows_written_total"] == 2
    assert model["feed_state.ended"] == 1

    servlet = dict(re.findall(r"FeedMetrics_taxi_(\w+)_Value\{[^}]*\} (\S+)", found["servlet"]))
    shown = {name: float(servlet[re.sub("[^a-zA-Z0-9]", "_", name)]) for name in model}
    assert shown == pytest.approx(model)

    files = {}
    for path in (tmp_path / "csv").iterdir():
        if (name := path.name.partition(".FeedMetrics.taxi.")[2].removesuffix(".csv")) in model:
            files[name] = float(path.read_text().splitlines()[-1].split(",")[1])
    assert files == pytest.approx(model)

    prefix = "shop.driver.plugin.io.lakefeed.metrics.FeedMetrics.taxi."
    newest = {name: float(value) for name, value, _ in (line.split() for line in lines)}
    sent = {name: newest[prefix + name] for name in model}
    assert sent == pytest.approx(model, abs=0.006)  # Spark's sink for Graphite rounds numbers to two digits.

    points = metrics_in(taken[-1][2])
    assert points["lakefeed_records_read"].sum.data_points[0].as_int == 2
    states = points["lakefeed_feed_state"].gauge.data_points
    assert [each.attributes[1].value.string_value for each in states if each.as_int] == ["ended"]
