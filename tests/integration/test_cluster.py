"""A pipeline file runs unchanged on a Spark standalone cluster whose workers have neither lakefeed nor its packages."""

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from lakefeed_deploy.spark_submit.submit import spark_submit
from tests.support.cli import lakefeed
from tests.support.cluster_feeds import TAXI_ROWS, pretend_version, rows_of, taxi_file
from tests.support.feed import Feed
from tests.support.servers.standalone import SECRET, Standalone, standalone


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    with standalone(tmp_path_factory.mktemp("cluster")) as running:
        yield running


def on_cluster(**settings: str) -> dict[str, str]:
    secret = {"spark.authenticate.secret": "${SPARK_AUTHENTICATE_SECRET}"}
    return {"spark.executor.memory": "700m", "spark.sql.shuffle.partitions": "2", **secret, **settings}


@pytest.mark.slow
def test_the_taxi_feed_lands_the_same_rows_on_one_machine_and_on_a_cluster(feed: Feed, cluster: Standalone) -> None:
    feed.create_topic(partitions=4)
    environment = {**feed.environment, "SPARK_AUTHENTICATE_SECRET": SECRET}
    lakefeed("topics", "produce", feed.topic, "--generate", "taxi", "--rows", str(TAXI_ROWS), environment=environment)

    lakefeed("run", taxi_file(feed, "a"), "--once", environment=environment)
    expected = rows_of(feed, "a")
    assert len(expected) == TAXI_ROWS
    assert len({row["borough"] for row in expected}) > 5

    # In client mode the driver is lakefeed on this machine; it sends jars, keys and functions to the executors.
    file = taxi_file(feed, "b", spark=on_cluster())
    ran = lakefeed("run", file, "--once", "--master", cluster.master, "--output", "json", environment=environment)
    summary = json.loads(ran.stdout)
    assert summary["rows"] == TAXI_ROWS
    # Executors write each data file with one request, and report all their requests to the driver.
    assert summary["requests"]["calls"]["data"] == {"PutObject": summary["files"]}
    assert rows_of(feed, "b") == expected

    # In cluster mode, the driver runs on a worker, and has only the application jar.
    stage = feed.folder / "stage"
    stage.mkdir()
    sizes = {"spark.driver.memory": "700m", "spark.cores.max": "1", "spark.pyspark.python": str(cluster.python)}
    file = taxi_file(feed, "c", spark=on_cluster(**sizes))
    submitted = ("deploy", "submit", file, "--master", cluster.master, "--deploy-mode", "cluster", "--stage", stage)
    shown = lakefeed(*submitted, "--print", "--", "--once", environment=environment)
    assert "--deploy-mode cluster" in shown.stdout
    ran = lakefeed(*submitted, "--output", "json", "--", "--once", environment=environment)
    driver = json.loads(ran.stdout)["driver"]
    cluster.wait_for("the driver to finish", lambda: _finished(cluster, driver))
    assert rows_of(feed, "c") == expected
    # Other users of the machines can read command lines and settings, so these must not contain a secret.
    secrets = [SECRET, feed.environment["AWS_SECRET_ACCESS_KEY"]]
    for text in (shown.stdout, ran.stdout, ran.stderr, cluster.logs(), json.dumps(cluster.state())):
        assert not [secret for secret in secrets if secret in text]


def _finished(cluster: Standalone, driver: str) -> bool:
    found = next((each for each in cluster.state()["completeddrivers"] if each["id"] == driver), None)
    assert found is None or found["state"] == "FINISHED", cluster.logs()
    return found is not None


@pytest.mark.slow
def test_spark_fetches_an_application_jar_by_http(feed: Feed, cluster: Standalone) -> None:
    feed.create_topic(partitions=2)
    rows = [{"id": number, "zone": f"zone {number % 7}"} for number in range(200)]
    feed.send(feed.avro(rows))
    sizes = {"spark.driver.memory": "700m", "spark.cores.max": "1", "spark.pyspark.python": str(cluster.python)}
    file = feed.write_file(spark=on_cluster(**sizes))
    environment = {**feed.environment, "SPARK_AUTHENTICATE_SECRET": SECRET}
    shared = feed.folder / "files"
    shared.mkdir()
    lakefeed("deploy", "package", file, "--to", shared / "trips.jar", environment=environment)
    with files_over_http(shared) as address:
        submitted = ("deploy", "submit", file, "--master", cluster.master, "--application", f"{address}/trips.jar")
        # In cluster mode a worker downloads the jar, in client mode spark-submit on this machine does.
        mode = ("--deploy-mode", "cluster", "--output", "json", "--", "--once")
        ran = lakefeed(*submitted, *mode, environment=environment)
        driver = json.loads(ran.stdout)["driver"]
        cluster.wait_for("the driver to finish", lambda: _finished(cluster, driver))
        assert sorted(feed.rows(), key=lambda row: row["id"]) == rows
        more = [{"id": number, "zone": "more"} for number in range(200, 210)]
        feed.send(feed.avro(more))
        ran = lakefeed(*submitted, "--", "--once", environment=environment)
    assert sorted(feed.rows(), key=lambda row: row["id"]) == [*rows, *more]


