"""Run a feed in a session with metric sinks; write the progress model and the page of Spark's metrics servlet.

This is a separate process, because Spark reads the settings of its metric sinks only at its start. The arguments are a
folder for files, and the ports of a Graphite server and of a collector for OTLP.
"""

import json
import sys
import time
import urllib.request
from pathlib import Path

import lakefeed as lf
from lakefeed.monitor.feed_monitor import FeedMonitor
from lakefeed.monitor.metrics.table import FeedReading
from lakefeed_observe.metrics.spark import gauge_values

SINK = "spark.metrics.conf.*.sink"
PIPELINE = """
name: taxi
source: {{files: {{path: "file:{folder}/coming", format: json, schema_ddl: "zip STRING"}}}}
sink: {{memory: {{view: seen}}}}
trigger: 1 second
otlp: {{endpoint: "http://127.0.0.1:{collector}", every: 1 second}}
"""


def settings(folder: Path, graphite: str) -> dict[str, str]:
    """Return the settings that a user writes in the block ``spark:``."""
    return {
        f"{SINK}.csv.class": "org.apache.spark.metrics.sink.CsvSink",
        f"{SINK}.csv.directory": str(folder / "csv"),
        f"{SINK}.csv.period": "1",
        f"{SINK}.graphite.class": "org.apache.spark.metrics.sink.GraphiteSink",
        f"{SINK}.graphite.host": "127.0.0.1",
        f"{SINK}.graphite.port": graphite,
        f"{SINK}.graphite.period": "1",
        f"{SINK}.prometheusServlet.class": "org.apache.spark.metrics.sink.PrometheusServlet",
        f"{SINK}.prometheusServlet.path": "/metrics/prometheus",
        "spark.metrics.namespace": "shop",
        "spark.ui.enabled": "true",
        "spark.ui.port": "0",
    }


def main(folder: Path, graphite: str, collector: str) -> None:
    (folder / "coming").mkdir()
    (folder / "csv").mkdir()
    (folder / "coming" / "a.json").write_text('{"zip": "8001"}\n{"zip": "3011"}\n')
    (folder / "pipeline.yaml").write_text(PIPELINE.format(folder=folder, collector=collector))
    spark = lf.session("metrics", master="local[2]", conf=settings(folder, graphite))
    monitor = FeedMonitor("taxi")
    lf.Pipeline.from_file(folder / "pipeline.yaml").run(spark=spark, once=True, monitor=monitor)
    time.sleep(2.5)
    with urllib.request.urlopen(f"{spark.sparkContext.uiWebUrl}/metrics/prometheus/", timeout=30) as answer:
        servlet = answer.read().decode()
    document = {"model": gauge_values(FeedReading.of(monitor)), "servlet": servlet}
    (folder / "found.json").write_text(json.dumps(document))
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3])