@contextmanager
def files_over_http(folder: Path) -> Iterator[str]:
    """Serve the files of a folder by HTTP; yield the address."""
    handler = partial(SimpleHTTPRequestHandler, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()


@pytest.mark.slow
def test_the_spark_application_of_the_docs_lands_all_rows(feed: Feed, cluster: Standalone) -> None:
    feed.create_topic(partitions=2)
    rows = [{"id": number, "zone": f"zone {number % 7}"} for number in range(500)]
    feed.send(feed.avro(rows))
    file = feed.write_file(spark=on_cluster())
    page = (Path(__file__).parents[2] / "docs" / "deploy-with-spark-submit.md").read_text("utf-8")
    (program,) = [
        block for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if block.startswith("# app.py")
    ]
    (feed.folder / "app.py").write_text(program)
    environment = {**feed.environment, "SPARK_AUTHENTICATE_SECRET": SECRET}
    settings = lakefeed("deploy", "conf", file, "--master", cluster.master, environment=environment)
    assert SECRET not in settings.stdout
    (feed.folder / "spark.conf").write_text(settings.stdout)
    done = subprocess.run(
        [spark_submit(), "--properties-file", "spark.conf", "app.py", file],
        env={**os.environ, **environment, "PYSPARK_DRIVER_PYTHON": sys.executable},
        cwd=feed.folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "500 rows" in done.stdout
    assert sorted(feed.rows(), key=lambda row: row["id"]) == rows


def hits(*minutes: int) -> list[bytes]:
    """Return records with these times, in minutes after noon."""
    return [json.dumps({"at": f"2026-01-01T{12 + minute // 60}:{minute % 60:02}:00Z"}).encode() for minute in minutes]


@pytest.mark.slow
def test_executors_keep_state_and_report_their_requests_and_metrics_to_the_driver(
    feed: Feed, cluster: Standalone
) -> None:
    feed.create_topic(partitions=2)
    environment = {**feed.environment, "SPARK_AUTHENTICATE_SECRET": SECRET}
    metrics = feed.folder / "metrics"
    metrics.mkdir()
    sink = "spark.metrics.conf.driver.sink.csv"
    file = feed.write_file(
        decode={"json": {"schema_ddl": "at TIMESTAMP"}},
        transform={
            "sql": "SELECT window.start AS begins, count(*) AS hits "
            f"FROM `{feed.name}` GROUP BY window(at, '10 minutes')",
            "watermark": {"column": "at", "delay": "10 minutes"},
        },
        spark=on_cluster(
            **{
                f"{sink}.class": "org.apache.spark.metrics.sink.CsvSink",
                f"{sink}.directory": str(metrics),
                f"{sink}.period": "1",
            }
        ),
    )

    # Run spark-submit in client mode: the driver runs on this machine, from the application jar.
    feed.send(hits(*range(30), 60), partition=0)
    options = ("--once", "--output", "json")
    ran = lakefeed("deploy", "submit", file, "--master", cluster.master, "--", *options, environment=environment)
    # spark-submit also prints the driver's log lines on stdout.
    summary = json.loads(ran.stdout[ran.stdout.index("\n{") :])
    assert summary["records"] == 31
    # Only executors write the state, so the driver can count these requests only if the executors report them.
    assert summary["requests"]["calls"]["state"]["PutObject"] >= 2
    assert {row["begins"].minute: row["hits"] for row in feed.rows()} == {0: 10, 10: 10, 20: 10}

    # A new driver and new executors resume with this state.
    feed.send(hits(61, 62, 100), partition=1)
    ran = lakefeed("run", file, *options, "--master", cluster.master, environment=environment)
    assert json.loads(ran.stdout)["requests"]["calls"]["state"]["GetObject"] >= 1
    assert {(row["begins"].hour, row["hits"]) for row in feed.rows()} == {(12, 10), (13, 3)}
    read = [
        path.read_text().split(",")[-1] for path in metrics.glob(f"*.FeedMetrics.{feed.name}.records_read_total.csv")
    ]
    assert sorted(float(each) for each in read) == [3, 31]
    lakefeed("verify", file, environment=environment)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"spark.executor.memory": "100g"}, "the cluster has started no executor in 90 s"),
        ({"spark.authenticate.secret": ""}, "would get S3 keys and records over connections without authentication"),
        ({"spark.pyspark.python": "/nowhere/python3"}, "the executors have no /nowhere/python3"),
        ({"spark.pyspark.python": "OTHER"}, "the executors have Python 3.9, and the driver has Python 3."),
    ],
)
def test_a_cluster_that_cannot_run_the_feed_is_refused_at_the_start(
    feed: Feed, cluster: Standalone, settings: dict[str, str], message: str
) -> None:
    feed.create_topic(partitions=1)
    feed.send(feed.avro([{"id": 1, "zone": "one"}]))  # A run needs a registered schema.
    whole = {key: value for key, value in on_cluster(**settings).items() if value}
    if whole.get("spark.pyspark.python") == "OTHER":
        whole["spark.pyspark.python"] = str(pretend_version(feed.folder / "other"))
    environment = {**feed.environment, "SPARK_AUTHENTICATE_SECRET": SECRET}
    file = taxi_file(feed, "d", spark=whole)
    done = lakefeed("run", file, "--once", "--master", cluster.master, environment=environment, status=None)
    assert done.returncode in (1, 2), done.stderr
    assert message in done.stderr
